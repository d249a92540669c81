"""Time zones as spans of real time with one offset each: between two of them the clocks are changed.

:mod:`zoneinfo` does not tell when clocks change. So offsets are compared every six hours, and where they differ the
second is found by halving; two changes that undo each other within six hours would not be seen, and no zone has them.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

_PROBE_S = 6 * 3600


class Span(NamedTuple):
    """Seconds since the epoch from `start` to before `end`, on which local time is `offset` seconds ahead of UTC.

    A span without changes ends all the same, some years away.
    """

    start: int
    end: int
    offset: int
    before: int
    """Offset of the span before."""
    after: int
    """Offset of the next span."""

    @property
    def repeated_until(self) -> int:
        """Before this instant of the span the clocks show times that they have shown before."""
        return self.start + self.before - self.offset

    @property
    def repeated_from(self) -> int:
        """From this instant of the span on the clocks show times that they will show again."""
        return self.end - (self.offset - self.after)


def span_at(zone: ZoneInfo, at_s: int) -> Span:
    """The span that has the instant `at_s`."""
    for span in _spans(zone, datetime.fromtimestamp(at_s, UTC).year):
        if at_s < span.end:
            return span
    raise AssertionError("unreachable: the last span ends with the year after")


@lru_cache(maxsize=4096)
def _spans(zone: ZoneInfo, year: int) -> tuple[Span, ...]:
    """The spans from the year before to the year after; the first one and the last one may be cut."""
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
    """When clocks change in a year: instant, offset before, offset from then on."""
    start, end = _new_year(year), _new_year(year + 1)
    found = []
    for low, high in pairwise(range(start - 1, end + _PROBE_S, _PROBE_S)):
        last = min(high, end - 1)
        before, offset = _offset(zone, low), _offset(zone, last)
        if before != offset:
            found.append((_first(zone, low, last, offset), before, offset))
    return tuple(found)


def _first(zone: ZoneInfo, low: int, high: int, offset: int) -> int:
    """The first second with `offset`, which `high` has and `low` has not."""
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
