"""Bursts of changed files, on a fake clock."""

import json
import os
from typing import Any

import pytest

from supervisor.helpers.filewatcher.changes import MAX_BYTES, MAX_FILES, MAX_KNOWN, FileState, TaskFiles

GLOB = "/in/*"


class Files:
    """The files of a directory, and their changes."""

    def __init__(self, saved: Any = None) -> None:
        self.there: dict[str, FileState] = {}
        self.changes = TaskFiles(1.0, saved)
        self._ctime_ns = 0

    def write(self, name: str, now_s: float, size: int = 1) -> None:
        self._ctime_ns += 1
        self.there[f"/in/{name}"] = FileState(hash(name), size, self._ctime_ns)
        self.changes.changed(f"/in/{name}", self.there[f"/in/{name}"], now_s)

    def list(self, now_s: float = 0.0) -> None:
        self.changes.listed(GLOB, self.there, lambda _path: True, now_s)

    def take(self, now_s: float) -> set[str] | None:
        burst = self.changes.take(now_s, self.there.get)
        return None if burst is None else {path.removeprefix("/in/") for path in burst.files}

    def store(self) -> None:
        assert self.changes.pending is not None
        assert self.changes.stored(self.changes.pending.id)

    def restarted(self) -> "Files":
        """Return the same files for another process with the saved state."""
        after = Files(json.loads(json.dumps(self.changes.to_json())))
        after.there, after._ctime_ns = self.there, self._ctime_ns
        return after


def test_burst_waits_until_it_is_quiet() -> None:
    """A burst is due when nothing has changed for the settle time, and has all changes."""
    files = Files()
    files.list()
    assert files.changes.due_s() is None
    files.write("a", 10.0)
    files.write("b", 10.9)
    assert files.changes.due_s() == 11.9
    assert files.take(11.9) == {"a", "b"}
    assert files.changes.due_s() is None


def test_burst_without_a_pause() -> None:
    """If changes never stop, a burst is due after a minute."""
    files = Files()
    files.list()
    for tenth in range(1000):
        files.write(f"{tenth}", tenth / 10)
    assert files.changes.due_s() == 60.0


def test_growing_file_waits() -> None:
    """A file that has changed again is left to the next burst; a removed file is left out."""
    files = Files()
    files.list()
    for name in ("whole", "growing", "gone"):
        files.write(name, 0.0)
    files.there["/in/growing"] = FileState(7, 100, 100)
    del files.there["/in/gone"]
    assert files.take(1.0) == {"whole"}
    files.store()
    assert files.changes.due_s() == 2.0
    assert files.take(2.0) == {"growing"}


def test_one_burst_at_a_time() -> None:
    """While the run of a burst is not stored, further changes wait, and then form one burst."""
    files = Files()
    files.list()
    files.write("a", 0.0)
    assert files.take(1.0) == {"a"}
    files.write("b", 2.0)
    files.write("a", 5.0)
    files.write("c", 8.0)
    assert files.changes.due_s() is None
    assert not files.changes.stored("another id")
    files.store()
    assert files.take(9.0) == {"a", "b", "c"}


def test_burst_survives_its_process() -> None:
    """A burst whose run is not stored is pending again, with its id; after that only other changes are reported."""
    files = Files()
    files.list()
    files.write("a", 0.0)
    files.take(1.0)
    after = files.restarted()
    assert after.changes.pending == files.changes.pending
    after.list(3.0)
    after.store()
    assert after.changes.due_s() is None
    after.write("b", 4.0)
    last = after.restarted()
    last.list(0.0)
    assert last.take(1.0) == {"b"}


def test_first_list_starts_nothing() -> None:
    """Files of the first list are known; of later lists only new and changed files count."""
    files = Files()
    files.there = {f"/in/{name}": FileState(number, 1, 1) for number, name in enumerate("abc")}
    files.list()
    assert files.changes.due_s() is None
    assert files.changes.urgent
    after = files.restarted()
    after.there = {"/in/a": FileState(0, 1, 1), "/in/b": FileState(1, 1, 2), "/in/d": FileState(3, 1, 1)}
    after.list()
    assert after.take(1.0) == {"b", "d"}
    after.store()
    after.there["/in/c"] = FileState(2, 1, 1)
    after.list(2.0)
    assert after.take(3.0) == {"c"}


