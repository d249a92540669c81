"""Shutdown: tasks stop at once, services in reverse start order.

Services of one level stop together; the next level stops after they exit. The levels share the first half of
``shutdown_timeout``: a level that takes longer than its share no longer delays the next. So the last level has at least
the second half to stop. At the end of the timeout the root kills all remaining runs.

Queued runs and retries stay pending for the next daemon.

The root gives up a shutdown without progress. While changes are being stored, which takes long on a busy host, the
scheduler therefore reports every second that it works: an acknowledgement without runs, which every root knows.
"""

from collections.abc import Iterable, Mapping

from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.run_observer import StopRun
from supervisor.scheduler.services.service_controller import ServiceController
from supervisor.scheduler.services.start_order import stop_levels

_REPORT_MS = 1000


class Shutdown:
    """Stops the runs of tasks, then one level of services after the other."""

    def __init__(
        self,
        core: Core,
        root: RootConnection,
        live: Mapping[str, LiveRun],
        stop_run: StopRun,
        controller: ServiceController,
        timeout_ms: int,
    ) -> None:
        """`live` are all unfinished runs by id; shared, not copied."""
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._root = root
        self._live = live
        self._stop_run = stop_run
        self._controller = controller
        self._timeout_ms = timeout_ms
        self._stopping: list[Unit] = []
        self._levels: list[list[Unit]] = []
        self._last_level_at_s = 0.0
        """The latest time at which to stop the last level, on the monotonic clock."""

    def configure(self, timeout_ms: int) -> None:
        """Set ``shutdown_timeout``."""
        self._timeout_ms = timeout_ms

    def start(self, units: Iterable[Unit], change: Change) -> None:
        """Begin to stop all runs; from now on no run starts."""
        self._daemon.ending = True
        self._levels = stop_levels(units)
        self._last_level_at_s = self._loop.now_s() + self._timeout_ms / 2 / 1000
        later = {unit for level in self._levels for unit in level}
        for run in list(self._live.values()):
            if run.unit not in later:
                self._stop(run, change)
        self._next(change)
        self._loop.after(_REPORT_MS, self._report)

    def _report(self) -> None:
        if self._committer.storing and not self._committer.idle:
            self._root.send({"op": "ack", "runs": []})
        self._loop.after(_REPORT_MS, self._report)

    def go_on(self) -> None:
        """Stop the next level if the present one has exited; must be called after ends of runs are stored."""
        if self._levels and not any(unit.active for unit in self._stopping):
            self._advance()

    def _advance(self) -> None:
        with self._committer.changing() as change:
            self._next(change)

    def _next(self, change: Change) -> None:
        """Stop the next level with active runs."""
        while self._levels:
            level = self._stopping = self._levels.pop(0)
            for unit in level:
                self._controller.down(unit, change)
                for run in list(unit.active.values()):  # a reload may have removed the instance of a run
                    self._stop(run, change)
            if any(unit.active for unit in level):
                self._wait_for(level)
                return

    def _wait_for(self, level: list[Unit]) -> None:
        def out_of_patience() -> None:
            if self._stopping is level and self._levels:
                self._advance()

        left_ms = max(0.0, self._last_level_at_s - self._loop.now_s()) * 1000
        self._loop.after(left_ms / max(1, len(self._levels)), out_of_patience)

    def _stop(self, run: LiveRun, change: Change) -> None:
        if run.state in run_transitions.STARTED:
            self._stop_run(run, change, cause="shutdown")
