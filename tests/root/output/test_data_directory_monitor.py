"""The data directory, moved or removed while the daemon runs."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.ipc.log_line import Log
from supervisor.root.output.data_directory_monitor import DataDirectoryMonitor
from supervisor.startup import data_directory
from supervisor.startup.refusal import NotStarted
from tests.root.loop.test_shortage import BOOT

ID, KEY = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "ab" * 32
FILES = {"id": f"{ID}\n", "run_token.key": f"{KEY}\n", "lock": f"{os.getpid()}\n"}


class Lines(Log):
    """A log that a test reads."""

    def __init__(self) -> None:
        super().__init__("test", "info")
        self.lines: list[str] = []

    def emit(self, line: bytes) -> None:
        self.lines.append(line.decode())


class Watched:
    """A monitored data directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = Lines()
        data_directory.prepare(str(path))
        settings = replace(BOOT, data_dir=str(path), daemon_id=ID, run_token_key=KEY)
        self.lock = data_directory.take_lock(str(path))
        data_directory.store_identity(settings)
        self.check = DataDirectoryMonitor(settings, self.lock, self.log).check

    def content(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.path.iterdir()}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path / "above" / "data")
    yield watched
    os.close(watched.lock)


def moved(path: Path) -> None:
    path.rename(path.parent / "moved")


def emptied(path: Path) -> None:
    for name in FILES:
        (path / name).unlink()


def with_parents(path: Path) -> None:
    shutil.rmtree(path.parent)


def taken_by_another(path: Path) -> None:
    emptied(path)
    (path / "id").write_text("01BX5ZZKBKACTAV9WEVGEMMVRZ\n")
    os.close(data_directory.take_lock(str(path)))


@pytest.mark.parametrize("change", [moved, emptied, with_parents, taken_by_another])
def test_lost_files_are_restored(watched: Watched, change: Callable[[Path], None]) -> None:
    """Lock, id and key come back with their content, locked under the same descriptor, and the log says so once."""
    watched.check()
    assert watched.log.lines == []
    change(watched.path)
    watched.check()
    watched.check()
    assert watched.content() == FILES
    assert watched.path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(NotStarted, match=f"a daemon already runs on .* \\(pid {os.getpid()}\\)"):
        data_directory.take_lock(str(watched.path))
    assert len(watched.log.lines) == 1, watched.log.lines
    assert "lock, id" in watched.log.lines[0]


@pytest.mark.parametrize("name", ["id", "run_token.key"])
def test_single_file(watched: Watched, name: str) -> None:
    """A single removed file is restored, and the lock stays the same file."""
    before = (watched.path / "lock").stat().st_ino
    (watched.path / name).unlink()
    watched.check()
    assert watched.content() == FILES
    assert (watched.path / "lock").stat().st_ino == before
    assert f" {name} in " in watched.log.lines[0]


def test_moved_back(watched: Watched) -> None:
    """If the original directory returns to its path, it is locked again."""
    moved(watched.path)
    watched.check()
    shutil.rmtree(watched.path)
    (watched.path.parent / "moved").rename(watched.path)
    watched.check()
    assert watched.content() == FILES
    with pytest.raises(NotStarted, match="already runs"):
        data_directory.take_lock(str(watched.path))


def test_directory_of_another_daemon(watched: Watched) -> None:
    """The files of another daemon that holds the lock stay as they are until it releases it; the log says so once."""
    emptied(watched.path)
    (watched.path / "id").write_text("01BX5ZZKBKACTAV9WEVGEMMVRZ\n")
    theirs = data_directory.take_lock(str(watched.path))
    for _ in range(2):
        watched.check()
    assert [line.split(": ", 1)[1] for line in watched.log.lines] == [
        f"cannot restore the lock and the identity of {watched.path}: another process has locked it\n"
    ]
    assert (watched.path / "id").read_text() == "01BX5ZZKBKACTAV9WEVGEMMVRZ\n"
    fcntl.flock(theirs, fcntl.LOCK_UN)
    os.close(theirs)
    watched.check()
    assert watched.content() == FILES
