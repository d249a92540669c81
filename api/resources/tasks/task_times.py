"""When a task will run, and what became of its runs day by day."""

import time
from datetime import UTC, datetime
from itertools import groupby

from msgspec import UNSET

from api.auth.authentication import asked
from api.auth.identity import Role
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import integer
from api.schemas.daemon_info import Counts, Instant, Schedule, TaskDay, TaskDays
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store.database import Database
from store.runs import daily_outcomes as store_days
from store.runs.daily_outcomes import DAY_MS, Day
from store.tasks import get_task

_MAX_INSTANTS = 100
_YEAR_DAYS = 366


def get_schedule(context: Context, call: Call) -> None:
    """The next instants; the scheduler knows which were accounted for already."""
    name, count = call.path["taskName"], call.query["count"]
    found = asked(lambda: context.control.call("schedule", task=name, count=count))
    instants = [
        Instant(
            at=rfc3339(at),
            local=local,
            note=note or UNSET,
            starts_at=rfc3339(starts_at) if starts_at != at else UNSET,
        )
        for at, local, note, starts_at in found["items"]
    ]
    call.answer(Schedule(items=instants))


def get_days(context: Context, call: Call) -> None:
    """The days on which something ended, oldest first."""
    name = call.path["taskName"]
    first_day = time.time_ns() // 1_000_000 // DAY_MS - call.query["days"] + 1
    found = context.reads(_days, name, first_day)
    if found is None:
        raise ApiError(404, f'No task named "{name}"')
    call.answer(TaskDays(items=[_day(number, list(rows)) for number, rows in groupby(found, lambda row: row.day)]))


def _days(db: Database, name: str, first_day: int) -> list[Day] | None:
    found = store_days.days(db, name, first_day)
    return found if found or get_task(db, name) is not None else None


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


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/tasks/{taskName}/schedule",
        id="previewTaskSchedule",
        summary="Get the next times of a task.",
        handler=get_schedule,
        query=(integer("count", "Maximum number of times.", 10, minimum=1, maximum=_MAX_INSTANTS),),
        answers={200: json_of(Schedule)},
        refusals=(404, 409, 422, 503),
        role=Role.VIEWER,
        tag="tasks",
    ),
    Operation(
        method="GET",
        path="/api/tasks/{taskName}/days",
        id="countTaskDays",
        summary="Get daily totals of a task's runs; deleted runs stay counted.",
        handler=get_days,
        query=(integer("days", "Number of days, including today.", _YEAR_DAYS, minimum=1, maximum=_YEAR_DAYS),),
        answers={200: json_of(TaskDays)},
        refusals=(404, 422),
        role=Role.VIEWER,
        tag="tasks",
    ),
)
