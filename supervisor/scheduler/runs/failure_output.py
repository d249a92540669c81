"""Lines of output that make a run a failure (``failure_output``), as the watcher finds them.

It follows the output while the run goes on. When the run has ended, its verdict waits until the watcher has read
everything; a run that would have failed anyway, or has printed nothing, waits for nothing.
"""

from collections.abc import Callable
from typing import Any

from logring.paths import log_path, ring_path
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.ipc.probe_request import ProbeRequest
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.runs.end_reason import Line
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.services.health import Watcher

_PATIENCE_MS = 30_000
"""How long a verdict waits for the watcher."""

Then = Callable[[Line | None], None]


class _Search:
    def __init__(self) -> None:
        self.found = False
        """The watcher has said all that it will say."""
        self.line: Line | None = None
        """What matched."""
        self.then: Then | None = None
        self.timer: Timer | None = None


class Outputs:
    """Those of all runs whose definitions have ``failure_output``."""

    def __init__(self, loop: Loop, boot: Boot, watcher: Watcher, log: Log) -> None:
        self._loop = loop
        self._boot = boot
        self._watcher = watcher
        self._log = log
        self._searches: dict[str, _Search] = {}

    def watch(self, run: LiveRun) -> None:
        """Follow the output of a run that has begun, if it has to be."""
        pattern = run.definition.failure_output
        if pattern is None or run.id in self._searches:
            return
        search = self._searches[run.id] = _Search()
        request = ProbeRequest(
            key=_key(run.id),
            kind="output",
            target=pattern,
            ring=ring_path(self._boot.runtime_dir, run.id),
            file=log_path(self._boot.data_dir, run.unit.name, run.id),
        )
        self._watcher.watch(request, lambda answer: self._on_answer(search, answer))

    def ask(self, run: LiveRun, then: Then) -> None:
        """Call `then`, once, with the line of a run that has ended by which it failed, or None; perhaps at once."""
        self.watch(run)
        search = self._searches[run.id]
        search.then = then
        if search.found:
            self._answer(search)
        else:
            search.timer = self._loop.after(_PATIENCE_MS, lambda: self._out_of_patience(run, search))

    def forget(self, run_id: str) -> None:
        """A run has its verdict."""
        search = self._searches.pop(run_id, None)
        if search is not None:
            self._watcher.forget(_key(run_id))
            if search.timer is not None:
                search.timer.cancel()

    def _on_answer(self, search: _Search, answer: dict[str, Any]) -> None:
        search.found = True
        if answer["op"] == "matched":
            search.line = Line(answer["line"], answer["why"])
        self._answer(search)

    def _out_of_patience(self, run: LiveRun, search: _Search) -> None:
        self._log.warning(f"{run.unit.name} {run.id}: its output was not searched for failure_output in time")
        self._answer(search)

    @staticmethod
    def _answer(search: _Search) -> None:
        then, search.then = search.then, None
        if then is not None:
            then(search.line)


def _key(run_id: str) -> str:
    return f"{run_id}/output"
