"""Decides which due instants run, and which count as missed. Pure.

Usually a single instant is due. There may be many after a gap, when the daemon was down or the host slept.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice, takewhile

from msgspec import Struct

from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import Schedule

ON_TIME_MS = 60_000
"""An instant that is late by no more than this is on time, and never missed."""
_MAX_COUNTED = 100_000
_FIRST_SPAN_MS = 60_000


class ClosedDay(Struct, frozen=True):
    """Due instants of a local day that do not run, because a calendar closes the day or a window is open."""

    newest: int
    """The newest of them, in milliseconds since the epoch."""
    count: int
    reason: str
    """The calendar and the name of the day, or the window."""
    cause: str
    """``calendar`` or ``window``."""


class DueInstants(Struct, frozen=True):
    """The decision about due instants; all times in milliseconds since the epoch."""

    runs: tuple[int, ...]
    """Instants to run, oldest first."""
    missed: int
    """Number of missed instants; counting stops at 100,000."""
    missed_at: int | None
    """The newest missed instant; None if none was missed."""
    skipped: tuple[int, ...]
    """Instants that do not run, because their local time does not exist or is repeated."""
    closed: tuple[ClosedDay, ...]
    """The local days with due instants that a calendar or a window keeps from running, oldest first."""
    newest: int
    """The newest due instant."""


def due_instants(schedule: Schedule, mark_ms: int, now_ms: int, *, catch_up: int, window_ms: int) -> DueInstants | None:
    """Return the decision about the instants after `mark_ms` up to `now_ms`; None if there are none.

    Args:
        schedule: the schedule.
        mark_ms: the newest instant that was accounted for.
        now_ms: the present.
        catch_up: number of the newest late instants to run; an instant on time always runs.
        window_ms: maximum delay of an instant that is caught up.
    """
    needed = max(catch_up, 1) + 1  # instants that may run, and the newest missed one
    count = running_count = 0
    newest: deque[int] = deque(maxlen=needed)
    skipped: list[int] = []
    closed: dict[tuple[int, str], ClosedDay] = {}
    last = mark_ms
    for at, runs, _, reason, window, _ in islice(_between(schedule, mark_ms, mark_ms, now_ms), _MAX_COUNTED):
        count += 1
        last = at
        if runs:
            running_count += 1
            newest.append(at)
        elif reason is not None:
            cause = "calendar" if window is None else "window"
            before = closed.get(day := (schedule.day(at), cause))
            closed[day] = ClosedDay(at, 1 if before is None else before.count + 1, reason, cause)
        else:
            skipped.append(at)
    if not count:
        return None
    if count == _MAX_COUNTED:
        tail = _tail(schedule, mark_ms, now_ms, needed)
        newest.extend(instant.at for instant in tail if instant.runs and instant.at > last)
        last = max(last, tail[-1].at)
    newest_first = list(reversed(newest))
    on_time = int(bool(newest_first) and now_ms - newest_first[0] <= ON_TIME_MS)
    late = sum(now_ms - at <= window_ms for at in newest_first[:catch_up])
    running = max(on_time, late)
    return DueInstants(
        runs=tuple(reversed(newest_first[:running])),
        missed=max(0, running_count - running),
        missed_at=newest_first[running] if running < len(newest_first) else None,
        skipped=tuple(skipped),
        closed=tuple(closed.values()),
        newest=last,
    )


def is_missed(at_ms: int, now_ms: int, *, catch_up: int, window_ms: int) -> bool:
    """Return whether a run that was requested for a time is too late; the arguments are those of `due_instants`."""
    return now_ms - at_ms > (max(window_ms, ON_TIME_MS) if catch_up else ON_TIME_MS)


def _between(schedule: Schedule, mark_ms: int, after_ms: int, now_ms: int) -> Iterator[Occurrence]:
    return takewhile(lambda instant: instant.at <= now_ms, schedule.occurrences(mark_ms, after_ms))


def _tail(schedule: Schedule, mark_ms: int, now_ms: int, count: int) -> list[Occurrence]:
    """Return the newest instants, at least `count` of which run if there are so many.

    The search begins near the present and doubles its range. From `mark_ms` it could take millions of steps.
    """
    span_ms = _FIRST_SPAN_MS
    while True:
        after_ms = max(mark_ms, now_ms - span_ms)
        instants = list(_between(schedule, mark_ms, after_ms, now_ms))
        if after_ms == mark_ms or sum(instant.runs for instant in instants) >= count:
            return instants
        span_ms *= 2
