"""Handlers for windows, in which tasks do not run and alarms wait, and for what all schedules will do."""

import time
from typing import Any

from msgspec import UNSET

from api.auth.identity import Role
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import instant, integer
from api.schemas import records as schemas
from api.schemas.daemon_info import (
    ClockChange,
    OpenWindow,
    Upcoming,
    UpcomingEntry,
    WindowList,
    WindowMatch,
    WindowOpening,
    WindowRecord,
)
from api.schemas.pauses import pause_of
from api.schemas.task_view import attributed
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.worker_context import Context


@Operation("GET", "/api/windows", role=Role.VIEWER, answers={200: json_of(WindowList)}, tag="daemon")
def list_windows(context: Context, call: Call) -> None:
    """List the windows, and when each is open."""
    windows = context.command("windows")["windows"]
    call.answer(
        WindowList(
            items=[
                WindowRecord(
                    **{key: window[key] for key in ("name", "cron", "instants", "running", "alarms")},
                    duration=window["duration"] or UNSET,
                    match=WindowMatch(**window["match"]),
                    open=UNSET if window["open"] is None else WindowOpening(**_opening(window["open"])),
                    next=UNSET if window["next"] is None else WindowOpening(**_opening(window["next"])),
                )
                for window in windows
            ]
        )
    )


@Operation(
    "POST",
    "/api/windows/{windowName}/start",
    role=Role.OPERATOR,
    body=schemas.PauseBody,
    refusals=(404,),
    tag="daemon",
)
def start_window(context: Context, call: Call) -> None:
    """Open a window until a time, or until it is ended."""
    name = call.path["windowName"]
    context.command("window_start", call.entry(), window=name, by=call.by, **pause_of(call.body))
    context.scheduler.forget()
    call.no_content()


@Operation("POST", "/api/windows/{windowName}/end", role=Role.OPERATOR, refusals=(404,), tag="daemon")
def end_window(context: Context, call: Call) -> None:
    """Close an open window until its next time."""
    context.command("window_end", call.entry(), window=call.path["windowName"], by=call.by)
    context.scheduler.forget()
    call.no_content()


def open_window(opening: dict[str, Any]) -> OpenWindow:
    """Return an open window as the scheduler describes it."""
    return OpenWindow(name=opening["name"], **_opening(opening))


def _opening(opening: dict[str, Any]) -> dict[str, Any]:
    return {
        "since": rfc3339(opening["since"]),
        "until": known_rfc3339(opening["until"]),
        "by": opening["by"] or UNSET,
        "note": opening["note"] or UNSET,
    }


_DAY_MS = 86_400_000
_MOST_MS = 35 * _DAY_MS
_USUAL_MS = 7 * _DAY_MS


@Operation(
    "GET",
    "/api/upcoming",
    role=Role.VIEWER,
    scoped=True,
    query=(
        instant("from", "Start of the span; default: now. A past time counts as now.", up=False),
        instant("to", "End of the span, at most 35 days after `from`; default: 7 days after it.", up=True),
        integer("limit", "Number of entries; more only at the time of the last one.", 1000, minimum=1, maximum=10_000),
    ),
    answers={200: json_of(Upcoming)},
    tag="tasks",
)
def list_upcoming(context: Context, call: Call) -> None:
    """List what all schedules will do: runs, and times in which none starts."""
    query = call.query
    start = max(query["from"] or 0, time.time_ns() // 1_000_000)
    end = start + _USUAL_MS if query["to"] is None else min(query["to"], start + _MOST_MS)
    found = context.command("upcoming", start=start, end=end, limit=query["limit"], reach=call.tasks)
    call.answer(
        Upcoming(
            start=rfc3339(start),
            end=rfc3339(max(start, end)),
            items=[_entry(entry) for entry in found["items"]],
            windows=[open_window(opening) for opening in found["windows"]],
            pause=attributed(schemas.Withholding, found["pause"]),
            clock_changes=[
                ClockChange(at=rfc3339(at), before_s=before, after_s=after)
                for at, before, after in found["clock_changes"]
            ],
            next_from=known_rfc3339(found["next"]),
        )
    )


def _entry(entry: dict[str, Any]) -> UpcomingEntry:
    starts_at = entry.get("starts_at")
    return UpcomingEntry(
        kind=entry["kind"],
        task_name=entry["task"],
        at=rfc3339(entry["at"]),
        local=entry.get("local", UNSET),
        starts_at=UNSET if starts_at in (None, entry["at"]) else rfc3339(starts_at),
        until=known_rfc3339(entry.get("until")),
        count=entry.get("count", UNSET),
        note=entry.get("note", UNSET),
        cause=entry.get("cause", UNSET),
        run_id=entry.get("run", UNSET),
        params=entry.get("params") or UNSET,
        done_by=known_rfc3339(entry.get("done_by")),
        usual_ms=UNSET if entry.get("usual_ms") is None else entry["usual_ms"],
    )
