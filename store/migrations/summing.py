"""What the triggers of the first schema add to the sums of a task, and note, when a run ends.

What a run takes is counted while it is sampled (store.usage_counts), as far as the samples in `run_samples` go, and the
rest of what the kernel says when it ends.
"""

from store.connection import Connection
from store.migrations.adding import Addition, add

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
"""What of a run the sums are made of."""

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
    """The statements that note a run that has ended: as the last one of its task, and between which ids it is."""
    return f"{add(db, _IDS, [{'bucket': '(NEW.created_at >> 22)'}])} {_LAST_OF_TASK}"


def sum_up(db: Connection) -> str:
    """The statements that add the end of a run to its day, and to the totals of its task."""
    day = {"day": f"({_AT} / {_DAY_MS})"}
    return " ".join(
        (
            add(db, _DAYS, [_TASK | day | _STATE]),
            add(db, _TOTALS, [_TASK | _STATE]),
            _without_sampled("task_totals", _TASK | _STATE),
        )
    )


def use(db: Connection) -> str:
    """The statements that add the end of a run that had started to what its task took."""
    span = {"at": f"({_AT} / {_SPAN_MS} * {_SPAN_MS})", "width": str(_SPAN_MS)}
    return " ".join((add(db, _USAGE, [_TASK | span]), _without_sampled("task_usage", _TASK | span)))


def _without_sampled(table: str, key: dict[str, str]) -> str:
    """The statement that takes away what was counted before; the samples may have found more than the kernel tells."""
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
