"""Handlers that explain why and how runs ended."""

import json
import re
import signal
from collections.abc import Callable

from msgspec import UNSET

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import RUN_ID, instant, integer, several
from api.resources.runs.runs import approval_shown, the_run
from api.schemas import run_view
from api.schemas.records import Line
from api.schemas.run_details import Cause, Ending, Failure, Failures
from api.schemas.wire_times import known_rfc3339
from api.streams import sse_encoding
from api.streams.ring_follower import unreadable
from api.streams.shared_feed import read_page
from api.worker_context import Context
from logring.errors import LogError
from logring.reader import LogReader
from store.database import Database
from store.runs.bulk import RunSelection, find_newest
from store.runs.filter import RunFilter
from store.runs.flows import get_flow
from store.runs.phases import FAILURES
from store.runs.run_pages import list_runs
from store.runs.runs_by_unit import runs_by_id
from store.runs.writes import Run, approvals_of, get_run
from store.tasks import get_task

_LINES = 100
"""Number of lines at the end of the log that are searched for the cause."""
_PAGE_BYTES = 1 << 20
_MOST_CHARACTERS = 300
_MOST_RUNS = 50
_CONTROL = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # OSC
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"  # CSI
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)


def last_lines(context: Context, run: Run, count: int) -> list[Line]:
    """Return the last lines of the log; empty if it cannot be read.

    An unreadable log is only reported in the daemon's log, because the rest of the response is still useful.
    """

    def read(reader: LogReader) -> list[Line]:
        head = reader.head()
        return _from(reader, max(head.first_available, head.lines - count), head.lines, count)

    return _lines(context, run, read)


def _from(reader: LogReader, position: int, end: int, count: int) -> list[Line]:
    lines: list[Line] = []
    while position < end:
        page = read_page(reader, position, count, _PAGE_BYTES)
        lines += map(sse_encoding.line, page.lines)
        position = max(page.next, position + 1)
    return lines


def _lines(context: Context, run: Run, read: Callable[[LogReader], list[Line]]) -> list[Line]:
    def opened() -> list[Line]:
        reader = LogReader(*context.feeds.paths(run))
        try:
            return read(reader)
        finally:
            reader.close()

    try:
        return context.files(opened)
    except (LogError, OSError) as err:
        unreadable(run.id, err)
        return []


def cause_of(context: Context, run: Run) -> Cause | None:
    """Return the line that explains why a run failed; None if it did not fail, or has no such line.

    This is the line that made the run fail (``failure_output``), if there is one. For a run that could not start, it is
    the daemon's message; otherwise the last line of stderr or, without one, of stdout.
    """
    if run.end_reason not in FAILURES:
        return None
    number = run.failure_line
    if number is not None:
        near = _lines(context, run, lambda reader: _from(reader, number, number + 1, 1))
        return next((_cause(line) for line in near if line.n == number), None)
    lines = last_lines(context, run, _LINES)
    order = ("system",) if run.end_reason == "start_failed" else ("stderr", "stdout")
    for stream in order:
        for line in reversed(lines):
            if line.stream == stream and (cause := _cause(line)).text:
                return cause
    return None


