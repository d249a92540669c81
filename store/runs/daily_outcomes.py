"""Outcomes of tasks' runs, by UTC day and in total. Database triggers count them; deleted runs stay counted."""

from typing import NamedTuple

from store.database import Database
from store.runs.phases import FIRST_ACTIVE, decode

DAY_MS = 86_400_000
KEPT_DAYS = 400
"""Number of days that are kept: a year more than runs with the default retention."""
LASTED_MS = (100, 1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000)
"""Upper bounds of durations in ms, for `Total.lasted`."""
WAITED_MS = (100, 1_000, 10_000, 60_000, 600_000, 3_600_000)
"""Upper bounds of delays in ms, for `Total.waited_within`."""


class Day(NamedTuple):
    """A task's runs that ended on one day with one end reason.

    Attributes:
        day: Number of the UTC day since the epoch.
        n: Number of runs.
        timed: Number of runs with both a start and an end.
        duration: Sum of their durations in ms.
        longest: Longest duration in ms.
    """

    day: int
    reason: str
    n: int
    timed: int
    duration: int
    longest: int | None


class Total(NamedTuple):
    """All runs of a task that ever ended with one end reason.

    Attributes:
        last_at: Time of the last end, ms since the epoch.
        waited: Total delay of the started runs in ms: since a retry was due, since the scheduled instant, or otherwise
            since the request.
        lasted: Number of runs that ran no longer than each bound of `LASTED_MS`.
        waited_within: Number of runs that waited no longer than each bound of `WAITED_MS`.
    """

    task_name: str
    reason: str
    n: int
    timed: int
    duration: int
    last_at: int
    waited: int
    lasted: tuple[int, ...]
    waited_within: tuple[int, ...]


_LASTED = [f"s.lasted_{bound}" for bound in LASTED_MS]
_WAITED = [f"s.waited_{bound}" for bound in WAITED_MS]


def days(db: Database, task_name: str, first_day: int) -> list[Day]:
    """Return a task's days from number `first_day` on, oldest first."""
    rows = db.rows(
        "SELECT day, state, n, timed, duration, longest FROM task_days WHERE task_name = ? AND day >= ?"
        " ORDER BY day, state",
        [task_name, first_day],
    )
    return [Day(day, decode(state)[1] or "", *counts) for day, state, *counts in rows]


def durations(db: Database, first_day: int, last_day: int) -> dict[str, int]:
    """Return the total duration, in ms, of the runs of each configured unit that ended on these days, by name."""
    return dict(
        db.rows(
            "SELECT t.name, CAST(SUM(d.duration) AS BIGINT) FROM tasks AS t CROSS JOIN task_days AS d"
            " WHERE t.configured = 1 AND d.task_name = t.name AND d.day >= ? AND d.day <= ? GROUP BY t.name",
            [first_day, last_day],
        )
    )


def totals(db: Database) -> list[Total]:
    """Return the totals of all configured tasks and services, sorted by name."""
    rows = db.rows(
        "SELECT s.task_name, s.state, s.n, s.timed, s.duration, s.last_at, s.waited,"  # noqa: S608 - constants
        f" {', '.join(_LASTED + _WAITED)} FROM tasks AS t JOIN task_totals AS s ON s.task_name = t.name"
        f" WHERE t.configured = 1 AND s.state < {FIRST_ACTIVE} ORDER BY s.task_name, s.state"
    )
    first, second = 7, 7 + len(_LASTED)
    return [
        Total._make((row[0], decode(row[1])[1], *row[2:first], tuple(row[first:second]), tuple(row[second:])))
        for row in rows
    ]


def prune(db: Database, now_ms: int) -> int:
    """Drop the days that are too old; return the number of rows.

    This also removes the totals of unconfigured tasks without a run for the same time, and rows of `run_counts` that
    are now 0.
    """
    db.execute("DELETE FROM run_counts WHERE n = 0")
    db.execute(
        "DELETE FROM task_totals WHERE last_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM tasks WHERE name = task_totals.task_name AND configured = 1)",
        [now_ms - KEPT_DAYS * DAY_MS],
    )
    return db.execute("DELETE FROM task_days WHERE day < ?", [now_ms // DAY_MS - KEPT_DAYS])
