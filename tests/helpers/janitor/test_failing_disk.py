"""The janitor's work on a failing disk."""

import errno
import os
from collections.abc import Callable

import pytest

from logring.errors import NewerFormat
from supervisor.helpers.janitor import upkeep
from supervisor.helpers.janitor.upkeep import find_logs, maintain
from supervisor.ipc.log_line import Log
from tests.helpers.janitor.support import HOUR_MS, NOW_MS, DataDirectory


class RecordedLog(Log):
    """Keeps logged lines."""

    def __init__(self) -> None:
        super().__init__("janitor")
        self.lines: list[str] = []

    def emit(self, line: bytes) -> None:
        self.lines.append(line.decode())


def failing(error: Exception, calls: list[str]) -> Callable[[str], bool]:
    def compress(path: str) -> bool:
        calls.append(path)
        raise error

    return compress


@pytest.mark.parametrize(
    ("error", "tries", "done"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), [1, 1], False),
        (OSError(errno.EROFS, "Read-only file system"), [1, 1], False),
        (OSError(errno.EIO, "Input/output error"), [3, 3], False),
        (NewerFormat("of a newer release"), [3, 0], True),
    ],
)
def test_failed_compression(
    place: DataDirectory, monkeypatch: pytest.MonkeyPatch, error: Exception, tries: list[int], done: bool
) -> None:
    """A full or read-only disk ends the round; an unreadable log is skipped; an unknown format is not tried again."""
    for number in range(3):
        place.log("t", number)
    calls: list[str] = []
    monkeypatch.setattr(upkeep, "compress", failing(error, calls))
    for count in tries:
        recorded_log = RecordedLog()
        calls.clear()
        maintain(place.job(), recorded_log)
        assert len(calls) == len(recorded_log.lines) == count
        assert all("cannot compress" in line for line in recorded_log.lines)
    assert {log.done for log in find_logs(f"{place.directory}/logs")} == {done}


def test_undeletable_log(place: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next oldest logs are removed instead, and the daemon's log names the log that stays."""
    paths = [place.log("t", number, ended_ms=NOW_MS + number * HOUR_MS) for number in range(4)]
    unlink = os.unlink

    def stubborn(path: str) -> None:
        if path == paths[0]:
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(path)

    monkeypatch.setattr(os, "unlink", stubborn)
    recorded_log = RecordedLog()
    size = os.stat(paths[0]).st_blocks * 512
    maintain(place.job(max_log_bytes=2 * size), recorded_log)
    assert place.logs() == [paths[0], paths[3]]
    assert f"cannot remove {paths[0]}: Read-only file system" in recorded_log.lines[0]


def test_rest_after_a_slow_look(place: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it takes long to look at all logs, the janitor asks for a rest fifty times as long."""
    seconds = iter([10.0, 17.0])
    monkeypatch.setattr("time.process_time", lambda: next(seconds))
    assert maintain(place.job(), RecordedLog()).rest_ms == 350_000


def test_warning_about_remaining_logs(place: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """If logs still exceed the budget, the warning has each reason with its remedy."""
    unfinished, unreadable, fixed, _removed = paths = [
        place.log("t", number, sealed=number > 1, ended_ms=NOW_MS + number * HOUR_MS) for number in range(1, 5)
    ]
    with open(unreadable, "r+b") as file:
        file.seek(100)
        file.write(b"?" * 500)
    unlink = os.unlink

    def stubborn(path: str) -> None:
        if path == fixed:
            raise OSError(errno.EPERM, "Operation not permitted")
        unlink(path)

    monkeypatch.setattr(os, "unlink", stubborn)
    sizes = {path: os.stat(path).st_blocks * 512 for path in paths}
    recorded_log = RecordedLog()
    maintain(place.job(max_log_bytes=0), recorded_log)
    assert place.logs() == [unfinished, unreadable, fixed]
    (warning,) = [line for line in recorded_log.lines if "more than the limit of 0 bytes" in line]
    for path, count in (
        (unfinished, "1 unfinished log"),
        (unreadable, "1 unreadable log"),
        (fixed, "1 undeletable log"),
    ):
        assert f"{count} ({sizes[path]} bytes, oldest: {path}): " in warning
    assert "active" in warning
    assert f"cannot remove {fixed}: Operation not permitted" in "".join(recorded_log.lines)
    for path in (unfinished, fixed):
        unlink(path)
    recorded_log.lines.clear()
    maintain(place.job(max_log_bytes=0), recorded_log)
    assert ["active" in line for line in recorded_log.lines if "limit of 0 bytes" in line] == [False]
