"""Counters of the resources that each task and service uses, in time spans and in total; read by store.usage.

Use is counted when it occurs, not when a run ends: a service that runs for months is counted every day. During a run,
its samples are counted when they move into its row (store.runs.samples). Triggers count the rest at the end of the run
(store.migrations.counting). The total use of active runs is in `task_totals`, under their state.

Spans of five minutes are kept for six hours, and hours for five weeks. Days are kept as long as the days of
store.runs.daily_outcomes. All use is in exactly one span.
"""

from collections.abc import Sequence
from typing import NamedTuple

from store.database import Database
from store.runs.daily_outcomes import DAY_MS, KEPT_DAYS
from store.runs.phases import FIRST_ACTIVE, RUNNING

SPAN_MS = 300_000
HOUR_MS = 3_600_000
KEPT_MS = {SPAN_MS: 6 * HOUR_MS, HOUR_MS: 35 * DAY_MS, DAY_MS: KEPT_DAYS * DAY_MS}
"""Time for which spans are kept, by width, both in ms."""


class ResourceUse(NamedTuple):
    """Resources that were used.

    Attributes:
        runs: Number of ended runs that had started.
        user_us: CPU time in user mode, in microseconds.
        system_us: CPU time in the kernel, in microseconds.
        peak_rss_bytes: Peak memory of a single run, by its samples and, at its end, by the kernel.
        read_bytes: Bytes read from disks; None if not counted.
        write_bytes: Bytes written to disks; None if not counted.
    """

    runs: int = 0
    user_us: int = 0
    system_us: int = 0
    peak_rss_bytes: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None

    def and_also(self, other: "ResourceUse") -> "ResourceUse":
        """Return the sum of both; the peak is the higher one."""
        return ResourceUse(
            self.runs + other.runs,
            self.user_us + other.user_us,
            self.system_us + other.system_us,
            max((peak for peak in (self.peak_rss_bytes, other.peak_rss_bytes) if peak is not None), default=None),
            _sum(self.read_bytes, other.read_bytes),
            _sum(self.write_bytes, other.write_bytes),
        )


def _sum(first: int | None, other: int | None) -> int | None:
    return other if first is None else first if other is None else first + other


def _added(table: str, names: Sequence[str]) -> str:
    return ", ".join(
        f"{name} = COALESCE({table}.{name} + excluded.{name}, {table}.{name}, excluded.{name})" for name in names
    )


_SUMS = [name for name in ResourceUse._fields if name != "peak_rss_bytes"]
_EVER = _SUMS[1:]
_NAMES = ", ".join(ResourceUse._fields)
TOGETHER = ", ".join(
    f"CAST({'MAX' if name == 'peak_rss_bytes' else 'SUM'}({name}) AS BIGINT)" for name in ResourceUse._fields
)
_ADD = (
    f"ON CONFLICT (task_name, at, width) DO UPDATE SET {_added('task_usage', _SUMS)}, peak_rss_bytes ="
    " CASE WHEN excluded.peak_rss_bytes > task_usage.peak_rss_bytes OR task_usage.peak_rss_bytes IS NULL"
    " THEN excluded.peak_rss_bytes ELSE task_usage.peak_rss_bytes END"
)
_COUNT = (
    f"INSERT INTO task_usage (task_name, width, at, {_NAMES}) SELECT task_name, {SPAN_MS}, CAST(? AS BIGINT)"  # noqa: S608 - constants
    f"{', CAST(? AS BIGINT)' * len(ResourceUse._fields)} FROM runs WHERE id = ? AND state >= {FIRST_ACTIVE} {_ADD}"
)
_COUNT_EVER = (
    f"INSERT INTO task_totals (task_name, state, n, timed, duration, last_at, {', '.join(_EVER)})"  # noqa: S608 - constants
    f" SELECT task_name, {RUNNING}, 0, 0, 0, CAST(? AS BIGINT){', CAST(? AS BIGINT)' * len(_EVER)}"
    f" FROM runs WHERE id = ? AND state >= {FIRST_ACTIVE}"
    f" ON CONFLICT (task_name, state) DO UPDATE SET last_at = excluded.last_at, {_added('task_totals', _EVER)}"
)
_ROLL = (
    f"INSERT INTO task_usage (task_name, width, at, {_NAMES})"  # noqa: S608 - constants
    " SELECT task_name, CAST(? AS BIGINT), at / CAST(? AS BIGINT) * CAST(? AS BIGINT),"
    f" {TOGETHER} FROM task_usage WHERE width = ? AND at < ? GROUP BY 1, 2, 3 {_ADD}"
)


def count(db: Database, run_id: str, at: int, used: ResourceUse) -> None:
    """Add the use of a run since its last count, up to a time in ms since the epoch; nothing if it has ended."""
    db.execute(_COUNT, [at // SPAN_MS * SPAN_MS, *used, run_id])
    db.execute(_COUNT_EVER, [at, *(getattr(used, name) for name in _EVER), run_id])


def roll(db: Database, now_ms: int) -> None:
    """Merge spans that are too old into longer ones, and drop the oldest. Call this every hour."""
    widths = [*KEPT_MS]
    for width, longer in zip(widths, [*widths[1:], None], strict=True):
        before = (now_ms - KEPT_MS[width]) // (longer or width) * (longer or width)
        if longer is not None:
            db.execute(_ROLL, [longer, longer, longer, width, before])
        db.execute("DELETE FROM task_usage WHERE width = ? AND at < ?", [width, before])
