"""The note of recently started runs."""

import errno
import os
from pathlib import Path

import pytest

from store.runs.ids import new_ulid
from supervisor.ipc import recent_starts as module
from supervisor.ipc.recent_starts import RecentStarts, read_run_ids


def test_outlives_its_writer(tmp_path: Path) -> None:
    """Another writer continues the note, and the oldest starts are dropped when there are too many."""
    assert read_run_ids(str(tmp_path)) == frozenset()
    runs = [new_ulid() for _ in range(module._SLOTS + 5)]
    first = RecentStarts(str(tmp_path))
    for run in runs[:10]:
        first.note(run)
    assert read_run_ids(str(tmp_path)) == set(runs[:10])
    second = RecentStarts(str(tmp_path))
    for run in runs[10:]:
        second.note(run)
    assert read_run_ids(str(tmp_path)) == set(runs[5:])
    second.clear()
    assert read_run_ids(str(tmp_path)) == frozenset()
    assert list(tmp_path.iterdir()) == []


def test_truncated_file(tmp_path: Path) -> None:
    """A truncated note is read as far as it is complete."""
    note = RecentStarts(str(tmp_path))
    note.note("A" * 26)
    (tmp_path / "begun").write_bytes((tmp_path / "begun").read_bytes()[:58])
    assert read_run_ids(str(tmp_path)) == {"A" * 26}


def test_missing_directory(tmp_path: Path) -> None:
    """A note in a missing directory raises an error."""
    with pytest.raises(OSError, match="No such file"):
        RecentStarts(str(tmp_path / "nowhere"))


def test_full_tmpfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note on a full tmpfs raises an error, and no descriptor stays open."""

    def refuse(_fd: int, _offset: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No space left"):
        RecentStarts(str(tmp_path))
    assert set(os.listdir("/proc/self/fd")) <= before
