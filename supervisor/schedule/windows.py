"""Windows: times in which the scheduled times of tasks do not run, or run later, and alarms wait. Pure.

The times of a window come from its cron expressions or its beginning and end. People also open and close windows; what
they do last holds. All times are in milliseconds since the epoch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from supervisor.host.zones import zone_named
from supervisor.schedule.cron import Cron, Occurrence

OPEN_END = 253_402_214_400_000
"""The end of a window that stays open until someone closes it: 9999-12-31."""
_MOST_JOINED = 1000
"""Number of openings without a gap after which a window counts as open for ever."""


class WindowDefinition(Struct, frozen=True):
    """``[windows.NAME]``."""

    name: str
    crons: tuple[str, ...] = ()
    """When it opens, each time for `duration_ms`."""
    duration_ms: int = 0
    start: int | None = None
    end: int | None = None
    """When it opens and closes, if it has no cron expressions. Without either, only people open it."""
    zone: str = "UTC"
    """The time zone of the cron expressions."""
    tasks: tuple[str, ...] = ()
    """Globs for names of tasks and services; empty: all."""
    groups: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    instants: Literal["skip", "defer"] = "skip"
    """Whether scheduled times are left out, or one run follows when it closes."""
    running: Literal["continue", "stop"] = "continue"
    alarms: Literal["hold", "send"] = "hold"


class Override(Struct, frozen=True, kw_only=True):
    """A person opened or closed a window."""

    window: str
    start: int
    end: int
    open: bool
    by: str
    note: str | None = None


class Opening(NamedTuple):
    """A time in which a window is open."""

    window: WindowDefinition
    start: int
    end: int
    by: str | None = None
    """The person who opened it; None: it opened by its times."""
    note: str | None = None


class InstantSource(Protocol):
    """A series of instants."""

    def occurrences(self, mark_ms: int, after_ms: int) -> Iterator[Occurrence]:
        """Yield the instants after `mark_ms`, the last one accounted for, and after `after_ms`."""


class WindowTimes:
    """The times of one window."""

    def __init__(self, window: WindowDefinition) -> None:
        self.window = window
        self._crons = [Cron(text, zone_named(window.zone)) for text in window.crons]
        self._overrides: tuple[Override, ...] = ()
        self._known: tuple[int, int, Opening | None] = (0, 0, None)
        """A span of time, and the opening during it: questions often are about one time after another."""

    def override(self, overrides: Iterable[Override]) -> None:
        """Set what people did, the oldest first."""
        self._overrides = tuple(one for one in overrides if one.window == self.window.name)
        self._known = (0, 0, None)

    def opening(self, at: int) -> Opening | None:
        """Return the opening that contains a time; None if the window is closed then."""
        return self._span(at)[2]

    def next_change(self, at: int) -> int:
        """Return when the window opens or closes next; :data:`OPEN_END` if never."""
        return self._span(at)[1]

    def openings(self, start: int, end: int) -> Iterator[Opening]:
        """Yield the openings that overlap a span of time."""
        while start < end:
            _, until, opening = self._span(start)
            if opening is not None:
                yield opening
            start = until

    def _span(self, at: int) -> tuple[int, int, Opening | None]:
        if not self._known[0] <= at < self._known[1]:
            opening = self._opening(at)
            end = self._next_start(at) if opening is None else opening.end
            self._known = (at, max(end, at + 1), opening)
        return self._known

    def _opening(self, at: int) -> Opening | None:
        """Return the opening that contains a time, together with those before and after it without a gap."""
        opening = self._part(at)
        if opening is None:
            return None
        for _ in range(_MOST_JOINED):
            earlier = self._part(opening.start - 1)
            if earlier is None:
                break
            opening = opening._replace(start=earlier.start)
        for _ in range(_MOST_JOINED):
            following = self._part(opening.end) if opening.end < OPEN_END else None
            if following is None:
                return opening
            opening = opening._replace(end=following.end)
        return opening._replace(end=OPEN_END)

    def _part(self, at: int) -> Opening | None:
        """Return the opening that contains a time by what people did last, or else by its own times."""
        by_people = [one for one in self._overrides if one.start <= at < one.end]
        if by_people:
            last = by_people[-1]
            opening = Opening(self.window, last.start, last.end, last.by, last.note) if last.open else None
        else:
            span = self._scheduled(at)
            opening = None if span is None else Opening(self.window, *span)
        if opening is None:
            return None
        end = min((one.start for one in self._overrides if at < one.start < opening.end), default=opening.end)
        return opening._replace(end=end)

    def _scheduled(self, at: int) -> tuple[int, int] | None:
        window = self.window
        if window.start is not None and window.end is not None:
            return (window.start, window.end) if window.start <= at < window.end else None
        for cron in self._crons:
            starts = (instant.at for instant in cron.occurrences(at - window.duration_ms) if instant.runs)
            start = next(starts, OPEN_END)
            if start <= at:
                return start, start + window.duration_ms
        return None

    def _next_start(self, at: int) -> int:
        starts = [one.start for one in self._overrides if one.start > at]
        starts += [one.end for one in self._overrides if at < one.end]
        if self.window.start is not None and self.window.start > at:
            starts.append(self.window.start)
        for cron in self._crons:
            starts.append(next((instant.at for instant in cron.occurrences(at) if instant.runs), OPEN_END))
        return min(starts, default=OPEN_END)


class Windows:
    """All windows of a configuration, and the tasks and services that they apply to."""

    def __init__(
        self, windows: Iterable[WindowDefinition] = (), units: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """`units`: the names of the tasks and services of each window, by the window's name."""
        self.overrides: tuple[Override, ...] = ()
        self.replace(windows, units or {})

    def replace(self, windows: Iterable[WindowDefinition], units: Mapping[str, Sequence[str]]) -> None:
        """Apply a new configuration; what people did stays."""
        self.all = {window.name: WindowTimes(window) for window in windows}
        self._units = units
        self._by_unit: dict[str, list[WindowTimes]] = {}
        for name, times in self.all.items():
            for unit in units.get(name, ()):
                self._by_unit.setdefault(unit, []).append(times)
        self.override(self.overrides)

    def same(self, windows: Mapping[str, WindowDefinition], units: Mapping[str, Sequence[str]]) -> bool:
        """Return whether a configuration has the present windows, with the same tasks and services."""
        return {name: times.window for name, times in self.all.items()} == windows and self._units == units

    def override(self, overrides: Iterable[Override]) -> None:
        """Set what people did, the oldest first."""
        self.overrides = tuple(overrides)
        for times in self.all.values():
            times.override(self.overrides)

    def of(self, unit: str) -> list[WindowTimes]:
        """Return the windows of a task or service."""
        return self._by_unit.get(unit, [])

    def units(self) -> list[str]:
        """Return the names of the tasks and services that have windows."""
        return list(self._by_unit)

    def opening(self, unit: str, at: int) -> Opening | None:
        """Return the opening that keeps a task from its scheduled times; None if there is none."""
        return opening_at(self.of(unit), at)

    def holding(self, unit: str, at: int) -> tuple[int, int] | None:
        """Return since when and until when alarms about a task or service wait; None if they do not."""
        holds = [times.opening(at) for times in self.of(unit) if times.window.alarms == "hold"]
        openings = [opening for opening in holds if opening is not None]
        if not openings:
            return None
        return min(opening.start for opening in openings), max(opening.end for opening in openings)

    def open_at(self, at: int) -> list[Opening]:
        """Return the windows that are open at a time."""
        return [opening for times in self.all.values() if (opening := times.opening(at)) is not None]

    def next_change(self, at: int) -> int:
        """Return when the next window opens or closes; :data:`OPEN_END` if never."""
        return min((times.next_change(at) for times in self.all.values()), default=OPEN_END)


