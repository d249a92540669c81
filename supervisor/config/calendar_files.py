"""The types of calendars: a day, the file of an iCalendar, and a calendar as a whole."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from supervisor.config.problems import InvalidValue, nearest, quoted
from supervisor.config.value_types.values import Name
from supervisor.schedule.calendars import WEEKEND, Calendar, ClosedDays, closed_days, public_holidays
from supervisor.schedule.cron import Cron, day_end, has_fixed_time, local_day

MAX_CALENDARS = 100
_MAX_DAYS = 10_000
"""Maximum number of days in a file."""
CALENDAR_NAME = Name('the name of a calendar, or "weekend"')
_SEARCHED_MS = 5 * 366 * 86_400_000
_EXAMPLE = '"2026-12-24"'
_LINE = re.compile(r"(?P<name>[A-Z-]+)(?P<params>(?:;[^:]*)?):(?P<value>.*)", re.IGNORECASE)
_DATE = re.compile(r"\d{8}")
_DAYS = re.compile(r"\+?P(\d{1,4})([DW])")
_NEW_LINE, _ESCAPED = re.compile(r"\\[nN]"), re.compile(r"\\(.)")
_RECURRING = ("RRULE", "RDATE", "EXRULE")


class CalendarDate:
    """A date, as a string or a TOML date."""

    expected = f"a date such as {_EXAMPLE}"

    def parse(self, value: object, directory: str) -> str:  # noqa: ARG002 - as in every type
        """Return the date in ISO 8601."""
        if isinstance(value, str):
            try:
                value = datetime.strptime(value, "%Y-%m-%d").date()  # noqa: DTZ007 - only its date is taken
            except ValueError:
                raise InvalidValue(f"must be {self.expected}") from None
        if not isinstance(value, date) or isinstance(value, datetime):
            raise InvalidValue(f"must be {self.expected}")
        return value.isoformat()


class BusinessDay:
    """The number of an open day of the month, from its start or, if negative, from its end."""

    expected = "a number from 1 to 10, or from -1 to -10 for days from the end of the month"

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - as in every type
        """Return the number."""
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= abs(value) <= 10:
            raise InvalidValue(f"must be {self.expected}")
        return value


def days_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the days of the events in an iCalendar file (RFC 5545), each with the summary of its event or "".

    Raises:
        InvalidValue: the file is none, or has an event that is not all-day or recurs.
    """
    lines = text.replace("\r\n", "\n").replace("\n ", "").replace("\n\t", "").split("\n")
    if lines[0].strip().upper() != "BEGIN:VCALENDAR":
        raise InvalidValue("is not an iCalendar file, which begins with BEGIN:VCALENDAR")
    inside: list[str] = []
    event: dict[str, tuple[str, str]] = {}
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        name, value = match["name"].upper(), match["value"].strip()
        if name == "BEGIN":
            inside.append(value.upper())
            event = {} if value.upper() == "VEVENT" else event
        elif name == "END":
            if inside and inside.pop() == "VEVENT":
                yield from _days_of(event)
        elif inside and inside[-1] == "VEVENT":
            event[name] = (value, match["params"].upper())
    if inside:
        raise InvalidValue(f"ends within {inside[-1]}")


