"""Local times that match a cron expression, on a clock that never changes.

croniter parses single fields. Parsed fields are cached, so the cost of ten thousand expressions is that of their
distinct fields. The iteration over times is our own.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple

from supervisor.schedule.crontext import croniter

FIELDS = 5
_ORDER = (5, 0, 1, 2, 3, 4)
"""Positions of the fields in croniter's lists, where the optional second is last."""
_RANGES = (range(60), range(24), range(1, 32), range(1, 13), range(7), range(60))
"""All values of each field, in croniter's order."""
_DAY, _MONTH, _WEEKDAY = 2, 3, 4
_SPAN = re.compile(r"([a-z]{3}|\d+)-([a-z]{3}|\d+)(?:/0*([1-9]\d*))?(#\w+)?")
_DAY_S = 86_400
_HORIZON_MONTHS = 50 * 12
"""A date that does not occur within this time never occurs."""
_EPOCH = date(1970, 1, 1).toordinal()
_EPOCH_WEEKDAY = 4
_SATURDAY = 6


class _Field(NamedTuple):
    values: tuple[int, ...]
    wild: bool
    """Whether it begins with ``*`` or ``?``, and so does not restrict the date."""
    last: bool
    """``L``: the last day of the month."""
    nth: tuple[tuple[int, int | None], ...]
    """Of days of the week: the number within the month (``#``); None for the last one (``L``)."""
    nearest: tuple[int, ...]
    """Of days of the month: days that move to the nearest working day (``W``)."""


@lru_cache(maxsize=4096)
def _field(text: str, place: int) -> _Field:
    """Parse one field; exceptions of croniter pass through."""
    others = ["1"] * (FIELDS + 1)
    others[_ORDER.index(place)] = ",".join(_straight(part, place) for part in text.split(","))
    read = croniter(" ".join(others), 0.0, second_at_beginning=True)
    found = read.expanded[place]
    values = _RANGES[place] if "*" in found else sorted(value for value in found if isinstance(value, int))
    nth: set[tuple[int, int | None]] = set()
    if place == _WEEKDAY:
        for weekday, numbers in read.nth_weekday_of_month.items():
            weekdays = _RANGES[_WEEKDAY] if weekday == "*" else (weekday,)
            nth |= {(one, None if number == "l" else number) for one in weekdays for number in numbers}
    return _Field(
        values=tuple(values),
        wild=text[0] in "*?",
        last="l" in found,
        nth=tuple(nth),
        nearest=tuple(read.nearest_weekday) if place == _DAY else (),
    )


def _straight(part: str, place: int) -> str:
    """Expand a range whose end is not after its start; return anything else unchanged.

    croniter reads ``5-5`` as all values, and miscounts steps that wrap around the end of a field.
    """
    found = _SPAN.fullmatch(part)
    if found is None:
        return part
    names, values = croniter.ALPHACONV[place], _RANGES[place]
    low, high = (names.get(end, int(end) if end.isdigit() else -1) for end in found.groups()[:2])
    if place == _WEEKDAY and low == 7:
        low, high = 0, high % 7
    if low == high:
        return f"{low}{found[4] or ''}"
    if found[4] or low not in values or high not in values or low < high:
        return part
    both = [*range(low, values[-1] + 1), *range(values[0], high + 1)]
    return ",".join(map(str, both[:: int(found[3] or 1)]))


