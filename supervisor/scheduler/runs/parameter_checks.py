"""Checks of parameter values: at once with google-re2, otherwise in a thread that waits for a matching process.

Without google-re2, a pattern may take a second to match a value, and the loop must not wait for it.
"""

import threading
from collections.abc import Callable, Collection
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from logring.regex import re2_module
from supervisor.config.model import Service, Task
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.runs.run_parameters import InvalidParameter, InvalidParameters

T = TypeVar("T")
Then = Callable[[Any], None]


def must_wait(definition: Task | Service, names: Collection[str]) -> bool:
    """Return whether a check of the values of these parameters waits for a matching process."""
    if not isinstance(definition, Task):
        return False
    # The engine is asked for last, because asking loads it.
    return any(param.pattern is not None and param.name in names for param in definition.params) and not re2_module()


class ParameterChecks:
    """Carries out checks. The thread starts with the first check that must wait."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._checks: SimpleQueue[tuple[Callable[[], object], Then]] = SimpleQueue()
        self._started = False

    def call(self, check: Callable[[], T], then: Callable[[T | InvalidParameters], None], *, waits: bool) -> None:
        """Call `then` with the result of `check`, or with its InvalidParameters.

        Args:
            check: the check.
            then: receives the result: at once, or from the loop if the check waits.
            waits: whether the check waits for a matching process (`must_wait`).
        """
        if not waits:
            then(_result(check))
            return
        if not self._started:
            try:
                threading.Thread(target=self._run, name="parameters", daemon=True).start()
            except RuntimeError:  # pthread_create(3) failed, EAGAIN: too many threads
                then(InvalidParameters([InvalidParameter("", "cannot be checked: the limit of threads is reached")]))
                return
            self._started = True
        self._checks.put((check, then))

    def _run(self) -> None:
        while True:
            check, then = self._checks.get()
            self._loop.call_from_thread(partial(then, _result(check)))


def _result(check: Callable[[], T]) -> T | InvalidParameters:
    try:
        return check()
    except InvalidParameters as err:
        return err
