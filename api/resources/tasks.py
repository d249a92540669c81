"""Handlers for tasks and services: their definition and state, daily totals, resource usage, and commands."""

import os
import time
from collections import defaultdict
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from typing import Any

from msgspec import UNSET

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.conditional import CONDITION
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import QueryParameter, flag, instant, integer
from api.resources.runs.runs import the_run
from api.schemas import records as schemas
from api.schemas.daemon_info import (
    Counts,
    InstanceChange,
    InstanceUptime,
    Instant,
    Schedule,
    ServiceUptime,
    TaskDay,
    TaskDays,
    UptimeDay,
)
from api.schemas.pauses import noted, pause_of
from api.schemas.run_details import AllTaskUsage, NamedTaskUsage, TaskUsage
from api.schemas.task_list import listed
from api.schemas.task_view import find_unit
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.worker_context import Context
from store import service_uptime, usage
from store import tasks as store_tasks
from store.database import Database
from store.runs import daily_outcomes as store_days
from store.runs.daily_outcomes import DAY_MS, Day
from store.runs.phases import FAILURES
from store.runs.usage_counts import ResourceUse
from store.service_uptime import KEPT_CHANGES, StateChange, StateTime, Uptime
from store.usage import Window


@Operation(
    "GET",
    "/api/tasks",
    role=Role.VIEWER,
    scoped=True,
    headers=(CONDITION,),
    answers={200: json_of(schemas.Tasks), 304: None},
    sends={200: ("ETag",), 304: ("ETag",)},
    tag="tasks",
)
def list_tasks(context: Context, call: Call) -> None:
    """List all tasks and services."""
    call.answer_list(schemas.Tasks, *context.reads(listed, context.tasks, call.sees))


@Operation(
    "GET",
    "/api/tasks/{taskName}",
    role=Role.VIEWER,
    headers=(CONDITION,),
    answers={200: json_of(schemas.Task), 304: None},
    sends={200: ("ETag",), 304: ("ETag",)},
    refusals=(404,),
    tag="tasks",
)
def get_task(context: Context, call: Call) -> None:
    """Get one task or service."""
    call.answer(the_unit(context, call.path["taskName"]))
    call.tagged()


def _ask(context: Context, call: Call, operation: str, **arguments: object) -> None:
    context.command(operation, call.entry(), task=call.path["taskName"], by=call.by, **arguments)
    call.no_content()


def _command(verb: str, query: tuple[QueryParameter, ...] = (), body: type[schemas.Body] | None = None) -> Operation:
    return Operation(
        "POST",
        f"/api/tasks/{{taskName}}/{verb}",
        role=Role.OPERATOR,
        query=query,
        body=body,
        refusals=(404,),
        tag="tasks",
    )


@_command("start")
def start_service(context: Context, call: Call) -> None:
    """Start a service; running instances continue."""
    _ask(context, call, "service_start")


@_command("stop")
def stop_service(context: Context, call: Call) -> None:
    """Stop a service until it is started or the daemon restarts."""
    _ask(context, call, "service_stop")


@_command("restart", (flag("rolling", "Restart one instance after the other, each when the previous one is ready."),))
def restart_service(context: Context, call: Call) -> None:
    """Restart a service; a stopped service starts."""
    # The scheduler stores the id of the command, and does not execute a repeated command twice.
    _ask(context, call, "service_restart", rolling=bool(call.query["rolling"]), command=os.urandom(16).hex())


@_command("pause", body=schemas.PauseBody)
def pause_task(context: Context, call: Call) -> None:
    """Pause a task's schedule until a time, or until it is resumed."""
    options = pause_of(call.body)
    call.result = noted(options)
    _ask(context, call, "task_pause", **options)


@_command("resume")
def resume_task(context: Context, call: Call) -> None:
    """Resume a task's schedule from now on."""
    _ask(context, call, "task_resume")


_UNWELL = frozenset({"fatal", "backoff", "exited", "starting"})
"""States of a service that can be acknowledged."""


