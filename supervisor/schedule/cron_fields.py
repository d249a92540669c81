"""Local times that match a cron expression, on a clock that is never set.

croniter reads the fields. Parsed fields are cached: ten thousand expressions cost as much as their distinct fields.
"""

import platform
import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from supervisor.schedule.calendars import ClosedDays, Dates, month_number, month_of


def _unknown(*_arguments: str) -> tuple[str, str]:
    raise RuntimeError("not asked")


# Asked at the import of croniter, it would start file(1). Without it, croniter looks at the size of a pointer.
_architecture, platform.architecture = platform.architecture, _unknown  # type: ignore[assignment]
try:
    from croniter import CroniterError, croniter
finally:
    platform.architecture = _architecture

FIELDS = 5
_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY = range(FIELDS)
"""Indexes of the fields."""
_SECOND = _MINUTE
_NTH_OF_RANGE = re.compile(r"([0-9a-z]+-[0-9a-z]+)(#[0-9]+)")
DAY_S = 86_400
_HORIZON_MONTHS = 50 * 12
"""If a date does not occur within this time, it counts as impossible."""
HORIZON_S = 50 * 366 * DAY_S
"""The same in seconds."""
_EPOCH = date(1970, 1, 1).toordinal()
_EPOCH_WEEKDAY = 4
_SATURDAY = 6
_DAYS, _WEEKDAYS = 31, 7


class _CronField(NamedTuple):
    values: tuple[int, ...]
    wild: bool
    """Whether it begins with ``*`` or ``?``, and so does not restrict the date."""
    last: bool
    """``L``: the last day of the month."""
    nth: tuple[tuple[int, int | None], ...]
    """For days of the week: the day, and its number within the month (``#``); None for the last one (``L``)."""
    nearest: bool
    """``W``: a day of the month moves to the nearest working day. Months without the day are left out."""


class InvalidField(ValueError):
    """A field of an expression is invalid."""


@lru_cache(maxsize=4096)
def _field(text: str, index: int) -> _CronField:
    """Parse a field, which must be in lower case.

    Raises:
        InvalidField: the field is invalid.
    """
    values: set[int] = set()
    nth: set[tuple[int, int | None]] = set()
    last, nearest = False, index == _DAY and "w" in text
    for part in [text] if nearest or "?" in text else text.split(","):  # neither can be part of a list
        days = _NTH_OF_RANGE.fullmatch(part) if index == _WEEKDAY else None
        # croniter refuses 1-5#2 and misreads fri-fri#2
        for piece in [part] if days is None else [f"{day}{days[2]}" for day in _values(days[1], index)]:
            numbers, ordinals = _read(piece, index)
            if ordinals:
                nth |= {(day, None if which == "l" else which) for day in ordinals for which in ordinals[day]}
            elif numbers == ["l"]:
                last = True
            else:
                values.update(_values(piece, index))
    if nth and values:
        raise InvalidField(f"{text} mixes days with # or L and other days")
    return _CronField(tuple(sorted(values)), text[0] in "*?", last, tuple(nth), nearest)


def _values(part: str, index: int) -> list[int]:
    """Return the values of a part without ``L`` and ``#``; a range that croniter misreads is put right."""
    values, _ = _read(part, index)
    ends, _, step = part.partition("/")
    first, dash, end = ends.partition("-")
    if not dash:
        return values
    (low,), (high,) = _read(first, index)[0], [31] if end == "l" else _read(end, index)[0]
    if low == high and (index != _WEEKDAY or end.lstrip("0") != "7" or first.lstrip("0") == "7"):  # 0-7 is all days
        return [low]  # croniter: all values
    if low > high and step:  # croniter begins anew at the start of the field
        values = sorted(_read(ends, index)[0])
        return (values[values.index(low) :] + values[: values.index(low)])[:: int(step)]
    return values


def _read(part: str, index: int) -> tuple[list[Any], dict[int, set[Any]]]:
    """Return what croniter reads: values or ``l``, and the numbers within the month by day of the week."""
    alone = ["*"] * FIELDS
    alone[index] = part
    try:
        fields, ordinals = croniter.expand(" ".join(alone))
    except CroniterError as err:
        raise InvalidField(f"{part} is not a valid value of the field") from err
    low, high = croniter.RANGES[index]
    return [*range(low, high + 1)] if fields[index] == ["*"] else fields[index], ordinals


