"""Windows in effect: people open and close them, runs stop when one opens, and what waits goes on when one closes.

The instants of tasks follow windows by themselves (:mod:`supervisor.schedule.windows`), also those that pass while
nothing runs. Only what people did is stored.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from store.daemon_values import set_meta
from store.database import Database
from store.deliveries import move_held
from supervisor.config.model import Config
from supervisor.config.value_types.durations import format_duration
from supervisor.config.window_times import units_of_windows
from supervisor.ipc.log_line import stamp
from supervisor.schedule.windows import OPEN_END, Opening, Override, Windows, WindowTimes
from supervisor.scheduler.control.control_socket import (
    Answer,
    Arguments,
    Number,
    RequestEntry,
    done,
    operation,
    refused,
)
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.run_observer import StopRun
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts

WINDOWS = "windows"
"""Name in the store of what people did."""
_KEPT_MS = 86_400_000
"""How long what people did is kept after its end, for instants that are handled late."""


class _Start(Arguments):
    window: str
    by: str
    until: Number | None = None
    """In milliseconds since the epoch; None: until someone ends it."""
    note: str | None = None


class _Ending(Arguments):
    window: str
    by: str


def windows_of(config: Config, stored: object = None) -> Windows:
    """Return the windows of a configuration; `stored`: what people did, from the store."""
    windows = Windows(config.windows.values(), units_of_windows(config))
    windows.override(msgspec.convert(stored or [], list[Override]))
    return windows


class WindowOperations:
    """Opens and closes windows, and lists them.

    Args:
        windows: the windows; shared with all that follow them.
        send_due: delivers messages that are due.
    """

    def __init__(
        self,
        core: Core,
        windows: Windows,
        units: Mapping[str, Unit],
        scheduled_starts: ScheduledStarts,
        stop_run: StopRun,
        send_due: Callable[[], None],
    ) -> None:
        self._loop, self._committer, self._daemon, self._log = core.loop, core.committer, core.daemon, core.log
        self._windows = windows
        self._units = units
        self._scheduled_starts = scheduled_starts
        self._stop_run = stop_run
        self._send_due = send_due
        self._open: dict[str, Opening] = {}
        self._timer: Timer | None = None

    def follow(self) -> None:
        """Stop the runs that an opened window stops, and wait until the next window opens or closes."""
        now_ms = self._loop.now_ms()
        before, self._open = self._open, {opening.window.name: opening for opening in self._windows.open_at(now_ms)}
        for name in self._open.keys() - before.keys():
            self._log.info(f"the window {name} is open{_until(self._open[name])}")
        for name in before.keys() - self._open.keys():
            self._log.info(f"the window {name} is closed")
        if self._timer is not None:
            self._timer.cancel()
        following = self._windows.next_change(now_ms)
        self._timer = None if following >= OPEN_END else self._loop.at(following, self.follow)
        if not self._daemon.ending:
            with self._committer.changing() as change:
                for run, name in self._outlasted(now_ms):
                    self._stop_run(run, change, by=f"window: {name}")

    def _outlasted(self, now_ms: int) -> Iterator[tuple[LiveRun, str]]:
        """Yield the runs that began before a window opened which stops them, each with the window."""
        for unit in list(map(self._units.get, self._windows.units())):
            if unit is None or unit.task is None:
                continue
            for times in self._windows.of(unit.name):
                opening = times.opening(now_ms)
                if opening is None or times.window.running != "stop":
                    continue
                for run in (*unit.active.values(), *unit.queue, *unit.waiting.values()):
                    if run.created_at < opening.start and run.state is not run_transitions.State.STOPPING:
                        yield run, times.window.name

    def configure(self, config: Config) -> None:
        """Apply a new configuration; an open window that it changes or removes ends for what happened before."""
        now_ms, windows, units = self._loop.now_ms(), self._windows, units_of_windows(config)
        if windows.same(config.windows, units):
            return
        changed = [
            one.window.name for one in windows.open_at(now_ms) if config.windows.get(one.window.name) != one.window
        ]
        kept = [one for one in windows.overrides if one.window in config.windows]
        held = self._held(now_ms)
        if changed and not self._daemon.ending:
            ends = (_closing(name, now_ms, OPEN_END, "a reload") for name in changed)
            windows.override([*windows.overrides, *ends])
            self._scheduled_starts.start(self._units.values())
        windows.replace(config.windows.values(), units)
        with self._committer.changing() as change:
            self._apply(kept, held, change)
        self._send_due()

    def facts(self) -> dict[str, list[dict[str, Any]]]:
        """Return the open windows for the ``info`` operation."""
        return {"windows": [shown_opening(opening) for opening in self._windows.open_at(self._loop.now_ms())]}

    @operation(Arguments)
    def windows(self, _request: Arguments, _entry: RequestEntry) -> Answer:
        """Answer with all windows, and when each is open now or next."""
        now_ms = self._loop.now_ms()
        return done(windows=[self._described(name, now_ms) for name in self._windows.all])

    def _described(self, name: str, now_ms: int) -> dict[str, Any]:
        times = self._windows.all[name]
        window, opening = times.window, times.opening(now_ms)
        following = times.next_change(now_ms)
        coming = times.opening(following) if opening is None and following < OPEN_END else None
        return {
            "name": name,
            "cron": window.crons,
            "duration": format_duration(window.duration_ms) if window.duration_ms else None,
            "match": {key: value for key in ("tasks", "groups", "tags") if (value := getattr(window, key))},
            "instants": window.instants,
            "running": window.running,
            "alarms": window.alarms,
            "open": None if opening is None else shown_opening(opening),
            "next": None if coming is None else shown_opening(coming),
        }

    @operation(_Start)
    def window_start(self, request: _Start, entry: RequestEntry) -> Procedure[Answer]:
        """Open a window now, or let an open one last until another time."""
        if request.window not in self._windows.all:
            return refused(404, f'no window named "{request.window}"')
        change = self._committer.change()
        until = OPEN_END if request.until is None else request.until
        opened = Override(
            window=request.window, start=change.now_ms, end=until, open=True, by=request.by, note=request.note
        )
        entry.record(change, lambda: request.note or "")
        return (yield from self._carry_out([*self._before(request.window, change.now_ms), opened], change))

    @operation(_Ending)
    def window_end(self, request: _Ending, entry: RequestEntry) -> Procedure[Answer]:
        """Close an open window now; its next scheduled time opens it again."""
        times = self._windows.all.get(request.window)
        if times is None:
            return refused(404, f'no window named "{request.window}"')
        change = self._committer.change()
        now_ms = change.now_ms
        if times.opening(now_ms) is None:
            return refused(409, f"the window {request.window} is not open")
        entry.record(change)
        overrides = self._before(request.window, now_ms)
        scheduled = WindowTimes(times.window)
        scheduled.override(overrides)
        if (rest := scheduled.opening(now_ms)) is not None:
            overrides.append(_closing(request.window, now_ms, rest.end, request.by))
        return (yield from self._carry_out(overrides, change))

    def _before(self, name: str, now_ms: int) -> list[Override]:
        """Return what people did, as it held until now for a window."""
        kept = [one for one in self._windows.overrides if one.end > now_ms - _KEPT_MS]
        cut = [msgspec.structs.replace(one, end=min(one.end, now_ms)) if one.window == name else one for one in kept]
        return [one for one in cut if one.start < one.end]

    def _carry_out(self, overrides: list[Override], change: Change) -> Procedure[Answer]:
        stored = msgspec.to_builtins(overrides)
        change.write(lambda db: set_meta(db, WINDOWS, stored))
        yield self._committer.stored_or_refused(change)
        held = self._held(self._loop.now_ms())
        change = self._committer.change()
        self._apply(overrides, held, change)
        yield self._committer.stored(change)
        self._send_due()
        return done()

    def _held(self, now_ms: int) -> dict[str, int]:
        """Return until when alarms wait, by task or service."""
        return {
            name: held[1] for name in self._windows.units() if (held := self._windows.holding(name, now_ms)) is not None
        }

    def _apply(self, overrides: list[Override], held: dict[str, int], change: Change) -> None:
        """Let what people did take effect; `held`: until when alarms waited before."""
        now_ms = self._loop.now_ms()
        self._windows.override(overrides)
        after = self._held(now_ms)
        moved = {name: (until, after.get(name, now_ms)) for name, until in held.items() if after.get(name) != until}
        if moved:
            change.write(partial(_move, moved))
        if not self._daemon.ending:
            self._scheduled_starts.start(self._units.values())
        self.follow()


def _move(moved: dict[str, tuple[int, int]], db: Database) -> None:
    for name, (before, after) in moved.items():
        move_held(db, name, before, after)


def _closing(name: str, start: int, end: int, by: str) -> Override:
    return Override(window=name, start=start, end=end, open=False, by=by)


def _until(opening: Opening) -> str:
    return "" if opening.end >= OPEN_END else f" until {stamp(opening.end)}"


def shown_opening(opening: Opening) -> dict[str, Any]:
    """Return an opening for the API."""
    return {
        "name": opening.window.name,
        "since": opening.start,
        "until": None if opening.end >= OPEN_END else opening.end,
        "by": opening.by,
        "note": opening.note,
    }
