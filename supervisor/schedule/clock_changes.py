"""Clock changes of time zones, and the policies of a task for the local times that they skip or repeat.

Clock changes divide a time zone into spans of real time with one offset each. :mod:`zoneinfo` does not list them. So
offsets are compared every six hours, and bisection finds the exact second. Two changes within six hours that cancel
each other would be missed, but no time zone has any.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

DstGap = Literal["run", "skip"]
"""Policy for a local time that does not exist: run at the end of the gap, or skip."""
DstOverlap = Literal["first", "both", "second"]
"""Policy for a repeated local time: which of the two instants run."""

_PROBE_S = 6 * 3600


class Span(NamedTuple):
    """A range of seconds since the epoch, without `end`, in which local time is `offset` seconds ahead of UTC.

    If no change follows, a span ends after a few years, and another one with the same offset begins.
    """

    start: int
    end: int
    offset: int
    before: int
    """Offset of the previous span."""
    after: int
    """Offset of the next span."""

    @property
    def repeated_until(self) -> int:
        """The instant before which the local times of this span are repetitions of the previous span's."""
        return self.start + self.before - self.offset

    @property
    def repeated_from(self) -> int:
        """The instant from which the next span will repeat the local times of this one."""
        return self.end - (self.offset - self.after)


def span_at(zone: ZoneInfo, at_s: int) -> Span:
    """Return the span that contains the instant `at_s`."""
    for span in _spans(zone, datetime.fromtimestamp(at_s, UTC).year):
        if at_s < span.end:
            return span
    raise AssertionError("unreachable: the last span ends with the year after")


@lru_cache(maxsize=4096)
def _spans(zone: ZoneInfo, year: int) -> tuple[Span, ...]:
    """Return the spans of a year and its two neighbours; the first and the last are cut at the ends of these years."""
    changes = [change for number in (year - 1, year, year + 1) for change in _changes(zone, number)]
    edges = [_new_year(year - 1), *(at for at, _, _ in changes), _new_year(year + 2)]
    offsets = [later for _, _, later in changes]
    offsets.insert(0, changes[0][1] if changes else _offset(zone, edges[0]))
    around = [offsets[0], *offsets, offsets[-1]]
    return tuple(
        Span(start, end, offset, before, after)
        for (start, end), before, offset, after in zip(pairwise(edges), around[:-2], offsets, around[2:], strict=True)
    )


@lru_cache(maxsize=4096)
def _changes(zone: ZoneInfo, year: int) -> tuple[tuple[int, int, int], ...]:
    """Return the clock changes in a year, each as (instant, offset before, offset after)."""
    start, end = _new_year(year), _new_year(year + 1)
    changes = []
    for low, high in pairwise(range(start - 1, end + _PROBE_S, _PROBE_S)):
        last = min(high, end - 1)
        before, offset = _offset(zone, low), _offset(zone, last)
        if before != offset:
            changes.append((_first(zone, low, last, offset), before, offset))
    return tuple(changes)


def _first(zone: ZoneInfo, low: int, high: int, offset: int) -> int:
    """Return the first second with `offset` between `low`, which has another one, and `high`, which has it."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == offset:
            high = middle
        else:
            low = middle
    return high


def _new_year(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def _offset(zone: ZoneInfo, at_s: int) -> int:
    offset = datetime.fromtimestamp(at_s, zone).utcoffset() or timedelta()
    return offset.days * 86_400 + offset.seconds


def runs_skipped_time(policy: DstGap) -> bool:
    """Return whether a local time that does not exist runs, at the end of the gap."""
    return policy == "run"


def runs_repeated_time(policy: DstOverlap, *, again: bool) -> bool:
    """Return whether a local time that occurs twice runs now; `again`: now is its second occurrence."""
    return policy in ("second" if again else "first", "both")
