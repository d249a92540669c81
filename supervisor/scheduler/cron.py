"""Cron expressions as instants: croniter's arithmetic, with the rules for daylight saving time laid over it.

An expression has five fields (minute, hour, day of month, month, day of week) or is a macro such as ``@daily``.
Restricted day of month and day of week are joined by *or*, as Vixie cron joins them.

Daylight saving time, for expressions whose minute and hour are fixed (no ``*`` at their start): a local time that
does not exist runs once, at the end of the gap; one that exists twice runs the first time. Other expressions follow
real time: nothing is skipped and nothing is repeated.
"""

import heapq
import re
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import croniter
from croniter.croniter import CroniterError

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_FIELDS = 5
_VALUES = (60, 24, 31, 12, 7)
_RANDOM = re.compile(r"\b[HR]\b", re.IGNORECASE)
_STEP = re.compile(r"/(\d+)")
_MAX_LENGTH = 200


def validate(expression: str) -> str | None:
    """What is wrong with `expression`, or None."""
    if len(expression) > _MAX_LENGTH:
        return f"longer than {_MAX_LENGTH} characters"
    text = expression.strip()
    if text.startswith("@"):
        if text.lower() in MACROS:
            return None
        return f"unknown macro {text}; known are {', '.join(MACROS)}"
    fields = text.split()
    if len(fields) != _FIELDS:
        return f"{len(fields)} fields where 5 belong: minute hour day-of-month month day-of-week"
    for field, values in zip(fields, _VALUES, strict=True):
        if _RANDOM.search(field):
            return "H (hashed) and R (random) are not offered: say the time"
        if any(int(step) > values for step in _STEP.findall(field)):
            return f"a step in {field} is longer than the field, which has {values} values"
    try:
        croniter.expand(text, strict=True)
    except CroniterError as err:
        return str(err)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as err:  # what croniter lets through
        return f"cannot be read ({err})"
    return None


class Cron:
    """One expression in one time zone."""

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        """Take an expression that :func:`validate` accepted."""
        text = expression.strip()
        self._text = MACROS.get(text.lower(), text)
        self._zone = zone
        minute, hour = self._text.split()[:2]
        self._fixed = minute[0] != "*" and hour[0] != "*"

    def after(self, after_ms: int) -> int | None:
        """The first instant later than `after_ms` (milliseconds since the epoch); None when there is none."""
        start = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(self._zone)
        times = croniter(self._text, start)
        while True:
            try:
                found: datetime = times.get_next(datetime)
            except CroniterError:  # no such date within croniter's horizon of 50 years
                return None
            if not self._skipped(found, times):
                return int(found.timestamp() * 1000)

    def note(self, at: int) -> str | None:
        """What daylight saving time makes of an instant of this expression.

        Returns:
            ``gap``: its local time does not exist, so it comes at the gap's end; ``repeated``: its local time comes
            twice; None for all others.
        """
        local = datetime.fromtimestamp(at / 1000, UTC).astimezone(self._zone)
        if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
            return "repeated"
        if not self._fixed:
            return None
        minutes, hours = croniter(self._text, local).expanded[:2]
        return None if _is_in(local.minute, minutes) and _is_in(local.hour, hours) else "gap"

    def local(self, at: int) -> str:
        """An instant on the clocks of the expression's time zone, RFC 3339 with its offset."""
        return datetime.fromtimestamp(at / 1000, UTC).astimezone(self._zone).isoformat(timespec="seconds")

    def _skipped(self, found: datetime, times: croniter) -> bool:
        if self._fixed:
            return bool(found.fold) and found.replace(fold=0).utcoffset() != found.utcoffset()
        minutes, hours = times.expanded[:2]
        return (minutes[0] != "*" and found.minute not in minutes) or (hours[0] != "*" and found.hour not in hours)


def next_instant(crons: list[Cron], after_ms: int) -> int | None:
    """The first instant of any of `crons` later than `after_ms`."""
    return min((found for cron in crons if (found := cron.after(after_ms)) is not None), default=None)


class Instant(NamedTuple):
    """An instant to come."""

    at: int
    """Milliseconds since the epoch."""
    local: str
    """On the clocks of the schedule's time zone, RFC 3339 with its offset."""
    note: str | None
    """See :meth:`Cron.note`."""


def upcoming(crons: list[Cron], after_ms: int, count: int) -> list[Instant]:
    """The first `count` instants of any of `crons` later than `after_ms`."""
    heads = [(found, index) for index, cron in enumerate(crons) if (found := cron.after(after_ms)) is not None]
    heapq.heapify(heads)
    instants: list[Instant] = []
    while heads and len(instants) < count:
        at, index = heads[0]
        cron = crons[index]
        if not instants or instants[-1].at != at:
            instants.append(Instant(at, cron.local(at), cron.note(at)))
        following = cron.after(at)
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (following, index))
    return instants


def _is_in(value: int, field: list[int | str]) -> bool:
    return field[0] == "*" or value in field
