"""Windows in the configuration."""

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError
from supervisor.config.window_times import units_of_windows
from supervisor.schedule.windows import WindowDefinition

TASKS = '[tasks.a]\nrun = "true"\ngroup = "shop"\ntags = ["nightly"]\n[services.b]\nrun = "true"\ngroup = "shop"\n'
Read = Callable[[str], Config]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(keys: str) -> Config:
        path = tmp_path / "ringward.toml"
        path.write_text(f'[daemon]\ntimezone = "Europe/Berlin"\n{TASKS}[windows.w]\n{keys}\n')
        return load(str(path))

    return read


def test_window(read: Read) -> None:
    """A window has times in the daemon's zone, its tasks and services, and defaults."""
    window = read('cron = "0 20 * * fri"\nduration = "3h"').windows["w"]
    assert window == WindowDefinition(name="w", crons=("0 20 * * fri",), duration_ms=10_800_000, zone="Europe/Berlin")
    assert (window.instants, window.running, window.alarms) == ("skip", "continue", "hold")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('"2026-12-24 18:00"', '"2026-12-27T06:00"'),
        ("2026-12-24T18:00:00", "2026-12-27T06:00:00"),
        ('"2026-12-24T17:00:00Z"', "2026-12-27T06:00:00+01:00"),
    ],
)
def test_single_time(read: Read, start: str, end: str) -> None:
    """Beginning and end are times in the daemon's zone, or with their own offset."""
    window = read(f"from = {start}\nto = {end}").windows["w"]
    assert (window.start, window.end) == (1798131600000, 1798347600000)


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ("{}", ["a", "b"]),
        ('{ tasks = "b*" }', ["b"]),
        ('{ groups = "shop", tags = ["nightly"] }', ["a"]),
    ],
)
def test_units_of_a_window(read: Read, match: str, names: list[str]) -> None:
    """A window applies to all tasks and services, or to those that meet all conditions of match."""
    assert units_of_windows(read(f"match = {match}")) == {"w": names}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('cron = "0 * * * *"', "windows.w.cron: needs duration\n  add duration = …"),
        ('duration = "1h"', "windows.w.duration: needs cron\n  add cron = …"),
        ('from = "2026-12-24 18:00"', "windows.w.from: needs to\n  add to = …"),
        ('to = "2026-12-24 18:00"', "windows.w.to: needs from\n  add from = …"),
        ('from = "2026-12-24 18:00"\nto = "2026-12-24 17:00"', "windows.w.to: must be later than from"),
        ('cron = "0 * * * *"\nduration = "5m"\nfrom = "2026-12-24 18:00"', "windows.w.from: cannot be combined"),
        (
            'cron = "0 * * * *"\nduration = "1h"',
            'windows.w.duration: is not shorter than the time between two times of "0 * * * *", 1h',
        ),
        ('from = "tomorrow"', 'windows.w.from: must be a time such as "2026-12-24 18:00"'),
        ('match = { names = ["a"] }', "windows.w.match.names: unknown key"),
        ('instants = "later"', 'windows.w.instants: must be "skip" or "defer"'),
    ],
)
def test_errors(read: Read, keys: str, message: str) -> None:
    """A window whose times contradict each other is an error at its key."""
    with pytest.raises(ConfigError) as raised:
        read(keys)
    assert message in str(raised.value)


def test_unmatched_names(read: Read) -> None:
    """A name, group or tag that nothing has is a warning, as in other choices."""
    warnings = read('match = { tasks = ["a", "x*"], tags = ["y"] }').warnings
    assert [str(warning).split(": ", 1)[1] for warning in warnings] == [
        'windows.w.match.tasks[1]: no task or service matches "x*"',
        'windows.w.match.tags[0]: no task or service has the tag "y"',
    ]
