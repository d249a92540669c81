"""``ringward logs``: times on the command line."""

from datetime import datetime

import pytest

from supervisor.cli.units.unit_log_printer import moment_of

NOW = datetime.fromisoformat("2026-11-21T12:00:00+01:00")


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


def test_date_is_local() -> None:
    """A date without an offset begins at local midnight."""
    local = datetime.fromisoformat("2026-11-20T00:00:00").astimezone()
    assert datetime.fromisoformat(moment_of("2026-11-20", NOW)) == local


@pytest.mark.parametrize("text", ["", "noon", "25:00", "10q", "2026-13-01", "99999999999999w"])
def test_invalid_times(text: str) -> None:
    """The error quotes the text and gives examples of times."""
    with pytest.raises(ValueError, match="is not a time; use 10m"):
        moment_of(text, NOW)
