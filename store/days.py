"""What became of a task's runs, by UTC day and for ever. Triggers of the database count; runs that go stay counted."""

from typing import NamedTuple

from store.database import Database
from store.phases import decode

DAY_MS = 86_400_000
KEPT_DAYS = 400
"""A year after runs of the default retention are gone."""


class Day(NamedTuple):
    """Ends of runs on one day, for one end reason.

    Attributes:
        day: Number of the UTC day since the epoch.
        timed: How many of them had both a start and an end.
        duration: Sum of their durations, ms.
        longest: The longest of these, ms.
    """

    day: int
    reason: str
    n: int
    timed: int
    duration: int
    longest: int | None


class Total(NamedTuple):
    """Ends of runs of a task there ever were, for one end reason.

    Attributes:
        last_at: When the last of them ended, ms since the epoch.
    """

    task_name: str
    reason: str
    n: int
    timed: int
    duration: int
    last_at: int


def days(db: Database, task_name: str, first_day: int) -> list[Day]:
    """A task's days from number `first_day` on, oldest first."""
    rows = db.rows(
        "SELECT day, state, n, timed, duration, longest FROM task_days WHERE task_name = ? AND day >= ?"
        " ORDER BY day, state",
        [task_name, first_day],
    )
    return [Day(day, decode(state)[1] or "", *rest) for day, state, *rest in rows]


def totals(db: Database) -> list[Total]:
    """The totals of all configured tasks and services, by name."""
    rows = db.rows(
        "SELECT s.task_name, s.state, s.n, s.timed, s.duration, s.last_at FROM tasks AS t JOIN task_totals AS s"
        " ON s.task_name = t.name WHERE t.configured = 1 ORDER BY s.task_name, s.state"
    )
    return [Total(name, decode(state)[1] or "", *rest) for name, state, *rest in rows]


def prune(db: Database, now_ms: int) -> int:
    """Drop the days that are too old; returns how many rows."""
    return db.execute("DELETE FROM task_days WHERE day < ?", [now_ms // DAY_MS - KEPT_DAYS])
