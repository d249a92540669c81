"""Reports about steps of the wall clock: tasks that must wait, and removals on hold."""

from collections.abc import Mapping

from store.daemon_values import set_meta
from supervisor.ipc.log_line import Log, stamp
from supervisor.ipc.plural import counted
from supervisor.scheduler.control.control_socket import Answer, Arguments, RequestEntry, done, operation
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.database.removal_clock import STATE, RemovalClock
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts

_LISTED = 20


class _TrustArguments(Arguments):
    by: str


class ClockReport:
    """Reports steps of the wall clock, and carries out ``ringward trust-clock``."""

    def __init__(
        self,
        committer: Committer,
        scheduled_starts: ScheduledStarts,
        units: Mapping[str, Unit],
        notifications: Notifications,
        removal_clock: RemovalClock,
        log: Log,
    ) -> None:
        self._committer = committer
        self._scheduled_starts = scheduled_starts
        self._units = units
        self._notifications = notifications
        self._clock = removal_clock
        self._log = log

    def start(self, *, first: bool) -> None:
        """Report the state of the clock when the daemon starts; `first`: no earlier scheduler has reported it."""
        if first:
            self._report_waiting_tasks()
        if first and self._clock.step_ms:
            self.report_doubt()

    def stepped(self, by_ms: int) -> None:
        """Report a step of the wall clock."""
        self._clock.compare_clocks()
        if by_ms < 0:
            self._report_waiting_tasks()

    def facts(self) -> dict[str, object]:
        """Return facts about the clock for the ``info`` operation."""
        silent = self._scheduled_starts.waiting_for_clock(self._units.values())
        return {
            "silent_task_count": len(silent),
            "silent_tasks": [{"name": name, "runs_again_at": at} for name, at in silent[:_LISTED]],
            "removals_held_until": self._clock.believed_at_ms,
        }

    @operation(_TrustArguments)
    def clock_trust(self, request: _TrustArguments, entry: RequestEntry) -> Procedure[Answer]:
        """Trust the wall clock as it is now set, also for removals."""
        self._log.info(f"{request.by} confirmed the wall clock; runs are removed by age again")
        self._clock.believe()
        change, state = self._committer.change(), self._clock.state()
        change.write(set_meta, STATE, state)
        entry.record(change)
        yield self._committer.stored_or_refused(change)
        return done()

    def _report_waiting_tasks(self) -> None:
        silent = self._scheduled_starts.waiting_for_clock(self._units.values())
        if silent:
            with self._committer.changing() as change:
                self._notifications.tasks_silent(silent, change)
            name, at = silent[0]
            tasks = counted(len(silent), "task")
            self._log.warning(
                f"the wall clock was set back; {tasks} will not run until it has caught up: {name} at {stamp(at)}"
            )

    def report_doubt(self) -> None:
        """Store that the wall clock is now doubted or trusted again; notify users of a doubt."""
        with self._committer.changing() as change:
            state, until = self._clock.state(), self._clock.believed_at_ms
            change.write(set_meta, STATE, state)
            if until is not None:
                self._notifications.clock_doubted(self._clock.step_ms, until, change)
                self._log.warning(f"the wall clock was set by days; nothing is removed by age before {stamp(until)}")
