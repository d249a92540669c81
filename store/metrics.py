"""Samples of the host: one every 5 s for a day, and one a minute, their means, for two weeks."""

from typing import NamedTuple

from store.database import Database

FINE_MS = 5_000
COARSE_MS = 60_000
_KEPT_MS = {FINE_MS: 24 * 3_600_000, COARSE_MS: 14 * 86_400_000}
_MOST = 2_000
"""Samples in an answer."""


class Sample(NamedTuple):
    """What was measured around a time; a fact that this host does not tell is None.

    Attributes:
        at: Beginning of the interval, ms since the epoch.
        cpu: Percent of all cores together.
        load: Load average of the last minute.
        memory_used: Bytes; what could be had at once does not count.
        swap_used: Bytes.
        disk_used: Bytes of the file system of the data directory.
        disk_read: Bytes a second, all disks.
        disk_written: Bytes a second, all disks.
        received: Bytes a second, all interfaces but loopback.
        sent: Bytes a second, all interfaces but loopback.
        cpu_pressure: Percent of the last 10 s in which something waited for a core.
        memory_pressure: The same for memory.
        io_pressure: The same for disks.
        running: Runs that were running.
        lag: How late the scheduler's loop was, ms.
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
_COLUMNS = ", ".join(Sample._fields)
_MEANS = ", ".join(f"CAST(AVG({name}) AS BIGINT)" if name in _BYTES else f"AVG({name})" for name in Sample._fields[1:])
_REPLACE = f"ON CONFLICT (width, at) DO UPDATE SET {', '.join(f'{one} = excluded.{one}' for one in Sample._fields[1:])}"
_INSERT = f"INSERT INTO samples (width, {_COLUMNS}) VALUES (?{', ?' * len(Sample._fields)}) {_REPLACE}"  # noqa: S608 - constants
_ROLL_UP = f"""
INSERT INTO samples (width, {_COLUMNS})
SELECT {COARSE_MS}, at / {COARSE_MS} * {COARSE_MS}, {_MEANS} FROM samples
WHERE width = {FINE_MS} AND at >= ? AND at < ? GROUP BY at / {COARSE_MS} {_REPLACE}
"""  # noqa: S608 - constants


def add(db: Database, sample: Sample) -> None:
    """Store a sample of 5 s, together with the means of the minutes that are over, and drop what is too old."""
    at = sample.at // FINE_MS * FINE_MS
    db.execute(_INSERT, [FINE_MS, *sample._replace(at=at)])
    minute = at // COARSE_MS * COARSE_MS
    row = db.row("SELECT MAX(at) FROM samples WHERE width = ?", [COARSE_MS])
    rolled = row[0] if row else None
    if rolled is not None and minute - COARSE_MS <= rolled <= minute:
        return
    after = 0 if rolled is None or rolled > minute else rolled + COARSE_MS
    db.execute(_ROLL_UP, [after, minute])
    for width, kept_ms in _KEPT_MS.items():
        db.execute("DELETE FROM samples WHERE width = ? AND at < ?", [width, at - kept_ms])
        # What lies in the future was measured by a clock that was wrong.
        db.execute("DELETE FROM samples WHERE width = ? AND at > ?", [width, at + COARSE_MS])


def resolution(start: int, end: int, now_ms: int, step: int | None = None) -> int:
    """Which step is given for a span: at least `step`, and what is stored of that time and not too much has.

    Args:
        start: ms since the epoch.
        end: ms since the epoch, behind `start`.
        now_ms: ms since the epoch.
        step: ms, as it is wished.
    """
    width = FINE_MS if start >= now_ms - _KEPT_MS[FINE_MS] - COARSE_MS else COARSE_MS
    wanted = max(step or 0, -(-(end - start) // _MOST), width)
    if wanted >= COARSE_MS:
        width = COARSE_MS
    return -(-wanted // width) * width


def samples(db: Database, start: int, end: int, step: int) -> list[Sample]:
    """The means over `step` ms from `start` up to but not `end`; where nothing was measured there is none."""
    width = COARSE_MS if step % COARSE_MS == 0 else FINE_MS
    rows = db.rows(
        f"SELECT at / ? * ?, {_MEANS} FROM samples WHERE width = ? AND at >= ? AND at < ? GROUP BY 1 ORDER BY 1",  # noqa: S608 - constants
        [step, step, width, start, end],
    )
    return [Sample(*row) for row in rows]


def newest(db: Database) -> Sample | None:
    """The last sample; None before the first."""
    row = db.row(
        f"SELECT {_COLUMNS} FROM samples WHERE width = ? ORDER BY at DESC LIMIT 1",  # noqa: S608 - constants
        [FINE_MS],
    )
    return None if row is None else Sample(*row)
