"""Instants that have come, and what becomes of each: pure.

Usually that is one that has just come. After a time in which nobody watched there may be many, a gap.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import Schedule

ON_TIME_MS = 60_000
"""What is no later than this was not missed."""
_MAX_COUNTED = 100_000
_FIRST_LOOK_MS = 60_000


@dataclass(frozen=True)
class DueInstants:
    """What becomes of the instants that have come; all in milliseconds since the epoch."""

    runs: tuple[int, ...]
    """They run, the oldest first."""
    missed: int
    """So many more were missed; 100,000 and more may be counted as 100,000."""
    missed_at: int | None
    """The newest of these."""
    skipped: tuple[int, ...]
    """They do not run: their local time does not exist, or comes twice."""
    newest: int
    """The newest of all."""


def due_instants(schedule: Schedule, mark_ms: int, now_ms: int, *, catch_up: int, window_ms: int) -> DueInstants | None:
    """The instants after `mark_ms` and not after `now_ms`; None when there is none.

    Args:
        schedule: has the instants.
        mark_ms: the newest that was accounted for.
        now_ms: the present.
        catch_up: how many of the newest run; one that is on time runs in any case.
        window_ms: how late they may be for that.
    """
    wanted = max(catch_up, 1) + 1  # those that may run, and the newest that does not
    count = running_count = 0
    newest: deque[int] = deque(maxlen=wanted)
    skipped: list[int] = []
    last = mark_ms
    for at, runs, _ in islice(_between(schedule, mark_ms, mark_ms, now_ms), _MAX_COUNTED):
        count += 1
        last = at
        if runs:
            running_count += 1
            newest.append(at)
        else:
            skipped.append(at)
    if not count:
        return None
    if count == _MAX_COUNTED:
        tail = _tail(schedule, mark_ms, now_ms, wanted)
        newest.extend(one.at for one in tail if one.runs and one.at > last)
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
        newest=last,
    )


def _between(schedule: Schedule, mark_ms: int, after_ms: int, now_ms: int) -> Iterator[Occurrence]:
    return takewhile(lambda one: one.at <= now_ms, schedule.occurrences(mark_ms, after_ms))


def _tail(schedule: Schedule, mark_ms: int, now_ms: int, count: int) -> list[Occurrence]:
    """At least the newest `count` that run, found by looking back twice as far each time."""
    look_ms = _FIRST_LOOK_MS
    while True:
        after_ms = max(mark_ms, now_ms - look_ms)
        found = list(_between(schedule, mark_ms, after_ms, now_ms))
        if after_ms == mark_ms or sum(one.runs for one in found) >= count:
            return found
        look_ms *= 2
