"""The order in which the runs of each task ended. The wall clock does not give it: it can be set back."""

from store.connection import Connection

READABLE_FROM = 1
WRITABLE_FROM = 7
_UNNUMBERED = "end_number = 0 AND state < 100 AND ended_at >= ?"


def up(db: Connection) -> None:
    """Add the column and its index. Runs that ended earlier share the number 0, and are ordered by their `ended_at`."""
    db.execute(f"ALTER TABLE runs ADD COLUMN end_number {'INTEGER' if db.sqlite else 'BIGINT'} NOT NULL DEFAULT 0")
    row_number = "" if db.sqlite else " INCLUDE (seq)"  # in SQLite, every index contains it anyway
    db.execute(
        f"CREATE INDEX runs_ended ON runs (task_name, end_number, ended_at, state){row_number} WHERE state < 100"
    )


def after_older(db: Connection, since_ms: int) -> None:
    """Number the runs that an older release ended: after all runs of their task, and by their time among each other."""
    tasks = db.rows(
        f"SELECT name FROM tasks WHERE EXISTS (SELECT 1 FROM runs WHERE task_name = name AND {_UNNUMBERED})",  # noqa: S608
        [since_ms],
    )
    for (task,) in tasks:
        ((number,),) = db.rows("SELECT max(end_number) + 1 FROM runs WHERE task_name = ? AND state < 100", [task])
        db.execute(
            f"UPDATE runs SET end_number = ? WHERE task_name = ? AND {_UNNUMBERED}",  # noqa: S608
            [number, task, since_ms],
        )
