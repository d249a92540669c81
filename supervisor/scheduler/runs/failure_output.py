"""Search of output for a line that makes a run fail (``failure_output``).

The watcher process searches the output while the run is active. After the run exits, its verdict waits until the
watcher has read the whole log. A run that failed anyway, or that printed nothing, does not wait.
"""

from functools import partial

from logring.log_paths import log_path, ring_path
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.ipc.probe_request import LineMatched, NothingMatched, ProbeRequest, RequestFailed
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.procedures import Wait, Waiter
from supervisor.scheduler.runs.end_reason import Line
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_observer import OutputSearch
from supervisor.scheduler.services.watcher_client import WatcherClient

_PATIENCE_MS = 30_000
"""How long a verdict waits for the watcher."""


class _OutputSearch:
    def __init__(self) -> None:
        self.complete = False
        """Whether the watcher found a match or has searched the whole output."""
        self.line: Line | None = None
        self.waiter: Waiter | None = None
        """The end of the run, if it waits for the result."""
        self.timer: Timer | None = None


class OutputSearches(OutputSearch):
    """Searches the output of runs whose definitions set ``failure_output``."""

    def __init__(self, loop: Loop, settings: DaemonSettings, watcher: WatcherClient, log: Log) -> None:
        self._loop = loop
        self._settings = settings
        self._watcher = watcher
        self._log = log
        self._searches: dict[str, _OutputSearch] = {}

    def watch(self, run: LiveRun) -> None:
        """Start to search the output of a run if its definition sets ``failure_output``."""
        pattern = run.definition.failure_output
        if pattern is None or run.id in self._searches:
            return
        search = self._searches[run.id] = _OutputSearch()
        request = ProbeRequest(
            key=_key(run.id),
            kind="output",
            target=pattern,
            ring=ring_path(self._settings.runtime_dir, run.id),
            file=log_path(self._settings.data_dir, run.unit.name, run.id),
        )
        self._watcher.watch(request, lambda answer: self._on_answer(search, answer))

    def line_in(self, run: LiveRun) -> Wait:
        """Wait for the search in the output of an ended run; the result is the matching line, or None."""
        return partial(self._ask, run)

    def _ask(self, run: LiveRun, waiter: Waiter) -> None:
        self.watch(run)
        search = self._searches[run.id]
        search.waiter = waiter
        if search.complete:
            self._answer(search)
        else:
            search.timer = self._loop.after(_PATIENCE_MS, self._out_of_patience, run, search)

    def forget(self, run_id: str) -> None:
        """Stop the search; the run has its verdict."""
        search = self._searches.pop(run_id, None)
        if search is not None:
            self._watcher.forget(_key(run_id))
            if search.timer is not None:
                search.timer.cancel()
            if search.waiter is not None:
                search.waiter.close()

    def _on_answer(self, search: _OutputSearch, answer: LineMatched | NothingMatched | RequestFailed) -> None:
        search.complete = True
        if isinstance(answer, LineMatched):
            search.line = Line(answer.line, answer.why)
        self._answer(search)

    def _out_of_patience(self, run: LiveRun, search: _OutputSearch) -> None:
        self._log.warning(f"{run.unit.name} {run.id}: the search for failure_output in its output timed out")
        self._answer(search)

    @staticmethod
    def _answer(search: _OutputSearch) -> None:
        waiter, search.waiter = search.waiter, None
        if waiter is not None:
            waiter.resume(search.line)


def _key(run_id: str) -> str:
    return f"{run_id}/output"
