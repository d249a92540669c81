"""Copies of an SQLite database, and restores from a copy."""

import os
import resource
from pathlib import Path

import pytest

from store.daemon_values import get_meta, set_meta
from store.database import open_reader, open_writer
from store.errors import DatabaseDamaged, DatabaseUnusable, DiskFailed
from store.events import append, last_seq, since
from store.recovery.copies import check, check_copy, copied_at_ms, copy_path, is_suspect, make_copy, suspect
from store.recovery.salvage import restore
from store.runs.writes import get_run, insert_run, update_run
from store.tasks import get_task, update_task, upsert_task
from tests.store.making import T0, make_run


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ringward.db")


def damage(path: str) -> None:
    """Overwrite all pages except the first two."""
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xa5" * (size - 4096 * 2))


def test_copy_during_writes(path: str) -> None:
    """The copy has all stored rows and is unreadable for other users; the next copy replaces it."""
    writer = open_writer(path)
    set_meta(writer, "a", 1)
    make_copy(path)
    set_meta(writer, "a", 2)
    make_copy(path)
    writer.close()
    assert os.stat(copy_path(path)).st_mode & 0o777 == 0o600
    copy = open_writer(copy_path(path))
    assert get_meta(copy, "a") == 2
    copy.close()


def test_copy_to_a_failing_disk(path: str) -> None:
    """The error names the copy and SQLite's code for the failure."""
    writer = open_writer(path)
    set_meta(writer, "big", "x" * 1_000_000)
    writer.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # write(2) beyond fails with EFBIG
    try:
        with pytest.raises(DiskFailed) as failed:
            make_copy(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "ringward.db.copy" in str(failed.value)
    assert "SQLITE_IOERR_WRITE" in str(failed.value)


def test_damaged_database_is_not_copied(path: str) -> None:
    """A damaged database is not copied, and the earlier copy stays."""
    open_writer(path).close()
    make_copy(path)
    before = Path(copy_path(path)).read_bytes()
    damage(path)
    with pytest.raises(DatabaseUnusable):
        make_copy(path)
    assert Path(copy_path(path)).read_bytes() == before


def test_restore_from_a_copy(path: str) -> None:
    """A restore keeps the damaged database.

    Instants that may have run since the copy do not run again, and no event gets an id used since.
    """
    writer = open_writer(path)
    upsert_task(writer, "t0", "task", "{}")
    update_task(writer, "t0", last_instant=T0)
    waits, runs, ended = make_run(task_name="t0"), make_run(task_name="t0"), make_run(task_name="t0")
    for run in (waits, runs, ended):
        insert_run(writer, run)
    update_run(writer, runs.id, status="running", started_at=T0)
    update_run(writer, ended.id, status="ended", end_reason="succeeded", exit_code=0, ended_at=T0)
    append(writer, "run.created", {}, T0)
    make_copy(path)
    append(writer, "run.created", {}, T0)
    writer.close()
    damage(path)
    damaged = Path(path).read_bytes()
    restored = restore(path, T0 + 5000, lambda restored_result: {"restored": restored_result.damaged})
    assert restored.copied_at_ms == copied_at_ms(path)
    assert restored.damaged is not None
    assert Path(restored.damaged).read_bytes() == damaged
    writer = open_writer(path)
    stored = [get_run(writer, run.id) for run in (waits, runs, ended)]
    assert [run and (run.status, run.end_reason) for run in stored] == [
        ("pending", None),
        ("running", None),
        ("ended", "succeeded"),
    ]
    task = get_task(writer, "t0")
    assert task is not None
    assert task.last_instant == T0 + 5000
    assert last_seq(writer) > 2
    assert get_meta(writer, "restored") == restored.damaged
    writer.close()
    check(path)


def test_events_since_an_empty_copy(path: str) -> None:
    """No event number is used twice, even if the copy was made before the first event."""
    writer = open_writer(path)
    make_copy(path)
    for _ in range(3):
        append(writer, "run.created", {}, T0)
    writer.close()
    damage(path)
    restore(path, T0 + 5000)
    writer = open_writer(path)
    [event] = since(writer, 0)
    assert event.seq > 3
    assert (event.kind, event.body) == ("notification.unreadCountChanged", {"count": 0})
    assert append(writer, "run.created", {}, T0) == event.seq + 1
    writer.close()


@pytest.mark.parametrize("copy", ["none", "damaged"])
def test_restore_without_a_usable_copy(path: str, copy: str) -> None:
    """Without a usable copy, nothing is moved."""
    open_writer(path).close()
    if copy == "damaged":
        make_copy(path)
        damage(copy_path(path))
    damage(path)
    before = Path(path).read_bytes()
    with pytest.raises(DatabaseUnusable):
        check_copy(path)
    with pytest.raises(DatabaseUnusable):
        restore(path, T0)
    assert Path(path).read_bytes() == before


def test_suspect_database(path: str) -> None:
    """A database stays suspect until all of it was read without a fault."""
    open_writer(path).close()
    whole = Path(path).read_bytes()
    suspect(path)
    damage(path)
    with pytest.raises(DatabaseDamaged):
        check(path)
    assert is_suspect(path)
    Path(path).write_bytes(whole)
    check(path)
    assert not is_suspect(path)


def test_open_reader_during_a_restore(path: str) -> None:
    """A reader that was already open continues with the database that replaced the damaged one."""
    writer = open_writer(path)
    make_copy(path)
    set_meta(writer, "a", 1)
    reader = open_reader(path)
    assert get_meta(reader, "a") == 1
    writer.close()
    restore(path, T0)
    assert get_meta(reader, "a") is None
    reader.close()


def test_damaged_databases_of_the_same_second(path: str) -> None:
    """A damaged database that was moved aside is never overwritten by the next, even within the same second."""
    open_writer(path).close()
    make_copy(path)
    content_by_aside: dict[str, bytes] = {}
    for _ in range(3):
        damage(path)
        content = Path(path).read_bytes()
        aside = restore(path, T0).damaged
        assert aside is not None
        content_by_aside[aside] = content
    assert len(content_by_aside) == 3
    assert {name: Path(name).read_bytes() for name in content_by_aside} == content_by_aside
