"""The thread of one task, on real directories."""

import errno
import json
import os
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from supervisor.helpers.filewatcher.refusals import Refusals, Retries
from supervisor.helpers.filewatcher.task_watch import TaskWatch, is_shared, matches
from supervisor.host.inotify import Inotify
from supervisor.ipc.file_bursts import FileBurst, FileWatcherLine, InotifyProblems
from supervisor.ipc.helper_messages import HelperMessage
from tests.support.waiting import until

Watch = Callable[..., "RunningWatch"]

M = TypeVar("M", bound=HelperMessage)


class RunningWatch:
    """A running thread and its messages."""

    def __init__(self, directory: Path, globs: list[str], **more: Any) -> None:
        self.messages: queue.SimpleQueue[HelperMessage] = queue.SimpleQueue()
        self.saved = directory / "state.json"
        send = self.messages.put
        self.thread = TaskWatch("t", globs, 0.05, str(self.saved), send, Refusals(send), **more)
        self.thread.start()

    def next(self, kind: type[M]) -> M:
        while True:
            message = self.messages.get(timeout=60)
            if isinstance(message, kind):
                return message

    def burst(self) -> list[str]:
        """Wait for a burst and acknowledge it."""
        message = self.next(FileBurst)
        self.thread.stored(message.id)
        return sorted(os.path.basename(path) for path in message.files)

    def is_listed(self, name: str = "") -> None:
        """Wait until the first list is saved and has the name."""
        until(lambda: self.saved.exists() and f"/{name}" in self.saved.read_text(), "the first list")


def test_written_and_moved_files(tmp_path: Path) -> None:
    """A file counts when it is closed after writing or moved into place."""
    place = tmp_path / "in"
    place.mkdir()
    watched = RunningWatch(tmp_path, [f"{place}/*.csv", f"{place}/exact"])
    watched.is_listed()
    with (place / "a.csv").open("w") as file:
        file.write("part")
        file.flush()
        (tmp_path / "b").write_text("x")
        (tmp_path / "b").rename(place / "exact")
        assert watched.burst() == ["exact"]
        file.write("rest")
    assert watched.burst() == ["a.csv"]


def test_linked_files(tmp_path: Path) -> None:
    """A hard link to a complete file counts at once, also if the other name is removed, as mail is delivered."""
    place = tmp_path / "new"
    place.mkdir()
    watched = RunningWatch(tmp_path, [f"{place}/*"])
    watched.is_listed()
    (tmp_path / "kept").write_text("x")
    os.link(tmp_path / "kept", place / "a")
    assert watched.burst() == ["a"]
    (tmp_path / "mail").write_text("x")
    os.utime(tmp_path / "mail", (1_700_000_000, 1_700_000_000))
    os.link(tmp_path / "mail", place / "b")
    (tmp_path / "mail").unlink()
    assert watched.burst() == ["b"]
    with (place / "c").open("w") as file:
        os.link(tmp_path / "kept", place / "d")
        assert watched.burst() == ["d"]
        file.write("x")
    assert watched.burst() == ["c"]


def test_files_of_a_kubernetes_volume(tmp_path: Path) -> None:
    """A named link to a file counts when the link, or a link through which it leads, is replaced."""
    place = tmp_path / "config"
    place.mkdir()

    def point(target: str, link: Path) -> None:
        new = link.with_name("..new")
        new.symlink_to(target)
        new.rename(link)

    for version in ("..1", "..2", "..3"):
        (place / version).mkdir()
        (place / version / "app.conf").write_text("same")
    point("..1", place / "..data")
    point("..data/app.conf", place / "app.conf")
    point("..data/app.conf", place / "other.conf")
    watched = RunningWatch(tmp_path, [f"{place}/app.conf", f"{place}/o*.conf"])
    watched.is_listed()
    point("..2", place / "..data")
    assert watched.burst() == ["app.conf"]
    (place / "app.conf").unlink()
    (place / "app.conf").symlink_to("..3/app.conf")
    assert watched.burst() == ["app.conf"]


def test_network_file_system_is_listed(tmp_path: Path) -> None:
    """On a network file system the directory is listed at intervals, and the log says so."""
    place = tmp_path / "in"
    place.mkdir()
    watched = RunningWatch(tmp_path, [f"{place}/*"], file_system=lambda _path: "nfs4")
    text = watched.next(FileWatcherLine).text
    reason = "its file system, nfs4, sends no events for changes by other hosts"
    assert text == f"t: {place} is listed every 10 s: {reason}"


@pytest.mark.parametrize(
    ("file_system", "shared"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("cifs", True),
        ("fuse.sshfs", True),
        ("ext4", False),
        ("tmpfs", False),
        ("", False),
    ],
)
def test_shared_file_systems(file_system: str, shared: bool) -> None:
    """Network file systems and FUSE can change without an event."""
    assert is_shared(file_system) is shared


