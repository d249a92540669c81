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


class _Case:
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
        self._cases: dict[str, _Case] = {}

    def watch(self, run: LiveRun) -> None:
        """Follow the output of a run that has begun, if it has to be."""
        pattern = run.definition.failure_output
        if pattern is None or run.id in self._cases:
            return
        case = self._cases[run.id] = _Case()
        request = ProbeRequest(
            key=_key(run.id),
            kind="output",
            target=pattern,
            ring=ring_path(self._boot.runtime_dir, run.id),
            file=log_path(self._boot.data_dir, run.unit.name, run.id),
        )
        self._watcher.watch(request, lambda answer: self._on_answer(case, answer))

    def ask(self, run: LiveRun, then: Then) -> None:
        """Call `then`, once, with the line of a run that has ended by which it failed, or None; perhaps at once."""
        self.watch(run)
        case = self._cases[run.id]
        case.then = then
        if case.found:
            self._answer(case)
        else:
            case.timer = self._loop.after(_PATIENCE_MS, lambda: self._out_of_patience(run, case))

    def forget(self, run_id: str) -> None:
        """A run has its verdict."""
        case = self._cases.pop(run_id, None)
        if case is not None:
            self._watcher.forget(_key(run_id))
            if case.timer is not None:
                case.timer.cancel()

    def _on_answer(self, case: _Case, answer: dict[str, Any]) -> None:
        case.found = True
        if answer["op"] == "matched":
            case.line = Line(answer["line"], answer["why"])
        self._answer(case)

    def _out_of_patience(self, run: LiveRun, case: _Case) -> None:
        self._log.warning(f"{run.unit.name} {run.id}: its output was not searched for failure_output in time")
        self._answer(case)

    @staticmethod
    def _answer(case: _Case) -> None:
        then, case.then = case.then, None
        if then is not None:
            then(case.line)


def _key(run_id: str) -> str:
    return f"{run_id}/output"
