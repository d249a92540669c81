"""Handlers for runs: lists, deleted and single runs, their resources; stopping, approving and deleting runs."""

import contextlib
import pwd
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import (
    TASK_NAME,
    QueryParameter,
    choice,
    clamped,
    flag,
    instant,
    integer,
    several,
    statuses,
    text,
)
from api.resources.daemon import META_KEY as INFO_KEY
from api.schemas import records as schemas
from api.schemas import run_view
from api.schemas.records import AnsweredApproval, ApprovalBody, Holder, RunDefinition, RunDetails, WaitingFor
from api.schemas.run_details import (
    AllResources,
    DeletedRun,
    DeletedRuns,
    Resources,
    ResourceSample,
    RunningResources,
)
from api.schemas.task_view import definition_keys
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.worker_context import Context
from logring.errors import LogError
from logring.reader import LogReader
from store import tasks as store_tasks
from store.daemon_values import get_meta
from store.database import Database
from store.errors import StoreError
from store.runs import run_pages
from store.runs import samples as run_samples
from store.runs import summary as run_summary
from store.runs import writes as store_runs
from store.runs.definitions import get_definition
from store.runs.deleted import list_deleted
from store.runs.filter import RunFilter
from store.runs.phases import DUE_KINDS
from store.runs.run_pages import Sort, SortField
from store.runs.samples import Point, Usage
from store.runs.writes import Run, approvals_of, unfinished_runs

NAMING_OF_ONE = choice(
    "naming",
    "camel leaves out the snake_case names, which the response has by default. snake leaves out the camelCase names;"
    " the response is then a RunSnakeWithParams.",
    ("camel",),
    others=("snake",),
)
NAMING = choice("naming", "Naming of the runs' fields; default: as documented here.", ("camel", "snake"))

# Name in convention A (camelCase), name in convention B (snake_case), and the store's column.
_SORTS: tuple[tuple[str, str, SortField], ...] = (
    ("taskName", "task_name", "task_name"),
    ("status", "status", "status"),
    ("startedAt", "start_at", "start_at"),
    ("exitCode", "exit_code", "exit_code"),
    ("duration", "duration", "duration"),
    ("createdAt", "created_at", "created_at"),
)
_SORT_COLUMN: dict[str, SortField] = {name: column for camel, snake, column in _SORTS for name in (camel, snake)}


def list_params(*, camel: bool) -> tuple[QueryParameter, ...]:
    """Return the parameters of a list of runs, for paging, filters, order and naming, in the names of a convention."""

    def names(in_camel: str, in_snake: str) -> dict[str, Any]:
        return (
            {"name": in_camel, "aliases": (in_snake,)} if camel else {"name": in_snake, "aliases": (in_camel,)}
        )  # fmt: skip

    sorts = (tuple(sort[0] for sort in _SORTS), tuple(sort[1] for sort in _SORTS))
    return (
        integer("limit", "Page size.", 50, minimum=1, maximum=1000),
        integer("offset", "Number of matching runs to skip.", 0, minimum=0),
        statuses("status", "Comma-separated phases and end reasons; a run matches any of them."),
        text(**names("taskName", "task_name"), description="Only this task's runs."),
        choice(
            **names("triggeredBy", "triggered_by"),
            description="Only runs with this trigger.",
            values=schemas.TRIGGERS,
            or_empty=True,
        ),
        instant(**names("createdAfter", "created_after"), description="Created at this time or after.", up=True),
        instant(**names("createdBefore", "created_before"), description="Created at this time or before.", up=False),
        clamped(**names("exitCodeMin", "exit_code_min"), description="Exit code at least this."),
        clamped(**names("exitCodeMax", "exit_code_max"), description="Exit code at most this."),
        flag(**names("retriesOnly", "retries_only"), description="Only retries."),
        text(**names("flowRunId", "flow_run_id"), description="Only runs of the steps of this run of a flow."),
        choice(
            **names("sortField", "sort_field"),
            description="Sort key; default: createdAt.",
            values=sorts[0] if camel else sorts[1],
            others=sorts[1] if camel else sorts[0],
            or_empty=True,
        ),
        choice(
            **names("sortDirection", "sort_direction"),
            description="Sort order; default: desc.",
            values=("asc", "desc"),
            or_empty=True,
        ),
        text("search", "Part of the task's name or of the run's id; case-insensitive."),
        NAMING,
        flag(
            "extended",
            "Add `details`: who requested each run, its slots, and why it waits, by id of the run.",
        ),
    )


