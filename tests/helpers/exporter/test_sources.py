"""The runs that an exporter finds."""

from pathlib import Path

import pytest

from logring.layout import STDOUT, RingShape
from logring.log_paths import ring_path
from logring.ring.writer import RingWriter
from store.database import Database, open_writer
from store.runs.writes import update_run
from supervisor.helpers.exporter.cursors import Cursors
from supervisor.helpers.exporter.sources import NewRuns
from tests.helpers.exporter.pieces import job
from tests.store.making import T0, make_run, store_run


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return open_writer(str(tmp_path / "ringward.db"))


def follow_runs(tmp_path: Path, *, units: list[str] | None = None, globs: list[str] | None = None) -> list[str]:
    """Let an exporter look once; return all runs that it follows."""
    cursors = Cursors(str(tmp_path / "x.cursors"))
    where = str(tmp_path / "ringward.db")
    export_job = job(
        "file",
        database=where,
        runtime_dir=str(tmp_path),
        data_dir=str(tmp_path),
        units=units or [],
        globs=globs or ["*"],
        begin_at=T0,
    )
    new_runs = NewRuns(export_job, cursors)
    while new_runs.find():
        pass
    cursors.commit()
    new_runs.close()
    return list(cursors.runs)


def test_new_export_follows_active_and_new_runs(tmp_path: Path, db: Database) -> None:
    """A new export follows runs that were active when it was configured, and later ones even if they have ended."""
    ended = {"status": "ended", "end_reason": "succeeded", "exit_code": 0}
    before, active = make_run(created_at=T0 - 2, **ended), make_run(created_at=T0 - 1)
    later, new = make_run(created_at=T0, **ended), make_run(created_at=T0 + 1)
    for run in (before, active, later, new):
        store_run(db, run)
    assert follow_runs(tmp_path) == [active.id, later.id, new.id]


def test_runs_without_an_exporter_are_found(tmp_path: Path, db: Database) -> None:
    """Runs that began and ended while no exporter ran are followed by the next one, each once."""
    assert follow_runs(tmp_path) == []
    runs = [make_run(created_at=T0 + number) for number in range(1500)]
    for run in runs:
        store_run(db, run)
        update_run(db, run.id, status="ended", end_reason="succeeded", exit_code=0)
    assert follow_runs(tmp_path) == [run.id for run in runs]
    assert follow_runs(tmp_path) == [run.id for run in runs]


def test_reused_row_number_hides_no_run(tmp_path: Path, db: Database) -> None:
    """Runs in reused rows of purged runs are found, even several of them."""
    runs = [make_run(created_at=T0 + number) for number in range(4)]
    for run in runs:
        store_run(db, run)
    assert len(follow_runs(tmp_path)) == 4
    db.execute("DELETE FROM runs WHERE id IN (?, ?)", [runs[2].id, runs[3].id])
    again = [make_run(created_at=T0 + 10)]
    store_run(db, again[0])
    assert follow_runs(tmp_path) == [*(run.id for run in runs), again[0].id]
    again += [make_run(created_at=T0 + number) for number in (11, 12)]
    for run in again[1:]:
        store_run(db, run)
    assert follow_runs(tmp_path) == [run.id for run in (*runs, *again)]


def test_restored_database_hides_no_run(tmp_path: Path, db: Database) -> None:
    """After the database was restored to an older state, runs in previously known rows are found."""
    runs = [make_run(created_at=T0 + number) for number in range(1200)]
    for run in runs:
        store_run(db, run)
    assert len(follow_runs(tmp_path)) == 1200
    db.execute("DELETE FROM runs WHERE created_at >= ?", [T0 + 100])
    new = make_run(created_at=T0 + 5000)
    store_run(db, new)
    assert follow_runs(tmp_path)[-1] == new.id


def test_only_selected_runs_are_followed(tmp_path: Path, db: Database) -> None:
    """Runs of selected units are followed, and runs of a removed unit whose name matches a glob."""
    runs = {name: make_run(task_name=name, created_at=T0) for name in ("web", "db-1", "other")}
    for run in runs.values():
        store_run(db, run)
    assert follow_runs(tmp_path, units=["web"], globs=["db-*"]) == [runs["web"].id, runs["db-1"].id]


def test_active_runs_are_followed_once_they_are_selected(tmp_path: Path, db: Database) -> None:
    """A changed selection adds the active runs that match only now, but none whose log is complete."""
    runs = {name: make_run(task_name=name, created_at=T0) for name in ("web", "db", "sealed", "ended")}
    for run in runs.values():
        store_run(db, run)
    assert follow_runs(tmp_path, units=["web"], globs=["x"]) == [runs["web"].id]
    update_run(db, runs["ended"].id, status="ended", end_reason="succeeded", exit_code=0)
    writer = RingWriter.new(ring_path(str(tmp_path), runs["sealed"].id), "D", RingShape(0))
    writer.append(STDOUT, b"line\n", T0)
    writer.seal(T0)
    assert follow_runs(tmp_path, units=["web", "db", "sealed", "ended"]) == [runs["web"].id, runs["db"].id]
    assert follow_runs(tmp_path, units=["db"]) == [runs["web"].id, runs["db"].id]


def test_unseen_purged_runs_are_counted(tmp_path: Path, db: Database) -> None:
    """Missing row numbers give the number of runs purged before they were found; known runs do not count."""
    cursors = Cursors(str(tmp_path / "x.cursors"))
    where = str(tmp_path / "ringward.db")
    new_runs = NewRuns(job("file", database=where, globs=["*"], begin_at=T0), cursors)
    runs = [make_run(created_at=T0 + number) for number in range(10)]
    for run in runs[:3]:
        store_run(db, run)
    while new_runs.find():
        pass
    for run in runs[3:]:
        store_run(db, run)
    for run in (runs[1], runs[3], runs[4], runs[7]):
        db.execute("DELETE FROM runs WHERE id = ?", [run.id])
    while new_runs.find():
        pass
    assert new_runs.lost_runs == 3
    assert list(cursors.runs) == [run.id for run in runs if run not in (runs[3], runs[4], runs[7])]
    new_runs.close()


def test_first_attempts(tmp_path: Path, db: Database) -> None:
    """The first attempt of a retry is found across all attempts between them, as far as they are kept."""
    runs = [make_run(created_at=T0)]
    for number in range(1, 4):
        runs.append(make_run(created_at=T0 + number, retry_attempt=number, retry_of_run_id=runs[-1].id))
    for run in runs:
        store_run(db, run)
    new_runs = NewRuns(job("otlp", database=str(tmp_path / "ringward.db")), Cursors(str(tmp_path / "x.cursors")))
    ids = [run.id for run in runs]
    assert new_runs.first_attempts(ids) == dict.fromkeys(ids, runs[0].id)
    db.execute("DELETE FROM runs WHERE id = ?", [runs[1].id])
    assert new_runs.first_attempts(ids[2:]) == dict.fromkeys(ids[2:], runs[1].id)
    new_runs.close()
