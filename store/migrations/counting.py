"""The triggers of the first schema that maintain `run_counts`, and record and sum up the ends of runs.

SQLite reserves memory for all possible work of a trigger before it checks whether the trigger does anything. So in
SQLite, triggers of two views do the work. The triggers of the tables, which fire on every change of a run, only insert
work into these views.

Usage is counted while a run is sampled (store.runs.usage_counts), up to the samples in `run_samples`. The end of the
run adds the rest, which the kernel reports.

A trigger's statement adds to the row with a key, or creates the row. For PostgreSQL this is one ``INSERT … ON CONFLICT
DO UPDATE``. For SQLite it is an ``INSERT … ON CONFLICT DO NOTHING`` of zeros and an ``UPDATE``. If a trigger had a ``DO
UPDATE`` or an ``INSERT … SELECT``, every statement that might fire it would copy each page before a change, to be able
to undo itself. That would cost more than the counting.
"""

from collections.abc import Sequence
from typing import NamedTuple

from store.connection import Connection
from store.migrations.define import trigger
from store.runs.run_durations import bucket


class Addition(NamedTuple):
    """The values to add to a row of a table. Each is an expression, by column name.

    Attributes:
        table: The table with the sums.
        sums: Values to add.
        known: Values to add that can be NULL, which means unknown; the sum then covers the known ones.
        least: Values that replace a greater value, or NULL.
        greatest: Values that replace a smaller value, or NULL.
    """

    table: str
    sums: dict[str, str]
    known: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    least: dict[str, str] = {}  # noqa: RUF012
    greatest: dict[str, str] = {}  # noqa: RUF012

    def values(self) -> dict[str, str]:
        """Return the values of a new row, by column name."""
        return self.sums | self.known | self.least | self.greatest

    def changes(self, values: dict[str, str]) -> str:
        """Return the assignments to an existing row; `values` are expressions by column name."""
        had = {name: f"{self.table}.{name}" for name in values}
        parts = [f"{name} = {had[name]} + {values[name]}" for name in self.sums]
        parts += [
            f"{name} = COALESCE({had[name]} + {values[name]}, {had[name]}, {values[name]})" for name in self.known
        ]
        for names, order in ((self.least, "<="), (self.greatest, ">=")):
            parts += [
                f"{name} = CASE WHEN {had[name]} {order} {values[name]} OR {values[name]} IS NULL"
                f" THEN {had[name]} ELSE {values[name]} END"
                for name in names
            ]
        return ", ".join(parts)


def add(db: Connection, addition: Addition, keys: Sequence[dict[str, str]], source: str = "WHERE true") -> str:
    """Return the statements that add to one row for each key, each with a semicolon.

    Args:
        db: The connection, for its dialect.
        addition: The values to add.
        keys: Different primary keys, each as expressions by column name.
        source: For PostgreSQL, the end of a SELECT after the expressions; it must find at most one row.
    """
    table, made = addition.table, addition.values()
    into = f"INSERT INTO {table} ({', '.join((*keys[0], *made))})"
    if not db.sqlite:
        rows = [f"SELECT {', '.join((*key.values(), *made.values()))} {source}" for key in keys]
        changes = addition.changes({name: f"excluded.{name}" for name in made})
        return f"{into} {' UNION ALL '.join(rows)} ON CONFLICT ({', '.join(keys[0])}) DO UPDATE SET {changes};"
    # The parentheses are needed because a value may be a difference.
    update = f"UPDATE {table} SET {addition.changes({name: f'({value})' for name, value in made.items()})}"  # noqa: S608 - ours
    nothing = dict.fromkeys(addition.sums, "0") | dict.fromkeys(addition.known, "NULL")
    return "".join(
        f"{into} VALUES ({', '.join((*key.values(), *(made | nothing).values()))}) ON CONFLICT DO NOTHING;"
        f"{update} WHERE {' AND '.join(f'{table}.{name} = {value}' for name, value in key.items())};"
        for key in keys
    )


_DAY_MS = 86_400_000
_SPAN_MS = 300_000
_LASTED = (100, 1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000)
_WAITED = (100, 1_000, 10_000, 60_000, 600_000, 3_600_000)

SUMMED = (
    "seq",
    "id",
    "task_name",
    "state",
    "created_at",
    "scheduled_at",
    "due_at",
    "started_at",
    "ended_at",
    "duration",
    "user_us",
    "system_us",
    "max_rss_bytes",
    "read_bytes",
    "write_bytes",
)
"""The columns of a run that the sums need."""

_AT = "COALESCE(NEW.ended_at, NEW.created_at)"
_DELAY = "(NEW.started_at - COALESCE(NEW.due_at, NEW.scheduled_at, NEW.created_at))"
_COUNTED = {
    "n": "1",
    "timed": "CASE WHEN NEW.duration IS NULL THEN 0 ELSE 1 END",
    "duration": "COALESCE(NEW.duration, 0)",
}
_WITHIN = {
    **{f"lasted_{bound}": f"CASE WHEN NEW.duration <= {bound} THEN 1 ELSE 0 END" for bound in _LASTED},
    "waited": f"CASE WHEN {_DELAY} > 0 THEN {_DELAY} ELSE 0 END",
    **{f"waited_{bound}": f"CASE WHEN {_DELAY} <= {bound} THEN 1 ELSE 0 END" for bound in _WAITED},
}
_TAKEN = {name: f"COALESCE(NEW.{name}, 0)" for name in ("user_us", "system_us")}
_MOVED = {name: f"NEW.{name}" for name in ("read_bytes", "write_bytes")}
_SAMPLED = {
    "user_us": "1000 * s.user_ms",
    "system_us": "1000 * s.system_ms",
    "read_bytes": "s.read_bytes",
    "write_bytes": "s.written_bytes",
}

