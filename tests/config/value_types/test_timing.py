"""Keys for the schedule of a task."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.model import Task
from supervisor.config.problems import ConfigError

AT = int(datetime.fromisoformat("2026-12-24T17:00:00Z").timestamp() * 1000)
Write = Callable[..., Path]


def task(write: Write, keys: str, defaults: str = "") -> Task:
    path = write(f"[defaults]\n{defaults}\n[tasks.a]\nrun = 'x'\n{keys}\n")
    return load(str(path), {}).tasks["a"]


def problem(write: Write, keys: str, defaults: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        task(write, keys, defaults)
    return str(caught.value)


def test_defaults(write: Write) -> None:
    """Without any key a task does not start by itself, and missed instants are caught up for a day."""
    definition = task(write, "")
    assert (definition.crons, definition.every_ms, definition.at_ms, definition.run_on_start) == ((), None, None, False)
    assert (definition.dst_gap, definition.dst_overlap, definition.jitter_ms) == ("run", "first", 0)
    assert (definition.catch_up, definition.catch_up_window_ms, definition.coalesce) == (1, 86_400_000, True)
    assert definition.retry_on == ("failed", "timeout", "crashed", "start_failed", "log_overflow")


def test_all_keys(write: Write) -> None:
    """Each key has the value that is written."""
    definition = task(
        write,
        """
        every = "90s"
        dst_gap = "skip"
        dst_overlap = "both"
        jitter = "10m"
        catch_up = 0
        catch_up_window = "0"
        run_on_start = "boot"
        coalesce = false
        retry_on = ["timeout", 75]
        """,
    )
    assert (definition.every_ms, definition.dst_gap, definition.dst_overlap, definition.jitter_ms) == (
        90_000,
        "skip",
        "both",
        600_000,
    )
    assert (definition.catch_up, definition.catch_up_window_ms, definition.run_on_start, definition.coalesce) == (
        0,
        0,
        "boot",
        False,
    )
    assert definition.retry_on == ("timeout", 75)


@pytest.mark.parametrize(
    "text",
    [
        '"2026-12-24T18:00:00+01:00"',
        '"2026-12-24T17:00:00.000Z"',
        '"2026-12-24 17:00:00z"',
        "2026-12-24T18:00:00+01:00",
        "2026-12-24 17:00:00Z",
    ],
)
def test_single_time(write: Write, text: str) -> None:
    """A single time is in RFC 3339, as a string or as a TOML date-time."""
    assert task(write, f"at = {text}").at_ms == AT


@pytest.mark.parametrize("text", ['"2026-12-24T18:00:00"', "2026-12-24T18:00:00"])
def test_single_time_without_an_offset(write: Write, text: str) -> None:
    """A time without an offset is refused, and the error names the missing part."""
    message = problem(write, f"at = {text}")
    assert ":5: tasks.a.at: " in message
    assert " needs its offset from UTC" in message
    assert "write Z or an offset" in message


@pytest.mark.parametrize(
    "text", ['"2026-W52-4T18:00Z"', '"2026-12-24"', "2026-12-24", "18:00:00", "1", '"2026-13-24T18:00:00Z"']
)
def test_invalid_single_time(write: Write, text: str) -> None:
    """Dates alone, times alone and other values are refused."""
    assert ":5: tasks.a.at: must be a time with its offset from UTC" in problem(write, f"at = {text}")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "'1969-12-31T23:59:59Z'", "9999-12-31T23:59:59Z"])
def test_single_time_out_of_range(write: Write, text: str) -> None:
    """A time outside of 1970 to 2200 is refused in the file, not later where it is shown."""
    assert ":5: tasks.a.at: must be a time from 1970 to 2200" in problem(write, f"at = {text}")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("cron = '@daily'\nevery = '1h'", ":6: tasks.a.every: cannot be combined with cron"),
        ("at = 2026-12-24T17:00:00Z\ncron = '@daily'", ":6: tasks.a.cron: cannot be combined with at"),
        ("every = '90'", ":5: tasks.a.every"),
        ("every = '500ms'", ":5: tasks.a.every: must be a duration from 1s"),
        ("cron = '0 0 31 2 *'", ":5: tasks.a.cron: is not a valid schedule: [0 0 31 2 *] never occurs"),
        ("cron = '@reboot'", 'write run_on_start = "boot"'),
        ("timezone = 'utc'", 'did you mean "UTC"?'),
        ("dst_gap = 'both'", ":5: tasks.a.dst_gap"),
        ("retry_on = ['missed']", ':5: tasks.a.retry_on[0]: must be "failed" or'),
        ("retry_on = [256]", ":5: tasks.a.retry_on[0]: must be a whole number from 0 to 255"),
        ("retry_on = [true]", ":5: tasks.a.retry_on[0]"),
        ("catch_up = -1", ":5: tasks.a.catch_up: must be a whole number from 0"),
    ],
)
def test_errors(write: Write, keys: str, expected: str) -> None:
    """An error has file, line, key and the remedy."""
    assert expected in problem(write, keys)


def test_schedule_replaces_the_default(write: Write) -> None:
    """A task's own schedule replaces another kind from [defaults], and two kinds in [defaults] are refused."""
    definition = task(write, "every = '1h'", "cron = '@daily'")
    assert (definition.crons, definition.every_ms) == ((), 3_600_000)
    assert task(write, "", "cron = '@daily'").crons == ("@daily",)
    message = problem(write, "", "cron = '@daily'\nevery = '1h'")
    assert ":3: defaults.every: cannot be combined with cron" in message