def test_path_is_not_a_directory(tmp_path: Path) -> None:
    """A path that is not a directory is reported once."""
    (tmp_path / "file").write_text("")
    watched = RunningWatch(tmp_path, [f"{tmp_path}/file/*"])
    assert watched.next(FileWatcherLine).text == f"t: cannot watch {tmp_path}/file: Not a directory; trying again"


class LimitedInotify(Inotify):
    """inotify with a limit of watches that can be raised."""

    exhausted = True

    def add(self, directory: str, mask: int) -> int:
        if LimitedInotify.exhausted:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().add(directory, mask)


def test_refused_watches(tmp_path: Path) -> None:
    """Refused directories are reported together, listed at intervals, and watched once the limit is raised."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    globs = [f"{tmp_path}/a/*", f"{tmp_path}/b/*"]
    LimitedInotify.exhausted = True
    watched = RunningWatch(tmp_path, globs, open_inotify=LimitedInotify, retries=Retries([0.0]))
    text = watched.next(FileWatcherLine).text
    assert text.startswith("all inotify watches of the user are in use")
    assert text.endswith("raise fs.inotify.max_user_watches")
    assert watched.next(InotifyProblems).problems == [text]
    watched.is_listed()
    (tmp_path / "b" / "listed").touch()
    assert watched.burst() == ["listed"]
    LimitedInotify.exhausted = False
    line = FileWatcherLine("info", "inotify watches all directories of on_change again")
    assert watched.messages.get(timeout=60) == line
    assert watched.next(InotifyProblems).problems == []
    (tmp_path / "a" / "seen").touch()
    assert watched.burst() == ["seen"]


def test_refused_inotify_instance(tmp_path: Path) -> None:
    """The task lists its directories until the kernel provides an inotify instance."""
    place = tmp_path / "in"
    place.mkdir()
    refusals = [OSError(errno.EMFILE, "Too many open files")]

    def open_inotify() -> Inotify:
        if refusals:
            raise refusals.pop()
        return Inotify()

    watched = RunningWatch(tmp_path, [f"{place}/*"], open_inotify=open_inotify, retries=Retries([0.0]))
    assert watched.next(FileWatcherLine).text.endswith("raise fs.inotify.max_user_instances")
    assert watched.next(FileWatcherLine).text == "inotify watches all directories of on_change again"
    (place / "seen").touch()
    assert watched.burst() == ["seen"]


@pytest.mark.parametrize("text", ["{", pytest.param("[" * 100_000, id="nested")])
def test_damaged_state(tmp_path: Path, text: str) -> None:
    """An unreadable state is reported, and the existing files count as known."""
    (tmp_path / "state.json").write_text(text)
    place = tmp_path / "in"
    place.mkdir()
    (place / "old").write_text("")
    watched = RunningWatch(tmp_path, [f"{place}/*"])
    assert "changes since the last start are not detected" in watched.next(FileWatcherLine).text
    watched.is_listed("old")
    (place / "new").write_text("")
    assert watched.burst() == ["new"]


def test_files_of_former_globs_are_forgotten(tmp_path: Path) -> None:
    """After a change of the globs, the saved state has only the files of the remaining and new ones."""
    for name in ("former", "kept", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in-{name}").write_text("")
    first = RunningWatch(tmp_path, [f"{tmp_path}/former/*", f"{tmp_path}/kept/*"])
    first.is_listed("in-former")
    first.is_listed("in-kept")
    first.thread.close()
    second = RunningWatch(tmp_path, [f"{tmp_path}/kept/*", f"{tmp_path}/new/*"])
    second.is_listed("in-new")
    saved_paths = json.loads(second.saved.read_text())["known"]
    assert sorted(map(os.path.basename, saved_paths)) == ["in-kept", "in-new"]
    (tmp_path / "kept" / "later").write_text("")
    assert second.burst() == ["later"]


def test_many_files_at_once(tmp_path: Path) -> None:
    """All files are found, even more than the kernel's queue holds."""
    place = tmp_path / "in"
    place.mkdir()
    watched = RunningWatch(tmp_path, [f"{place}/*"])
    watched.is_listed()
    names = {f"{number}" for number in range(20_000)}
    for name in names:
        (place / name).touch()
    names_seen: set[str] = set()
    while names_seen != names:
        names_seen |= set(watched.burst())


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("a.csv", "*.csv", True),
        ("a.CSV", "*.csv", False),
        (".a.csv", "*.csv", False),
        (".a.csv", ".*.csv", True),
        ("a1", "a[0-9]", True),
        ("ab", "a[!0-9]", True),
        ("a", "?", True),
        ("", "?", False),
    ],
)
def test_name_patterns(name: str, pattern: str, expected: bool) -> None:
    """Names match as in a shell, with case; hidden files match only a pattern with a leading dot."""
    assert matches(name, pattern) is expected