def filter_of(call: Call, *, camel: bool, folded: bool, task: str | None) -> RunFilter:
    """Return the filter of a list.

    Args:
        call: The request.
        camel: Whether the parameters carry the names of convention A.
        folded: Whether a status or trigger selects every run that the list shows with that value.
        task: Only this task's runs; None for all tasks.
    """
    query = call.query

    def value(in_camel: str, in_snake: str) -> Any:
        return query[in_camel if camel else in_snake]

    phases, reasons = run_view.split_status(query["status"], folded=folded)
    return RunFilter(
        tasks=call.tasks,
        task=task,
        task_name=value("taskName", "task_name"),
        phases=phases,
        reasons=reasons,
        triggers=run_view.split_trigger(value("triggeredBy", "triggered_by"), folded=folded),
        created_after=value("createdAfter", "created_after"),
        created_before=value("createdBefore", "created_before"),
        exit_code_min=value("exitCodeMin", "exit_code_min"),
        exit_code_max=value("exitCodeMax", "exit_code_max"),
        retries_only=bool(value("retriesOnly", "retries_only")),
        flow_run_id=value("flowRunId", "flow_run_id"),
        search=query["search"] or "",
    )


def _page(context: Context, call: Call, *, camel: bool, folded: bool, task: str | None) -> tuple[list[Run], int]:
    query = call.query
    sort = query["sortField" if camel else "sort_field"]
    snake = (query["naming"] or ("camel" if camel else "snake")) == "snake"
    return context.pages(
        run_pages.list_runs,
        filter_of(call, camel=camel, folded=folded, task=task),
        Sort(
            _SORT_COLUMN[sort or "createdAt"],
            query["sortDirection" if camel else "sort_direction"] or "desc",
            run_view.SHOWN_ALIKE if snake else {},
        ),
        query["limit"],
        query["offset"],
        now_ms=time.time_ns() // 1_000_000,
    )


@Operation(
    "GET",
    "/api/runs",
    role=Role.VIEWER,
    scoped=True,
    query=list_params(camel=False),
    answers={200: json_of((schemas.Runs, schemas.RunsCamel))},
)
def list_runs(context: Context, call: Call) -> None:
    """List all runs."""
    camel = call.query["naming"] == "camel"
    runs, total = _page(context, call, camel=False, folded=not camel, task=None)
    details = details_of(context, call, runs) if call.query["extended"] else UNSET
    if camel:
        call.answer(schemas.RunsCamel(runs=[run_view.camel(run) for run in runs], total=total, details=details))
    else:
        call.answer(schemas.Runs(runs=[run_view.snake(run) for run in runs], total=total, details=details))


@Operation(
    "GET",
    "/api/tasks/{taskName}/runs",
    role=Role.VIEWER,
    query=list_params(camel=True),
    answers={200: json_of((schemas.TaskRuns, schemas.TaskRunsSnake))},
    refusals=(404,),
)
def list_task_runs(context: Context, call: Call) -> None:
    """List the runs of a task.

    Filters are exact in either naming.
    """
    name = call.path["taskName"]
    runs, total = _page(context, call, camel=True, folded=False, task=name)
    if not total and not context.reads(unit_exists, name):
        raise ApiError(404, f'No task named "{name}", and no runs of one')
    details = details_of(context, call, runs) if call.query["extended"] else UNSET
    if call.query["naming"] == "snake":
        items = [run_view.snake_with_params(run) for run in runs]
        call.answer(schemas.TaskRunsSnake(items=items, total=total, details=details))
    else:
        call.answer(schemas.TaskRuns(items=[run_view.camel(run) for run in runs], total=total, details=details))


