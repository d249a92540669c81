"""The definitions to which runs refer."""

from store.database import Database
from store.runs.bulk import purge
from store.runs.definitions import Definition, get_definition, prune, set_current
from store.runs.writes import delete_run, get_run, insert_run, update_run
from store.tasks import forget_missing, upsert_task
from tests.store.making import T0, make_run

FIRST, SECOND = Definition('{"run": "a"}', "1" * 32), Definition('{"run": "b"}', "2" * 32)
ENDED = {"status": "ended", "end_reason": "failed", "exit_code": 1}


def hashes(db: Database, task: str = "a") -> list[str]:
    """The hashes of a task's stored definitions."""
    return [name for (name,) in db.rows("SELECT hash FROM definitions WHERE task_name = ? ORDER BY hash", [task])]


def insert_ended(db: Database, at: int, definition: Definition) -> str:
    """Store an ended run; return its id."""
    run = make_run(created_at=at, started_at=at, ended_at=at + 1, definition_hash=definition.hash, **ENDED)
    insert_run(db, run)
    return run.id


def remove(db: Database, run_id: str) -> None:
    (number,) = db.rows("SELECT seq FROM runs WHERE id = ?", [run_id])[0]
    assert purge(db, f"[{number}]") == 1


def test_hash_of_a_run(writer: Database) -> None:
    """A run keeps the hash that it was created with until its start replaces it; a run without one has none."""
    run = make_run(definition_hash=FIRST.hash)
    insert_run(writer, run)
    assert get_run(writer, run.id) == run
    update_run(writer, run.id, status="running", started_at=T0, definition_hash=SECOND.hash)
    stored_run = get_run(writer, run.id)
    assert stored_run is not None
    assert stored_run.definition_hash == SECOND.hash
    before = make_run()
    insert_run(writer, before)
    assert get_run(writer, before.id) == before


def test_definition_by_hash(writer: Database) -> None:
    """A definition is found by its task and hash, also after another one replaced it, and only there."""
    upsert_task(writer, "a", "task", "{}")
    set_current(writer, "a", FIRST, T0)
    set_current(writer, "a", FIRST, T0)
    set_current(writer, "a", SECOND, T0 + 10)
    assert [get_definition(writer, "a", definition.hash) for definition in (FIRST, SECOND)] == [FIRST.text, SECOND.text]
    assert get_definition(writer, "b", FIRST.hash) is None
    assert get_definition(writer, "a", "3" * 32) is None


def test_definition_goes_with_its_runs(writer: Database) -> None:
    """A replaced definition is removed once its runs are, including deleted ones; the current one stays."""
    upsert_task(writer, "a", "task", "{}")
    set_current(writer, "a", FIRST, T0)
    old = insert_ended(writer, T0 + 5, FIRST)
    set_current(writer, "a", SECOND, T0 + 10)
    insert_ended(writer, T0 + 15, SECOND)
    delete_run(writer, old, T0 + 20)
    assert (prune(writer), hashes(writer)) == (0, [FIRST.hash, SECOND.hash])
    remove(writer, old)
    assert (prune(writer), hashes(writer)) == (1, [SECOND.hash])


def test_definition_of_an_active_run(writer: Database) -> None:
    """A replaced definition stays while its task has an active run."""
    upsert_task(writer, "a", "task", "{}")
    set_current(writer, "a", FIRST, T0)
    run = make_run(created_at=T0 + 5, definition_hash=FIRST.hash)
    insert_run(writer, run)
    set_current(writer, "a", SECOND, T0 + 10)
    assert prune(writer) == 0
    update_run(writer, run.id, status="ended", end_reason="stopped", ended_at=T0 + 20)
    assert prune(writer) == 0
    remove(writer, run.id)
    assert (prune(writer), hashes(writer)) == (1, [SECOND.hash])


def test_definition_of_a_removed_task(writer: Database) -> None:
    """The definition of a removed task stays as long as the task has runs."""
    upsert_task(writer, "a", "task", "{}")
    set_current(writer, "a", FIRST, T0)
    run = insert_ended(writer, T0 + 5, FIRST)
    forget_missing(writer, [])
    assert prune(writer) == 0
    remove(writer, run)
    assert (prune(writer), hashes(writer)) == (1, [])


def test_definition_that_returns(writer: Database) -> None:
    """A definition that is replaced and then configured again is the current one."""
    upsert_task(writer, "a", "task", "{}")
    for at, definition in enumerate((FIRST, SECOND, FIRST)):
        set_current(writer, "a", definition, T0 + at)
    assert (prune(writer), hashes(writer)) == (1, [FIRST.hash])


def test_clock_set_back(writer: Database) -> None:
    """A definition that is replaced after the clock was set back stays as long as the runs before."""
    upsert_task(writer, "a", "task", "{}")
    set_current(writer, "a", FIRST, T0)
    earlier, later = insert_ended(writer, T0 - 1000, FIRST), insert_ended(writer, T0 + 1000, FIRST)
    set_current(writer, "a", SECOND, T0 - 500)
    remove(writer, earlier)
    assert prune(writer) == 0
    remove(writer, later)
    assert prune(writer) == 1
