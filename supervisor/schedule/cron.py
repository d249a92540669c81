"""Instants of cron expressions, including the rules for clock changes.

An expression has five fields (minute, hour, day of month, month, day of week), or six with seconds in front, or is a
macro such as ``@daily``. As in Vixie cron, a day matches if day of month *or* day of week matches. If one of these
fields begins with ``*``, both must match. Only the first character counts: ``5,*`` and ``1-31`` restrict.

An expression with a fixed minute and hour (neither begins with ``*``) is a time of day. If clocks skip such a time, it
occurs once, at the end of the gap. If clocks repeat it, it occurs twice, and the task decides which instants run. Other
expressions follow the clocks: every matching local time runs as often as it occurs.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from supervisor.schedule.calendars import ClosedDays, month_number, month_of, named
from supervisor.schedule.clock_changes import DstGap, DstOverlap, runs_repeated_time, runs_skipped_time, span_at
from supervisor.schedule.cron_fields import DAY_S, FIELDS, HORIZON_S, CronPattern, InvalidField

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_DAY_MS = DAY_S * 1000
_INSTEAD = {"@reboot": 'write run_on_start = "boot"', "@every": 'write every = "5m"'}
_VALUES = (60, 60, 24, 31, 12, 7)
_FIELDS = (
    "second must be 0-59",
    "minute must be 0-59",
    "hour must be 0-23",
    "day of the month must be 1-31 or L, or a single day with W such as 15W",
    "month must be 1-12 or jan-dec",
    "day of the week must be 0-7 or sun-sat, or such as 5#2 (the second Friday) or L5 (the last one)",
)
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)", re.IGNORECASE)
_RANDOM = re.compile(r"\b[HR]\b|~", re.IGNORECASE)
_STEP = re.compile(r"/(\d+)")
_MAX_LENGTH = 200


class Occurrence(NamedTuple):
    """An instant of a schedule."""

    at: int
    """Milliseconds since the epoch."""
    runs: bool
    """False if its local time does not exist or is repeated, and the policy of the task skips it."""
    note: str | None = None
    """``gap``: its local time does not exist, so it occurs at the end of the gap. ``repeated``: its local time occurs
    twice. None for all others."""
    closed: str | None = None
    """What keeps it from running: the calendar that closes its day, with the name of the day, or a window. None if
    nothing does."""
    window: str | None = None
    """The window that skips it, or that deferred instants to it."""
    window_end: int = 0
    """When the window that skips it ends, in milliseconds since the epoch."""


def has_fixed_time(expression: str) -> bool:
    """Return whether a valid expression has a time of day: neither its minute nor its hour begins with ``*``."""
    text = expression.strip()
    minute, hour = MACROS.get(text.lower(), text).split()[-FIELDS:][:2]
    return minute[0] != "*" and hour[0] != "*"


def validate(expression: str) -> str | None:
    """Return a message about the error in `expression`; None if it is valid."""
    if len(expression) > _MAX_LENGTH:
        return f"longer than {_MAX_LENGTH} characters"
    text = expression.strip()
    if text.startswith("@"):
        return _validate_macro(text)
    if zone := _ZONE.match(text):
        return f'the time zone is a separate key; write timezone = "{zone[1]}"'
    fields = text.split()
    if len(fields) not in (FIELDS, FIELDS + 1):
        return (
            f"{len(fields)} fields instead of 5: minute hour day-of-month month day-of-week"
            " (or 6, with the second in front)"
        )
    for field, values in zip(fields, _VALUES[-len(fields) :], strict=True):
        if _RANDOM.search(field):
            return "H, R and ~ (hashed and random times) are not supported; write the time, or set jitter"
        steps = [int(step) for step in _STEP.findall(field)]
        if 0 in steps:
            return f"{field}: a step must be at least 1"
        if any(step > values for step in steps):
            return f"a step in {field} is longer than the field, which has {values} values"
    pattern = _pattern(text)
    if pattern is None:
        return _refusal(fields)
    if next(pattern.local_times(0), None) is None:
        return f"[{text}] never occurs"
    return None


def _pattern(text: str) -> CronPattern | None:
    try:
        return CronPattern(text)
    except InvalidField:
        return None


def _refusal(fields: list[str]) -> str:
    """Return a message about the first invalid field."""
    for index, (field, meaning) in enumerate(zip(fields, _FIELDS[-len(fields) :], strict=True)):
        alone = ["*"] * len(fields)
        alone[index] = field
        if _pattern(" ".join(alone)) is None:
            return f"{field}: {meaning}"
    return f"{' '.join(fields)} is not valid"


def _validate_macro(text: str) -> str | None:
    if text.lower() in MACROS:
        return None
    from difflib import get_close_matches  # imported only for an error

    near = get_close_matches(text.lower(), MACROS, n=1, cutoff=0.75)
    remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(MACROS)}"
    return f"unknown macro {text}; {_INSTEAD.get(text.split(maxsplit=1)[0].lower(), remedy)}"


class Cron:
    """A cron expression in a time zone."""

    def __init__(
        self,
        expression: str,
        zone: ZoneInfo,
        gap: DstGap = "run",
        overlap: DstOverlap = "first",
        closed: ClosedDays | None = None,
    ) -> None:
        """Parse an expression that :func:`validate` accepted.

        Args:
            expression: five or six fields, or a macro.
            zone: the time zone of the expression.
            gap: policy for local times that do not exist.
            overlap: policy for local times that occur twice.
            closed: the closed days of its task.
        """
        text = expression.strip()
        text = MACROS.get(text.lower(), text)
        self.expression = expression
        self._pattern = CronPattern(text, closed)
        self._closed = closed
        self._zone = zone
        self._fixed = has_fixed_time(text)
        self._gap_runs = runs_skipped_time(gap)
        self._overlap = overlap

    def occurrences(self, after_ms: int) -> Iterator[Occurrence]:
        """Yield the instants after `after_ms` in order; stop if none runs for 50 years."""
        closed = self._closed
        if closed is None:
            yield from (occurrence for _, occurrence in self._occurrences(after_ms))
            return
        for local, occurrence in self._occurrences(after_ms):
            reason = closed.reason(local // DAY_S)
            yield occurrence if reason is None else Occurrence(occurrence.at, runs=False, closed=reason)

    def _occurrences(self, after_ms: int) -> Iterator[tuple[int, Occurrence]]:
        """Yield the instants as if all days were open, each with the local time that it stands for."""
        after_s = after_ms // 1000
        running = after_s
        span = span_at(self._zone, after_s)
        times = self._pattern.local_times(after_s + span.offset)
        local = next(times, None)
        while local is not None:
            offset, once_from, once_until, end = span.offset, span.repeated_until, span.repeated_from, span.end
            while local is not None and (at := local - offset) < end:
                running = at
                if once_from <= at < once_until:
                    yield local, Occurrence(at * 1000, True)
                else:
                    yield local, self._repeated(at, again=at < once_from)
                local = next(times, None)
            # All times may be in gaps: clocks in Europe skip "30 2 * 3 L0" every year.
            if local is None or end - running > HORIZON_S:
                return
            following = span_at(self._zone, end)
            first = end + following.offset
            in_gap, skipped = local < first, local
            if in_gap or following.offset < offset:  # local times were skipped or are repeated: search again
                times = self._pattern.local_times(first - 1)
                local = next(times, None)
            if in_gap and self._fixed and local != first:
                running = end if self._gap_runs else running
                yield skipped, Occurrence(end * 1000, self._gap_runs, "gap")
            span = following

    def moved_from(self, at_ms: int) -> str | None:
        """Name the closed days whose times moved to the local day of an instant; None if there are none."""
        if self._closed is None:
            return None
        span = span_at(self._zone, at_ms // 1000)
        origins = self._pattern.moved_from((at_ms // 1000 + span.offset) // DAY_S)
        return named(self._closed, origins) if origins else None

    def moved_into_the_past(self, before: "Cron", now_ms: int) -> list[int]:
        """Return the instants up to `now_ms` that stand for days whose instants `before` still had to come."""
        if not (self._fixed and self.expression == before.expression):
            return []
        former = before._by_origin(now_ms)  # noqa: SLF001 - of the same class
        ran = set(former.values())
        return [
            at
            for origin, at in self._by_origin(now_ms).items()
            if at <= now_ms < former.get(origin, 0) and at not in ran
        ]

    def _by_origin(self, now_ms: int) -> dict[int, int]:
        """Return the instants of months around `now_ms` that run, by the day or month for which they stand."""
        number = month_number(local_day(now_ms, self._zone))
        (first, _), (_, end) = month_of(number - 1), month_of(number + 1)
        coming = takewhile(lambda instant: instant.at < end * _DAY_MS, self.occurrences(first * _DAY_MS))
        at_of_day = {local_day(instant.at, self._zone): instant.at for instant in coming if instant.runs}
        months = [self._pattern.places(month) for month in range(number - 2, number + 3)]
        return {origin: at_of_day[day] for places in months for origin, day in places.items() if day in at_of_day}

    def _repeated(self, at_s: int, *, again: bool) -> Occurrence:
        runs = not self._fixed or runs_repeated_time(self._overlap, again=again)
        return Occurrence(at_s * 1000, runs, "repeated")


def local_day(at_ms: int, zone: ZoneInfo) -> int:
    """Return the local day of an instant, in days since the epoch."""
    return (at_ms // 1000 + span_at(zone, at_ms // 1000).offset) // DAY_S


def day_end(day: int, zone: ZoneInfo) -> int:
    """Return the first instant of the day after a local day, in milliseconds since the epoch."""
    midnight = datetime.fromtimestamp((day + 1) * DAY_S, UTC).replace(tzinfo=zone)
    return int(midnight.timestamp()) * 1000


def local_text(at_ms: int, zone: ZoneInfo) -> str:
    """Return an instant as local time in `zone`, in RFC 3339 format with the offset."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).isoformat(timespec="seconds")
