"""Closed days, compared with a slow evaluation that shares no code: datetime and the published holidays."""

import random
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from holidays import country_holidays

from supervisor.schedule.calendars import WEEKEND, Calendar, Shift, closed_days
from supervisor.schedule.cron import Cron

COUNTRIES = ("DE", "US", "GB", "JP", "IN", "BR", "ZA", "IL", "SA", "AU")
ZONES = (
    "Europe/Berlin",
    "Europe/London",
    "Europe/Lisbon",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Nuuk",
    "America/Havana",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Asia/Beirut",
    "Asia/Jerusalem",
    "Asia/Riyadh",
    "Africa/Cairo",
    "Africa/Johannesburg",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Apia",
)
FIRST, LAST = date(2024, 1, 1), date(2030, 12, 31)
DAY = timedelta(days=1)
TIMES = ("0 6", "30 2", "30 1", "45 23", "15 0")
SHIFTS: tuple[Shift | None, ...] = (None, "next", "previous")
BUSINESS_DAYS = (*range(1, 11), *range(-10, 0))


def without_holidays(country: str) -> set[date]:
    """Return the weekdays that are no public holiday."""
    published = country_holidays(country, years=range(FIRST.year - 1, LAST.year + 2))
    around = (FIRST + DAY * number for number in range(-40, (LAST - FIRST).days + 41))
    return {day for day in around if day.isoweekday() < 6 and day not in published}


def shifted(days: list[date], shift: Shift | None, open_days: set[date]) -> dict[date, bool]:
    """Return the days on which the times of `days` fall, and whether they run."""
    found: dict[date, bool] = {}
    step = {None: timedelta(0), "next": DAY, "previous": -DAY}[shift]
    for day in days:
        place = next((day + step * n for n in range(32) if day + step * n in open_days), None)
        found[day if place is None else place] = place is not None
    return found


def business(days: set[date], number: int, open_days: set[date]) -> dict[date, bool]:
    found: dict[date, bool] = {}
    for year in range(FIRST.year, LAST.year + 1):
        for month in range(1, 13):
            length = monthrange(year, month)[1]
            month_days = [date(year, month, n) for n in range(1, length + 1)]
            matching = [day for day in month_days if day in days and day in open_days]
            chosen = matching[::-1] if number < 0 else matching
            if len(chosen) >= abs(number):
                found[chosen[abs(number) - 1]] = True
    return found


def instant(day: date, at: time, zone: ZoneInfo) -> int:
    """Return when the clocks show a time first, or would show it, in ms; a time in a gap is its end."""
    local = datetime.combine(day, at, zone)
    moment = local.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        low, high = (int((moment + timedelta(hours=hours)).timestamp()) for hours in (-26, 2))
        offset = datetime.fromtimestamp(high, zone).utcoffset()
        while datetime.fromtimestamp(low, zone).utcoffset() == offset:
            low += 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if datetime.fromtimestamp(middle, zone).utcoffset() == offset else (middle, high)
        return high * 1000
    return int(moment.timestamp()) * 1000


def expected(days: dict[date, bool], at: time, zone: ZoneInfo) -> dict[int, bool]:
    """Return the first instant of each day's time that lies within the years, and whether it runs."""
    found: dict[int, bool] = {}
    for day, runs in days.items():
        if FIRST.year < day.year < LAST.year:
            at_ms = instant(day, at, zone)
            found[at_ms] = found.get(at_ms, False) or runs
    return found


def every_day() -> list[date]:
    return [FIRST + DAY * n for n in range((LAST - FIRST).days + 1)]


def cases() -> Iterator[tuple[str, Shift | None, int | None]]:
    for country in COUNTRIES:
        for shift in SHIFTS:
            yield country, shift, None
        for number in BUSINESS_DAYS:
            yield country, None, number


@pytest.mark.filterwarnings("ignore:Requested Holidays:UserWarning")
def test_same_days_as_the_oracle() -> None:
    """All policies of closed days give the instants that dates and published holidays say, in every zone.

    Ten countries, seven years, both shifts, all business days, and twenty zones with their clock changes.
    """
    choose = random.Random()
    zones = list(ZONES)
    open_days = {country: without_holidays(country) for country in COUNTRIES}
    for number, (country, shift, business_day) in enumerate(cases()):
        zone = ZoneInfo(zones[number % len(zones)])
        fixed = choose.choice(TIMES)
        minute, hour = map(int, fixed.split())
        weekly = business_day is None or -4 < business_day < 4  # a month has few of one day of the week
        monday_to = choose.choice((None, 1, 3, 5)) if weekly else None
        days = [day for day in every_day() if monday_to is None or day.isoweekday() == monday_to]
        fall_on = shifted(days, shift, open_days[country])
        places = fall_on if business_day is None else business(set(days), business_day, open_days[country])
        closed = closed_days((Calendar("public", country), WEEKEND), shift, business_day)
        text = f"{fixed} * * {'*' if monday_to is None else monday_to}"
        start, end = (int(datetime(year, 1, 1, tzinfo=zone).timestamp()) * 1000 for year in (FIRST.year + 1, LAST.year))
        found: dict[int, bool] = {}
        for occurrence in Cron(text, zone, closed=closed).occurrences(start - 1):
            if occurrence.at >= end:
                break
            if occurrence.note != "repeated" or occurrence.runs:
                found[occurrence.at] = occurrence.runs
        wanted = expected(places, time(hour, minute), zone)
        first_closed = {at for at, runs in found.items() if not runs} - wanted.keys()
        repeated = {at for at in first_closed if at - 3_600_000 in wanted or at - 1_800_000 in wanted}
        case = country, text, zone, shift, business_day
        assert {at: runs for at, runs in found.items() if at not in repeated} == wanted, case


@pytest.mark.parametrize(("shift", "moved"), [("next", (12,)), ("previous", (1,))])
def test_no_open_day_nearby(shift: Shift, moved: tuple[int, ...]) -> None:
    """A time that has no open day within 31 days stays, and does not run."""
    days = tuple((f"{date(2026, 1, 1) + DAY * number}", "") for number in range(365))
    closed = closed_days((Calendar("year", dates=days),), shift, None)
    occurrences = dict(_of_2026(Cron("0 6 1 * *", ZoneInfo("UTC"), closed=closed)))
    assert not any(occurrences.values())
    assert [f"{day:%m}" for day in occurrences] == [f"{number:02d}" for number in range(1, 13) if number not in moved]


def _of_2026(cron: Cron) -> Iterator[tuple[date, bool]]:
    for occurrence in cron.occurrences(int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000 - 1):
        day = datetime.fromtimestamp(occurrence.at / 1000, UTC).date()
        if day.year > 2026:
            return
        yield day, occurrence.runs
