"""Records for people: aligned on a terminal, separated by tabs in a pipe."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from supervisor.cli.terminal import harmless

_COLOURS = {
    "succeeded": "green",
    "running": "cyan",
    "failed": "red",
    "crashed": "red",
    "timeout": "red",
    "start_failed": "red",
    "log_overflow": "red",
    "fatal": "red",
    "backoff": "yellow",
    "missed": "yellow",
    "queue_full": "yellow",
    "skipped": "yellow",
    "stopped": "yellow",
    "paused": "yellow",
}
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def show_json(data: Any) -> None:
    """Print `data` as JSON; ASCII only, so that it is safe on any terminal."""
    print(json.dumps(data, indent=2))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with rich on a terminal, else one line per row, its cells separated by tabs."""
    shown = [[harmless(cell).replace("\t", " ") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [columns, *shown]:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        # A run's id is marked with the mouse, so it stays whole, and so do words of headings.
        whole = column.split(" ") + ([row[index] for row in shown] if column == "RUN" else [])
        table.add_column(column, overflow="fold", min_width=max(map(len, whole)))
    for row in shown:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell.split(" ")[0], "")) for cell in row))
    Console(highlight=False, soft_wrap=False).print(table, crop=False)


def when(text: str | None, now: datetime | None = None) -> str:
    """A time of the API for a cell: relative on a terminal ("in 5m", "3h ago"), as it is in a pipe."""
    if not text:
        return "-"
    if not sys.stdout.isatty():
        return text
    return relative(text, now or datetime.now(UTC))


def relative(text: str, now: datetime) -> str:
    """How far the RFC 3339 time `text` is from `now`; as it is when it cannot be read."""
    moment = _moment(text)
    if moment is None:
        return text
    seconds = round((moment - now).total_seconds())
    if seconds == 0:
        return "now"
    span = _span(abs(seconds))
    return f"in {span}" if seconds > 0 else f"{span} ago"


def duration(start: str | None, end: str | None, now: datetime | None = None) -> str:
    """How long something took that began at `start`; up to now when it has no end."""
    began = _moment(start) if start else None
    ended = _moment(end) if end else now or datetime.now(UTC)
    if began is None or ended is None:
        return "-"
    seconds = (ended - began).total_seconds()
    return f"{seconds:.1f}s" if seconds < 60 else _span(round(seconds))


def _moment(text: str) -> datetime | None:
    """The RFC 3339 time `text`; None when it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _span(seconds: int) -> str:
    """The two largest units of a time span."""
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0s"


def outcome(run: dict[str, Any]) -> str:
    """What became of a run (naming A), in a cell: ``succeeded``, ``failed (3)``, ``running``."""
    if run.get("status") != "ended":
        return str(run.get("status", "-"))
    reason = str(run.get("endReason", "ended"))
    code = run.get("exitCode", -1)
    return f"{reason} ({code})" if isinstance(code, int) and code > 0 else reason
