"""A thread that reads and watches the files of the configuration.

In the loop, a hung network file system, or the validation of ten thousand schedules, would delay timers and runs.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from supervisor.config.files.stamps import is_current
from supervisor.config.model import Config
from supervisor.host.clock import Clock
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Wait

_POLL_S = 2.0


class _FileJob(NamedTuple):
    function: Callable[[], object]
    done: Callable[[Any], None]


class ConfigFiles:
    """Carries out one piece of work at a time; while idle, checks every two seconds whether a file changed.

    Args:
        config: the configuration whose files are watched.
        stale: whether a change of the files is already known.
        on_stale: called in the loop when a file has changed, once for each configuration.
        clock: the clock of the thread.
    """

    def __init__(
        self, loop: Loop, config: Config, *, stale: bool, on_stale: Callable[[], None], clock: Clock | None = None
    ) -> None:
        self._loop = loop
        self._config = config
        self._stale = stale
        self._on_stale = on_stale
        self._clock = clock or Clock()
        self._check_at_s = self._clock.monotonic_s() + _POLL_S
        self._jobs: SimpleQueue[_FileJob] = SimpleQueue()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="configuration", daemon=True).start()

    def work(self, function: Callable[[], object]) -> Wait:
        """Call `function` in the thread; the result of the wait is that of the function, or its exception."""
        return lambda waiter: self._jobs.put(_FileJob(function, waiter.resume))

    def follow(self, config: Config) -> None:
        """Watch the files of a configuration that was just read."""
        self._config = config
        self._stale = False

    def _run(self) -> None:
        while True:
            self.round()

    def round(self) -> None:
        """Wait for work until the next check of the files, and do it."""
        with suppress(Empty):
            self._carry_out(self._clock.take(self._jobs, self._check_at_s))
        if self._clock.monotonic_s() >= self._check_at_s:
            self._check(self._config)
            self._check_at_s = self._clock.monotonic_s() + _POLL_S

    def _carry_out(self, job: _FileJob) -> None:
        result: object
        try:
            result = job.function()
        except Exception as err:  # noqa: BLE001 - each error of the function is its result
            result = err
        self._loop.call_from_thread(partial(job.done, result))

    def _check(self, config: Config) -> None:
        if not self._stale and not is_current(config):
            self._loop.call_from_thread(lambda: self._changed(config))

    def _changed(self, config: Config) -> None:
        if config is self._config and not self._stale:  # no reload took place meanwhile
            self._stale = True
            self._on_stale()
