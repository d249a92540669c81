"""Search of output for a line that makes a run fail (``failure_output``).

The watcher process searches the output while the run is active. After the run exits, its verdict waits until the
watcher has read the whole log. A run that failed anyway, or that printed nothing, does not wait.

Without google-re2, a match can take too long. A run whose output cannot be searched fails, because it must not pass for
a success; its log says why, if the run is still active.
"""

from collections.abc import Callable
from typing import Any

from logring.log_paths import log_path, ring_path
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.ipc.probe_request import ProbeRequest
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.end_reason import Line, OutputResult
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_observer import OutputSearch
from supervisor.scheduler.services.service_health import Watcher

_PATIENCE_MS = 30_000
"""How long a verdict waits for the watcher."""

Then = Callable[[OutputResult], None]


class _Search:
    def __init__(self) -> None:
        self.complete = False
        """Whether the watcher found a match or has searched the whole output."""
        self.result = OutputResult()
        self.then: Then | None = None
        self.timer: Timer | None = None


class OutputSearches(OutputSearch):
    """Searches the output of runs whose definitions set ``failure_output``."""

    def __init__(self, loop: Loop, boot: DaemonSettings, watcher: Watcher, root: RootConnection, log: Log) -> None:
        self._loop = loop
        self._boot = boot
        self._watcher = watcher
        self._root = root
        self._log = log
        self._searches: dict[str, _Search] = {}

    def watch(self, run: LiveRun) -> None:
        """Start to search the output of a run if its definition sets ``failure_output``."""
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
        self._watcher.watch(request, lambda answer: self._on_answer(run, search, answer))

    def ask(self, run: LiveRun, then: Then) -> None:
        """Call `then` once with the result for an ended run; at once if the search is complete."""
        self.watch(run)
        search = self._searches[run.id]
        search.then = then
        if search.complete:
            self._answer(search)
        else:
            search.timer = self._loop.after(_PATIENCE_MS, lambda: self._out_of_patience(run, search))

    def forget(self, run_id: str) -> None:
        """Stop the search; the run has its verdict."""
        search = self._searches.pop(run_id, None)
        if search is not None:
            self._watcher.forget(_key(run_id))
            if search.timer is not None:
                search.timer.cancel()

    def _on_answer(self, run: LiveRun, search: _Search, answer: dict[str, Any]) -> None:
        search.complete = True
        if answer["op"] == "matched":
            search.result = OutputResult(Line(answer["line"], answer["why"]))
        elif answer["op"] == "failed":
            failure = f"its output cannot be searched for failure_output: {answer['why']}"
            search.result = OutputResult(failure=failure)
            self._root.send({"op": "note", "run": run.id, "text": f"the run counts as failed: {failure}"})
        self._answer(search)

    def _out_of_patience(self, run: LiveRun, search: _Search) -> None:
        self._log.warning(f"{run.unit.name} {run.id}: the search for failure_output in its output timed out")
        self._answer(search)

    @staticmethod
    def _answer(search: _Search) -> None:
        then, search.then = search.then, None
        if then is not None:
            then(search.result)


def _key(run_id: str) -> str:
    return f"{run_id}/output"