def opening_at(windows: Iterable[WindowTimes], at: int) -> Opening | None:
    """Return the opening that decides about a time: one that skips, or else that which ends last."""
    openings = [opening for times in windows if (opening := times.opening(at)) is not None]
    return max(openings, key=lambda opening: (opening.window.instants == "skip", opening.end), default=None)


def apart_from(
    windows: Sequence[WindowTimes], source: InstantSource, mark_ms: int, after_ms: int
) -> Iterator[Occurrence]:
    """Yield the instants of a source after `mark_ms` and `after_ms`, as windows skip or defer them.

    All instants that are deferred to the end of a window are one.
    """
    coming = source.occurrences(mark_ms, max(mark_ms, _first_deferred(windows, mark_ms, after_ms)))
    while (instant := next(coming, None)) is not None:
        placed = _placed(windows, instant) if instant.runs else instant
        if placed is None:
            return
        if placed.at > after_ms:
            yield placed
        if placed.at != instant.at:
            coming = source.occurrences(placed.at, placed.at)


def _first_deferred(windows: Sequence[WindowTimes], mark_ms: int, after_ms: int) -> int:
    """Return the time after which instants may be deferred to a time after `after_ms`."""
    begin = after_ms
    for _ in range(_MOST_JOINED):
        openings = [times.opening(begin) for times in windows if times.window.instants == "defer"]
        start = min((opening.start - 1 for opening in openings if opening is not None), default=begin)
        if start >= begin or begin <= mark_ms:
            break
        begin = start
    return begin


def _placed(windows: Sequence[WindowTimes], instant: Occurrence) -> Occurrence | None:
    """Return what becomes of an instant; None if it waits for a window without an end."""
    at, window = instant.at, None
    for _ in range(_MOST_JOINED):
        opening = opening_at(windows, at)
        if opening is None:
            return instant if window is None else Occurrence(at, runs=True, window=window)
        window = opening.window.name
        if opening.window.instants == "skip":
            return Occurrence(at, runs=False, closed=window, window=window, window_end=opening.end)
        if opening.end >= OPEN_END:
            return None
        at = opening.end
    return None


def upcoming_openings(windows: Windows, start: int, end: int) -> Iterator[Opening]:
    """Yield the openings of all windows that overlap a span of time, in the order of their beginnings."""
    return merge(*(times.openings(start, end) for times in windows.all.values()), key=lambda opening: opening.start)
