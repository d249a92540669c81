"""Records of runs that end when they are created."""

from functools import partial

from store.database import Database
from store.runs.writes import Run, extend_refused, insert_run
from supervisor.ipc.log_line import Log
from supervisor.scheduler.database.commits import Change, Events
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.end_reason import UNKNOWN_EXIT_CODE
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_rows import event_body, refused_row
from supervisor.scheduler.runs.run_transitions import State


class RefusedRuns:
    """Stores and announces them."""

    def __init__(self, log: Log, notifications: Notifications) -> None:
        self._log = log
        self._notifications = notifications

    def record(
        self,
        run: LiveRun,
        reason: str,
        change: Change,
        *,
        missed_count: int | None = None,
        cause: str | None = None,
        by: str | None = None,
    ) -> None:
        """Store a run that ends when it is created; `by` is the daemon's reason in words."""
        run.state = State.ENDED
        stands_for = f", records {missed_count} missed times" if missed_count else ""
        self._log.warning(f"{run.unit.name} {run.id} ({run.trigger}): {reason}{stands_for}")
        row = refused_row(run, reason, missed_count=missed_count, cause=cause, stopped_by=by)
        change.write(insert_run, row)
        self._notifications.run_refused(run, reason, change, missed_count, cause)
        change.announce("run.created", event_body(run, "ended", endReason=reason))
        change.announce("run.ended", event_body(run, "ended", endReason=reason, exitCode=UNKNOWN_EXIT_CODE))

    def record_with_others(
        self, run: LiveRun, cause: str, change: Change, period: tuple[int, int], *, count: int, by: str
    ) -> None:
        """Store instants that were skipped for a cause: one record for all that their task has within `period`.

        Args:
            run: the record, for the newest of the instants.
            cause: why they were skipped.
            change: the change that they are part of.
            period: a time, and the time before which the period ends, in milliseconds since the epoch.
            count: number of the instants.
            by: the reason in words.
        """
        run.state = State.ENDED
        row = refused_row(run, "skipped", missed_count=count, cause=cause, stopped_by=by)
        body = event_body(run, "ended", endReason="skipped")
        events: Events = [("run.created", body), ("run.ended", {**body, "exitCode": UNKNOWN_EXIT_CODE})]
        change.announce_result(partial(_extend_or_insert, row, period, events))
        self._log.info(f"{run.unit.name}: not run ({by})")


def _extend_or_insert(row: Run, period: tuple[int, int], events: Events, db: Database) -> Events:
    """Store a record, or extend an earlier one; return `events` if it is a new one."""
    if extend_refused(db, row, *period):
        return []
    insert_run(db, row)
    return events