def test_new_glob_has_a_first_list() -> None:
    """A glob that is new to the task has its own first list, even if the task had it before."""
    files = Files()
    files.list()
    files.changes.keep_globs([], lambda _path: False)
    files.there["/in/a"] = FileState(1, 1, 1)
    files.list()
    assert files.changes.due_s() is None


def test_changed_permissions_start_nothing() -> None:
    """After a change of attributes alone, a later list finds no difference; a later write counts."""
    files = Files()
    files.there["/in/a"] = FileState(1, 1, 1)
    files.there["/in/b"] = FileState(2, 1, 1)
    files.list()
    for name in ("a", "b"):
        files.there[f"/in/{name}"] = files.there[f"/in/{name}"]._replace(ctime_ns=2)
        files.changes.touched(f"/in/{name}", 5.0)
    files.changes.changed("/in/b", files.there["/in/b"], 5.1)  # closed after it was touched
    files.changes.tick(5.5, files.there.get)
    files.changes.tick(6.0, files.there.get)
    files.list(7.0)
    assert files.take(8.0) == {"b"}


def test_created_file_that_stays_as_it_is() -> None:
    """A file that appears with its content and without a write counts after a minute; others wait for their writer."""
    files = Files()
    files.list()
    for number, name in enumerate(("linked", "empty", "growing", "written", "gone")):
        files.there[f"/in/{name}"] = FileState(number, 0 if name == "empty" else 1, 7)
        files.changes.created(f"/in/{name}", files.there[f"/in/{name}"], 5.0)
    files.there["/in/growing"] = FileState(2, 2, 8)
    files.write("written", 6.0)
    files.changes.vanished("/in/gone")
    assert files.take(7.0) == {"written"}
    files.store()
    files.changes.tick(64.9, files.there.get)
    assert files.changes.due_s() is None
    files.changes.tick(65.0, files.there.get)
    assert files.take(66.0) == {"linked"}


def test_limits_of_a_burst() -> None:
    """A burst has a limited number of files and bytes; the other files follow."""
    files = Files()
    files.list()
    for number in range(MAX_FILES + 5):
        files.write(f"{number}", 100.0)
    assert files.changes.due_s() == 100.0
    first = files.take(100.0)
    assert first is not None
    assert len(first) == MAX_FILES
    files.store()
    assert len(files.take(101.0) or ()) == 5
    files.store()
    long = MAX_BYTES // 1000
    for number in range(long + 10):
        files.write(f"{number:0990}", 200.0)
    assert len(files.take(201.0) or ()) < long + 10
    files.store()
    assert files.take(202.0)


def test_undecodable_names() -> None:
    """A name of any bytes can be stored and restored."""
    files = Files()
    files.list()
    name = os.fsdecode(b"\xff\n\x01")
    files.write(name, 0.0)
    files.take(1.0)
    assert files.restarted().changes.pending == files.changes.pending


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"version": 2, "globs": [], "known": {}, "pending": None},
        {"version": 1, "globs": [5, "*"], "known": {}, "pending": None},
        [],
        "x",
        {"version": 1},
    ],
)
def test_damaged_state(saved: Any) -> None:
    """An invalid state is refused as a whole."""
    with pytest.raises((LookupError, TypeError, ValueError)):
        TaskFiles(1.0, saved)


def test_too_many_waiting_files() -> None:
    """Files beyond the limit are left to the next list."""
    files = Files()
    files.list()
    for number in range(MAX_KNOWN + 1):
        files.write(f"{number}", 0.0)
    assert files.changes.dropped
    assert len(files.take(1.0) or ()) == MAX_FILES
    files.store()
    files.list(2.0)
    files.changes.dropped = False
    assert f"/in/{MAX_KNOWN}" not in files.restarted().changes.to_json()["known"]
