"""What the runs of tasks and services took in a window of time."""

import time
from typing import Any

from msgspec import UNSET

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import instant
from api.schemas.run_details import AllTaskUsage, NamedTaskUsage, TaskUsage
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store import usage
from store.database import Database
from store.tasks import get_task
from store.usage import Window
from store.usage_counts import Used

_DAY_MS = 86_400_000
_LAST_MS = 253_402_214_400_000
"""The beginning of the last day that can be written (year 9999)."""


def _window(call: Call) -> Window:
    now_ms = time.time_ns() // 1_000_000
    end: int = now_ms if call.query["to"] is None else call.query["to"]
    start: int = end - _DAY_MS if call.query["from"] is None else call.query["from"]
    start = max(0, min(start, _LAST_MS))
    return usage.window(start, max(start, min(end, _LAST_MS)), now_ms)


def _ends(window: Window) -> dict[str, Any]:
    return {"start": rfc3339(window.start), "end": rfc3339(window.end)}


def _shown(used: Used) -> dict[str, Any]:
    def known(value: int | None) -> Any:
        return UNSET if value is None else value

    return {
        "runs": used.runs,
        "cpu_user_ms": used.user_us // 1000,
        "cpu_system_ms": used.system_us // 1000,
        "max_rss_bytes": known(used.peak_rss_bytes),
        "read_bytes": known(used.read_bytes),
        "write_bytes": known(used.write_bytes),
    }


def _of_one(db: Database, window: Window, name: str) -> Used | None:
    found = usage.in_window(db, window, name).get(name)
    return Used() if found is None and get_task(db, name) is not None else found


def get_task_usage(context: Context, call: Call) -> None:
    """What one task or service took."""
    name, window = call.path["taskName"], _window(call)
    used = context.reads(_of_one, window, name)
    if used is None:
        raise ApiError(404, f'No task named "{name}"')
    call.answer(TaskUsage(**_ends(window), **_shown(used)))


def list_task_usage(context: Context, call: Call) -> None:
    """What each took, those that took most processor time first."""
    window, identity = _window(call), call.identity
    found = context.reads(usage.in_window, window)
    items = [
        NamedTaskUsage(task_name=name, **_shown(used))
        for name, used in sorted(found.items(), key=lambda one: (-one[1].user_us - one[1].system_us, one[0]))
        if identity is None or identity.sees(name)
    ]
    call.answer(AllTaskUsage(**_ends(window), items=items))


_QUERY = (
    instant("from", "Start of the window; default: a day before `to`.", up=False),
    instant("to", "End of the window, excluded; default: now.", up=True),
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/tasks/{taskName}/resources",
        id="measureTask",
        role=Role.VIEWER,
        summary="Get the resources of all runs of a task or service in a window: processor, memory, disks.",
        handler=get_task_usage,
        query=_QUERY,
        answers={200: json_of(TaskUsage)},
        refusals=(404, 422),
        tag="tasks",
    ),
    Operation(
        method="GET",
        path="/api/resources/totals",
        id="listTaskResources",
        role=Role.VIEWER,
        scoped=True,
        summary="Get the resources of each task and service in a window, the greatest processor time first.",
        handler=list_task_usage,
        query=_QUERY,
        answers={200: json_of(AllTaskUsage)},
        refusals=(422,),
        tag="tasks",
    ),
)
