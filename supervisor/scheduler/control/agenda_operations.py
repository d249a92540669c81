"""The operation ``upcoming``: what all schedules do in a span of time."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heapreplace, merge
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from store.runs.run_durations import expectation
from supervisor.config.model import Config
from supervisor.host.zones import zone_named
from supervisor.schedule.agenda import AgendaEntry, agenda
from supervisor.schedule.clock_changes import span_at
from supervisor.schedule.windows import Windows, upcoming_openings
from supervisor.scheduler.control.control_socket import Answer, Arguments, Number, RequestEntry, done, operation
from supervisor.scheduler.control.unit_operations import DaemonPause, shown_params
from supervisor.scheduler.control.window_operations import shown_opening
from supervisor.scheduler.core import Core
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.runs.live_units import Unit, Withheld

_AT_ONCE = 5
"""Number of entries that are computed in one turn of the loop; one for 1440 runs takes 2 ms."""
_Waiting = list[tuple[int, str, AgendaEntry, Iterator[AgendaEntry]]]


class _Span(Arguments):
    start: Number
    end: Number
    limit: Annotated[int, Meta(ge=1, le=10_000)]
    reach: str | None = None
    """Glob for the tasks that the client may see; None: all."""


class AgendaOperations:
    """Lists what the schedules of all tasks do.

    Args:
        pause: the pause of all schedules.
        config: has the time zone whose clock changes are listed.
    """

    def __init__(
        self, core: Core, units: Mapping[str, Unit], windows: Windows, pause: DaemonPause, config: Config
    ) -> None:
        self._loop = core.loop
        self._units = units
        self._windows = windows
        self._pause = pause
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._zone = zone_named(config.daemon.timezone)

    @operation(_Span)
    def upcoming(self, request: _Span, _entry: RequestEntry) -> Procedure[Answer]:
        """Answer with the first `limit` entries from now or `start` up to `end`, in turns of the loop.

        More entries with the same time as the last one follow, so that a further request can begin at ``next``.
        """
        start_ms, end_ms = max(request.start, self._loop.now_ms()), request.end
        pause, waiting = self._pause.pause, _Waiting()
        for number, unit in enumerate(list(self._units.values())):
            if unit.task is not None and (request.reach is None or fnmatchcase(unit.name, request.reach)):
                _push(waiting, unit.name, self._entries(unit, pause, start_ms, end_ms))
            if number % _AT_ONCE == _AT_ONCE - 1:
                yield self._loop.pause()
        heapify(waiting)
        entries: list[AgendaEntry] = []
        while waiting and (len(entries) < request.limit or waiting[0][0] == entries[-1].at):
            _at, name, entry, coming = waiting[0]
            entries.append(entry)
            following = next(coming, None)
            if following is None:
                heappop(waiting)
            else:
                heapreplace(waiting, (following.at, name, following, coming))
            if len(entries) % _AT_ONCE == 0:
                yield self._loop.pause()
        cut_ms = waiting[0][0] if waiting else None
        if cut_ms is not None:
            entries = [part for entry in entries for part in self._until(entry, cut_ms)]
        return done(
            start=start_ms,
            items=[self._shown(entry) for entry in entries],
            windows=[] if request.reach is not None else self._openings(start_ms, cut_ms or end_ms),
            pause=None if pause is None else msgspec.to_builtins(pause),
            clock_changes=self._clock_changes(start_ms, cut_ms or end_ms),
            next=cut_ms,
        )

    def _entries(self, unit: Unit, pause: Withheld | None, start_ms: int, end_ms: int) -> Iterator[AgendaEntry]:
        """Return the entries of a task, including runs that were requested for a time."""
        name = unit.name
        requested = [
            AgendaEntry(kind="run", task=name, at=run.due.at, run=run.id)
            for run in unit.waiting.values()
            if run.due is not None and run.due.kind == "at" and start_ms <= run.due.at < end_ms
        ]
        own: list[AgendaEntry] = []
        if unit.paused and not unit.schedule.empty:
            until = None if unit.withheld is None else unit.withheld.until
            cause = f"paused {unit.withheld}" if unit.withheld is not None else "paused"
            own = [AgendaEntry(kind="paused", task=name, at=start_ms, until=until, cause=cause)]
        begin_ms = start_ms
        for withheld in ([pause] if pause is not None else []) + ([unit.withheld] if unit.paused else []):
            begin_ms = end_ms if withheld is None or withheld.until is None else max(begin_ms, withheld.until)
        mark_ms = start_ms if unit.last_instant is None else unit.last_instant
        scheduled = agenda(name, unit.schedule, begin_ms if begin_ms > start_ms else mark_ms, begin_ms, end_ms)
        return merge(own, sorted(requested, key=attrgetter("at")), scheduled, key=attrgetter("at"))

    def _until(self, entry: AgendaEntry, cut_ms: int) -> Iterator[AgendaEntry]:
        """Yield the part of an entry before a time."""
        unit = self._units.get(entry.task)
        if entry.until is None or entry.until < cut_ms:
            yield entry
        elif entry.kind != "runs" or unit is None:
            yield msgspec.structs.replace(entry, until=cut_ms)
        else:
            yield from agenda(entry.task, unit.schedule, unit.last_instant or entry.at - 1, entry.at, cut_ms)

    def _shown(self, entry: AgendaEntry) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(entry)
        unit = self._units.get(entry.task)
        if unit is None or unit.task is None:  # a reload removed it meanwhile
            return shown
        if entry.run is None and entry.kind in ("run", "runs"):
            shown["starts_at"] = entry.at + unit.schedule.offset_ms
            usual = expectation(unit.task.expected_duration_ms, unit.promises.durations)
            shown["usual_ms"] = None if usual is None else usual.usual_ms
        if entry.run is None and entry.kind == "run":
            shown["params"] = shown_params(unit.task, unit.schedule.params_at(entry.at))
            shown["done_by"] = unit.schedule.deadline(entry.at)
        return {**shown, "local": unit.schedule.local(entry.at)}

    def _openings(self, start_ms: int, end_ms: int) -> list[dict[str, Any]]:
        return [shown_opening(opening) for opening in upcoming_openings(self._windows, start_ms, end_ms)]

    def _clock_changes(self, start_ms: int, end_ms: int) -> list[list[int]]:
        """Return the clock changes of the daemon's zone: time, and offsets from UTC before and after, in seconds."""
        changes = []
        span = span_at(self._zone, start_ms // 1000)
        while span.end * 1000 < end_ms:
            following = span_at(self._zone, span.end)
            if following.offset != span.offset:
                changes.append([span.end * 1000, span.offset, following.offset])
            span = following
        return changes


def _push(waiting: _Waiting, name: str, coming: Iterator[AgendaEntry]) -> None:
    first = next(coming, None)
    if first is not None:
        waiting.append((first.at, name, first, coming))
