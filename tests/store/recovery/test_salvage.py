"""Rows of a damaged database that its older copy lacks are salvaged."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from store.database import Database, open_writer
from store.events import append, last_seq
from store.idempotency import claim, find
from store.recovery.copies import make_copy
from store.recovery.salvage import SalvageResult, is_sound, restore
from store.runs.definitions import Definition, get_definition, set_current
from store.runs.ids import new_ulid
from store.runs.samples import Reading, of_ended, store_readings
from store.runs.writes import Run, get_run, insert_run, unfinished_runs, update_run
from store.tasks import get_task, update_task, upsert_task
from tests.store.making import T0, counted, make_run, store_run, stored_counts, undoing

PAGE = 4096
END = {"status": "ended", "end_reason": "succeeded", "exit_code": 0, "ended_at": T0 + 20}
AFTER = 200
DEFINITION = Definition('{"run": "a"}', "1" * 32)


class Made(NamedTuple):
    """A database, its copy, and the changes since the copy."""

    path: str
    younger: list[Run]
    ended: str
    waits: str
    key_of: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = str(tmp_path_factory.mktemp("made") / "ringward.db")
    writer = open_writer(path)
    ended, waits = make_run(), make_run()
    with writer.transaction():
        for run in (*(make_run(**END, started_at=T0) for _ in range(300)), ended, waits):
            insert_run(writer, run)
        upsert_task(writer, "a", "task", "{}")
        update_task(writer, "a", last_instant=T0)
        append(writer, "run.created", {}, T0)
    make_copy(path)
    younger = [
        make_run(
            scheduled_at=T0 + number,
            definition_hash=DEFINITION.hash,
            **(END | {"started_at": T0 + 10} if number % 50 else {}),
        )
        for number in range(AFTER)
    ]
    sampled = younger[1]
    with writer.transaction():
        for run in younger:
            store_run(writer, run._replace(deleted_at=T0 + 30 if run is younger[2] else None))
        store_readings(writer, 1, {sampled.id: [Reading(T0, 5, 5, 100, 1)]})
        update_run(writer, ended.id, **END, started_at=T0 + 10)
        upsert_task(writer, "b", "task", "{}")
        set_current(writer, "a", DEFINITION, T0)
        update_task(writer, "a", last_instant=T0 + AFTER, paused=True)
        claim(writer, "key", sampled.id, "what", T0)
        for _ in range(5):
            append(writer, "run.created", {}, T0)
    writer.close()
    return Made(path, younger, ended.id, waits.id, sampled.id)


@pytest.fixture
def path(made: Made, tmp_path: Path) -> str:
    """A damageable duplicate of the made database and its copy."""
    for part in ("", ".copy"):
        shutil.copy(made.path + part, tmp_path)
    return str(tmp_path / "ringward.db")


@contextlib.contextmanager
def opened(path: str) -> Iterator[apsw.Connection]:
    """Open a database without creating files beside it."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with contextlib.closing(apsw.Connection(f"file:{path}?immutable=1", flags=flags)) as connection:
        yield connection


def pages(path: str, name: str, kind: str = "leaf") -> list[int]:
    """Numbers of pages of a table or index, in the order of their keys."""
    with opened(path) as connection:
        query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY path"
        return [row[0] for row in connection.execute(query, (name, kind))]


def overwrite(path: str, numbers: list[int]) -> None:
    with open(path, "r+b") as file:
        for number in numbers:
            file.seek((number - 1) * PAGE)
            file.write(b"\xa5" * PAGE)


@contextlib.contextmanager
def restored(path: str, newest_event: int | None = 0) -> Iterator[tuple[Database, SalvageResult]]:
    salvage = restore(path, T0 + 5000, newest_event=newest_event)
    database = open_writer(path)
    try:
        assert stored_counts(database) == counted(database)
        yield database, salvage.salvaged
    finally:
        database.close()
    assert {name for name in os.listdir(os.path.dirname(path)) if ".damaged-" not in name} == {
        "ringward.db",
        "ringward.db.copy",
    }