_MOST_TASKS = 100
_MOST_NEWEST = 50


def _newest(db: Database, names: list[str], limit: int) -> list[tuple[str, list[Run]]]:
    pages = []
    for name in names:
        page, _total = run_pages.list_runs(db, RunFilter(task=name), limit=limit, now_ms=0)
        if page or unit_exists(db, name):
            pages.append((name, page))
    return pages


@Operation(
    "GET",
    "/api/runs/newest",
    role=Role.VIEWER,
    scoped=True,
    query=(
        several("tasks", "Comma-separated names of tasks and services.", TASK_NAME, _MOST_TASKS),
        integer("limit", "Maximum number of runs of each.", 20, minimum=1, maximum=_MOST_NEWEST),
    ),
    answers={200: json_of(schemas.NewestRuns)},
)
def list_newest_runs(context: Context, call: Call) -> None:
    """List the newest runs of each of some tasks."""
    names = [name for name in call.query["tasks"] if call.sees(name)]
    newest = context.pages(_newest, names, call.query["limit"])
    items = [schemas.NewestOfTask(task_name=name, runs=[run_view.camel(run) for run in runs]) for name, runs in newest]
    call.answer(schemas.NewestRuns(items=items))


def unit_exists(db: Database, name: str) -> bool:
    """Return whether a task is configured or has visible runs."""
    record = store_tasks.get_task(db, name)
    return (record is not None and record.configured) or store_runs.has_runs(db, name)


def the_run(context: Context, run_id: str) -> Run:
    """Return a run that is not deleted.

    Raises:
        ApiError: 404 there is no such run, or it is deleted.
    """
    run = context.reads(store_runs.get_run, run_id)
    if run is None:
        raise ApiError(404, f'No run with the id "{run_id}"')
    return run


@Operation(
    "GET",
    "/api/runs/{runId}",
    role=Role.VIEWER,
    query=(NAMING_OF_ONE,),
    answers={200: json_of(schemas.Run)},
    refusals=(404,),
)
def get_run(context: Context, call: Call) -> None:
    """Get one run."""
    run = the_run(context, call.path["runId"])
    naming = call.query["naming"]
    if naming == "camel":
        call.answer(run_view.camel(run))
    elif naming == "snake":
        call.answer(run_view.snake_with_params(run))
    else:
        call.answer(run_view.both(run))


_RUNS_PER_REQUEST = 50
"""Number of runs in one question to the scheduler, which can serve other requests in between."""
_AWAY = (400, 503)
"""Statuses of a scheduler that is down, or of an older release that does not know the operation."""


def _waiting_for(call: Call, wait: dict[str, Any]) -> WaitingFor:
    if wait["kind"] in DUE_KINDS:
        until = UNSET if wait["until"] is None else known_rfc3339(wait["until"])
        return WaitingFor(kind=wait["kind"], until=until, approvers=wait.get("approvers") or UNSET)
    seen = [(run, task) for run, task in wait["held_by"] if call.sees(task)]
    return WaitingFor(
        kind=wait["kind"],
        name=wait["name"] or UNSET,
        size=wait["size"],
        held_by=[Holder(run_id=run, task_name=task) for run, task in seen],
    )


@Operation("GET", "/api/runs/{runId}/details", role=Role.VIEWER, answers={200: json_of(RunDetails)}, refusals=(404,))
def describe_run(context: Context, call: Call) -> None:
    """Get who requested a run, the hash of its definition, its slots, why it waits, and when it printed last.

    Without the scheduler, return only the stored details.
    """
    run = the_run(context, call.path["runId"])
    details = details_of(context, call, [run])[run.id]
    if run.status == "running":
        details.last_output_at = known_rfc3339(_last_output(context, run))
    call.answer(details)