def the_unit(context: Context, name: str) -> schemas.Task:
    """Return a configured task or service.

    Raises:
        ApiError: 404 there is none with this name.
    """
    task = context.reads(find_unit, name)
    if task is None:
        raise ApiError(404, f'No task named "{name}"')
    return task


def _needs_attention(task: schemas.Task) -> bool:
    if task.kind == "service":
        return task.flapping is True or task.state in _UNWELL
    last, promises = task.last_run, (task.late_since, task.failing_since)
    return promises != (UNSET, UNSET) or (last is not UNSET and last.end_reason in FAILURES | {"missed"})


def _acknowledge(context: Context, call: Call, task: schemas.Task) -> None:
    if not _needs_attention(task):
        raise ApiError(409, f"{task.name} needs no attention, so there is nothing to acknowledge")
    body: schemas.AcknowledgeBody | None = call.body
    options: dict[str, Any] = {
        name: None if body is None or (value := getattr(body, name)) is UNSET else value for name in ("for_ms", "note")
    }
    if body is not None and body.public is True:
        if context.settings.status_page is None or task.name not in context.settings.public:
            raise ApiError(409, f"The status page does not show {task.name}; see [http] public and [http.status_page]")
        if not options["note"]:
            raise ApiError(409, "A public acknowledgement needs a note, which the status page shows")
        options["public"] = True
    run = None if task.last_run is UNSET else task.last_run.id
    span = "until the next failure" if options["for_ms"] is None else f"for {options['for_ms'] // 1000} s"
    call.target = task.name
    span = f"{span}, public" if "public" in options else span
    call.result = f"{span}: {options['note']}" if options["note"] else span
    context.command("acknowledge", call.entry(), task=task.name, run=run, by=call.by, **options)
    call.no_content()


@Operation(
    "POST",
    "/api/tasks/{taskName}/acknowledge",
    role=Role.OPERATOR,
    body=schemas.AcknowledgeBody,
    refusals=(404,),
    tag="tasks",
)
def acknowledge_task(context: Context, call: Call) -> None:
    """Acknowledge the present failure of a task or service, until the next one or for a time."""
    _acknowledge(context, call, the_unit(context, call.path["taskName"]))


@Operation("POST", "/api/runs/{runId}/acknowledge", role=Role.OPERATOR, body=schemas.AcknowledgeBody, refusals=(404,))
def acknowledge_run(context: Context, call: Call) -> None:
    """Acknowledge the failure of a task by its last run."""
    run = the_run(context, call.path["runId"])
    task = the_unit(context, run.task_name)
    if task.last_run is UNSET or task.last_run.id != run.id:
        raise ApiError(409, f"{run.id} is not the last run of {run.task_name}; acknowledge {run.task_name}")
    _acknowledge(context, call, task)


@Operation("POST", "/api/tasks/{taskName}/unacknowledge", role=Role.OPERATOR, refusals=(404,), tag="tasks")
def unacknowledge_task(context: Context, call: Call) -> None:
    """Withdraw the acknowledgement of a task or service."""
    context.command("unacknowledge", call.entry(), task=call.path["taskName"], by=call.by)
    call.no_content()


_MAX_INSTANTS = 100
_COLUMNS = ("calendars", "params", "runs", "windows", "deadlines")
"""The facts about instants beside the items of the scheduler's answer; an earlier one lacks some."""
_YEAR_DAYS = 366


