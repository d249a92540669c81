"""The instants of a task, from ``cron``, ``every`` or ``at``, as one ordered series. Pure.

Instants are nominal: ``jitter`` delays the start of a run, but does not change its instant.
"""

import hashlib
from collections.abc import Iterator
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple, Protocol

from supervisor.host.zones import zone_named
from supervisor.schedule.clock_changes import DstGap, DstOverlap
from supervisor.schedule.cron import Cron, Occurrence, local_text


class _ScheduleKeys(Protocol):
    """The scheduling keys of a task, as in the configuration."""

    @property
    def name(self) -> str: ...
    @property
    def crons(self) -> tuple[str, ...]: ...
    @property
    def every_ms(self) -> int | None: ...
    @property
    def at_ms(self) -> int | None: ...
    @property
    def timezone(self) -> str: ...
    @property
    def jitter_ms(self) -> int: ...
    @property
    def dst_gap(self) -> DstGap: ...
    @property
    def dst_overlap(self) -> DstOverlap: ...


class _Source(Protocol):
    def occurrences(self, mark_ms: int, after_ms: int) -> Iterator[Occurrence]:
        """Yield the instants after `mark_ms`, the last one accounted for, and after `after_ms`."""


class _Crons:
    def __init__(self, crons: list[Cron]) -> None:
        self._crons = crons

    def occurrences(self, mark_ms: int, after_ms: int) -> Iterator[Occurrence]:
        after_ms = max(mark_ms, after_ms)
        if len(self._crons) == 1:
            yield from self._crons[0].occurrences(after_ms)
            return
        # Notes have no order: None cannot be compared with text.
        several = merge(*(cron.occurrences(after_ms) for cron in self._crons), key=_at)
        for _, same in groupby(several, _at):
            # If one expression skips an instant that another one runs, it runs. If one expression has it at the end of
            # a gap and another one as its own time, it needs no note.
            yield min(same, key=lambda instant: (not instant.runs, instant.note is not None))


def _at(occurrence: Occurrence) -> int:
    return occurrence.at


class _Every:
    """A fixed interval, counted from the last instant that was accounted for."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms

    def occurrences(self, mark_ms: int, after_ms: int) -> Iterator[Occurrence]:
        passed = max(0, after_ms - mark_ms) // self._interval_ms
        at = mark_ms + passed * self._interval_ms
        while True:
            at += self._interval_ms
            yield Occurrence(at, runs=True)


class _Once:
    def __init__(self, at_ms: int) -> None:
        self._at_ms = at_ms

    def occurrences(self, mark_ms: int, after_ms: int) -> Iterator[Occurrence]:
        if self._at_ms > max(mark_ms, after_ms):
            yield Occurrence(self._at_ms, runs=True)


class Schedule:
    """The schedule of a task; empty if it has none."""

    def __init__(self, task: _ScheduleKeys | None) -> None:
        """Create the schedule of a task; None: an empty schedule."""
        self._zone = zone_named(task.timezone if task is not None else "UTC")
        self._source: _Source | None = None
        self.follows_clock = True
        """Whether it follows the wall clock; ``every`` counts real time instead."""
        self.offset_ms = 0
        """Delay of each run after its instant, in milliseconds: the task's part of its jitter."""
        if task is None:
            return
        self.follows_clock = task.every_ms is None
        self.offset_ms = _share(task.name, task.jitter_ms)
        if task.every_ms is not None:
            self._source = _Every(task.every_ms)
        elif task.at_ms is not None:
            self._source = _Once(task.at_ms)
        elif task.crons:
            self._source = _Crons([Cron(text, self._zone, task.dst_gap, task.dst_overlap) for text in task.crons])

    @property
    def empty(self) -> bool:
        """Whether the task has no schedule."""
        return self._source is None

    def occurrences(self, mark_ms: int, after_ms: int = 0) -> Iterator[Occurrence]:
        """Yield the instants after `mark_ms`, the last one accounted for, and after `after_ms`, in order."""
        return iter(()) if self._source is None else self._source.occurrences(mark_ms, after_ms)

    def local(self, at_ms: int) -> str:
        """Return an instant as the task's local time, in RFC 3339 format with the offset."""
        return local_text(at_ms, self._zone)


class Instant(NamedTuple):
    """A future instant, for users."""

    at: int
    """Milliseconds since the epoch."""
    local: str
    """The task's local time, in RFC 3339 format with the offset."""
    note: str | None
    """``gap``, ``repeated`` or None, as in :class:`supervisor.schedule.cron.Occurrence`."""
    starts_at: int
    """When its run starts, after the jitter, in milliseconds since the epoch."""


def upcoming(schedule: Schedule, mark_ms: int | None, now_ms: int, count: int) -> list[Instant]:
    """Return the next `count` instants that run; `mark_ms` is the last one accounted for (None for a new task)."""
    mark_ms = now_ms if mark_ms is None else mark_ms
    coming = (
        occurrence for occurrence in schedule.occurrences(mark_ms, now_ms - schedule.offset_ms) if occurrence.runs
    )
    return [
        Instant(instant.at, schedule.local(instant.at), instant.note, instant.at + schedule.offset_ms)
        for instant in islice(coming, count)
    ]


def same_instants(keys: _ScheduleKeys, other: _ScheduleKeys) -> bool:
    """Return whether two definitions have the same instants."""
    return instants_key(keys) == instants_key(other)


def instants_key(task: _ScheduleKeys) -> tuple[object, ...]:
    """Return the values that determine the instants of a task."""
    return instants_of(task.crons, task.timezone, task.every_ms, task.at_ms, task.dst_gap, task.dst_overlap)


def instants_of(
    crons: tuple[str, ...], timezone: object, every_ms: object, at_ms: object, dst_gap: object, dst_overlap: object
) -> tuple[object, ...]:
    """Return the values that determine the instants; time zone and clock changes matter only for cron expressions."""
    return (crons, timezone, dst_gap, dst_overlap) if crons else (every_ms, at_ms)


def _share(name: str, window_ms: int) -> int:
    """Return a delay within the window that depends only on the name, so that it is the same after each restart."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return number * window_ms >> 64
