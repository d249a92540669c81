"""The instants of a task, from ``cron``, ``every`` or ``at``, as one ordered series. Pure.

Instants are nominal: ``jitter`` delays the start of a run, but does not change its instant.
"""

import hashlib
from collections.abc import Iterator
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from supervisor.host.zones import zone_named
from supervisor.schedule.calendars import Calendar, ClosedDays, Shift, closed_days, named
from supervisor.schedule.clock_changes import DstGap, DstOverlap
from supervisor.schedule.cron import Cron, Occurrence, day_end, local_day, local_text
from supervisor.schedule.deadlines import FinishBy, deadline_of
from supervisor.schedule.windows import OPEN_END, InstantSource, WindowTimes, apart_from, opening_at


class _ScheduledTask(Protocol):
    """The scheduling keys of a task, as in the configuration."""

    @property
    def name(self) -> str: ...
    @property
    def crons(self) -> tuple[str, ...]: ...
    @property
    def cron_params(self) -> tuple[tuple[tuple[str, str], ...], ...]: ...
    @property
    def every_ms(self) -> int | None: ...
    @property
    def at_ms(self) -> int | None: ...
    @property
    def timezone(self) -> str: ...
    @property
    def jitter_ms(self) -> int: ...
    @property
    def external(self) -> bool: ...
    @property
    def grace_period_ms(self) -> int: ...
    @property
    def dst_gap(self) -> DstGap: ...
    @property
    def dst_overlap(self) -> DstOverlap: ...
    @property
    def skip_on(self) -> tuple[Calendar, ...]: ...
    @property
    def shift(self) -> Shift | None: ...
    @property
    def business_day(self) -> int | None: ...
    @property
    def finish_by(self) -> FinishBy | None: ...


_MOST_CLOSINGS = 500
"""Number of closed days and windows in a row after which a schedule counts as having no instant that runs."""


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


class _OnOpenDays:
    """Another source, without the instants on closed days."""

    def __init__(self, source: InstantSource, closed: ClosedDays, zone: ZoneInfo) -> None:
        self._source = source
        self._closed = closed
        self._zone = zone

    def occurrences(self, mark_ms: int, after_ms: int) -> Iterator[Occurrence]:
        for instant in self._source.occurrences(mark_ms, after_ms):
            reason = self._closed.reason(local_day(instant.at, self._zone))
            yield instant if reason is None else Occurrence(instant.at, runs=False, closed=reason)


class Schedule:
    """The schedule of a task; empty if it has none."""

    def __init__(self, task: _ScheduledTask | None) -> None:
        """Create the schedule of a task; None: an empty schedule."""
        self._zone = zone_named(task.timezone if task is not None else "UTC")
        self._source: InstantSource | None = None
        self.follows_clock = True
        """Whether it follows the wall clock; ``every`` counts real time instead."""
        self.offset_ms = 0
        """Delay of each run after its instant, in milliseconds: the task's part of its jitter.

        Of a task that runs elsewhere: the time within which its job must report a run.
        """
        self.crons: list[Cron] = []
        self._cron_params: tuple[tuple[tuple[str, str], ...], ...] = () if task is None else task.cron_params
        self.closed: ClosedDays | None = None
        """The days on which no instant runs; None: all days are open."""
        self.windows: list[WindowTimes] = []
        """The windows of the task, which skip or defer instants."""
        self._finish_by = None if task is None else task.finish_by
        if task is None:
            return
        self.closed = closed_days(task.skip_on, task.shift, task.business_day) if task.skip_on else None
        self.follows_clock = task.every_ms is None
        self.offset_ms = task.grace_period_ms if task.external else _share(task.name, task.jitter_ms)
        if task.every_ms is not None:
            self._source = _Every(task.every_ms)
        elif task.at_ms is not None:
            self._source = _Once(task.at_ms)
        elif task.crons:
            self.crons = [Cron(text, self._zone, task.dst_gap, task.dst_overlap, self.closed) for text in task.crons]
            self._source = _Crons(self.crons)
        if self._source is not None and self.closed is not None and not self.crons:
            self._source = _OnOpenDays(self._source, self.closed, self._zone)

    @property
    def empty(self) -> bool:
        """Whether the task has no schedule."""
        return self._source is None

    def occurrences(self, mark_ms: int, after_ms: int = 0) -> Iterator[Occurrence]:
        """Yield the instants after `mark_ms`, the last one accounted for, and after `after_ms`, in order."""
        if self._source is None:
            return iter(())
        if self.windows:
            return apart_from(self.windows, self._source, mark_ms, max(mark_ms, after_ms))
        return self._source.occurrences(mark_ms, after_ms)

    def running(self, mark_ms: int, after_ms: int = 0) -> Iterator[Occurrence]:
        """Yield the instants of :meth:`occurrences` that run.

        A closed day or a window takes one step, however many instants it has. After too many without an instant that
        runs, there probably is none.
        """
        coming, closings = self.occurrences(mark_ms, after_ms), 0
        while (instant := next(coming, None)) is not None:
            if instant.runs:
                closings = 0
                yield instant
            elif instant.closed is not None:
                closings += 1
                if closings > _MOST_CLOSINGS or instant.window_end >= OPEN_END:
                    return
                coming = self.occurrences(mark_ms, max(instant.at, self.end_of_closing(instant) - 1))

    def end_of_closing(self, instant: Occurrence) -> int:
        """Return the end of the window, or of the local day, that keeps an instant from running."""
        return instant.window_end or day_end(self.day(instant.at), self._zone)

    def moved_into_the_past(self, before: "Schedule", now_ms: int) -> list[int]:
        """Return the instants up to `now_ms` of days that had a later time in the schedule `before`, in order.

        Only calendars move times; a changed expression has times of its own.
        """
        pairs = zip(self.crons, before.crons, strict=False)
        return sorted({at for cron, former in pairs for at in cron.moved_into_the_past(former, now_ms)})

    def params_at(self, at_ms: int) -> dict[str, str]:
        """Return the values of parameters for an instant: those of the first expression that runs then.

        If none does, its times were deferred: the first expression that has one in the window counts.
        """
        opening = opening_at(self.windows, at_ms - 1)
        for begin_ms in (at_ms, at_ms if opening is None else opening.start) if any(self._cron_params) else ():
            for cron, params in zip(self.crons, self._cron_params, strict=True):
                instant = next(cron.occurrences(begin_ms - 1), None)
                if instant is not None and instant.at <= at_ms and instant.runs:
                    return dict(params)
        return {}

    def day(self, at_ms: int) -> int:
        """Return the local day of an instant, in days since the epoch."""
        return local_day(at_ms, self._zone)

    def day_bounds(self, at_ms: int) -> tuple[int, int]:
        """Return the first instant of the local day of an instant, and that of the following day."""
        day = self.day(at_ms)
        return day_end(day - 1, self._zone), day_end(day, self._zone)

    def deadline(self, at_ms: int) -> int | None:
        """Return when the work of an instant is to be done, in milliseconds since the epoch; None: at any time."""
        return None if self._finish_by is None else deadline_of(self._finish_by, at_ms, self._zone)

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
    calendar: str | None = None
    """The closed days whose times moved to it, or the closed days that it follows, each with its calendar."""
    params: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    """Values of parameters that only this time gives to its run."""
    run: str | None = None
    """Id of the run that was requested for this time; None: it is a time of the schedule."""
    window: str | None = None
    """The window that deferred times to it, or the windows before it that skip times."""