@pytest.mark.parametrize("damaged_part", ["header", "schema", "index"])
def test_intact_rows_are_salvaged(made: Made, path: str, damaged_part: str) -> None:
    """If the rows themselves are intact, nothing is lost, waiting runs have not begun and instants are known."""
    indexes = [*pages(path, "runs_id"), *pages(path, "runs_created"), *pages(path, "runs_active")]
    overwrite(path, {"header": [1], "schema": pages(path, "sqlite_schema"), "index": indexes}[damaged_part])
    evidence = Path(path).read_bytes()
    with restored(path) as (database, salvaged):
        assert (salvaged.runs, salvaged.changes, salvaged.invalid, salvaged.gaps) == (AFTER, 1, 0, 0)
        waiting = frozenset({made.waits, *(run.id for run in made.younger[::50])})
        assert (salvaged.current, salvaged.waiting, salvaged.accounted) == (True, waiting, frozenset("ab"))
        assert {run.id for run in unfinished_runs(database)} == waiting
        for number, run in enumerate(made.younger):
            assert get_run(database, run.id, include_deleted=True) == run._replace(
                deleted_at=T0 + 30 if number == 2 else None
            )
        ended = get_run(database, made.ended)
        assert ended is not None
        assert (ended.end_reason, ended.started_at, ended.ended_at) == ("succeeded", T0 + 10, T0 + 20)
        task = get_task(database, "a")
        assert task is not None
        assert (task.last_instant, task.paused) == (T0 + AFTER, True)
        usage, claimed = of_ended(database, made.key_of), find(database, "key", T0)
        assert usage is not None
        assert (usage.user_ms, len(usage.points)) == (5, 1)
        assert claimed is not None
        assert claimed.run_id == made.key_of
        assert get_definition(database, "a", DEFINITION.hash) == DEFINITION.text
        assert last_seq(database) > 1_000_000
    assert [damaged_path.read_bytes() for damaged_path in Path(path).parent.glob("ringward.db.damaged-*")] == [evidence]


def test_damaged_pages_of_rows(made: Made, path: str) -> None:
    """Rows on damaged pages are lost; all rows before, between and after them are salvaged."""
    leaves = pages(path, "runs")
    with opened(path) as connection:
        mean = len([*connection.execute("SELECT 1 FROM runs")]) / len(leaves)
    overwrite(path, [leaves[-4], leaves[-2]])
    with restored(path) as (_, salvaged):
        assert (salvaged.changes, salvaged.invalid, salvaged.gaps, salvaged.current) == (1, 0, 2, True)
        assert AFTER - 4 * mean < salvaged.runs < AFTER
        assert made.waits in salvaged.waiting


