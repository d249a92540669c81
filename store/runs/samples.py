"""Resource use of runs, sampled while they run: a few hundred samples of each run, regardless of its duration.

Two tables allow frequent samples of many runs with few writes. A pass over all running runs is one row of `run_passes`;
pass numbers ascend. From time to time, and at its end, the readings of a run move into its own row of `run_samples`.
That row stores the number of the last pass that it includes; older readings are thinned out there. So the samples of a
run are its row and the passes after it.

A sample stores the CPU time since the start of the run, not since the previous sample. So after thinning, the mean
between any two remaining samples is still exact.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from store.connection import Connection
from store.database import Database
from store.runs.usage_counts import SPAN_MS, ResourceUse, count

STEP_MS = 5_000
MOST = 240
"""Maximum number of samples of a run."""
RECENT = 60
"""Number of the newest samples, which are never thinned out."""
_THINNED = 120
"""Maximum number of older samples after thinning."""


class Reading(NamedTuple):
    """The resources of all processes of a run in one pass.

    Attributes:
        at: Time, ms since the epoch.
        user_ms: CPU time in user mode since the start of the run, in ms.
        system_ms: CPU time in the kernel since the start of the run, in ms.
        rss_bytes: Resident memory.
        processes: Number of processes.
        read_bytes: Bytes read from disks since the start of the run; None if this host does not provide it.
        written_bytes: Bytes written to disks since the start of the run; None if this host does not provide it.
    """

    at: int
    user_ms: int
    system_ms: int
    rss_bytes: int
    processes: int
    read_bytes: int | None = None
    written_bytes: int | None = None


class Point(NamedTuple):
    """A stored sample.

    Attributes:
        at: End of the interval that it covers, ms since the epoch.
        cpu_ms: CPU time since the start of the run, in ms.
        rss_bytes: Peak resident memory in the interval.
        processes: Peak number of processes in the interval.
    """

    at: int
    cpu_ms: int
    rss_bytes: int
    processes: int


class Usage(NamedTuple):
    """The resource use of a run: sums from its start to the last sample, and the samples, oldest first.

    Attributes:
        last_pass: Number of the last pass that the run's row includes.
        peak_rss_bytes: Peak resident memory of all processes together in a sample.
    """

    last_pass: int
    user_ms: int
    system_ms: int
    peak_rss_bytes: int
    read_bytes: int | None
    written_bytes: int | None
    points: list[Point]


COLUMNS = ", ".join(Usage._fields)
_SELECT = f"SELECT run_id, {COLUMNS} FROM run_samples"  # noqa: S608 - constants
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in Usage._fields)
_KEEP = (
    f"INSERT INTO run_samples (run_id, {COLUMNS}) VALUES (?{', ?' * len(Usage._fields)})"  # noqa: S608 - constants
    f" ON CONFLICT (run_id) DO UPDATE SET {_CHANGES}"
)
_SOME = 500
"""Maximum number of runs in one query: SQLite accepts 32,766 parameters."""


def add_pass(db: Database, number: int, readings: Mapping[str, Reading]) -> None:
    """Store a pass: the readings by run id."""
    body = json.dumps(readings, separators=(",", ":"))
    db.execute("INSERT INTO run_passes (number, body) VALUES (?, ?)", [number, body])


def store_readings(db: Database, last_pass: int, readings: Mapping[str, Sequence[Reading]]) -> None:
    """Move readings into the rows of their runs, and count the resource use of active runs.

    Args:
        db: The writer.
        last_pass: Number of the last pass that the readings include.
        readings: All readings that the runs' rows lack, by run id, oldest first.
    """
    stored = _rows(db, readings)
    for run_id, new_readings in readings.items():
        usage = _grown(stored.get(run_id), last_pass, new_readings)
        if usage is not None:
            _count(db, run_id, stored.get(run_id), new_readings)
            keep(db, run_id, usage)


def parsed(row: Sequence[Any]) -> Usage:
    """Return the usage in a row that has the columns `COLUMNS`.

    Raises:
        ValueError, TypeError: Ringward cannot have written the row.
    """
    *sums, points = row
    usage = Usage._make((*sums, _unpacked(points)))
    numbers = [*usage[:-1], *(number for point in usage.points for number in point)]
    if not all(isinstance(number, int) for number in numbers if number is not None):
        raise ValueError("not a list of numbers")
    return usage


def keep(db: Database, run_id: str, usage: Usage) -> None:
    """Store the usage of a run, with its samples thinned out."""
    db.execute(_KEEP, [run_id, *usage[:-1], _packed(_thinned(usage.points))])


def store_passes(db: Database, run_ids: Collection[str]) -> None:
    """Move the passes of these runs into their rows, drop all passes, and restart their numbers at 1."""
    passes = _passes(db, 0)
    stored = _rows(db, run_ids)
    store_readings(db, 0, {run_id: _after(stored.get(run_id), run_id, passes) for run_id in run_ids})
    db.execute("DELETE FROM run_passes")


def drop_passes(db: Database, before: int) -> None:
    """Drop the passes with a lower number. Their readings must be in the rows of all runs that have not ended."""
    db.execute("DELETE FROM run_passes WHERE number < ?", [before])


def newest_pass(view: Connection) -> dict[str, Reading]:
    """Return the newest pass, by run id; empty if there was none since the scheduler's start."""
    row = view.row("SELECT body FROM run_passes ORDER BY number DESC LIMIT 1")
    return {} if row is None else {run_id: Reading(*values) for run_id, values in json.loads(row[0]).items()}