def _last_output(context: Context, run: Run) -> int | None:
    """Return the time of the run's last output in ms since the epoch; None if there is none or it is unreadable."""

    def read() -> int | None:
        with contextlib.closing(LogReader(*context.feeds.paths(run))) as reader:
            return reader.last_output()

    with contextlib.suppress(LogError, OSError):
        return context.files(read)
    return None


@Operation(
    "GET", "/api/runs/{runId}/definition", role=Role.VIEWER, answers={200: json_of(RunDefinition)}, refusals=(404,)
)
def read_run_definition(context: Context, call: Call) -> None:
    """Get the definition with which a run started, without secrets.

    It is stored as long as runs of the task refer to it.
    """
    run = the_run(context, call.path["runId"])
    if run.definition_hash is None:
        raise ApiError(404, f'The run "{run.id}" is older than the recording of definitions')
    text = context.reads(get_definition, run.task_name, run.definition_hash)
    if text is None:
        raise ApiError(404, f'The definition of the run "{run.id}" is not stored any more')
    definition = msgspec.json.decode(text)
    kind = definition.pop("kind")
    call.answer(RunDefinition(hash=run.definition_hash, kind=kind, definition=definition_keys(definition)))


def approval_shown(approval: store_runs.Approval) -> AnsweredApproval | UnsetType:
    """Return the answer to the question whether a run may start; UNSET if there is none yet."""
    if approval.answer is None:
        return UNSET
    return AnsweredApproval(
        answer=approval.answer,
        by=approval.answered_by or UNSET,
        at=known_rfc3339(approval.answered_at),
        note=approval.note or UNSET,
    )


def details_of(context: Context, call: Call, runs: list[Run]) -> dict[str, RunDetails]:
    """Return the details of runs by id; without the scheduler, only the stored ones."""
    details = {
        run.id: RunDetails(
            flow_run_id=run.flow_run_id or UNSET,
            step=run.step or UNSET,
            item=run.item or UNSET,
            by=run.requested_by or UNSET,
            scheduled_for=known_rfc3339(run.scheduled_at),
            definition_hash=run.definition_hash or UNSET,
            end_cause=run.cause or UNSET,
        )
        for run in runs
    }
    for run_id, approval in context.reads(approvals_of, list(details)).items():
        details[run_id].approval = approval_shown(approval)
    started = {run.id: run.started_at for run in runs if run.status != "ended"}
    active = list(started)
    for first in range(0, len(active), _RUNS_PER_REQUEST):
        run_ids = active[first : first + _RUNS_PER_REQUEST]
        try:
            answer = context.command("runs_wait", runs=run_ids)
        except ApiError as err:
            if err.status not in _AWAY:
                raise
            break
        for run_id in run_ids:
            waits = answer["runs"].get(run_id, {"uses": {}, "waiting_for": []})  # it has ended meanwhile
            details[run_id].slots = waits["uses"]
            details[run_id].done_by = known_rfc3339(waits.get("done_by"))
            if waits.get("usual_ms") is not None and (started_at := started[run_id]) is not None:
                details[run_id].expected_end_at = rfc3339(started_at + waits["usual_ms"])
            details[run_id].waiting_for = [_waiting_for(call, wait) for wait in waits["waiting_for"]]
    return details


@Operation(
    "POST",
    "/api/runs/{runId}/stop",
    role=Role.OPERATOR,
    query=(flag("force", "Kill the run at once."),),
    refusals=(404,),
)
def stop_run(context: Context, call: Call) -> None:
    """Stop a run; a service restarts after its restart delay.

    A run that has ended stays as it is.
    This works even while the database cannot be read: the scheduler knows the active runs.
    """
    run_id = call.path["runId"]
    ended = False
    with contextlib.suppress(StoreError):
        ended = the_run(context, run_id).status == "ended"
    if not ended:
        force = bool(call.query["force"])
        context.command("stop", call.entry(), run=run_id, force=force, by=call.by)
    call.no_content()


_PEER = "uid "
_PERSONS = ("user ", "proxy user ")
_WAYS = (" (dashboard)", " (command line)")


