"""Resource use of the runs of tasks and services, in a time window and in total. See store.runs.usage_counts."""

from typing import NamedTuple

from store.connection import Connection, Value
from store.database import Database
from store.runs.daily_outcomes import DAY_MS
from store.runs.phases import FIRST_ACTIVE, RUNNING
from store.runs.samples import newest_pass
from store.runs.usage_counts import KEPT_MS, TOGETHER, ResourceUse


class Window(NamedTuple):
    """The time from `start` up to, but excluding, `end`, in ms since the epoch. It consists of whole stored spans."""

    start: int
    end: int


class _UncountedUse(NamedTuple):
    """The use of a running run that is not counted yet, up to the sample at `at` (ms since the epoch)."""

    task_name: str
    configured: bool
    at: int
    used: ResourceUse


def window(start: int, end: int, now_ms: int) -> Window:
    """Return the shortest window of stored spans that contains the time from `start` to `end` (ms since the epoch).

    If `start` equals `end`, the window is empty.
    """
    width = next((width for width, kept_ms in KEPT_MS.items() if start >= now_ms - kept_ms), DAY_MS)
    aligned_start = start // width * width
    return Window(aligned_start, aligned_start if start == end else -(-end // width) * width)


def in_window(db: Database, period: Window, task_name: str | None = None) -> dict[str, ResourceUse]:
    """Return the use in a window by configured task; with `task_name`, only of that one, which may be removed."""
    where, params = "u.at >= ? AND u.at < ?", [*period]
    names: list[Value] = []
    # CROSS JOIN makes SQLite read task by task, because it does not reorder it.
    source = "tasks AS t CROSS JOIN task_usage AS u WHERE t.configured = 1 AND u.task_name = t.name"
    by = "t.name"
    if task_name is not None:
        source, names, by = "task_usage AS u WHERE u.task_name = ?", [task_name], "u.task_name"
    with db.snapshot() as view:
        rows = view.rows(
            f"SELECT {by}, {TOGETHER} FROM {source} AND {where} GROUP BY {by}",  # noqa: S608 - constants
            [*names, *params],
        )
        by_task = {name: ResourceUse(*sums) for name, *sums in rows}
        for recent in _recent(view):
            ours = recent.configured if task_name is None else recent.task_name == task_name
            if ours and period.start <= recent.at < period.end:
                by_task[recent.task_name] = by_task.get(recent.task_name, ResourceUse()).and_also(recent.used)
    return by_task


def total_usage(db: Database) -> dict[str, ResourceUse]:
    """Return the total use of each configured task, by name, without the peak. Totals never decrease."""
    with db.snapshot() as view:
        rows = view.rows(
            "SELECT s.task_name, CAST(SUM(s.timed) AS BIGINT), CAST(SUM(s.user_us) AS BIGINT),"
            " CAST(SUM(s.system_us) AS BIGINT), NULL, CAST(SUM(s.read_bytes) AS BIGINT),"
            " CAST(SUM(s.write_bytes) AS BIGINT) FROM tasks AS t JOIN task_totals AS s ON s.task_name = t.name"
            " WHERE t.configured = 1 GROUP BY s.task_name"
        )
        by_task = {name: ResourceUse(*sums) for name, *sums in rows}
        for recent in (use for use in _recent(view) if use.configured):
            by_task[recent.task_name] = by_task.get(recent.task_name, ResourceUse()).and_also(recent.used)
    return by_task


def _recent(view: Connection) -> list[_UncountedUse]:
    readings = newest_pass(view)
    if not readings:
        return []
    rows = view.rows(
        "SELECT r.id, r.task_name, t.configured, s.user_ms, s.system_ms, s.read_bytes, s.written_bytes"  # noqa: S608 - constants
        " FROM runs AS r INDEXED BY runs_active LEFT JOIN run_samples AS s ON s.run_id = r.id"
        " LEFT JOIN tasks AS t ON t.name = r.task_name"
        f" WHERE r.state >= {FIRST_ACTIVE} AND r.state = {RUNNING}"
    )
    uncounted = []
    for run_id, task_name, configured, user_ms, system_ms, read, written in rows:
        reading = readings.get(run_id)
        if reading is not None:
            used = ResourceUse(
                0,
                1000 * max(0, reading.user_ms - (user_ms or 0)),
                1000 * max(0, reading.system_ms - (system_ms or 0)),
                reading.rss_bytes,
                _uncounted(reading.read_bytes, read),
                _uncounted(reading.written_bytes, written),
            )
            uncounted.append(_UncountedUse(task_name, configured == 1, reading.at, used))
    return uncounted


def _uncounted(whole: int | None, counted: int | None) -> int | None:
    return None if whole is None else max(0, whole - (counted or 0))
