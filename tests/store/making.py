"""Runs for tests, and a reader that waits for a database."""

import itertools
import os
from collections import Counter
from contextlib import suppress
from typing import Any

from ulid import ULID

from store.database import Database, open_reader
from store.errors import NotReady
from store.runs.ids import new_ulid
from store.runs.writes import Run, delete_run, insert_run
from tests.support.waiting import until

T0 = 1_780_000_000_000  # ms since the epoch
_UNDOING = {
    14: ("DROP TABLE approvals",),
    13: ("ALTER TABLE instances DROP COLUMN next_run",),
    12: ("ALTER TABLE tasks DROP COLUMN promises",),
    11: (
        "DROP INDEX runs_step",
        *(f"ALTER TABLE runs DROP COLUMN {column}" for column in ("flow_run_id", "step", "item")),
        *(f"DROP TABLE {table}" for table in ("flows", "flow_steps", "run_outputs")),
    ),
    10: ("ALTER TABLE tasks DROP COLUMN withheld",),
    9: ("ALTER TABLE runs DROP COLUMN cause", "ALTER TABLE runs DROP COLUMN due_kind"),
    8: ("DROP INDEX runs_ended", "ALTER TABLE runs DROP COLUMN end_number"),
    7: ("ALTER TABLE runs DROP COLUMN stopped_by",),
    6: ("ALTER TABLE runs DROP COLUMN definition_hash", "DROP TABLE definitions"),
}


def undoing(version: int) -> list[str]:
    """Return the statements that undo this step of the schema and all later ones."""
    steps = [statements for step, statements in _UNDOING.items() if step >= version]
    tables = "schema_migration", "schema_addition"
    return [*itertools.chain(*steps), *(f"DELETE FROM {table} WHERE version >= {version}" for table in tables)]


def ulid_of(at_ms: int) -> str:
    """Return a new id with the given time, even one long past, which new_ulid would not return."""
    return str(ULID(at_ms.to_bytes(6) + os.urandom(10)))


def reader_once_created(path: str) -> Database:
    """Open a reader as soon as a writer has created the database."""

    def opened() -> Database | None:
        with suppress(NotReady):
            return open_reader(path, limit_s=None)
        return None

    return until(opened, "the database", deadline_s=60)


def make_run(**fields: Any) -> Run:
    """A pending first attempt of task "a", with the given fields replaced."""
    base: dict[str, Any] = {
        "id": new_ulid(),
        "task_name": "a",
        "kind": "task",
        "status": "pending",
        "end_reason": None,
        "exit_code": -1,
        "instance_index": 0,
        "retry_attempt": 0,
        "retry_of_run_id": None,
        "triggered_by": "cron",
        "created_at": T0,
    }
    return Run(**(base | fields))


def store_run(db: Database, run: Run) -> None:
    """Store a run, and delete it if it has a time of deletion."""
    insert_run(db, run._replace(deleted_at=None))
    if run.deleted_at is not None:
        assert delete_run(db, run.id, run.deleted_at)


def restore_run(db: Database, run_id: str) -> None:
    """Undo the deletion of a run."""
    db.execute("DELETE FROM deleted_runs WHERE run = (SELECT seq FROM runs WHERE id = ?)", [run_id])


def counted(db: Database) -> list[tuple[object, ...]]:
    """Return the rows that `run_counts` and `run_durations` must have, counted run by run."""
    numbers = "count(*), count(started_at), count(duration)"
    keys = f"state, exit_code, triggered_by, retry_attempt > 0, {numbers} FROM runs"
    where = "WHERE state < 100 AND NOT EXISTS (SELECT 1 FROM deleted_runs WHERE run = seq) GROUP BY 1, 2, 3, 4, 5, 6, 7"
    counted_rows = [
        row
        for scope, width in (("''", 27), ("''", 22), ("task_name", 27))
        for row in db.rows(f"SELECT {scope}, {width}, created_at >> {width}, {keys} {where}")
    ]
    visible = "NOT EXISTS (SELECT 1 FROM deleted_runs WHERE run = seq)"
    rows = db.rows(f"SELECT duration, state FROM runs WHERE state < 100 AND duration IS NOT NULL AND {visible}")
    durations = Counter((_begin(duration), state) for duration, state in rows)
    return sorted([*counted_rows, *(("durations", *key, n) for key, n in durations.items())])


def _begin(duration: int) -> int:
    """Return a duration with all digits except the first two set to 0."""
    return -(2**62) if duration < 0 else int(f"{duration}"[:2].ljust(len(f"{duration}"), "0"))


def stored_counts(db: Database) -> list[tuple[object, ...]]:
    """Return the rows of `run_counts` and `run_durations` except zeros; check the bounds of the starts."""
    keys = "state, exit_code, triggered_by, retry"
    unbounded = db.rows(
        "SELECT * FROM runs WHERE state < 100 AND started_at IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM deleted_runs WHERE run = seq) AND NOT EXISTS (SELECT 1 FROM run_counts AS c"
        " WHERE c.task_name = runs.task_name AND bucket = created_at >> 27 AND c.state = runs.state"
        " AND c.exit_code = runs.exit_code AND c.triggered_by = runs.triggered_by"
        " AND started_at BETWEEN first_start AND last_start)"
    )
    assert unbounded == []
    counts = db.rows(f"SELECT task_name, width, bucket, {keys}, n, started, timed FROM run_counts WHERE n <> 0")
    return sorted([*counts, *db.rows("SELECT 'durations', bucket, state, n FROM run_durations WHERE n <> 0")])