@Operation(
    "GET",
    "/api/tasks/{taskName}/schedule",
    query=(integer("count", "Maximum number of times.", 10, minimum=1, maximum=_MAX_INSTANTS),),
    answers={200: json_of(Schedule)},
    refusals=(404, 409),
    role=Role.VIEWER,
    tag="tasks",
)
def preview_task_schedule(context: Context, call: Call) -> None:
    """Get the next times of a task, and of runs that were requested for a time.

    The scheduler knows which instants it has already handled.
    """
    name, count = call.path["taskName"], call.query["count"]
    preview = context.command("schedule", task=name, count=count)
    instants = [
        Instant(
            at=rfc3339(at),
            local=local,
            note=note or UNSET,
            starts_at=rfc3339(starts_at) if starts_at != at else UNSET,
            calendar=calendar or UNSET,
            params=params or UNSET,
            run_id=run or UNSET,
            window=window or UNSET,
            done_by=known_rfc3339(deadline),
        )
        for (at, local, note, starts_at), calendar, params, run, window, deadline in zip_longest(
            preview["items"], *(preview.get(name, ()) for name in _COLUMNS)
        )
    ]
    call.answer(Schedule(items=instants))


@Operation(
    "GET",
    "/api/tasks/{taskName}/days",
    query=(integer("days", "Number of days, including today.", _YEAR_DAYS, minimum=1, maximum=_YEAR_DAYS),),
    answers={200: json_of(TaskDays)},
    refusals=(404,),
    role=Role.VIEWER,
    tag="tasks",
)
def count_task_days(context: Context, call: Call) -> None:
    """Get daily totals of a task's runs; deleted runs stay counted."""
    name = call.path["taskName"]
    first_day = time.time_ns() // 1_000_000 // DAY_MS - call.query["days"] + 1
    days = context.reads(_days, name, first_day)
    if days is None:
        raise ApiError(404, f'No task named "{name}"')
    call.answer(TaskDays(items=[_day(number, list(rows)) for number, rows in groupby(days, lambda row: row.day)]))


def _days(db: Database, name: str, first_day: int) -> list[Day] | None:
    days = store_days.days(db, name, first_day)
    return days if days or store_tasks.get_task(db, name) is not None else None


def _day(number: int, rows: list[Day]) -> TaskDay:
    timed = sum(row.timed for row in rows)
    duration = sum(row.duration for row in rows)
    return TaskDay(
        day=datetime.fromtimestamp(number * DAY_MS / 1000, UTC).date().isoformat(),
        total=sum(row.n for row in rows),
        counts=Counts(**{row.reason: row.n for row in rows}),
        duration_ms=duration,
        mean_ms=duration // timed if timed else UNSET,
        longest_ms=max((row.longest for row in rows if row.longest is not None), default=UNSET),
    )


_UPTIME_DAYS = 90
_SHOWN_CHANGES = 20


@Operation(
    "GET",
    "/api/tasks/{taskName}/uptime",
    role=Role.VIEWER,
    query=(
        integer("days", "Number of days, including today.", _UPTIME_DAYS, minimum=1, maximum=_YEAR_DAYS),
        integer(
            "changes", "Maximum number of changes of each instance.", _SHOWN_CHANGES, minimum=0, maximum=KEPT_CHANGES
        ),
    ),
    answers={200: json_of(ServiceUptime)},
    refusals=(404, 409),
    tag="tasks",
)
def get_service_uptime(context: Context, call: Call) -> None:
    """Get how long the instances of a service were up, day by day."""
    now_ms = time.time_ns() // 1_000_000
    call.answer(context.reads(_uptime_of, call.path["taskName"], now_ms, call.query["days"], call.query["changes"]))


def _uptime_of(db: Database, name: str, now_ms: int, days: int, most_changes: int) -> ServiceUptime:
    task = store_tasks.get_task(db, name)
    if task is None:
        raise ApiError(404, f'No service named "{name}"')
    if task.kind != "service":
        raise ApiError(409, f"{name} is a task; only services have an uptime")
    first_day = now_ms // DAY_MS - days + 1
    with db.snapshot() as view:
        times = service_uptime.times_until(view, name, first_day, now_ms)
        instances = store_tasks.instances(view, name)
        changes = service_uptime.changes(view, name)
        restarts = service_uptime.restarts_since(view, name, now_ms - DAY_MS)
    by_instance = defaultdict[int, list[StateTime]](list)
    for spent in times:
        by_instance[spent.instance_index].append(spent)
    return ServiceUptime(
        items=[_uptime_day(day, spent) for day, spent in service_uptime.by_day(times).items()],
        instances=[
            _instance_uptime(instance.instance_index, by_instance[instance.instance_index], changes, most_changes)
            for instance in instances
        ],
        restarts_24h=restarts,
    )