class _Dates:
    """The days of a calendar."""

    def __init__(self, day: str, month: str, weekday: str) -> None:
        self._day = _field(day, _DAY)
        self._weekday = _field(weekday, _WEEKDAY)
        self._months = frozenset(_field(month, _MONTH).values)
        # As in Vixie cron: a field restricts unless it begins with a star; if both restrict, either may match.
        self._both = self._day.wild or self._weekday.wild
        self._every = len(self._day.values) == len(_RANGES[_DAY]) and len(self._weekday.values) == len(
            _RANGES[_WEEKDAY]
        )

    def of(self, number: int) -> tuple[int, ...]:
        """Return the matching days of a month as days since the epoch; month 0 is January of year 0."""
        year, month = divmod(number, 12)
        if month + 1 not in self._months:
            return ()
        first = date(year, month + 1, 1).toordinal() - _EPOCH
        following = date(year + (month == 11), (month + 1) % 12 + 1, 1).toordinal() - _EPOCH
        if self._every and not self._weekday.nth:
            return tuple(range(first, following))
        length, weekday = following - first, (first + _EPOCH_WEEKDAY) % 7
        days, others = self._by_day(length, weekday), self._by_weekday(length, weekday)
        return tuple(first + day - 1 for day in sorted(days & others if self._both else days | others))

    def _by_day(self, length: int, weekday: int) -> set[int]:
        """Return the matching days of a month that begins on `weekday`."""
        found = self._day
        if found.nearest:
            return {_working_day(min(day, length), length, weekday) for day in found.nearest}
        days = {day for day in found.values if day <= length}
        return days | {length} if found.last else days

    def _by_weekday(self, length: int, weekday: int) -> set[int]:
        if not self._weekday.nth:
            wanted = frozenset(self._weekday.values)
            return {day for day in range(1, length + 1) if (weekday + day - 1) % 7 in wanted}
        found = set()
        for one, number in self._weekday.nth:
            days = range(1 + (one - weekday) % 7, length + 1, 7)
            if number is None or number <= len(days):
                found.add(days[-1 if number is None else number - 1])
        return found


def _working_day(day: int, length: int, weekday: int) -> int:
    """Return the working day (Monday to Friday) nearest to a day, within the same month."""
    there = (weekday + day - 1) % 7
    if there == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if there == 0:
        return day + 1 if day < length else day - 2
    return day


@lru_cache(maxsize=2048)
def _dates(day: str, month: str, weekday: str) -> _Dates:
    return _Dates(day, month, weekday)


@lru_cache(maxsize=16_384)
def _month(dates: _Dates, number: int) -> tuple[int, ...]:
    return dates.of(number)


class Pattern:
    """An expression of five fields, or of six with the second in front."""

    __slots__ = ("_dates", "_hours", "_minutes", "_seconds")

    def __init__(self, text: str) -> None:
        """Read `text`.

        Raises:
            CroniterError: a field is invalid.
            ValueError, KeyError, IndexError, TypeError, AttributeError: raised by croniter for some invalid fields.
        """
        second, minute, hour, day, month, weekday = ["0", *text.lower().split()][-FIELDS - 1 :]
        self._seconds = _field(second, _ORDER[0]).values
        self._minutes = _field(minute, _ORDER[1]).values
        self._hours = _field(hour, _ORDER[2]).values
        self._dates = _dates(day, month, weekday)

    def local_times(self, after: int) -> Iterator[int]:
        """Yield the matching local times after `after` in order, as seconds of a clock that never changes.

        End if no date matches for 50 years.
        """
        today, now = divmod(after + 1, _DAY_S)
        for day in self._days(today):
            start = day * _DAY_S
            for time in self._times(now if day == today else 0):
                yield start + time

    def _days(self, today: int) -> Iterator[int]:
        there = datetime.fromtimestamp(today * _DAY_S, UTC)
        number = there.year * 12 + there.month - 1
        days = _month(self._dates, number)
        days = days[bisect_left(days, today) :]
        last = number + _HORIZON_MONTHS
        while number < last:
            if days:
                yield from days
                last = number + _HORIZON_MONTHS
            number += 1
            days = _month(self._dates, number)

    def _times(self, now: int) -> Iterator[int]:
        """Yield the matching seconds of a day from `now`."""
        hour, rest = divmod(now, 3600)
        minute, second = divmod(rest, 60)
        for one in self._hours[bisect_left(self._hours, hour) :]:
            minutes = self._minutes if one > hour else self._minutes[bisect_left(self._minutes, minute) :]
            for other in minutes:
                seconds = self._seconds
                if one == hour and other == minute:
                    seconds = seconds[bisect_left(seconds, second) :]
                start = one * 3600 + other * 60
                for third in seconds:
                    yield start + third