def _days_of(event: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    if event.get("STATUS", ("", ""))[0].upper() == "CANCELLED":
        return
    summary = _ESCAPED.sub(r"\1", _NEW_LINE.sub(" ", event.get("SUMMARY", ("", ""))[0])).strip()
    called = quoted(summary) if summary else "an event"
    for name in _RECURRING:
        if name in event:
            raise InvalidValue(f"{called} recurs ({name})", "write each of its dates as an event of its own")
    if "DTSTART" not in event:
        raise InvalidValue(f"{called} has no DTSTART")
    first = _date(called, event["DTSTART"][0])
    count = 1
    if "DTEND" in event:
        count = max(1, (_date(called, event["DTEND"][0]) - first).days)  # the end is not part of the event
    elif "DURATION" in event:
        length = _DAYS.fullmatch(event["DURATION"][0].upper())
        if length is None:
            raise InvalidValue(f"{called} is not an all-day event")
        count = max(1, int(length[1]) * (7 if length[2] == "W" else 1))
    if count > _MAX_DAYS:
        raise InvalidValue(f"{called} lasts more than {_MAX_DAYS} days")
    for number in range(count):
        yield (first + timedelta(number)).isoformat(), summary


def _date(called: str, value: str) -> date:
    if not _DATE.fullmatch(value):
        raise InvalidValue(f"{called} is not an all-day event", "DTSTART and DTEND are dates such as 20261224")
    try:
        return datetime.strptime(value, "%Y%m%d").date()  # noqa: DTZ007 - only its date is taken
    except ValueError:
        raise InvalidValue(f"{called}: {value} is not a date") from None


def calendar(name: str, values: Mapping[str, Any], text: str | None) -> Calendar:
    """Return a calendar from the values of its keys, and the text of its file.

    Raises:
        InvalidValue: its country or its file is invalid; the path of the error has the key.
    """
    country, subdivision = values.get("country"), values.get("subdivision")
    if country is not None:
        _check_country(country, subdivision)
    days = dict.fromkeys(values.get("dates", ()), "")
    if text is not None:
        for day, summary in days_in(text):
            days[day] = days.get(day) or summary
            if len(days) > _MAX_DAYS:
                raise InvalidValue(f"has more than {_MAX_DAYS} days")
    return Calendar(name, country, subdivision, tuple(sorted(days.items())))


def _check_country(country: str, subdivision: str | None) -> None:
    try:
        public_holidays(country, subdivision)
    except ImportError:
        message = "needs the package holidays, which is not installed"
        raise InvalidValue(message, 'pip install "ringward[calendars]"', path=("country",)) from None
    except NotImplementedError:
        from holidays import list_supported_countries  # loaded already

        known = list_supported_countries()
        if country not in known:
            remedy = nearest(country, known) or 'write its code of ISO 3166, such as "DE"'
            raise InvalidValue("is not a country that the package holidays knows", remedy, path=("country",)) from None
        remedy = nearest(subdivision or "", known[country]) or f"it knows {', '.join(known[country]) or 'none'}"
        raise InvalidValue(f"is not a subdivision of {country}", remedy, path=("subdivision",)) from None


def named_calendars(names: tuple[str, ...], calendars: Mapping[str, Calendar | None]) -> tuple[Calendar, ...]:
    """Return the valid ones of the calendars that a task names.

    Raises:
        InvalidValue: there is no calendar with one of the names; the path of the error has its index.
    """
    known = {**calendars, WEEKEND.name: WEEKEND}
    for index, name in enumerate(names):
        if name not in known:
            remedy = nearest(name, known) or f"add [calendars.{name}]"
            raise InvalidValue(f"no calendar named {quoted(name)}", remedy, show=False, path=("skip_on", index))
    return tuple(found for name in names if (found := known[name]) is not None)


def unsuitable(values: Mapping[str, Any], calendars: tuple[Calendar, ...]) -> Iterator[InvalidValue]:
    """Yield the errors in ``shift`` and ``business_day`` of a task, and in their use; the path has the key."""
    crons = tuple(entry.expression for entry in values.get("cron", ()))
    keys = [key for key in ("shift", "business_day") if values.get(key) is not None]
    for key in keys:
        if not values.get("skip_on"):
            yield InvalidValue("needs skip_on, which names the calendars", 'add skip_on = ["weekend"]', path=(key,))
        elif not crons or not all(map(has_fixed_time, crons)):
            remedy = 'write the time of day, such as cron = "0 6 * * *"'
            yield InvalidValue("needs a cron expression with a fixed hour and minute", remedy, path=(key,))
    if len(keys) > 1:
        message = "cannot be combined with business_day, which is an open day anyway"
        yield InvalidValue(message, "remove one of them", path=("shift",))
    days = calendars, values.get("shift"), values.get("business_day")
    if calendars and crons and not any(has_open_day(text, closed_days(*days)) for text in crons):
        yield InvalidValue("closes every day of the schedule", "remove a calendar, or change cron", path=("skip_on",))


def has_open_day(expression: str, closed: ClosedDays) -> bool:
    """Return whether a cron expression has a time on an open day within five years."""
    cron = Cron(expression, ZoneInfo("UTC"), closed=closed)
    now_ms = int(datetime.now(UTC).timestamp()) * 1000
    end_ms = now_ms + _SEARCHED_MS
    while (instant := next(cron.occurrences(now_ms), None)) is not None and instant.at < end_ms:
        if instant.runs:
            return True
        now_ms = day_end(local_day(instant.at, ZoneInfo("UTC")), ZoneInfo("UTC")) - 1
    return False