def _uptime_day(number: int, spent: Uptime) -> UptimeDay:
    return UptimeDay(day=datetime.fromtimestamp(number * DAY_MS / 1000, UTC).date().isoformat(), **spent._asdict())


def _instance_uptime(index: int, times: list[StateTime], changes: list[StateChange], most: int) -> InstanceUptime:
    own = [change for change in changes if change.instance_index == index][:most]
    return InstanceUptime(
        index=index,
        **service_uptime.sum_times(times)._asdict(),
        changes=[
            InstanceChange(at=rfc3339(change.at), state=change.state, run_id=change.run_id or UNSET) for change in own
        ],
    )


_DAY_MS = 86_400_000
_LAST_MS = 253_402_214_400_000
"""The start of 9999-12-31, the last day with a four-digit year."""


def _window(call: Call) -> Window:
    now_ms = time.time_ns() // 1_000_000
    end: int = now_ms if call.query["to"] is None else call.query["to"]
    start: int = end - _DAY_MS if call.query["from"] is None else call.query["from"]
    start = max(0, min(start, _LAST_MS))
    return usage.window(start, max(start, min(end, _LAST_MS)), now_ms)


def _ends(window: Window) -> dict[str, Any]:
    return {"start": rfc3339(window.start), "end": rfc3339(window.end)}


def _usage_fields(used: ResourceUse) -> dict[str, Any]:
    def or_unset(value: int | None) -> object:
        return UNSET if value is None else value

    return {
        "runs": used.runs,
        "cpu_user_ms": used.user_us // 1000,
        "cpu_system_ms": used.system_us // 1000,
        "max_rss_bytes": or_unset(used.peak_rss_bytes),
        "read_bytes": or_unset(used.read_bytes),
        "write_bytes": or_unset(used.write_bytes),
    }


def _of_one(db: Database, window: Window, name: str) -> ResourceUse | None:
    used = usage.in_window(db, window, name).get(name)
    return ResourceUse() if used is None and store_tasks.get_task(db, name) is not None else used


_QUERY = (
    instant("from", "Start of the window; default: a day before `to`.", up=False),
    instant("to", "End of the window, excluded; default: now.", up=True),
)


@Operation(
    "GET",
    "/api/tasks/{taskName}/resources",
    role=Role.VIEWER,
    query=_QUERY,
    answers={200: json_of(TaskUsage)},
    refusals=(404,),
    tag="tasks",
)
def measure_task(context: Context, call: Call) -> None:
    """Get the resources of all runs of a task or service in a window: CPU, memory, disk I/O."""
    name, window = call.path["taskName"], _window(call)
    used = context.reads(_of_one, window, name)
    if used is None:
        raise ApiError(404, f'No task named "{name}"')
    call.answer(TaskUsage(**_ends(window), **_usage_fields(used)))


@Operation(
    "GET",
    "/api/resources/totals",
    role=Role.VIEWER,
    scoped=True,
    query=_QUERY,
    answers={200: json_of(AllTaskUsage)},
    tag="tasks",
)
def list_task_resources(context: Context, call: Call) -> None:
    """Get the resources of each task and service in a window, the greatest CPU time first."""
    window = _window(call)
    by_task = context.reads(usage.in_window, window)
    lasted = context.reads(store_days.durations, window.start // DAY_MS, (window.end - 1) // DAY_MS)
    items = [
        NamedTaskUsage(task_name=name, duration_ms=lasted.get(name, 0), **_usage_fields(used))
        for name, used in sorted(by_task.items(), key=lambda item: (-item[1].user_us - item[1].system_us, item[0]))
        if call.sees(name)
    ]
    call.answer(AllTaskUsage(**_ends(window), items=items))
