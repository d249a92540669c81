"""Samples of the host: one every 5 s, kept for a day, and their means per minute, kept for two weeks.

Means over ten minutes are stored as well, so a query for two weeks need not read every minute.
"""

from typing import NamedTuple

from store.database import Database

FINE_MS = 5_000
COARSE_MS = 60_000
_LONG_MS = 600_000
_KEPT_MS = {FINE_MS: 24 * 3_600_000, COARSE_MS: 14 * 86_400_000, _LONG_MS: 14 * 86_400_000}
"""Time for which samples are kept, by interval, both in ms; the shortest interval first."""
_MOST = 2_000
"""Maximum number of samples in a response."""
_MOST_READ = 2 * _MOST
"""Maximum number of rows read for a response."""


class MetricSample(NamedTuple):
    """The measurements of one interval; None for values that this host does not provide.

    Attributes:
        at: Start of the interval, ms since the epoch.
        cpu: Use of all cores together, in percent.
        load: Load average of the last minute.
        memory_used: Bytes of memory, without available memory.
        swap_used: Bytes of swap space.
        disk_used: Used bytes of the data directory's file system.
        disk_read: Bytes per second, all disks.
        disk_written: Bytes per second, all disks.
        received: Bytes per second, all interfaces except loopback.
        sent: Bytes per second, all interfaces except loopback.
        cpu_pressure: Percentage of the last 10 s in which a process waited for a core.
        memory_pressure: The same for memory.
        io_pressure: The same for disks.
        running: Number of running runs.
        lag: Delay of the scheduler's loop in ms.
    """

    at: int
    cpu: float | None = None
    load: float | None = None
    memory_used: int | None = None
    swap_used: int | None = None
    disk_used: int | None = None
    disk_read: float | None = None
    disk_written: float | None = None
    received: float | None = None
    sent: float | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    io_pressure: float | None = None
    running: float | None = None
    lag: float | None = None


_BYTES = ("memory_used", "swap_used", "disk_used")
_COLUMNS = ", ".join(MetricSample._fields)
_MEANS = ", ".join(
    f"CAST(AVG({name}) AS BIGINT)" if name in _BYTES else f"AVG({name})" for name in MetricSample._fields[1:]
)
_REPLACED = ", ".join(f"{field} = excluded.{field}" for field in MetricSample._fields[1:])
_REPLACE = f"ON CONFLICT (width, at) DO UPDATE SET {_REPLACED}"
_INSERT = f"INSERT INTO samples (width, {_COLUMNS}) VALUES (?{', ?' * len(MetricSample._fields)}) {_REPLACE}"  # noqa: S608 - constants
_ROLL_UP = f"""
INSERT INTO samples (width, {_COLUMNS})
SELECT CAST(? AS BIGINT), at / CAST(? AS BIGINT) * CAST(? AS BIGINT), {_MEANS} FROM samples
WHERE width = ? AND at >= ? AND at < ? GROUP BY 1, 2 {_REPLACE}
"""  # noqa: S608 - constants


def add(db: Database, sample: MetricSample, earliest_ms: int | None = None, latest_ms: int | None = None) -> None:
    """Store a sample of 5 s and the means of completed minutes, and drop samples that are too old.

    Args:
        db: A writer.
        sample: The current sample.
        earliest_ms: Earliest possible current time, for pruning old samples while the clock is in doubt; None for the
            sample's time.
        latest_ms: Latest possible current time, for pruning samples from the future; None for the sample's time.
    """
    at = sample.at // FINE_MS * FINE_MS
    db.execute(_INSERT, [FINE_MS, *sample._replace(at=at)])
    if _rolled_up(db, FINE_MS, COARSE_MS, at):
        _rolled_up(db, COARSE_MS, _LONG_MS, at)
        for width, kept_ms in _KEPT_MS.items():
            db.execute("DELETE FROM samples WHERE width = ? AND at < ?", [width, min(at, earliest_ms or at) - kept_ms])
            # A sample from the future was taken while the clock was wrong.
            db.execute("DELETE FROM samples WHERE width = ? AND at > ?", [width, max(at, latest_ms or at) + COARSE_MS])


def _rolled_up(db: Database, width: int, longer: int, at: int) -> bool:
    """Store means over `longer` ms of intervals completed at `at`, if some are missing; return whether there were."""
    interval_start = at // longer * longer
    row = db.row("SELECT MAX(at) FROM samples WHERE width = ?", [longer])
    last = row[0] if row else None
    if last is not None and interval_start - longer <= last <= interval_start:
        return False
    after = 0 if last is None or last > interval_start else last + longer
    db.execute(_ROLL_UP, [longer, longer, longer, width, after, interval_start])
    return True


def resolution(start: int, end: int, now_ms: int, step: int | None = None) -> int:
    """Return the step for a time range, in ms: at least `step`, still stored, and with a limited number of samples.

    Args:
        start: Start, ms since the epoch.
        end: End, ms since the epoch, not before `start`.
        now_ms: Current time, ms since the epoch.
        step: Requested step in ms; None for the shortest.
    """
    desired_width = max(step or 0, -(-(end - start) // _MOST))
    chosen, *longer = [
        width
        for width, kept_ms in _KEPT_MS.items()
        if width == _LONG_MS or (start >= now_ms - kept_ms - COARSE_MS and end - start <= width * _MOST_READ)
    ]
    for width in longer:
        chosen = width if desired_width >= width else chosen
    return -(-max(desired_width, chosen) // chosen) * chosen


def samples(db: Database, start: int, end: int, step: int) -> list[MetricSample]:
    """Return the means over `step` ms from `start` up to, but excluding, `end`; intervals without data are absent."""
    width = max(width for width in _KEPT_MS if step % width == 0)
    rows = db.rows(
        f"SELECT at / ? * ?, {_MEANS} FROM samples WHERE width = ? AND at >= ? AND at < ? GROUP BY 1 ORDER BY 1",  # noqa: S608 - constants
        [step, step, width, start, end],
    )
    return [MetricSample(*row) for row in rows]


def newest(db: Database) -> MetricSample | None:
    """Return the newest sample; None if there is none yet."""
    row = db.row(
        f"SELECT {_COLUMNS} FROM samples WHERE width = ? ORDER BY at DESC LIMIT 1",  # noqa: S608 - constants
        [FINE_MS],
    )
    return None if row is None else MetricSample(*row)
