"""The options of a pause in the body of a request."""

import time
from typing import Any, Protocol

from msgspec import UnsetType

from api.errors import invalid
from api.schemas.records import ErrorDetail
from api.schemas.wire_times import parse_rfc3339, rfc3339


class _PauseFields(Protocol):
    until: str | UnsetType | None
    note: str | UnsetType | None


def pause_of(body: _PauseFields | None) -> dict[str, Any]:
    """Return the options as arguments of the scheduler's command.

    Raises:
        ApiError: 422 the end is no time, or has passed.
    """
    if body is None:
        return {}
    options: dict[str, Any] = {"note": body.note} if body.note else {}
    if body.until:
        options["until"] = future_time("until", body.until)
    return options


def noted(options: dict[str, Any]) -> str:
    """Describe the end and the note of a pause or a stop, for the audit log; empty without both."""
    until, note = options.get("until"), options.get("note")
    return "; ".join(filter(None, ("" if until is None else f"until {rfc3339(until)}", note)))


def future_time(name: str, text: str) -> int:
    """Return a time in the body of a request in milliseconds since the epoch.

    Raises:
        ApiError: 422 it is no time, or has passed.
    """
    try:
        at_ms = parse_rfc3339(text, up=True)
    except ValueError as err:
        raise invalid([ErrorDetail(f"body.{name}", str(err), text)]) from err
    if at_ms <= time.time_ns() // 1_000_000:
        raise invalid([ErrorDetail(f"body.{name}", "has passed", text)])
    return at_ms
