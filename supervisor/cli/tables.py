"""Prints records as tables, aligned on a terminal and separated by tabs in a pipe."""

import json
import sys
from collections.abc import Collection, Sequence
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
RUN_COLUMNS = ("RUN", "TASK", "INSTANCE", "RESULT", "TRIGGER", "STARTED", "TOOK")
RUNS_GIVE_WAY = ("INSTANCE", "TRIGGER", "TOOK", "STARTED")
"""Columns of runs that a narrow terminal does not show."""
_SHOWN_ID = 8
"""Number of characters of an id on a terminal, from its end, because the first 6 stay the same for 17 minutes."""
_GAP = 2
"""Number of cells between two columns."""
_LEAST_PROSE = 16
"""Minimum width of wrapped text, below which it would be hard to read."""
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def show_json(data: object) -> None:
    """Print `data` as JSON, in ASCII only, so that it is safe on any terminal."""
    print(json.dumps(data, indent=2))


def attributed(unit: dict[str, Any]) -> str:
    """Say who disabled a service or paused a task, when, until when and why; "" if the daemon does not know."""
    withheld = unit.get("withheld")
    if withheld is None:
        return ""
    until = f" until {when(withheld.get('until'))}" if "until" in withheld else ""
    note = f": {withheld.get('note')}" if "note" in withheld else ""
    return f"by {withheld['by']} since {when(withheld['at'])}{until}{note}"


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    prose: Collection[str] = (),
    gives_way: Sequence[str] = (),
) -> None:
    """Print a table: aligned on a terminal, else one line per row, its cells separated by tabs.

    Args:
        columns: The headings.
        rows: The cells of each row.
        prose: The columns whose cells can be wrapped. Names, ids and numbers are never wrapped.
        gives_way: The columns that are hidden on a narrow terminal, the least important first. If the other columns do
            not fit either, each row becomes a block of lines with one cell on each.
    """
    shown = [[harmless(cell).replace("\t", " ") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [columns, *shown]:
            print("\t".join(row))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False)
    longest = [max((cell_len(row[index]) for row in shown), default=0) for index in range(len(columns))]
    widths = _layout(columns, longest, prose, gives_way, console.width)
    if widths is None:
        _show_blocks(columns, shown)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, width in widths.items():
        table.add_column(columns[index], overflow="fold", width=width)
    for row in shown:
        cells = [row[index] for index in widths]
        table.add_row(*(Text(cell, style=_COLOURS.get(cell.split(" ")[0], "")) for cell in cells))
    console.print(table, crop=False)
    hidden = [column for index, column in enumerate(columns) if index not in widths]
    if hidden and shown:
        console.print(f"(a wider terminal shows {', '.join(hidden)}, too)", style="dim")


def _layout(
    columns: Sequence[str],
    longest: Sequence[int],
    prose: Collection[str],
    gives_way: Sequence[str],
    available: int,
) -> dict[int, int] | None:
    """Return the width of each shown column, by its index; None if the mandatory columns do not fit."""
    shown = list(range(len(columns)))
    for leaving in (None, *gives_way):
        shown = [index for index in shown if columns[index] != leaving]
        for wrapped in (False, True):
            widths = {index: max(longest[index], _heading(columns[index], wrapped=wrapped)) for index in shown}
            wrapping = sorted((index for index in shown if columns[index] in prose), key=widths.__getitem__)
            fixed = sum(width for index, width in widths.items() if index not in wrapping)
            room = available - fixed - _GAP * (len(shown) - 1)
            if sum(min(widths[index], _LEAST_PROSE) for index in wrapping) > room or room < 0:
                continue
            for done, index in enumerate(wrapping):
                widths[index] = min(widths[index], room // (len(wrapping) - done))
                room -= widths[index]
            return widths
    return None


def _heading(column: str, *, wrapped: bool) -> int:
    """Return the width of a heading; `wrapped`: with each word on a line of its own."""
    return max(map(len, column.split(" "))) if wrapped else len(column)


def _show_blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as a block of lines, with one cell on each."""
    width = max(map(len, columns))
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            print(f"{column:<{width}}  {cell}")
        print()


def when(text: str | None, now: datetime | None = None) -> str:
    """Format a time of the API for a cell: relative on a terminal ("in 5m", "3h ago"), unchanged in a pipe."""
    if not text:
        return "-"
    if not sys.stdout.isatty():
        return text
    return relative(text, now or datetime.now(UTC))


def relative(text: str, now: datetime) -> str:
    """Format an RFC 3339 time relative to `now`; a text that is not a time is returned unchanged."""
    moment = _moment(text)
    if moment is None:
        return text
    seconds = round((moment - now).total_seconds())
    if seconds == 0:
        return "now"
    span = _span(abs(seconds))
    return f"in {span}" if seconds > 0 else f"{span} ago"


def duration(start: str | None, end: str | None, now: datetime | None = None) -> str:
    """Format the time from `start` to `end`, or to now if there is no end."""
    started = _moment(start) if start else None
    ended = _moment(end) if end else now or datetime.now(UTC)
    if started is None or ended is None:
        return "-"
    return span((ended - started).total_seconds() * 1000)


def span(ms: float) -> str:
    """Format a duration in milliseconds; one below 0, which a clock that was set back causes, counts as 0."""
    seconds = max(0.0, ms / 1000)
    return f"{seconds:.1f}s" if seconds < 60 else _span(round(seconds))


def _moment(text: str) -> datetime | None:
    """Parse an RFC 3339 time; None if the text is invalid or has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _span(seconds: int) -> str:
    """Format a time span with its two largest units, such as ``2h 5m``."""
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0s"


def outcome(run: dict[str, object]) -> str:
    """Return the outcome of a run for a cell: ``succeeded``, ``failed (3)`` or ``running``."""
    if run.get("status") != "ended":
        return str(run.get("status", "-"))
    reason = str(run.get("endReason", "ended"))
    code = run.get("exitCode", -1)
    return f"{reason} ({code})" if isinstance(code, int) and code > 0 else reason


def run_row(run: dict[str, Any]) -> list[str]:
    """Return the cells of a run for `RUN_COLUMNS`."""
    attempt = run.get("retryAttempt", 0)
    trigger = str(run["triggeredBy"])
    return [
        str(run["id"])[-_SHOWN_ID:] if sys.stdout.isatty() else str(run["id"]),
        str(run["taskName"]),
        str(run["instanceIndex"]),
        outcome(run),
        f"{trigger}, retry {attempt}" if attempt else trigger,
        when(run.get("startedAt")),
        duration(run.get("startedAt"), run.get("endedAt")),
    ]
