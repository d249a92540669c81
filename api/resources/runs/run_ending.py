"""Handler that explains why and how a run ended."""

import json
import signal

from msgspec import UNSET

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.resources.runs.runs import the_run
from api.schemas.known_times import known_rfc3339
from api.schemas.records import Line
from api.schemas.run_details import Ending
from api.streams import sse_encoding
from api.streams.ring_follower import unreadable
from api.streams.shared_feed import read_page
from api.worker_context import Context
from logring.errors import LogError
from logring.reader import LogReader
from store.database import Database
from store.runs.writes import Run, RunFilter, list_runs
from store.tasks import get_task

_LINES = 20
_PAGE_BYTES = 1 << 20
"""More than `_LINES` lines of the maximum length."""
_MOST_WAITING = 1000
_QUICK_MS = 1000
_MOST_BEFORE = 200
"""Number of earlier runs in which to look for the previous run of the same instance."""
_STDIN_HINT = (
    "The service exited with code 0 within a second, and so did its previous run. Programs that exit when standard "
    'input ends need stdin = "open".'
)


def _signal_name(number: int) -> str:
    """Return the name of a signal. signal(7) names most real-time signals relative to SIGRTMIN."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _retry_due(db: Database, run: Run) -> int | None:
    """Return when the retry of a run is due, or None if no retry is pending."""
    waiting = RunFilter(task=run.task_name, phases=("pending",), retries_only=True)
    found, _total = list_runs(db, waiting, "created_at", "desc", _MOST_WAITING, 0, now_ms=0)
    return next((one.due_at for one in found if one.retry_of_run_id == run.id), None)


def _ended_at_once(run: Run) -> bool:
    """Return whether a run succeeded with exit code 0 within a second."""
    if run.end_reason != "succeeded" or run.exit_code != 0 or run.started_at is None or run.ended_at is None:
        return False
    return run.ended_at - run.started_at < _QUICK_MS


def _hint(db: Database, run: Run) -> str | None:
    """Return the likely cause if a service repeatedly exits with code 0 right after its start, else None."""
    if not _ended_at_once(run):
        return None
    unit = get_task(db, run.task_name)
    if unit is None or unit.kind != "service" or json.loads(unit.definition).get("stdin") != "null":
        return None
    earlier = RunFilter(task=run.task_name, created_before=run.created_at)
    found, _total = list_runs(db, earlier, "created_at", "desc", _MOST_BEFORE, 0, now_ms=0)
    before = next((one for one in found if one.instance_index == run.instance_index and one.id < run.id), None)
    return _STDIN_HINT if before is not None and _ended_at_once(before) else None


def _last_lines(context: Context, run: Run) -> list[Line]:
    """Return the last lines of the log.

    An unreadable log is reported in the daemon's log only, because the rest of the answer is still useful.
    """

    def read() -> list[Line]:
        reader = LogReader(*context.hub.paths(run))
        try:
            head = reader.head()
            lines: list[Line] = []
            position = max(head.first_available, head.lines - _LINES)
            while position < head.lines:
                page = read_page(reader, position, _LINES, _PAGE_BYTES)
                lines += map(sse_encoding.line, page.lines)
                position = max(page.next, position + 1)
            return lines
        finally:
            reader.close()

    try:
        return context.files(read)
    except (LogError, OSError) as err:
        unreadable(run.id, err)
        return []


def get_ending(context: Context, call: Call) -> None:
    """Explain how a run ended."""
    run = the_run(context, call.path["runId"])
    if run.end_reason is None:
        raise ApiError(409, f"The run {run.id} has not ended")
    call.answer(
        Ending(
            reason=run.end_reason,
            exit_code=run.exit_code,
            signal=UNSET if run.signal is None else _signal_name(run.signal),
            core_dumped=UNSET if run.signal is None else run.core_dumped,
            oom_killed=True if run.oom_kills else UNSET,
            killed_leftovers=json.loads(run.leftovers) if run.leftovers else UNSET,
            requested_by=run.requested_by or UNSET,
            scheduled_for=known_rfc3339(run.scheduled_at),
            missed_count=run.missed_count or UNSET,
            retry_at=known_rfc3339(context.reads(_retry_due, run)),
            hint=context.reads(_hint, run) or UNSET,
            failure_line=UNSET if run.failure_line is None else run.failure_line,
            last_lines=_last_lines(context, run),
        )
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs/{runId}/ending",
        id="explainRunEnding",
        role=Role.VIEWER,
        summary="Get why and how a run ended, with the last lines of its log.",
        handler=get_ending,
        answers={200: json_of(Ending)},
        refusals=(404, 409, 422),
    ),
)
