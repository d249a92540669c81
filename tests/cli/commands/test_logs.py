"""``ringward logs``: times on the command line."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from supervisor.cli.units.option_times import moment_of

NOW = datetime.fromisoformat("2026-11-21T12:00:00+01:00")


@pytest.fixture(autouse=True)
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone to Europe/Prague."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Prague")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-21T11:00:00.000Z"),
        ("10m", "2026-11-21T10:50:00.000Z"),
        ("1h30m", "2026-11-21T09:30:00.000Z"),
        ("11:30", "2026-11-21T10:30:00.000Z"),
        ("14:30", "2026-11-20T13:30:00.000Z"),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.000Z"),
        ("2026-11-20 10:00:00+02:00", "2026-11-20T08:00:00.000Z"),
    ],
)
def test_times(text: str, expected: str) -> None:
    """A duration counts back from now; a time of day that has not come yet is yesterday's."""
    assert moment_of(text, NOW) == expected


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        ("2026-10-25T12:00:00+01:00", "01:30", "2026-10-24T23:30:00.000Z"),
        ("2026-10-25T12:00:00+01:00", "14:30", "2026-10-24T12:30:00.000Z"),
        ("2026-03-29T12:00:00+02:00", "01:30", "2026-03-29T00:30:00.000Z"),
    ],
)
def test_times_before_a_clock_change(now: str, text: str, expected: str) -> None:
    """A time of day before the day's clock change has the offset of then."""
    assert moment_of(text, datetime.fromisoformat(now)) == expected


def test_date_is_local() -> None:
    """A date without an offset begins at local midnight."""
    local = datetime.fromisoformat("2026-11-20T00:00:00").astimezone()
    assert datetime.fromisoformat(moment_of("2026-11-20", NOW)) == local


@pytest.mark.parametrize(
    "text",
    [
        "",
        "noon",
        "25:00",
        "10q",
        "2026-13-01",
        "99999999999999w",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_invalid_times(text: str) -> None:
    """The error quotes the text and gives examples of times."""
    with pytest.raises(ValueError, match="is not a time; use 10m"):
        moment_of(text, NOW)