def upcoming(schedule: Schedule, mark_ms: int | None, now_ms: int, count: int) -> list[Instant]:
    """Return the next `count` instants that run; `mark_ms` is the last one accounted for (None for a new task)."""
    mark_ms = now_ms if mark_ms is None else mark_ms
    before_ms = now_ms - schedule.offset_ms
    instants = []
    for instant in islice(schedule.running(mark_ms, before_ms), count):
        days, windows = _closings_before(schedule, mark_ms, before_ms, instant.at)
        window = f"after the window {instant.window}" if instant.window else None
        if window is None and windows:
            window = f"not in the window {', '.join(windows)}"
        instants.append(
            Instant(
                instant.at,
                schedule.local(instant.at),
                instant.note,
                starts_at=instant.at + schedule.offset_ms,
                calendar=_calendar_note(schedule, days, instant.at),
                params=schedule.params_at(instant.at),
                window=window,
            )
        )
        before_ms = instant.at
    return instants


def _calendar_note(schedule: Schedule, days: list[int], at_ms: int) -> str | None:
    """Say which times moved to an instant or, if none did, which `days` before it are closed."""
    if schedule.closed is None:
        return None
    moved = "; ".join(filter(None, (cron.moved_from(at_ms) for cron in schedule.crons)))
    if moved:
        return f"moved from {moved}"
    return f"not on {named(schedule.closed, days)}" if days else None


def _closings_before(schedule: Schedule, mark_ms: int, after_ms: int, at_ms: int) -> tuple[list[int], list[str]]:
    """Return the closed days, and the windows that skip instants, between two times."""
    days: list[int] = []
    windows: dict[str, None] = {}
    if schedule.closed is None and not schedule.windows:
        return [], []
    while (instant := next(schedule.occurrences(mark_ms, after_ms), None)) is not None and instant.at < at_ms:
        after_ms = instant.at
        if instant.closed is not None:
            after_ms = max(after_ms, schedule.end_of_closing(instant) - 1)
            if instant.window is None:
                days.append(schedule.day(instant.at))
            else:
                windows[instant.window] = None
    return days, list(windows)


def same_instants(keys: _ScheduledTask, other: _ScheduledTask) -> bool:
    """Return whether two definitions have the same instants."""
    return _instants_key(keys) == _instants_key(other)


def _instants_key(task: _ScheduledTask) -> tuple[object, ...]:
    """Return the values that determine the instants; zone and clock changes matter only for cron expressions."""
    calendars = task.skip_on, task.shift, task.business_day
    if task.crons:
        return task.crons, task.timezone, task.dst_gap, task.dst_overlap, calendars
    return task.every_ms, task.at_ms, task.skip_on and task.timezone, calendars


def _share(name: str, window_ms: int) -> int:
    """Return a delay within the window that depends only on the name, so that it is the same after each restart."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return number * window_ms >> 64