class _Dates:
    """The dates that match an expression."""

    def __init__(self, day: str, month: str, weekday: str) -> None:
        self._day = _field(day, _DAY)
        self._weekday = _field(weekday, _WEEKDAY)
        self._months = frozenset(_field(month, _MONTH).values)
        # As in Vixie cron: if both fields restrict (neither begins with a star), a match of either is enough.
        self._both = self._day.wild or self._weekday.wild
        self._every = len(self._day.values) == _DAYS and len(self._weekday.values) == _WEEKDAYS

    def of(self, number: int) -> tuple[int, ...]:
        """Return the matching days of a month as days since the epoch; month 0 is January of year 0."""
        if number % 12 + 1 not in self._months:
            return ()
        first, following = month_of(number)
        if self._every and not self._weekday.nth:
            return tuple(range(first, following))
        length, weekday = following - first, (first + _EPOCH_WEEKDAY) % 7
        days, others = self._by_day(length, weekday), self._by_weekday(length, weekday)
        return tuple(first + day - 1 for day in sorted(days & others if self._both else days | others))

    def _by_day(self, length: int, weekday: int) -> set[int]:
        """Return the days of the month that match, for a month of `length` days that begins on `weekday`."""
        day_field = self._day
        if day_field.nearest:
            return {_working_day(day, length, weekday) for day in day_field.values if day <= length}
        days = {day for day in day_field.values if day <= length}
        return days | {length} if day_field.last else days

    def _by_weekday(self, length: int, weekday: int) -> set[int]:
        if not self._weekday.nth:
            weekdays = frozenset(self._weekday.values)
            return {day for day in range(1, length + 1) if (weekday + day - 1) % 7 in weekdays}
        dates = set()
        for day_of_week, number in self._weekday.nth:
            days = range(1 + (day_of_week - weekday) % 7, length + 1, 7)
            if number is None or number <= len(days):
                dates.add(days[-1 if number is None else number - 1])
        return dates


def _working_day(day: int, length: int, weekday: int) -> int:
    """Return the working day (Monday to Friday) nearest to a day in the same month."""
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
def _month(dates: Dates, number: int) -> tuple[int, ...]:
    return dates.of(number)


class CronPattern:
    """An expression of five fields, or six with the second in front."""

    __slots__ = ("_adjusted", "_dates", "_hours", "_minutes", "_seconds")

    def __init__(self, text: str, closed: ClosedDays | None = None) -> None:
        """Parse `text`; the days of its times are adjusted by `closed`.

        Raises:
            InvalidField: a field is invalid.
        """
        second, minute, hour, day, month, weekday = ["0", *text.lower().split()][-FIELDS - 1 :]
        self._seconds = _field(second, _SECOND).values
        self._minutes = _field(minute, _MINUTE).values
        self._hours = _field(hour, _HOUR).values
        dates = _dates(day, month, weekday)
        self._adjusted = None if closed is None else closed.adjust(dates)
        self._dates: Dates = self._adjusted or dates

    def moved_from(self, day: int) -> list[int]:
        """Return the closed days whose times moved to a day."""
        return [] if self._adjusted is None else self._adjusted.moved_from(day)

    def places(self, number: int) -> dict[int, int]:
        """Return where the times of a month fall, as in :class:`supervisor.schedule.calendars.AdjustedDates`."""
        return {day: day for day in self._dates.of(number)} if self._adjusted is None else self._adjusted.places(number)

    def local_times(self, after: int) -> Iterator[int]:
        """Yield the matching local times after `after` in order, in seconds of a clock that is never set.

        Stop if no date matches for 50 years.
        """
        today, now = divmod(after + 1, DAY_S)
        for day in self._days(today):
            start = day * DAY_S
            for time in self._times(now if day == today else 0):
                yield start + time

    def _days(self, today: int) -> Iterator[int]:
        number = month_number(today)
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
        """Yield the matching seconds of a day, from second `now`."""
        hour, second_of_hour = divmod(now, 3600)
        minute, second = divmod(second_of_hour, 60)
        for next_hour in self._hours[bisect_left(self._hours, hour) :]:
            minutes = self._minutes if next_hour > hour else self._minutes[bisect_left(self._minutes, minute) :]
            for other in minutes:
                seconds = self._seconds
                if next_hour == hour and other == minute:
                    seconds = seconds[bisect_left(seconds, second) :]
                start = next_hour * 3600 + other * 60
                for third in seconds:
                    yield start + third