@pytest.mark.parametrize("damaged_part", ["last", "root", "all"])
def test_large_damage(path: str, damaged_part: str) -> None:
    """A restore succeeds if the newest rows, all rows or the whole file are damaged."""
    last = pages(path, "runs")[-1:]
    root = pages(path, "runs", "internal")[:1]
    overwrite(path, {"last": last, "root": root, "all": [*range(1, os.path.getsize(path) // PAGE + 1)]}[damaged_part])
    with restored(path) as (database, salvaged):
        assert (0 < salvaged.runs < AFTER) == (damaged_part == "last")
        assert salvaged.gaps > 0 or salvaged.failed
        assert salvaged.current == (damaged_part != "all")
        task = get_task(database, "a")
        assert task is not None
        assert task.last_instant == (T0 + 5000 if damaged_part == "all" else T0 + AFTER)


def test_outdated_database(made: Made, path: str) -> None:
    """If the damaged database lacks a known event, its waiting runs may have begun and its instants may have passed."""
    overwrite(path, [1])
    with restored(path, 7) as (database, salvaged):
        assert (salvaged.runs, salvaged.changes, salvaged.current, salvaged.waiting) == (AFTER, 1, False, frozenset())
        task = get_task(database, "a")
        assert task is not None
        assert (task.last_instant, task.paused) == (T0 + 5000, True)
        assert get_run(database, made.younger[0].id) is not None


def test_database_before_a_migration(made: Made, path: str) -> None:
    """Rows of a database that was damaged before its migration are salvaged into the present schema."""
    for database_path in (path, f"{path}.copy"):
        with contextlib.closing(apsw.Connection(database_path)) as connection:
            connection.execute("; ".join(undoing(6)))
    overwrite(path, pages(path, "runs_id"))
    with restored(path) as (database, salvaged):
        assert (salvaged.runs, salvaged.changes, salvaged.invalid, salvaged.failed) == (AFTER, 1, 0, "")
        assert get_run(database, made.ended) is not None
        last = get_run(database, made.younger[-1].id)
        assert last is not None
        assert last.definition_hash is None


def test_time_limit(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that cannot be read in time count as unreadable, and their instants count as accounted for."""
    monkeypatch.setattr("store.recovery.salvage._LIMIT_S", -1.0)
    overwrite(path, [1])
    with restored(path) as (database, salvaged):
        assert (salvaged.runs, salvaged.changes, salvaged.accounted) == (0, 1, frozenset())
        assert salvaged.gaps > 0
        task = get_task(database, "a")
        assert task is not None
        assert task.last_instant == T0 + 5000


def test_rows_in_the_wal(path: str) -> None:
    """Rows that only the -wal file has are salvaged as well; a missing file leaves nothing to salvage."""
    with contextlib.closing(apsw.Connection(path)) as holding:
        holding.execute("BEGIN; SELECT * FROM runs LIMIT 1")
        writer = open_writer(path)
        late = make_run()
        insert_run(writer, late)
        writer.close()
        assert os.path.getsize(f"{path}-wal") > 0
        shutil.copy(f"{path}-wal", f"{path}-kept")
    os.rename(f"{path}-kept", f"{path}-wal")
    overwrite(path, [1])
    with restored(path) as (database, salvaged):
        assert get_run(database, late.id) == late
        assert salvaged.runs == AFTER + 1
    os.unlink(path)
    for aside in Path(path).parent.glob("ringward.db.damaged-*"):
        aside.unlink()
    with restored(path) as (_, nothing):
        assert nothing == SalvageResult()


def test_invalid_rows(made: Made, path: str) -> None:
    """Rows with an invalid id, undecodable text or an end without a reason are skipped and counted."""
    content = bytearray(Path(path).read_bytes())
    for run, text, other in (
        (made.younger[5], made.younger[5].id.encode()[-1:], b"U"),
        (made.younger[6], b"cron", b"cro\xff"),
        (made.younger[7], b"cron", b"cros"),
    ):
        start = [at for at in range(len(content)) if content.startswith(run.id.encode() + b"atask", at)]
        assert len(start) == 1
        at = content.index(text, start[0] + 25)
        content[at : at + len(text)] = other
    Path(path).write_bytes(content)
    overwrite(path, [1])
    with restored(path) as (_, salvaged):
        assert (salvaged.runs, salvaged.invalid, salvaged.gaps) == (AFTER - 3, 2, 1)


def test_values_of_a_sound_run() -> None:
    """A salvaged run may only contain values that the store could have written."""
    good = make_run(**END, started_at=T0, params={"a": "b", "c": None}, leftovers='["sleep"]')
    assert is_sound(good)
    for wrong in (
        {"id": "x"},
        {"task_name": "../a"},
        {"task_name": ".."},
        {"kind": "other"},
        {"end_reason": None},
        {"ended_at": None},
        {"status": "running", "end_reason": None, "ended_at": None, "started_at": None},
        {"created_at": -1},
        {"lines": 2**60},
        {"exit_code": 4711},
        {"triggered_by": "x"},
        {"retry_of_run_id": new_ulid().lower()},
        {"params": {"a": 1}},
        {"leftovers": "{"},
        {"leftovers": "[1]"},
        {"signal": "9"},
        {"definition_hash": "../a"},
    ):
        assert not is_sound(good._replace(**wrong)), wrong
