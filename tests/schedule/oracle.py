"""A slow and simple evaluation of cron expressions that walks over every minute.

It reads the output of :func:`expression`: numbers, ranges, steps and lists.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from supervisor.schedule.cron import Occurrence

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
HOUR = 60


def values(field: str, low: int, high: int) -> set[int]:
    numbers: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start, end = (low, high) if span == "*" else (int(first), int(last or first))
        numbers.update(range(start, end + 1, int(step or 1)))
    return numbers


class _Pattern:
    def __init__(self, text: str) -> None:
        fields = text.split()
        self.fixed = fields[0][0] != "*" and fields[1][0] != "*"
        self._both_days = "*" in (fields[2][0], fields[4][0])
        self._minutes, self._hours, self._days, self._months, self._weekdays = (
            values(field, *bounds) for field, bounds in zip(fields, _RANGES, strict=True)
        )

    def matches(self, local: int) -> bool:
        return local % HOUR in self._minutes and self.hour_matches(local // HOUR)

    def hour_matches(self, hour: int) -> bool:
        return hour % 24 in self._hours and self._date_matches(hour // 24)

    def _date_matches(self, day: int) -> bool:
        date = datetime.fromtimestamp(day * 86_400, UTC)
        monthday, weekday = date.day in self._days, date.isoweekday() % 7 in self._weekdays
        return date.month in self._months and ((monthday and weekday) if self._both_days else (monthday or weekday))


class Oracle:
    """The clock of one zone between two minutes since the epoch."""

    def __init__(self, zone: ZoneInfo, start: int, end: int) -> None:
        self._zone = zone
        self._start, self._end = start, end
        self._offsets = [self._offset(minute) for minute in range(start, end + HOUR + 1, HOUR)]

    def _offset(self, minute: int) -> int:
        offset = datetime.fromtimestamp(minute * 60, self._zone).utcoffset()
        assert offset is not None
        assert offset % timedelta(minutes=1) == timedelta()
        return offset // timedelta(minutes=1)

    def walk(self, text: str, gap: str, overlap: str, limit: int) -> list[Occurrence]:
        """Return the first instants after the start and not after the end."""
        pattern = _Pattern(text)
        matching: list[tuple[int, int]] = []
        gaps: set[int] = set()
        for minute, local, skipped in self._minutes(pattern):
            if pattern.matches(local):
                matching.append((minute, local))
            elif pattern.fixed and any(map(pattern.matches, skipped)):
                gaps.add(minute)
            if len(matching) + len(gaps) > limit + 2:
                break
        when: dict[int, list[int]] = {}
        for minute, local in matching:
            when.setdefault(local, []).append(minute)
        occurrences = [Occurrence(minute * 60_000, gap == "run", "gap") for minute in gaps]
        for minute, local in matching:
            first_second = self._twice(minute, local)
            if first_second is None:
                occurrences.append(Occurrence(minute * 60_000, runs=True))
            else:
                runs = not pattern.fixed or overlap in ("both", ("first", "second")[first_second.index(minute)])
                occurrences.append(Occurrence(minute * 60_000, runs, "repeated"))
        return sorted(occurrences)[:limit]

    def _twice(self, minute: int, local: int) -> list[int] | None:
        """Return both minutes at which the clock shows the same time, or None."""
        there = {minute}
        for offset in {self._offset(minute - 24 * HOUR), self._offset(minute + 24 * HOUR)}:
            other = local - offset
            if self._offset(other) == offset:
                there.add(other)
        return sorted(there) if len(there) == 2 else None

    def _minutes(self, pattern: _Pattern) -> Iterator[tuple[int, int, range]]:
        """Yield minutes that may match: since the epoch, local, and the local minutes skipped just before."""
        for index, minute in enumerate(range(self._start, self._end + 1, HOUR)):
            offset = self._offsets[index]
            if offset == self._offsets[index + 1] and (index == 0 or offset == self._offsets[index - 1]):
                hours = {(minute + offset) // HOUR, (minute + offset + HOUR - 1) // HOUR}
                if not any(map(pattern.hour_matches, hours)):
                    continue
            before = self._offset(minute - 1)
            for number in range(max(minute, self._start + 1), min(minute + HOUR, self._end + 1)):
                now = self._offset(number)
                yield number, number + now, range(number + before, number + now)
                before = now


def expression(choose: random.Random) -> str:
    """Return a random expression, more often for the night, when clocks change."""
    minute = choose.choice((str(choose.randrange(60)), "0", "0,30", "15-45/15", "*/15", "*/30"))
    hour = choose.choice((_night(choose), _night(choose), f"{_night(choose)},{_night(choose)}", "1-3", "*/2", "*"))
    days = choose.choice(
        ("* * *", "* * *", "* * 0", "*/2 * 0", "1-7 * 0", "25-31 3,10 *", "29 2 *", "31 * *", "* 3,10 0,1")
    )
    return f"{minute} {hour} {days}"


def _night(choose: random.Random) -> str:
    return str(choose.choice((0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 23, choose.randrange(24))))
