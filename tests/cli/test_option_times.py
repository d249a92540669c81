"""Times in the future that options take."""

from datetime import datetime

import click
import pytest

from supervisor.cli.units.option_times import option_time

NOW = datetime.fromisoformat("2026-11-28T20:00:00+00:00")  # a Saturday


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("22:00", "2026-11-28T22:00:00.000Z"),
        ("20:00", "2026-11-29T20:00:00.000Z"),
        ("Mon 08:00", "2026-11-30T08:00:00.000Z"),
        ("saturday 19:59", "2026-12-05T19:59:00.000Z"),
        ("Sat 20:01", "2026-11-28T20:01:00.000Z"),
        ("2026-12-01 06:00", "2026-12-01T06:00:00.000Z"),
        ("2026-12-01T06:00:00+02:00", "2026-12-01T04:00:00.000Z"),
    ],
)
def test_next_time(monkeypatch: pytest.MonkeyPatch, text: str, time: str) -> None:
    """A time of day is the next one, also on a day of the week; other times are taken as they are."""
    monkeypatch.setenv("TZ", "UTC")
    assert option_time("--until", text, NOW) == time


@pytest.mark.parametrize("text", ["", "25:00", "Foo 08:00", "soon", "2026-11-28T19:59:00Z"])
def test_invalid_time(text: str) -> None:
    """Anything else, and a time that has passed, is an error that names the option."""
    with pytest.raises(click.UsageError, match="--until"):
        option_time("--until", text, NOW)