@Operation("POST", "/api/runs/{runId}/approve", role=Role.OPERATOR, body=ApprovalBody, refusals=(404, 409))
def approve_run(context: Context, call: Call) -> None:
    """Let a run start that waits for an approval.

    The first answer counts: the next one gets 409. A client whom `needs_approval` does not name gets 403, and with
    `not_by_starter` so does the person who started the run.
    """
    _answer(context, call, "approve")


@Operation("POST", "/api/runs/{runId}/reject", role=Role.OPERATOR, body=ApprovalBody, refusals=(404, 409))
def reject_run(context: Context, call: Call) -> None:
    """End a run that waits for an approval: it is stopped with the cause `rejected`.

    The same clients may reject a run that may approve it.
    """
    _answer(context, call, "reject")


def _answer(context: Context, call: Call, verb: str) -> None:
    run = the_run(context, call.path["runId"])
    body: ApprovalBody | None = call.body
    note = None if body is None or body.note is UNSET else body.note or None
    call.result = note or ""
    starter, person = context.files(lambda: (_person(run.requested_by or ""), _person(call.by)))
    context.command(verb, call.entry(), run=run.id, by=call.by, note=note, person=person, starter=starter or None)
    call.no_content()


def _person(recorded: str) -> str:
    """Return the name of a person in a record of actions; over the socket, it is that of the Unix user.

    Other clients, such as tokens, have the name in the record.
    """
    name = recorded
    for way in _WAYS:
        name = name.removesuffix(way)
    for kind in _PERSONS:
        if name.startswith(kind):
            return name.removeprefix(kind)
    if name.startswith(_PEER):
        try:
            return pwd.getpwuid(int(name.removeprefix(_PEER))).pw_name
        except (KeyError, ValueError):  # the user has no name
            return name
    return name


@Operation("DELETE", "/api/runs/{runId}", role=Role.OPERATOR, refusals=(404,))
def delete_run(context: Context, call: Call) -> None:
    """Delete a run; a waiting run is stopped first."""
    run = the_run(context, call.path["runId"])
    context.command("run_delete", call.entry(), run=run.id, by=call.by)
    call.no_content()


@Operation(
    "GET",
    "/api/runs/summary",
    role=Role.VIEWER,
    scoped=True,
    query=(
        text("task_name", "Only this task's runs.", aliases=("taskName",)),
        instant("since", "Only runs created at this time or after.", up=True),
    ),
    answers={200: json_of(schemas.Summary)},
)
def summarize_runs(context: Context, call: Call) -> None:
    """Get aggregate run statistics."""
    run_filter = RunFilter(tasks=call.tasks, task_name=call.query["task_name"], created_after=call.query["since"])
    summary = context.pages(run_summary.summarize, run_filter)
    last = summary.last_failure
    call.answer(
        schemas.Summary(
            total=summary.total,
            success=summary.success,
            failed=summary.failed,
            missed=summary.missed,
            last_failure=UNSET if last is None else run_view.camel(last),
        )
    )


_OF_OTHER_LISTS = {"sort_field", "sort_direction", "naming", "extended"}


def _deleted_run(run: Run) -> DeletedRun:
    return DeletedRun(**structs.asdict(run_view.camel(run)), deleted_at=rfc3339(run.deleted_at or 0))


def _deleted(db: Database, run_filter: RunFilter, limit: int, offset: int) -> tuple[list[Run], int]:
    """Return a page of the deleted runs and their total, without runs whose undo window has passed."""
    info: dict[str, Any] = get_meta(db, INFO_KEY) or {}
    window_ms = info.get("undo_window_ms")  # a scheduler of the previous release does not send it
    after = 0 if window_ms is None else time.time_ns() // 1_000_000 - window_ms
    return list_deleted(db, run_filter, limit, offset, after)


