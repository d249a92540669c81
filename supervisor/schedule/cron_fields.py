"""Local times that match a cron expression, on a clock that is never set.

Parsed fields are cached: ten thousand expressions cost as much as their distinct fields.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple

FIELDS = 5


class _FieldKind(NamedTuple):
    """A kind of field: its lowest and highest value, and the names of its values in order."""

    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of its values."""
        return self.high - self.low + 1


_MINUTE, _HOUR, _DAY = _FieldKind(0, 59), _FieldKind(0, 23), _FieldKind(1, 31)
_SECOND = _MINUTE
_MONTH = _FieldKind(1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
_WEEKDAY = _FieldKind(0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
_SUNDAY = 7
"""The second number for Sunday; it is normalised to 0."""
_DIGITS = re.compile(r"[0-9]+")
_NEAREST = re.compile(r"([0-9]+)w|w([0-9]+)")
_NTH = re.compile(r"(?P<days>[^*/#]+)#(?P<number>[1-5])|l(?P<last>[0-9]+)")
_DAY_S = 86_400
_HORIZON_MONTHS = 50 * 12
"""If a date does not occur within this time, it counts as impossible."""
HORIZON_S = 50 * 366 * _DAY_S
"""The same in seconds."""
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
    """For days of the week: the day, and its number within the month (``#``); None for the last one (``L``)."""
    nearest: tuple[int, ...]
    """For days of the month: days that move to the nearest working day (``W``)."""


class InvalidField(ValueError):
    """A field of an expression is invalid."""


@lru_cache(maxsize=4096)
def _field(text: str, field_kind: _FieldKind) -> _Field:
    """Parse a field, which must be in lower case.

    Raises:
        InvalidField: the field is invalid.
    """
    values: set[int] = set()
    nth: set[tuple[int, int | None]] = set()
    last = False
    if field_kind is _DAY and (nearest := _NEAREST.fullmatch(text)):
        day = _number(nearest[1] or nearest[2], field_kind)
        return _Field(values=(day,), wild=False, last=False, nth=(), nearest=(day,))
    for part in text.split(","):
        if text == "?" and field_kind in (_DAY, _WEEKDAY):
            values.update(_numbers("*", field_kind))
        elif part == "l" and field_kind is _DAY:
            last = True
        elif field_kind is _WEEKDAY and (special := _NTH.fullmatch(part)):
            number = int(special["number"]) if special["number"] else None
            nth |= {(weekday, number) for weekday in _numbers(special["days"] or special["last"], field_kind)}
        else:
            values.update(_numbers(part, field_kind))
    if nth and values:
        raise InvalidField(f"{text} mixes days with # or L and other days")
    return _Field(tuple(sorted(values)), text[0] in "*?", last, tuple(nth), ())


def _numbers(text: str, field_kind: _FieldKind) -> list[int]:
    """Return the values of ``*``, ``5``, ``1-5``, ``fri-mon``, ``*/5``, ``10/5`` or ``1-5/2``."""
    span, slash, step = text.partition("/")
    first, dash, end = span.partition("-")
    if span == "*":
        low, high = field_kind.low, field_kind.high
    else:
        low = _number(first, field_kind)
        if end == "l" and field_kind is _DAY:
            high = field_kind.high
        else:
            high = _number(end, field_kind) if dash else field_kind.high if slash else low
    wraps = low > high
    values = [*range(low, field_kind.high + 1), *range(field_kind.low, high + 1)] if wraps else [*range(low, high + 1)]
    if slash:
        if not _DIGITS.fullmatch(step) or int(step) == 0:
            raise InvalidField(f"{step} is not a valid step")
        values = values[:: int(step)]
    return [0 if field_kind is _WEEKDAY and value == _SUNDAY else value for value in values]


def _number(text: str, field_kind: _FieldKind) -> int:
    if text in field_kind.names:
        return field_kind.low + field_kind.names.index(text)
    if _DIGITS.fullmatch(text):
        number = int(text)
        if field_kind.low <= number <= (_SUNDAY if field_kind is _WEEKDAY else field_kind.high):
            return number
    raise InvalidField(f"{text} is not a valid value of the field")


class _Dates:
    """The dates that match an expression."""

    def __init__(self, day: str, month: str, weekday: str) -> None:
        self._day = _field(day, _DAY)
        self._weekday = _field(weekday, _WEEKDAY)
        self._months = frozenset(_field(month, _MONTH).values)
        # As in Vixie cron: if both fields restrict (neither begins with a star), a match of either is enough.
        self._both = self._day.wild or self._weekday.wild
        self._every = len(self._day.values) == _DAY.size and len(self._weekday.values) == _WEEKDAY.size

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
        """Return the days of the month that match, for a month of `length` days that begins on `weekday`."""
        day_field = self._day
        if day_field.nearest:
            return {_working_day(min(day, length), length, weekday) for day in day_field.nearest}
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
def _month(dates: _Dates, number: int) -> tuple[int, ...]:
    return dates.of(number)


class Pattern:
    """An expression of five fields, or six with the second in front."""

    __slots__ = ("_dates", "_hours", "_minutes", "_seconds")

    def __init__(self, text: str) -> None:
        """Parse `text`.

        Raises:
            InvalidField: a field is invalid.
        """
        second, minute, hour, day, month, weekday = ["0", *text.lower().split()][-FIELDS - 1 :]
        self._seconds = _field(second, _SECOND).values
        self._minutes = _field(minute, _MINUTE).values
        self._hours = _field(hour, _HOUR).values
        self._dates = _dates(day, month, weekday)

    def local_times(self, after: int) -> Iterator[int]:
        """Yield the matching local times after `after` in order, in seconds of a clock that is never set.

        Stop if no date matches for 50 years.
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
