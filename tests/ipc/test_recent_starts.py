"""The note of which runs were begun."""

from pathlib import Path

import pytest

from store.runs.ids import new_ulid
from supervisor.ipc import recent_starts as module
from supervisor.ipc.recent_starts import RecentStarts, read_run_ids


def test_it_outlives_who_made_it(tmp_path: Path) -> None:
    """Another one goes on behind it; the oldest go when there are too many."""
    assert read_run_ids(str(tmp_path)) == frozenset()
    runs = [new_ulid() for _ in range(module._PLACES + 5)]
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


def test_what_somebody_cut_off(tmp_path: Path) -> None:
    """It is read as far as it goes."""
    note = RecentStarts(str(tmp_path))
    note.note("A" * 26)
    (tmp_path / "begun").write_bytes((tmp_path / "begun").read_bytes()[:58])
    assert read_run_ids(str(tmp_path)) == {"A" * 26}


def test_where_it_cannot_be(tmp_path: Path) -> None:
    """It raises, and leaves no descriptor."""
    with pytest.raises(OSError, match="No such file"):
        RecentStarts(str(tmp_path / "nowhere"))
