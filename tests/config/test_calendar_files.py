"""Calendars in the configuration: their files, and errors in the keys about them."""

from pathlib import Path

import pytest

from supervisor.config.calendar_files import days_in
from supervisor.config.load import load
from supervisor.config.problems import ConfigError, InvalidValue

TASK = '[tasks.t]\nrun = "true"\n'


def event(*lines: str) -> str:
    return "\r\n".join(("BEGIN:VCALENDAR", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR", ""))


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "ringward.toml"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_days_of_events() -> None:
    """The end of an event is not part of it, long lines are joined, and escapes are resolved."""
    text = event("DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20261226", "SUMMARY:Closed\\, all", "  day")
    assert list(days_in(text)) == [("2026-12-24", "Closed, all day"), ("2026-12-25", "Closed, all day")]


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (("DTSTART;VALUE=DATE:20261224", "RRULE:FREQ=YEARLY"), "recurs"),
        (("DTSTART:20261224T080000Z",), "all-day"),
        (("SUMMARY:x",), "DTSTART"),
    ],
)
def test_unsuitable_events(lines: tuple[str, ...], word: str) -> None:
    """Recurring events and events with a time of day are errors that say so."""
    with pytest.raises(InvalidValue, match=word):
        list(days_in(event(*lines)))


def test_calendar_of_a_task(tmp_path: Path) -> None:
    """A calendar joins its dates and its file, and the task has the calendars that it names."""
    (tmp_path / "x.ics").write_text(event("DTSTART;VALUE=DATE:20261231", "SUMMARY:Stocktaking"))
    text = '[calendars.c]\ndates = ["2026-12-24"]\nfile = "x.ics"\n' + TASK + 'skip_on = ["c", "weekend"]\n'
    config = load(written(tmp_path, text), {})
    assert config.calendars["c"].dates == (("2026-12-24", ""), ("2026-12-31", "Stocktaking"))
    assert [calendar.name for calendar in config.tasks["t"].skip_on] == ["c", "weekend"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (TASK + 'skip_on = ["bnk"]', "no calendar named"),
        (TASK + 'cron = "0 6 * * *"\nshift = "next"', "needs skip_on"),
        (TASK + 'cron = "* * * * *"\nskip_on = "weekend"\nshift = "next"', "fixed hour and minute"),
        (TASK + 'every = "1h"\nskip_on = "weekend"\nbusiness_day = 1', "fixed hour and minute"),
        (TASK + 'cron = "0 6 * * sun"\nskip_on = "weekend"', "closes every day"),
        (TASK + 'cron = "0 6 * * *"\nskip_on = "weekend"\nshift = "next"\nbusiness_day = 1', "cannot be combined"),
        ("[calendars.weekend]\n" + TASK, "built-in"),
        ('[calendars.c]\ncountry = "XX"\n' + TASK, "not a country"),
        ('[calendars.c]\ncountry = "DE"\nsubdivision = "ZZ"\n' + TASK, "not a subdivision"),
        ('[calendars.c]\nsubdivision = "BY"\n' + TASK, "needs its country"),
    ],
)
def test_errors(tmp_path: Path, text: str, word: str) -> None:
    """Each error names what is wrong."""
    with pytest.raises(ConfigError, match=word):
        load(written(tmp_path, text), {})
