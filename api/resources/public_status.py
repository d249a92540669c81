"""Handlers for the public state of tasks and services (``[http] public``): a page and badges, without authentication.

They disclose a name and a state, and nothing else. Any other name gets the same 404, whether it exists or not.
"""

from html import escape

from msgspec import UNSET

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.guard import HTML_POLICY
from api.operations.operation import Access, Call, Content, Operation
from api.schemas.records import Task
from api.schemas.task_view import find_unit
from api.worker_context import Context
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
_LETTER_PX = 7
_PAD_PX = 12
_TEXT = {"type": "string"}


def _state(task: Task) -> tuple[str, str]:
    """Return the state as text, and its tone."""
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
    states = []
    for name in context.settings.public:
        task = context.reads(find_unit, name)
        if task is not None:
            states.append((name, *_state(task)))
    if not states:
        raise ApiError(404, _NOT_PUBLISHED)
    rows = "\n".join(
        f'<li><b>{escape(name)}</b><span class="spring"></span><span class="badge {tone}">{escape(state)}</span></li>'
        for name, state, tone in states
    )
    bad = sum(tone == "bad" for _, _, tone in states)
    summary = f"{bad} of {len(states)} failing" if bad else "No failures"
    sheets = "\n".join(
        f'<link rel="stylesheet" href="static/status/css/{name}.css">' for name in ("tokens", "base", "parts", "forced")
    )
    call.resp.set_header("Content-Security-Policy", HTML_POLICY)
    _answer(
        call,
        "text/html; charset=utf-8",
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Status: {summary}</title>
<link rel="icon" href="static/status/icon.svg">
{sheets}
<script type="module" src="static/status/js/status.js"></script>
</head>
<body>
<main class="public">
<h1>Status</h1>
<p class="soft">{summary}</p>
<section class="card" aria-label="Tasks and services">
<ul class="lines">
{rows}
</ul>
</section>
</main>
</body>
</html>
""",
    )


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