def of_ended(db: Database, run_id: str) -> Usage | None:
    """Return the usage of an ended run; None if it was never sampled."""
    return _rows(db, [run_id]).get(run_id)


def of_running(db: Database, run_ids: Collection[str]) -> dict[str, Usage]:
    """Return the usage of active runs by id; runs that were not sampled yet are absent."""
    with db.snapshot() as view:
        stored = _rows(view, run_ids)
        oldest = min((stored[run_id].last_pass if run_id in stored else 0 for run_id in run_ids), default=0)
        passes = _passes(view, oldest) if run_ids else []
    usages = {}
    for run_id in run_ids:
        row = stored.get(run_id)
        usage = _grown(row, 0 if row is None else row.last_pass, _after(row, run_id, passes))
        if usage is not None:
            usages[run_id] = usage._replace(points=_thinned(usage.points))
    return usages


def _count(db: Database, run_id: str, usage: Usage | None, readings: Sequence[Reading]) -> None:
    """Count the use of a run since its last counted reading, in the spans in which it occurred."""
    before = (
        (0, 0, None, None) if usage is None else (usage.user_ms, usage.system_ms, usage.read_bytes, usage.written_bytes)
    )
    for _, some in groupby(readings, key=lambda reading: reading.at // SPAN_MS):
        span = [*some]
        last = span[-1]
        after = last.user_ms, last.system_ms, last.read_bytes, last.written_bytes
        user_ms, system_ms, read, written = (
            None if now is None else max(0, now - (then or 0)) for now, then in zip(after, before, strict=True)
        )
        peak = max(reading.rss_bytes for reading in span)
        count(db, run_id, last.at, ResourceUse(0, 1000 * (user_ms or 0), 1000 * (system_ms or 0), peak, read, written))
        before = after


def _rows(db: Database | Connection, run_ids: Collection[str]) -> dict[str, Usage]:
    """Return the usage in the runs' own rows, by run id."""
    usages = {}
    ids = list(run_ids)
    for start in range(0, len(ids), _SOME):
        some = ids[start : start + _SOME]
        for run_id, *values, points in db.rows(f"{_SELECT} WHERE run_id IN ({', '.join('?' * len(some))})", some):
            usages[run_id] = Usage._make((*values, _unpacked(points)))
    return usages


def _passes(db: Database | Connection, after: int) -> list[tuple[int, dict[str, object]]]:
    """Return number and body of the passes after number `after`, in order."""
    rows = db.rows("SELECT number, body FROM run_passes WHERE number > ? ORDER BY number", [after])
    return [(number, json.loads(body)) for number, body in rows]


def _after(usage: Usage | None, run_id: str, passes: Iterable[tuple[int, dict[str, Any]]]) -> list[Reading]:
    """Return the readings of a run from passes that are not yet part of its row."""
    after = 0 if usage is None else usage.last_pass
    return [Reading(*body[run_id]) for number, body in passes if number > after and run_id in body]


def _grown(usage: Usage | None, last_pass: int, readings: Sequence[Reading]) -> Usage | None:
    """Return the usage with additional readings; None if there is none at all."""
    if not readings:
        return usage and usage._replace(last_pass=last_pass)
    points = [
        Point(reading.at, reading.user_ms + reading.system_ms, reading.rss_bytes, reading.processes)
        for reading in readings
    ]
    peak = max(point.rss_bytes for point in points)
    if usage is not None:
        points = usage.points + points
        peak = max(peak, usage.peak_rss_bytes)
    last = readings[-1]
    return Usage(last_pass, last.user_ms, last.system_ms, peak, last.read_bytes, last.written_bytes, points)


def _thinned(points: list[Point]) -> list[Point]:
    """Return the newest samples unchanged, and older ones merged over the shortest interval that suffices."""
    if len(points) <= MOST:
        return points
    older = points[:-RECENT]
    width = STEP_MS
    while len(older) > _THINNED:
        width *= 2
        older = _merged(older, width)
    return older + points[-RECENT:]


def _merged(points: list[Point], width: int) -> list[Point]:
    merged: list[Point] = []
    for point in points:
        if merged and merged[-1].at // width == point.at // width:
            before = merged.pop()
            rss, processes = max(before.rss_bytes, point.rss_bytes), max(before.processes, point.processes)
            merged.append(point._replace(rss_bytes=rss, processes=processes))
        else:
            merged.append(point)
    return merged


def _packed(points: list[Point]) -> str:
    """Return the stored form: the first time, then the points, with times relative to it."""
    first = points[0].at
    return json.dumps([first, *((at - first, *values) for at, *values in points)], separators=(",", ":"))


def _unpacked(text: str) -> list[Point]:
    first, *points = json.loads(text)
    return [Point(first + after, *values) for after, *values in points]
