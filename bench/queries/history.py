"""A made-up history: a million runs of some hundred tasks, stored as fast as possible."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from store.backends.sqlite import SqliteConnection
from store.connection import Connection
from store.database import Database
from store.runs.ids import new_ulid
from store.runs.phases import END_REASONS
from store.runs.record import COLUMNS
from store.runs.run_durations import bucket
from store.tasks import upsert_task

DAY = 86_400_000
SPAN_DAYS = 90
T0 = 1_780_000_000_000
"""Creation time of the first run in ms since the epoch; the last run is `SPAN_DAYS` later."""
_REASONS = {"succeeded": 850, "failed": 90, "skipped": 18, "timeout": 10, "stopped": 10, "start_failed": 10}
_REASONS |= {"missed": 6, "log_overflow": 3, "crashed": 3}
Shape = Literal["even", "one task", "few failed", "clock back", "slow task"]
"""Even; one task has 99 % of the runs; 0.1 % have failed; the clock was set back by 30 days after half of them; the
runs of the busiest task take an hour longer."""
_TRIGGERS = {"cron": 850, "api": 100, "service": 30, "startup": 10, "cloud": 10}


def task_name(number: int) -> str:
    """Return the name of a made-up task, from 0; lower numbers are busier."""
    return f"job-{number:03}"


def _rows(n: int, tasks: int, shape: Shape) -> Iterator[tuple[Any, ...]]:
    """Yield ended runs, evenly spread over the days, of tasks that differ in frequency."""
    rnd = random.Random(1)
    weights = _REASONS | {"succeeded": 100_000, "failed": 100} if shape == "few failed" else _REASONS
    reasons = rnd.choices(list(weights), list(weights.values()), k=n)
    triggers = rnd.choices(list(_TRIGGERS), list(_TRIGGERS.values()), k=n)
    step = SPAN_DAYS * DAY / n
    for i, (reason, trigger) in enumerate(zip(reasons, triggers, strict=True)):
        created = T0 + int(i * step)
        if shape == "clock back" and i > n // 2:
            created -= SPAN_DAYS * DAY // 3
        code = 0 if reason == "succeeded" else -2 if reason == "crashed" else rnd.choice([1, 2, 137, 143])
        started: int | None = created + rnd.randrange(50)
        task = _task(rnd, tasks, shape)
        slower = 3_600_000 if shape == "slow task" and task == 0 else 0
        took: int | None = int(rnd.expovariate(1 / 30_000)) + slower
        if reason in ("skipped", "missed", "start_failed"):
            code, started, took = -1, None, None
        values = dict.fromkeys(COLUMNS, None) | {
            "id": new_ulid(created),
            "task_name": task_name(task),
            "kind": "task",
            "state": END_REASONS[reason],
            "exit_code": code,
            "instance_index": 0,
            "retry_attempt": int(rnd.random() < 0.03),
            "triggered_by": trigger,
            "created_at": created,
            "started_at": started,
            "ended_at": None if started is None or took is None else started + took,
            "core_dumped": 0,
            "lines": rnd.randrange(1000),
            "missed_count": None,
        }
        yield (*values.values(), took)


def _task(rnd: random.Random, tasks: int, shape: Shape) -> int:
    if shape == "one task" and rnd.random() < 0.99:
        return 0
    return int(rnd.random() ** 2 * tasks)


def fill(writer: Database, n: int, tasks: int, shape: Shape = "even") -> None:
    """Store n ended runs of so many tasks without triggers and indexes, then add both."""
    with writer.transaction() as db:
        made = db.rows(_INDEXES[isinstance(db, SqliteConnection)])
        for name, _ in made:
            db.execute(f"DROP INDEX {name}")
        with db.without_triggers():
            _insert(db, (*COLUMNS, "duration"), _rows(n, tasks, shape))
            for _, sql in made:
                db.execute(sql)
            keys = "state, exit_code, triggered_by, CASE WHEN retry_attempt > 0 THEN 1 ELSE 0 END"
            numbers = "count(*), count(started_at), count(duration), min(started_at), max(started_at)"
            source = f"{keys}, {numbers} FROM runs GROUP BY 1, 2, 3, 4, 5, 6, 7"
            for scope, width in (("''", 27), ("''", 22), ("task_name", 27)):
                db.execute(f"INSERT INTO run_counts SELECT {scope}, {width}, created_at >> {width}, {source}")
            lasting = f"{bucket('duration')}, state, count(*) FROM runs WHERE duration IS NOT NULL GROUP BY 1, 2"
            db.execute(f"INSERT INTO run_durations SELECT {lasting}")
            db.execute("INSERT INTO run_ids SELECT created_at >> 22, min(id), max(id) FROM runs GROUP BY 1")
        for i in range(tasks):
            upsert_task(writer, task_name(i), "task", "{}")
    writer.rows("PRAGMA wal_checkpoint(TRUNCATE)" if isinstance(db, SqliteConnection) else "VACUUM ANALYZE")


_INDEXES = {
    True: "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    False: "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'runs'"
    " AND indexname NOT IN (SELECT conname FROM pg_constraint)",
}
"""Names of the indexes and statements that create them; the key is whether the database is SQLite."""


def _insert(db: Connection, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows in the fastest way of the driver."""
    names = ", ".join(columns)
    raw: Any = db._raw  # type: ignore[attr-defined]  # noqa: SLF001 - the driver's own connection
    if isinstance(db, SqliteConnection):
        raw.executemany(f"INSERT INTO runs ({names}) VALUES ({', '.join('?' * len(columns))})", rows)
        return
    with raw.cursor().copy(f"COPY runs ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
