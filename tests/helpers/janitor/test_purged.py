"""Removal of the files of purged runs."""

import os
from pathlib import Path

import pytest

from logring.log_paths import frames_path, log_path, ring_path
from store.database import open_writer
from supervisor.helpers.janitor import upkeep
from supervisor.helpers.janitor.upkeep import maintain, remove
from supervisor.ipc.log_line import Log
from tests.helpers.janitor.support import NOW_MS, DataDirectory, run


def note(place: DataDirectory, *paths: str) -> None:
    """Note that the runs of these logs were purged."""
    writer = open_writer(place.database)
    for path in paths:
        task, _, name = path.split("/")[-3:]
        writer.execute("INSERT INTO purged (task_name, run_id) VALUES (?, ?)", [task, name.removesuffix(".log")])
    writer.close()


@pytest.mark.parametrize("look", [True, False])
def test_files_of_purged_runs_are_removed(place: DataDirectory, look: bool) -> None:
    """Files of purged runs are removed, with their frames and empty directories; other logs stay."""
    gone, other, kept_log = place.log("t", 1), place.log("u", 2), place.log("t", 3)
    Path(frames_path(gone)).write_bytes(b"frames")
    note(place, gone, other)
    report, logged = run(place.job(look=look, compress_after_ms=NOW_MS))
    assert (report.removed, report.kept, logged) == (2, [], "")
    assert place.logs() == [kept_log]
    assert place.others() == []


def test_missing_files_count_as_removed(place: DataDirectory) -> None:
    """Files that do not exist, or never did, count as removed."""
    gone = place.log("t", 1)
    note(place, gone, log_path(str(place.directory), "t", "01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    for _ in range(2):
        report, logged = run(place.job(look=False))
        assert (report.removed, report.kept, logged) == (2, [], "")
    assert place.logs() == []


def test_only_purged_runs(place: DataDirectory) -> None:
    """A janitor with a job to purge only neither compresses a log nor removes one for the budget."""
    path = place.log("t", 1, 5000)
    size = os.stat(path).st_size
    report, _ = run(place.job(look=False, max_log_bytes=0))
    assert (report.removed, report.next_ms, report.rest_ms) == (0, None, 0)
    assert os.stat(path).st_size == size


def test_undeletable_file_is_reported(place: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be removed is reported, and the others are removed."""
    stays, gone = place.log("t", 1), place.log("t", 2)
    note(place, stays, gone)

    def removing(path: str) -> None:
        if path == stays:
            raise PermissionError(1, "Operation not permitted")
        remove(path)

    monkeypatch.setattr(upkeep, "remove", removing)
    report = maintain(place.job(look=False), Log("janitor", fd=os.open(os.devnull, os.O_WRONLY)))
    assert (report.removed, report.kept) == (2, [1])
    assert place.logs() == [stays]


def test_unwritten_log_of_a_purged_run(place: DataDirectory) -> None:
    """If a full disk delayed the log of a purged run, it is removed after it was written."""
    path = log_path(str(place.directory), "t", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    ring = Path(ring_path(str(place.directory), "01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    ring.write_bytes(b"what there is no room for")
    gone = place.log("t", 2)
    note(place, path, gone)
    report, logged = run(place.job(look=False))
    assert (report.removed, report.kept, logged) == (2, [1], "")
    assert place.logs() == []
    os.makedirs(os.path.dirname(path))
    ring.rename(path)
    report, logged = run(place.job(look=False))
    assert (report.removed, report.kept, logged) == (2, [], "")
    assert place.logs() == place.others() == []
