"""Calendars: days on which tasks do not run, and what becomes of the times that fall on them.

Days are numbers of local days since the epoch. Dates of an expression are adjusted before clock changes are considered,
so a moved time obeys the policies for clock changes like any other.
"""

from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Any, Literal, Protocol

from msgspec import Struct

Shift = Literal["next", "previous"]
MAX_SHIFT = 31
"""A time moves by no more than this many days."""
_EPOCH = date(1970, 1, 1).toordinal()
_SATURDAY = 5
_MOST_NAMED = 3
"""Number of closed days that a text about a time names."""


class Calendar(Struct, frozen=True):
    """``[calendars.NAME]``: a set of days on which tasks that name it do not run."""

    name: str
    country: str | None = None
    """Its public holidays are closed; the code as in the package `holidays`."""
    subdivision: str | None = None
    dates: tuple[tuple[str, str], ...] = ()
    """Further closed days (ISO 8601), each with its name or ""."""
    weekends: bool = False
    """Whether Saturdays and Sundays are closed."""

    def days(self, year: int) -> Iterator[tuple[date, str]]:
        """Yield the closed days of a year in order, each with its name or ""."""
        for number in range(date(year, 1, 1).toordinal(), date(year + 1, 1, 1).toordinal()):
            day = date.fromordinal(number)
            if (name := self.closing(day)) is not None:
                yield day, name

    def closing(self, day: date) -> str | None:
        """Return the name of the closed day, or "" if it has none; None if the day is open."""
        name = _names(self.dates).get(day.isoformat())
        if name is None and self.country is not None:
            name = public_holidays(self.country, self.subdivision).get(day)
        return "" if name is None and self.weekends and day.weekday() >= _SATURDAY else name


WEEKEND = Calendar("weekend", weekends=True)


@lru_cache(maxsize=1024)
def _names(dates: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(dates)


@lru_cache(maxsize=1024)
def public_holidays(country: str, subdivision: str | None) -> Any:
    """Return the public holidays of a country as a mapping from dates to names, which grows by the years asked for.

    Raises:
        ImportError: the package `holidays` is not installed.
        NotImplementedError: it does not know the country or the subdivision.
    """
    from holidays import country_holidays  # large, and needed only by calendars of countries

    return country_holidays(country, subdiv=subdivision)


class Dates(Protocol):
    """The dates of an expression."""

    def of(self, number: int) -> tuple[int, ...]:
        """Return the days of a month, in order; month 0 is January of year 0."""

    def __hash__(self) -> int: ...


class ClosedDays:
    """The closed days of a task, and the place of the times that fall on them."""

    def __init__(self, calendars: tuple[Calendar, ...], shift: Shift | None, business_day: int | None) -> None:
        self._calendars = calendars
        self._shift = shift
        self._business_day = business_day
        self._reasons: dict[int, str | None] = {}

    def reason(self, day: int) -> str | None:
        """Return the calendar that closes a day, with the name of the day if it has one; None if the day is open."""
        if day not in self._reasons:
            self._reasons[day] = self._reason(date.fromordinal(day + _EPOCH))
        return self._reasons[day]

    def _reason(self, day: date) -> str | None:
        for calendar in self._calendars:
            if (name := calendar.closing(day)) is not None:
                return f"{calendar.name} ({name})" if name else calendar.name
        return None

    def adjust(self, dates: Dates) -> "AdjustedDates":
        """Return the dates on which an expression with `dates` has its times."""
        if self._business_day is not None:
            return _BusinessDays(dates, self, self._business_day)
        return _ShiftedDates(dates, self, {"next": 1, "previous": -1, None: 0}[self._shift])


@lru_cache(maxsize=1024)
def closed_days(calendars: tuple[Calendar, ...], shift: Shift | None, business_day: int | None) -> ClosedDays:
    """Return the closed days of tasks with these keys; tasks with equal keys share them."""
    return ClosedDays(calendars, shift, business_day)


class AdjustedDates(Dates, Protocol):
    """Dates that calendars have adjusted."""

    def places(self, number: int) -> dict[int, int]:
        """Return where the times of a month fall: the day by the day, or the month, for which it stands."""

    def moved_from(self, day: int) -> list[int]:
        """Return the closed days whose times moved to `day`."""


class _ShiftedDates:
    """Dates whose closed days move to the nearest open one; a day without an open one near it stays."""

    def __init__(self, dates: Dates, closed: ClosedDays, step: int) -> None:
        self._dates = dates
        self._closed = closed
        self._step = step

    def of(self, number: int) -> tuple[int, ...]:
        if not self._step:
            return self._dates.of(number)
        first, end = month_of(number)
        around = {place for month in range(number - 2, number + 3) for place in self.places(month).values()}
        return tuple(sorted(day for day in around if first <= day < end))

    def places(self, number: int) -> dict[int, int]:
        return {day: self._place(day) for day in self._dates.of(number)}

    def _place(self, day: int) -> int:
        if not self._step:
            return day
        near = range(day, day + self._step * (MAX_SHIFT + 1), self._step)
        return next((other for other in near if self._closed.reason(other) is None), day)

    def moved_from(self, day: int) -> list[int]:
        if not self._step or self._closed.reason(day) is not None:
            return []
        number = month_number(day)
        around = {
            origin: place for month in range(number - 2, number + 3) for origin, place in self.places(month).items()
        }
        return sorted(origin for origin, place in around.items() if place == day != origin)


class _BusinessDays:
    """The n-th open day of each month, from its start or, if negative, from its end."""

    def __init__(self, dates: Dates, closed: ClosedDays, number: int) -> None:
        self._dates = dates
        self._closed = closed
        self._number = number

    def of(self, number: int) -> tuple[int, ...]:
        open_days = [day for day in self._dates.of(number) if self._closed.reason(day) is None]
        index = self._number - 1 if self._number > 0 else self._number
        return (open_days[index],) if -len(open_days) <= index < len(open_days) else ()

    def places(self, number: int) -> dict[int, int]:
        return dict(zip([number], self.of(number), strict=False))

    def moved_from(self, day: int) -> list[int]:  # noqa: ARG002 - business days do not move
        return []


def month_number(day: int) -> int:
    """Return the number of the month that contains a day; month 0 is January of year 0."""
    there = date.fromordinal(day + _EPOCH)
    return there.year * 12 + there.month - 1


def month_of(number: int) -> tuple[int, int]:
    """Return the first day of a month, and that of the following one."""
    year, month = divmod(number, 12)
    first = date(year, month + 1, 1).toordinal() - _EPOCH
    return first, date(year + (month == 11), (month + 1) % 12 + 1, 1).toordinal() - _EPOCH


def named(closed: ClosedDays, days: list[int]) -> str:
    """Name closed days with their reasons, such as ``2026-12-25: bank (Christmas Day)``."""
    texts = [f"{date.fromordinal(day + _EPOCH)}: {closed.reason(day)}" for day in days]
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return "; ".join(texts[:_MOST_NAMED]) + more
