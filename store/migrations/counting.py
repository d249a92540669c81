"""The triggers of the first schema that keep `run_counts`, and note and sum up the ends of runs.

SQLite makes room for all that a trigger may do before it looks whether it does anything. So there the work is done by
triggers of two views; those of the tables, which every change of a run fires, only hand over what there is to do.
"""

from store.connection import Connection
from store.migrations.adding import Addition, add
from store.migrations.define import trigger
from store.migrations.summing import SUMMED, note, sum_up, use
from store.runs.duration_buckets import bucket

_WATCHED = ("task_name", "created_at", "state", "exit_code", "triggered_by", "retry_attempt", "started_at", "duration")
_BUCKETS = (("''", 27), ("''", 22), ("{row}.task_name", 27))
_VISIBLE = "NOT EXISTS (SELECT 1 FROM deleted_runs WHERE run = {row}.seq)"
_ENDS = "OLD.state >= 100 AND NEW.state < 100"


def count(db: Connection) -> None:
    """A visible run that has ended is counted, as it is; what it was is noted and summed up once, when it ends."""
    if db.sqlite:
        _work(db, "counting", f"{', '.join(_WATCHED)}, 1 AS change", _adding(db, "NEW", "NEW.change"))
        trigger(
            db,
            "counting_duration",
            "INSTEAD OF INSERT ON counting",
            "NEW.duration IS NOT NULL",
            _timing(db, "NEW", "NEW.change"),
        )
        _work(db, "ending", ", ".join(SUMMED), f"{note(db)} {sum_up(db)}")
        trigger(db, "ending_use", "INSTEAD OF INSERT ON ending", "NEW.started_at IS NOT NULL", use(db))
    for name, event, row, change in (
        ("insert", "AFTER INSERT", "NEW", 1),
        ("change_from", f"AFTER UPDATE OF {', '.join(_WATCHED)}", "OLD", -1),
        ("change_to", f"AFTER UPDATE OF {', '.join(_WATCHED)}", "NEW", 1),
        ("delete", "BEFORE DELETE", "OLD", -1),  # before its row in deleted_runs goes as well
    ):
        when = f"{row}.state < 100 AND {_VISIBLE.format(row=row)}"
        trigger(db, f"runs_count_{name}", f"{event} ON runs", when, _count(db, row, change))
    for name, event, when in (
        ("insert", "AFTER INSERT ON runs", "NEW.state < 100"),
        ("change", "AFTER UPDATE OF state ON runs", _ENDS),
    ):
        trigger(db, f"runs_end_{name}", event, when, _end(db))
        if not db.sqlite:
            trigger(db, f"runs_use_{name}", event, f"{when} AND NEW.started_at IS NOT NULL", use(db))
    _count_deletions(db)


def _work(db: Connection, name: str, columns: str, body: str) -> None:
    db.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM runs")  # noqa: S608 - constants
    trigger(db, f"{name}_done", f"INSTEAD OF INSERT ON {name}", "true", body)


def _count_deletions(db: Connection) -> None:
    """A deleted run is not counted, a restored one is again, and a purged one leaves nothing behind."""
    trigger(db, "runs_purge", "AFTER DELETE ON runs", "true", "DELETE FROM deleted_runs WHERE run = OLD.seq;")
    for name, event, row, change in (("delete", "INSERT", "NEW", -1), ("restore", "DELETE", "OLD", 1)):
        body = _count(db, "runs", change, f"FROM runs WHERE runs.seq = {row}.run AND runs.state < 100")
        trigger(db, f"deleted_runs_{name}", f"AFTER {event} ON deleted_runs", "true", body)


def _end(db: Connection) -> str:
    if not db.sqlite:
        return f"{note(db)} {sum_up(db)}"
    return f"INSERT INTO ending VALUES ({', '.join(f'NEW.{name}' for name in SUMMED)});"  # noqa: S608 - constants


def _count(db: Connection, row: str, change: int, source: str = "") -> str:
    """The statements that add a change to the counts of a run."""
    if db.sqlite:
        columns = ", ".join(f"{row}.{name}" for name in _WATCHED)
        values = f"SELECT {columns}, {change} {source}" if source else f"VALUES ({columns}, {change})"
        return f"INSERT INTO counting {values};"
    source = source or "WHERE true"
    timing = _timing(db, row, f"{change}", f"{source} AND {row}.duration IS NOT NULL")
    return f"{_adding(db, row, f'{change}', source)} {timing}"


def _adding(db: Connection, row: str, change: str, source: str = "WHERE true") -> str:
    """The statements that add a change to the three counts of a run."""
    addition = Addition(
        "run_counts",
        {
            "n": change,
            "started": f"CASE WHEN {row}.started_at IS NULL THEN 0 ELSE {change} END",
            "timed": f"CASE WHEN {row}.duration IS NULL THEN 0 ELSE {change} END",
        },
        least={"first_start": f"{row}.started_at"},
        greatest={"last_start": f"{row}.started_at"},
    )
    keys = [
        {
            "task_name": name.format(row=row),
            "width": f"{width}",
            "bucket": f"({row}.created_at >> {width})",
            "state": f"{row}.state",
            "exit_code": f"{row}.exit_code",
            "triggered_by": f"{row}.triggered_by",
            "retry": f"(CASE WHEN {row}.retry_attempt > 0 THEN 1 ELSE 0 END)",
        }
        for name, width in _BUCKETS
    ]
    return add(db, addition, keys, source)


def _timing(db: Connection, row: str, change: str, source: str = "WHERE true") -> str:
    """The statements that add a change to the count of a duration."""
    key = {"bucket": bucket(f"{row}.duration"), "state": f"{row}.state"}
    return add(db, Addition("run_durations", {"n": change}), [key], source)
