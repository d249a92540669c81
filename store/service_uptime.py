"""The time that instances of services spent in each state, by UTC day, and their newest state changes."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from store.connection import Connection
from store.database import Database
from store.runs.daily_outcomes import DAY_MS, KEPT_DAYS
from store.runs.phases import FIRST_ACTIVE

KEPT_CHANGES = 500
"""Number of state changes that are kept for each instance."""
_ADD = """
INSERT INTO instance_days (task_name, day, instance_index, state, ms) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task_name, day, instance_index, state) DO UPDATE SET ms = instance_days.ms + excluded.ms
"""
_NEWEST = """
SELECT number FROM instance_changes WHERE task_name = ? AND instance_index = ? ORDER BY number DESC LIMIT 1
"""
_RESTARTS = f"""
SELECT count(*) FROM runs INDEXED BY runs_task
WHERE state < {FIRST_ACTIVE} AND task_name = ? AND created_at >= ? AND triggered_by = 'service'
UNION ALL SELECT count(*) FROM runs INDEXED BY runs_active
WHERE state >= {FIRST_ACTIVE} AND task_name = ? AND created_at >= ? AND triggered_by = 'service'
"""  # noqa: S608 - constants
_KINDS = {"running": "up_ms", "stopped": "stopped_ms", "exited": "stopped_ms"}
_FINE_MS = 5000
"""Interval of the host's samples in ms, which a live daemon stores continuously."""


class StateTime(NamedTuple):
    """The time that one instance spent in one state on one UTC day."""

    day: int
    instance_index: int
    state: str
    ms: int


class Uptime(NamedTuple):
    """Times in ms."""

    up_ms: int = 0
    down_ms: int = 0
    stopped_ms: int = 0


class StateChange(NamedTuple):
    """One change of an instance's state; `at` is in ms since the epoch."""

    instance_index: int
    at: int
    state: str
    run_id: str | None


def days_between(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the number of each UTC day in a time span, and its milliseconds there, for at most `KEPT_DAYS` days."""
    at = max(start, end - KEPT_DAYS * DAY_MS)
    while at < end:
        day = at // DAY_MS
        until = min(end, (day + 1) * DAY_MS)
        yield day, until - at
        at = until


def record_change(db: Database, name: str, change: StateChange) -> None:
    """Record that an instance changes its state. Call this before its row is stored."""
    index = change.instance_index
    latest = db.rows(
        "SELECT state, since FROM instances WHERE task_name = ? AND instance_index = ?",
        [name, index],
    )
    if latest == [(change.state, change.at)]:
        return
    if latest:
        state, since = latest[0]
        add_time(db, name, index, state, since, change.at)
    newest = db.rows(_NEWEST, [name, index])
    number = newest[0][0] + 1 if newest else 1
    db.execute(
        "INSERT INTO instance_changes (task_name, instance_index, number, at, state, run_id) VALUES (?, ?, ?, ?, ?, ?)",
        [name, index, number, change.at, change.state, change.run_id],
    )
    db.execute(
        "DELETE FROM instance_changes WHERE task_name = ? AND instance_index = ? AND number <= ?",
        [name, index, number - KEPT_CHANGES],
    )


def add_time(db: Database, name: str, index: int, state: str, start: int, end: int) -> None:
    """Add the time from `start` to `end`, in which an instance was in one state."""
    for day, ms in days_between(start, end):
        db.execute(_ADD, [name, day, index, state, ms])


def close_earlier(db: Database, now_ms: int, surviving: Collection[str]) -> None:
    """End the states that an earlier daemon stored, at the time of its last sample.

    No process observed the services after that time. Services whose runs survived the daemon continue.
    """
    rows = db.rows("SELECT max(at) FROM samples WHERE width = ? AND at <= ?", [_FINE_MS, now_ms])
    alive_ms = rows[0][0] or 0
    for name, index, state, since in db.rows("SELECT task_name, instance_index, state, since FROM instances"):
        if name not in surviving:
            add_time(db, name, index, state, since, alive_ms)
            db.execute(
                "UPDATE instances SET state = 'stopped', run_id = NULL, ready = ?, since = ?"
                " WHERE task_name = ? AND instance_index = ?",
                [False, now_ms, name, index],
            )


def state_times(db: Database | Connection, name: str, first_day: int) -> list[StateTime]:
    """Return how long a service's instances were in each state, from a UTC day on, without the current states."""
    rows = db.rows(
        "SELECT day, instance_index, state, ms FROM instance_days WHERE task_name = ? AND day >= ?"
        " ORDER BY day, instance_index, state",
        [name, first_day],
    )
    return [StateTime._make(row) for row in rows]


def times_until(db: Connection, name: str, first_day: int, now_ms: int) -> list[StateTime]:
    """Return the same with the time in the current states, which is not stored yet."""
    times = state_times(db, name, first_day)
    for index, state, since in db.rows(
        "SELECT instance_index, state, since FROM instances WHERE task_name = ?", [name]
    ):
        for day, ms in days_between(max(since, first_day * DAY_MS), now_ms):
            times.append(StateTime(day, index, state, ms))
    return times


def sum_times(times: Iterable[StateTime]) -> Uptime:
    """Return the total times up, down and stopped."""
    sums = Counter[str]()
    for spent in times:
        sums[_KINDS.get(spent.state, "down_ms")] += spent.ms
    return Uptime(**sums)


def by_day(times: Iterable[StateTime]) -> dict[int, Uptime]:
    """Return the total times of each day, oldest first."""
    days = defaultdict[int, list[StateTime]](list)
    for spent in times:
        days[spent.day].append(spent)
    return {day: sum_times(days[day]) for day in sorted(days)}


def changes(db: Database | Connection, name: str) -> list[StateChange]:
    """Return the newest changes of each instance, newest first."""
    rows = db.rows(
        "SELECT instance_index, at, state, run_id FROM instance_changes WHERE task_name = ?"
        " ORDER BY instance_index, number DESC",
        [name],
    )
    return [StateChange._make(row) for row in rows]


def restarts_since(db: Database | Connection, name: str, since_ms: int) -> int:
    """Return the number of restarts of a service's instances since a time (ms since the epoch)."""
    return sum(row[0] for row in db.rows(_RESTARTS, [name, since_ms, name, since_ms]))


def prune(db: Database, now_ms: int) -> None:
    """Drop the days that are too old, and equally old changes of services that are no longer configured."""
    db.execute("DELETE FROM instance_days WHERE day < ?", [now_ms // DAY_MS - KEPT_DAYS])
    db.execute(
        "DELETE FROM instance_changes WHERE at < ?"
        " AND NOT EXISTS (SELECT 1 FROM tasks WHERE name = task_name AND configured = 1)",
        [now_ms - KEPT_DAYS * DAY_MS],
    )