@Operation(
    "GET",
    "/api/runs/deleted",
    role=Role.VIEWER,
    scoped=True,
    query=tuple(param for param in list_params(camel=False) if param.name not in _OF_OTHER_LISTS),
    answers={200: json_of(DeletedRuns)},
)
def list_deleted_runs(context: Context, call: Call) -> None:
    """List the deleted runs that can be restored, the last deletion first."""
    run_filter = filter_of(call, camel=False, folded=False, task=None)
    runs, total = context.pages(_deleted, run_filter, call.query["limit"], call.query["offset"])
    call.answer(DeletedRuns(runs=[_deleted_run(run) for run in runs], total=total))


def _samples(started_at: int, points: Sequence[Point], most: int | None) -> list[ResourceSample]:
    """Return the newest `most` samples; None for all.

    A CPU percentage is the average since the previous sample, or since the start of the run.
    """
    samples = []
    at, cpu_ms = started_at, 0
    for point in points:
        passed_ms, used_ms = point.at - at, point.cpu_ms - cpu_ms
        at, cpu_ms = point.at, point.cpu_ms
        samples.append(
            ResourceSample(
                t=rfc3339(point.at),
                # If the clock was set back, the elapsed time is unknown.
                cpu_percent=round(100 * used_ms / passed_ms, 1) if passed_ms > 0 else UNSET,
                rss_bytes=point.rss_bytes,
                processes=point.processes,
            )
        )
    return samples if most is None else samples[len(samples) - min(most, len(samples)) :]


def _most(*values: int | None) -> int | UnsetType:
    """Return the largest known value, or UNSET if none is known."""
    return max((value for value in values if value is not None), default=UNSET)


def _ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


def _taken(run: Run, usage: Usage | None, most: int | None = None) -> dict[str, Any]:
    """Return the fields of `Resources`.

    The resources of an ended run come from two sources, which are both incomplete. The kernel's totals miss orphaned
    processes; the samples miss everything after the last sample. The larger value is closer to the truth.
    """
    if run.started_at is None:
        return {"samples": []}
    if usage is None:
        sums: tuple[int | None, ...] = (None,) * 5
    else:
        sums = (usage.user_ms, usage.system_ms, usage.peak_rss_bytes, usage.read_bytes, usage.written_bytes)
    return {
        "cpu_user_ms": _most(_ms(run.user_us), sums[0]),
        "cpu_system_ms": _most(_ms(run.system_us), sums[1]),
        "max_rss_bytes": _most(run.max_rss_bytes, sums[2]),
        "read_bytes": _most(run.read_bytes, sums[3]),
        "write_bytes": _most(run.write_bytes, sums[4]),
        "samples": [] if usage is None else _samples(run.started_at, usage.points, most),
    }


@Operation("GET", "/api/runs/{runId}/resources", role=Role.VIEWER, answers={200: json_of(Resources)}, refusals=(404,))
def measure_run(context: Context, call: Call) -> None:
    """Get the resources of a run: CPU, memory, disk I/O, and samples over time."""
    run = the_run(context, call.path["runId"])
    if run.status == "ended":
        usage = context.reads(run_samples.of_ended, run.id)
    else:
        usage = context.reads(run_samples.of_running, [run.id]).get(run.id)
    call.answer(Resources(**_taken(run, usage)))


def _running(db: Database, sees: Callable[[str], bool]) -> list[tuple[Run, Usage | None]]:
    runs = [run for run in unfinished_runs(db) if run.status == "running" and sees(run.task_name)]
    usages = run_samples.of_running(db, [run.id for run in runs])
    return [(run, usages.get(run.id)) for run in runs]


@Operation(
    "GET",
    "/api/resources",
    role=Role.VIEWER,
    scoped=True,
    query=(
        integer("samples", "Maximum number of the newest samples of each run; default: all.", minimum=0, maximum=1000),
    ),
    answers={200: json_of(AllResources)},
)
def list_running_resources(context: Context, call: Call) -> None:
    """Get the resources of all active runs, live."""
    running = context.reads(_running, call.sees)
    most: int | None = call.query["samples"]
    items = [
        RunningResources(
            run_id=run.id, task_name=run.task_name, instance_index=run.instance_index, **_taken(run, usage, most)
        )
        for run, usage in running
    ]
    call.answer(AllResources(items=items))
