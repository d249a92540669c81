"""Handlers for the public state of tasks and services (``[http] public``): a page and badges, without authentication.

The badges disclose a name and a state, and nothing else. With ``[http.status_page]``, the page also shows 90 days and
public incidents (api.schemas.status_page). Any other name gets the same 404, whether it exists or not.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape

from msgspec import UNSET

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.guard import HTML_POLICY
from api.operations.operation import Access, Call, Content, Operation
from api.schemas.records import Task
from api.schemas.status_page import DAYS, MOST_INCIDENTS, PublicUnit, page_html
from api.schemas.task_view import find_unit
from api.worker_context import Context
from store import service_uptime
from store.database import Database
from store.notifications import PublicIncident, public_incidents
from store.runs import daily_outcomes
from store.runs.daily_outcomes import DAY_MS
from store.runs.phases import FAILURES

_NOT_PUBLISHED = "Not published"
_TONES = {"good": "#17693a", "bad": "#b3261e", "warn": "#7f5200", "busy": "#2456c7", "mute": "#5a6473"}
"""Background colours; white text on each has a contrast of at least 4.5 to 1."""
_SERVICES = {
    "running": ("running", "good"),
    "starting": ("starting", "busy"),
    "backoff": ("restarting", "warn"),
    "fatal": ("down", "bad"),
}
_START_MS = 1000
"""A service that was down for less than this on a day only started."""
_LETTER_PX = 7
_PAD_PX = 12
_TEXT = {"type": "string"}


def _state(task: Task) -> tuple[str, str]:
    """Return the state of a unit as text, and its tone."""
    if task.kind == "service":
        if task.flapping is True:
            return "flapping", "bad"
        return _SERVICES.get(str(task.state), (str(task.state), "mute"))
    if task.paused:
        return "paused", "mute"
    if task.active.running:
        return "running", "busy"
    if task.last_run is UNSET or task.last_run.end_reason is UNSET:
        return "never ran", "mute"
    reason = str(task.last_run.end_reason)
    return reason.replace("_", " "), "good" if reason == "succeeded" else "bad" if reason in FAILURES else "mute"


def _units(db: Database, names: Iterable[str], now_ms: int, *, with_history: bool) -> list[PublicUnit]:
    """Return the configured units of these names."""
    units = []
    for name in names:
        task = find_unit(db, name)
        if task is not None:
            by_day = _parts(db, task, now_ms) if with_history else {}
            days = [_share(by_day.get(now_ms // DAY_MS - ago)) for ago in range(DAYS - 1, -1, -1)]
            whole = _share([sum(parts) for parts in zip(*by_day.values(), strict=True)] or None)
            units.append(PublicUnit(name, task.kind, *_state(task), days, whole))
    return units


def _parts(db: Database, task: Task, now_ms: int) -> dict[int, list[int]]:
    """Return what was good and what was bad on each day: times of a service, or runs of a task."""
    first_day = now_ms // DAY_MS - DAYS + 1
    by_day = defaultdict[int, list[int]](lambda: [0, 0])
    if task.kind == "service":
        with db.snapshot() as view:
            times = service_uptime.times_until(view, task.name, first_day, now_ms)
        for day, spent in service_uptime.by_day(times).items():
            good, bad = spent.up_ms, spent.down_ms
            by_day[day] = [good + bad, 0] if bad < _START_MS else [good, bad]
        return by_day
    for row in daily_outcomes.days(db, task.name, first_day):
        if row.reason == "succeeded" or row.reason in FAILURES:
            by_day[row.day][row.reason in FAILURES] += row.n
    return by_day


def _share(parts: Sequence[int] | None) -> float | None:
    return None if parts is None or not any(parts) else parts[0] / (parts[0] + parts[1])


def _incidents(db: Database, names: Iterable[str]) -> list[PublicIncident]:
    """Return the newest incidents of these units, the newest first."""
    shown = set(names)
    return [one for one in reversed(public_incidents(db)) if one.task_name in shown][:MOST_INCIDENTS]


def _published(context: Context, name: str) -> tuple[str, str]:
    task = context.reads(find_unit, name) if name in context.settings.public else None
    if task is None:
        raise ApiError(404, _NOT_PUBLISHED)
    return _state(task)


def _answer(call: Call, media_type: str, text: str) -> None:
    call.resp.content_type = media_type
    call.resp.set_header("Cache-Control", "no-cache")
    call.resp.data = text.encode()
    call.tagged()


def _operation(path: str, media_type: str) -> Operation:
    return Operation(
        "GET",
        path,
        role=Role.ANYBODY,
        answers={200: Content(media_type, _TEXT)},
        sends={200: ("ETag",)},
        refusals=(404,),
        access=Access.PUBLIC,
        tag="interface",
    )


@_operation("/status", "text/html")
def get_status_page(context: Context, call: Call) -> None:
    """Get a page with the states of the published tasks and services."""
    text = context.status_page.get(lambda: _page(context))
    if not text:
        raise ApiError(404, _NOT_PUBLISHED)
    page = context.settings.status_page
    policy = HTML_POLICY
    if page is not None and page.embed:
        policy = HTML_POLICY.replace("frame-ancestors 'none'", f"frame-ancestors {' '.join(page.embed)}")
        call.resp.set_header("Cross-Origin-Resource-Policy", "cross-origin")
    call.resp.set_header("Content-Security-Policy", policy)
    _answer(call, "text/html; charset=utf-8", text)


def _page(context: Context) -> str:
    """Return the page; an empty text if nothing is published."""
    names, page, now_ms = context.settings.public, context.settings.status_page, time.time_ns() // 1_000_000
    if not names:
        return ""
    units = context.reads(lambda db: _units(db, names, now_ms, with_history=page is not None))
    incidents = [] if page is None else context.reads(_incidents, names)
    return page_html(units, page, incidents, now_ms) if units else ""


@_operation("/badge/{badgeFile}", "image/svg+xml")
def get_badge(context: Context, call: Call) -> None:
    """Get the state of a published task or service as a picture, NAME.svg."""
    name = call.path["badgeFile"].removesuffix(".svg")
    state, tone = _published(context, name) if name != call.path["badgeFile"] else ("", "")
    if not state:
        raise ApiError(404, _NOT_PUBLISHED)
    left, right = (len(text) * _LETTER_PX + _PAD_PX for text in (name, state))
    call.resp.set_header("Cross-Origin-Resource-Policy", "cross-origin")  # pages of other sites embed it
    label = escape(f"{name}: {state}")
    _answer(
        call,
        "image/svg+xml",
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<rect width="{left}" height="20" fill="#3b424d"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_TONES[tone]}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="12">'
        f'<text x="{left / 2}" y="14.5" textLength="{left - _PAD_PX}">{escape(name)}</text>'
        f'<text x="{left + right / 2}" y="14.5" textLength="{right - _PAD_PX}">{escape(state)}</text></g></svg>\n',
    )
