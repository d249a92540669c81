"""Deadlines of instants, compared with a walk through every minute."""

import random
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from supervisor.schedule.deadlines import FinishBy, deadline_of

MINUTE = 60_000
ZONES = (
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Asia/Tokyo",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "UTC",
)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def walked(minute: int, at_ms: int, zone: ZoneInfo) -> int:
    """Return the first minute after an instant whose local time is that minute of the day, or skips it."""
    at = at_ms // MINUTE * MINUTE
    before = datetime.fromtimestamp(at / 1000, zone)
    while True:
        at += MINUTE
        local = datetime.fromtimestamp(at / 1000, zone)
        wall, expected = local.replace(tzinfo=None), before.replace(tzinfo=None) + timedelta(minutes=1)
        while expected <= wall:  # more than one minute only where the clock skips some
            if expected.hour * 60 + expected.minute == minute and not local.fold:
                return at
            expected += timedelta(minutes=1)
        if wall < before.replace(tzinfo=None) and not local.fold and wall.hour * 60 + wall.minute == minute:
            return at
        before = local


@pytest.mark.parametrize("name", ZONES)
def test_against_a_walk(name: str) -> None:
    """Deadlines are right in every zone and over its clock changes."""
    zone, source = ZoneInfo(name), random.Random(name)
    changes = [day for day in range(19_700, 20_430) if _offset(day * 86_400, zone) != _offset((day + 1) * 86_400, zone)]
    for day in [*changes, *changes, source.randrange(19_700, 20_430)]:
        at_ms = (day * 1440 + source.randrange(-1440, 1440)) * MINUTE
        minute = source.choice([source.randrange(1440), source.randrange(240)])
        finish_by = FinishBy("", minute=minute)
        assert deadline_of(finish_by, at_ms, zone) == walked(minute, at_ms, zone), (day, at_ms, minute)


def _offset(at_s: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at_s, zone).utcoffset()


@pytest.mark.parametrize(
    ("minute", "at", "deadline"),
    [
        (360, "2026-06-01T02:00:00+02:00", "2026-06-01T06:00:00+02:00"),
        (360, "2026-06-01T06:00:00+02:00", "2026-06-02T06:00:00+02:00"),
        (360, "2026-06-01T22:00:00+02:00", "2026-06-02T06:00:00+02:00"),
        (150, "2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00"),
        (150, "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00"),
        (150, "2026-10-25T02:45:00+02:00", "2026-10-26T02:30:00+01:00"),
    ],
)
def test_local_time(minute: int, at: str, deadline: str) -> None:
    """A local time in a gap is the end of the gap, and a repeated one its first occurrence."""
    assert deadline_of(FinishBy("", minute=minute), ms(at), ZoneInfo("Europe/Berlin")) == ms(deadline)


def test_time_after_the_instant() -> None:
    """A duration counts from the instant, over clock changes too."""
    at = ms("2026-03-29T00:30:00+01:00")
    assert deadline_of(FinishBy("", after_ms=240 * MINUTE), at, ZoneInfo("Europe/Berlin")) == at + 240 * MINUTE