def _cause(line: Line) -> Cause:
    text = " ".join(_CONTROL.sub("", line.text).split())
    return Cause(line.n, line.stream, text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…")


def _newest_of_each(db: Database, run_filter: RunFilter, limit: int) -> tuple[list[Run], int]:
    newest = find_newest(db, RunSelection(match_all=True, filter=run_filter))
    runs = sorted(runs_by_id(db, newest.values()), key=lambda run: (run.created_at, run.id), reverse=True)
    return runs[:limit], len(runs)


@Operation(
    "GET",
    "/api/runs/failures",
    role=Role.VIEWER,
    scoped=True,
    query=(
        several("runs", "Comma-separated ids: only these runs, if they failed.", RUN_ID, _MOST_RUNS),
        instant("since", "Only runs created at this time or after.", up=True),
        integer("limit", "Maximum number of runs, without `runs`.", 20, minimum=1, maximum=_MOST_RUNS),
    ),
    answers={200: json_of(Failures)},
)
def list_failures(context: Context, call: Call) -> None:
    """List the newest failed run of each task, or certain failed runs, each with its cause."""
    ids = call.query["runs"]
    if ids:
        some = context.reads(runs_by_id, ids)
        runs = [run for run in some if run.deleted_at is None and call.sees(run.task_name)]
        runs = sorted((run for run in runs if run.end_reason in FAILURES), key=lambda run: run.created_at, reverse=True)
        total = len(runs)
    else:
        run_filter = RunFilter(tasks=call.tasks, reasons=FAILURES, created_after=call.query["since"])
        runs, total = context.pages(_newest_of_each, run_filter, call.query["limit"])
    items = [Failure(run_view.camel(run), cause_of(context, run) or UNSET) for run in runs]
    call.answer(Failures(items=items, total=total))


_LAST_LINES = 20
_MOST_WAITING = 1000
_QUICK_MS = 1000
_MOST_BEFORE = 200
"""Number of earlier runs among which the previous run of the same instance is searched."""
_STDIN_HINT = (
    "The service exited with code 0 within a second, and so did its previous run. Programs that exit when standard "
    'input ends need stdin = "open".'
)


def _signal_name(number: int) -> str:
    """Return the name of a signal. Real-time signals are named relative to SIGRTMIN, as in signal(7)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _retry_due(db: Database, run: Run) -> int | None:
    """Return the time at which the retry of a run is due, in ms; None if no retry is pending."""
    waiting = RunFilter(task=run.task_name, phases=("pending",), retries_only=True)
    runs, _total = list_runs(db, waiting, limit=_MOST_WAITING, now_ms=0)
    return next((retry.due_at for retry in runs if retry.retry_of_run_id == run.id), None)


def _ended_at_once(run: Run) -> bool:
    """Return whether a run succeeded with exit code 0 within a second."""
    if run.end_reason != "succeeded" or run.exit_code != 0 or run.started_at is None or run.ended_at is None:
        return False
    return run.ended_at - run.started_at < _QUICK_MS


def _hint(db: Database, run: Run) -> str | None:
    """Return a hint at the likely cause if a service repeatedly exits with code 0 right after its start, else None."""
    if not _ended_at_once(run):
        return None
    unit = get_task(db, run.task_name)
    if unit is None or unit.kind != "service" or json.loads(unit.definition).get("stdin") != "null":
        return None
    earlier = RunFilter(task=run.task_name, created_before=run.created_at)
    runs, _total = list_runs(db, earlier, limit=_MOST_BEFORE, now_ms=0)
    before = next(
        (
            earlier_run
            for earlier_run in runs
            if earlier_run.instance_index == run.instance_index and earlier_run.id < run.id
        ),
        None,
    )
    return _STDIN_HINT if before is not None and _ended_at_once(before) else None


@Operation("GET", "/api/runs/{runId}/ending", role=Role.VIEWER, answers={200: json_of(Ending)}, refusals=(404, 409))
def explain_run_ending(context: Context, call: Call) -> None:
    """Explain why and how a run ended, with the last lines of its log."""
    run = the_run(context, call.path["runId"])
    if run.end_reason is None:
        raise ApiError(409, f"The run {run.id} has not ended")
    found = context.reads(get_flow, run.id)
    flow, steps = (None, []) if found is None else found
    failed_run = None if flow is None or flow.failed_run_id is None else context.reads(get_run, flow.failed_run_id)
    output = run if failed_run is None else failed_run
    lines = last_lines(context, output, _LAST_LINES)
    approval = context.reads(approvals_of, [run.id]).get(run.id)
    call.answer(
        Ending(
            reason=run.end_reason,
            failed_step=UNSET if flow is None else flow.failed_step or UNSET,
            failed_run_id=UNSET if failed_run is None else failed_run.id,
            passed_over=[step.step for step in steps if step.decision == "passed_over"] or UNSET,
            end_cause=run.cause or UNSET,
            exit_code=run.exit_code,
            signal=UNSET if run.signal is None else _signal_name(run.signal),
            core_dumped=UNSET if run.signal is None else run.core_dumped,
            oom_killed=True if run.oom_kills else UNSET,
            killed_leftovers=json.loads(run.leftovers) if run.leftovers else UNSET,
            approval=UNSET if approval is None else approval_shown(approval),
            started_by=run.requested_by or UNSET,
            requested_by=run.stopped_by or run.requested_by or UNSET,
            scheduled_for=known_rfc3339(run.scheduled_at),
            missed_count=run.missed_count or UNSET,
            retry_at=known_rfc3339(context.reads(_retry_due, run)),
            hint=context.reads(_hint, run) or UNSET,
            failure_line=UNSET if run.failure_line is None else run.failure_line,
            cause=cause_of(context, output) or UNSET,
            last_lines=lines,
        )
    )