_DAYS = Addition("task_days", _COUNTED, greatest={"longest": "NEW.duration"})
_TOTALS = Addition("task_totals", _COUNTED | _WITHIN | _TAKEN, _MOVED, greatest={"last_at": _AT})
_USAGE = Addition("task_usage", {"runs": "1"} | _TAKEN, _MOVED, greatest={"peak_rss_bytes": "NEW.max_rss_bytes"})


_IDS = Addition("run_ids", {}, least={"first_id": "NEW.id"}, greatest={"last_id": "NEW.id"})
_TASK, _STATE = {"task_name": "NEW.task_name"}, {"state": "NEW.state"}
_LAST_OF_TASK = (
    "UPDATE tasks SET last_run_id = NEW.id WHERE name = NEW.task_name"
    " AND NOT EXISTS (SELECT 1 FROM runs WHERE id = tasks.last_run_id AND seq > NEW.seq);"
)


def note(db: Connection) -> str:
    """Return the statements that record an ended run as the last one of its task, and its id in the range of ids."""
    return f"{add(db, _IDS, [{'bucket': '(NEW.created_at >> 22)'}])} {_LAST_OF_TASK}"


def sum_up(db: Connection) -> str:
    """Return the statements that add the end of a run to the totals of its task, for the day and overall."""
    day = {"day": f"({_AT} / {_DAY_MS})"}
    return " ".join(
        (
            add(db, _DAYS, [_TASK | day | _STATE]),
            add(db, _TOTALS, [_TASK | _STATE]),
            _without_sampled("task_totals", _TASK | _STATE),
        )
    )


def use(db: Connection) -> str:
    """Return the statements that add the end of a started run to the resource use of its task."""
    span = {"at": f"({_AT} / {_SPAN_MS} * {_SPAN_MS})", "width": str(_SPAN_MS)}
    return " ".join((add(db, _USAGE, [_TASK | span]), _without_sampled("task_usage", _TASK | span)))


def _without_sampled(table: str, key: dict[str, str]) -> str:
    """Return the statement that subtracts the use already counted, but not more than the kernel's total."""
    before = {
        name: f"CASE WHEN NEW.{name} <= {sampled} THEN NEW.{name} WHEN NEW.{name} > {sampled} THEN {sampled} END"
        for name, sampled in _SAMPLED.items()
    }
    changes = [
        f"{name} = {table}.{name} - COALESCE((SELECT {value} FROM run_samples AS s WHERE s.run_id = NEW.id), 0)"  # noqa: S608 - constants
        for name, value in before.items()
    ]
    at = " AND ".join(f"{table}.{name} = {value}" for name, value in key.items())
    return (
        f"UPDATE {table} SET {', '.join(changes)}"  # noqa: S608 - constants
        f" WHERE {at} AND EXISTS (SELECT 1 FROM run_samples WHERE run_id = NEW.id);"
    )


_WATCHED = ("task_name", "created_at", "state", "exit_code", "triggered_by", "retry_attempt", "started_at", "duration")
_BUCKETS = (("''", 27), ("''", 22), ("{row}.task_name", 27))
_VISIBLE = "NOT EXISTS (SELECT 1 FROM deleted_runs WHERE run = {row}.seq)"
_ENDS = "OLD.state >= 100 AND NEW.state < 100"


def count(db: Connection) -> None:
    """Create the triggers. They count visible ended runs with their current values, and sum up runs when they end."""
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
        ("delete", "BEFORE DELETE", "OLD", -1),  # before the row in deleted_runs is removed too
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
    """Create the triggers that uncount deleted runs, count restored runs again, and clean up after purged runs."""
    trigger(db, "runs_purge", "AFTER DELETE ON runs", "true", "DELETE FROM deleted_runs WHERE run = OLD.seq;")
    for name, event, row, change in (("delete", "INSERT", "NEW", -1), ("restore", "DELETE", "OLD", 1)):
        body = _count(db, "runs", change, f"FROM runs WHERE runs.seq = {row}.run AND runs.state < 100")
        trigger(db, f"deleted_runs_{name}", f"AFTER {event} ON deleted_runs", "true", body)


def _end(db: Connection) -> str:
    if not db.sqlite:
        return f"{note(db)} {sum_up(db)}"
    return f"INSERT INTO ending VALUES ({', '.join(f'NEW.{name}' for name in SUMMED)});"  # noqa: S608 - constants


def _count(db: Connection, row: str, change: int, source: str = "") -> str:
    """Return the statements that add `change` to all counts that include a run."""
    if db.sqlite:
        columns = ", ".join(f"{row}.{name}" for name in _WATCHED)
        values = f"SELECT {columns}, {change} {source}" if source else f"VALUES ({columns}, {change})"
        return f"INSERT INTO counting {values};"
    source = source or "WHERE true"
    timing = _timing(db, row, f"{change}", f"{source} AND {row}.duration IS NOT NULL")
    return f"{_adding(db, row, f'{change}', source)} {timing}"


def _adding(db: Connection, row: str, change: str, source: str = "WHERE true") -> str:
    """Return the statements that add `change` to the rows of `run_counts` that include a run."""
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
    """Return the statements that add `change` to the count of a run's duration."""
    key = {"bucket": bucket(f"{row}.duration"), "state": f"{row}.state"}
    return add(db, Addition("run_durations", {"n": change}), [key], source)
