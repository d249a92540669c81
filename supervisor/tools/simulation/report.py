"""Simulation of tasks over time, and its report: collisions, overlaps, load by hour, and effects of clock changes.

Times and admission of runs come from the scheduler's own functions.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from supervisor.config.model import Task
from supervisor.host.zones import zone_named
from supervisor.ipc.log_line import stamp
from supervisor.schedule.instants import Schedule
from supervisor.schedule.overlap import Admission, admit

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MAX_TIMES = 30_000_000
"""More than this take minutes, and mean a mistake."""

OUTCOMES = {
    Admission.START: "run",
    Admission.QUEUE: "queued",
    Admission.SKIP: "skipped",
    Admission.FULL: "queue_full",
    Admission.TERMINATE: "terminates",
}
DST_SKIPPED = "dst_skipped"


class Arrival(NamedTuple):
    """A time of a schedule that has come."""

    starts_at: int
    """When its run is to start: the time and the task's share of the jitter, milliseconds since the epoch."""
    task: str
    at: int
    """The time itself."""
    outcome: str
    """``run``, ``queued``, ``skipped``, ``queue_full``, ``terminates`` (an older run makes room) or ``dst_skipped``."""
    note: str | None
    """See :class:`supervisor.schedule.cron.Occurrence`."""


class SimulatedTask:
    """A task on a clock of its own."""

    def __init__(self, task: Task, start_ms: int, duration_ms: int, mark_ms: int | None = None) -> None:
        """Begin at `start_ms`, with nothing running.

        Args:
            task: the simulated task.
            start_ms: the first moment that counts.
            duration_ms: how long each run takes; ``timeout`` may cut it short.
            mark_ms: some time of the schedule, from which an interval counts; None: the start.
        """
        self.task = task
        self.schedule = Schedule(task)
        self.duration_ms = duration_ms if task.timeout_ms is None else min(duration_ms, task.timeout_ms)
        self.ran: list[tuple[int, int]] = []
        """Begins and ends of runs; the code that counts them removes them."""
        self.longest_wait_ms = 0
        """Waiting times for a place."""
        before_ms = start_ms - 1
        if task.every_ms is not None:
            before_ms = start_ms if mark_ms is None else before_ms - (before_ms - mark_ms) % task.every_ms
        self._coming = self.schedule.occurrences(before_ms)
        self._next = next(self._coming, None)
        self._ends: deque[int] = deque()
        """Of the runs that have a place, the oldest first."""
        self._waiting: deque[int] = deque()

    def until(self, end_ms: int) -> Iterator[Arrival]:
        """Yield all that come before `end_ms`, in their order."""
        name, offset_ms = self.task.name, self.schedule.offset_ms
        while self._next is not None and self._next.at + offset_ms < end_ms:
            at, runs, note = self._next
            starts_at = at + offset_ms
            yield Arrival(starts_at, name, at, self._admitted(starts_at) if runs else DST_SKIPPED, note)
            self._next = next(self._coming, None)
        self._go_on(end_ms)

    def finish(self) -> None:
        """Let running and waiting runs end, however long that takes."""
        while self._ends:
            self._go_on(self._ends[0])

    def _admitted(self, now_ms: int) -> str:
        """Admit or queue a run; without limits on places no run waits, and it starts."""
        if self._ends:
            self._go_on(now_ms)
        if not self._ends:
            self._ends.append(now_ms + self.duration_ms)
            return OUTCOMES[Admission.START]
        task = self.task
        admission = admit(
            task.on_overlap,
            running=len(self._ends),
            queued=len(self._waiting),
            max_concurrent=task.max_concurrent,
            queue_max=task.queue_max,
            another_waits=task.coalesce and bool(self._waiting),
        )
        if admission is Admission.TERMINATE:
            self._end(min(now_ms, self._ends[0]))
        if admission is Admission.QUEUE:
            self._waiting.append(now_ms)
        elif admission in (Admission.START, Admission.TERMINATE):
            self._ends.append(now_ms + self.duration_ms)
        return OUTCOMES[admission]

    def _go_on(self, now_ms: int) -> None:
        """End runs, and give their places to waiting runs."""
        ends, waiting = self._ends, self._waiting
        while ends and ends[0] <= now_ms:
            free_ms = ends[0]
            self._end(free_ms)
            if waiting:
                self.longest_wait_ms = max(self.longest_wait_ms, free_ms - waiting.popleft())
                ends.append(free_ms + self.duration_ms)

    def _end(self, at_ms: int) -> None:
        """The oldest run ends; all take equally long, so it is the first to end of itself."""
        began_ms = self._ends.popleft() - self.duration_ms
        self.ran.append((began_ms, at_ms))


class TooMuch(Exception):
    """The configuration has more times in that span than can be gone through."""


@dataclass
class _Hours:
    """An hour of the day, over all days."""

    hours: int = 0
    starts: int = 0
    most: int = 0
    busy_ms: int = 0


@dataclass
class _Change:
    """The effect of a clock change on one task."""

    date: str
    task: str
    zone: str
    moved: int = 0
    repeated: int = 0
    skipped: int = 0


@dataclass
class Report:
    """All that was counted."""

    start_ms: int
    end_ms: int
    zone: ZoneInfo
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    """Of each task."""
    waits_ms: dict[str, int] = field(default_factory=dict)
    durations_ms: dict[str, int] = field(default_factory=dict)
    collisions: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """How often these tasks start at the same time."""
    first_collision: dict[tuple[str, ...], int] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)
    """By the number of the hour since the epoch."""
    busy_ms: Counter[int] = field(default_factory=Counter)
    changes: dict[tuple[str, str], _Change] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it; times are RFC 3339, durations milliseconds."""
        return {
            "from": stamp(self.start_ms),
            "to": stamp(self.end_ms),
            "timezone": str(self.zone),
            "tasks": [
                {
                    "name": name,
                    "times": sum(counts.values()),
                    **{outcome: counts[outcome] for outcome in (*OUTCOMES.values(), DST_SKIPPED)},
                    "durationMs": self.durations_ms[name],
                    "longestWaitMs": self.waits_ms[name],
                }
                for name, counts in self.outcomes.items()
            ],
            "collisions": [
                {"tasks": list(names), "count": count, "first": stamp(self.first_collision[names])}
                for names, count in sorted(self.collisions.items(), key=lambda one: (-len(one[0]), -one[1], one[0]))
            ],
            "hours": [
                {
                    "hour": hour,
                    "starts": one.starts / max(1, one.hours),
                    "mostStarts": one.most,
                    "running": one.busy_ms / HOUR_MS / max(1, one.hours),
                }
                for hour, one in enumerate(self._by_hour())
            ],
            "clockChanges": [
                {
                    "date": one.date,
                    "task": one.task,
                    "timezone": one.zone,
                    "movedToGapEnd": one.moved,
                    "repeated": one.repeated,
                    "dst_skipped": one.skipped,
                }
                for one in sorted(self.changes.values(), key=attrgetter("date", "task"))
            ],
        }

    def _by_hour(self) -> list[_Hours]:
        found = [_Hours() for _ in range(24)]
        for number in range(self.start_ms // HOUR_MS, -(-self.end_ms // HOUR_MS)):
            one = found[datetime.fromtimestamp(number * 3600, UTC).astimezone(self.zone).hour]
            one.hours += 1
            one.starts += self.starts[number]
            one.most = max(one.most, self.starts[number])
            one.busy_ms += self.busy_ms[number]
        return found

    def take(self, arrivals: Sequence[Arrival], zones: Mapping[str, ZoneInfo]) -> None:
        """Count these, which are in order of their starts."""
        outcomes = self.outcomes
        for (task, outcome), count in Counter((one.task, one.outcome) for one in arrivals).items():
            outcomes[task][outcome] += count
        for arrival in arrivals:
            if arrival.note is not None:
                self._change(arrival, zones[arrival.task])
        for starts_at, together in groupby(arrivals, attrgetter("starts_at")):
            names = [one.task for one in together if one.outcome != DST_SKIPPED]
            if names:
                self.starts[starts_at // HOUR_MS] += len(names)
            if len(names) > 1:
                key = tuple(names)
                self.collisions[key] += 1
                self.first_collision.setdefault(key, starts_at)

    def _change(self, arrival: Arrival, zone: ZoneInfo) -> None:
        date = datetime.fromtimestamp(arrival.at / 1000, zone).date().isoformat()
        one = self.changes.setdefault((date, arrival.task), _Change(date, arrival.task, str(zone)))
        if arrival.outcome == DST_SKIPPED:
            one.skipped += 1
        elif arrival.note == "gap":
            one.moved += 1
        else:
            one.repeated += 1

    def take_runs(self, spans: Sequence[tuple[int, int]]) -> None:
        """Count simultaneous runs from begins and ends."""
        busy_ms = self.busy_ms
        for began_ms, ended_ms in spans:
            hour = began_ms // HOUR_MS
            while ended_ms > (following_ms := (hour + 1) * HOUR_MS):
                busy_ms[hour] += following_ms - began_ms
                began_ms, hour = following_ms, hour + 1
            busy_ms[hour] += ended_ms - began_ms


def simulate(
    tasks: Sequence[Task],
    start_ms: int,
    end_ms: int,
    zone: ZoneInfo,
    durations_ms: Mapping[str, int],
    marks_ms: Mapping[str, int],
) -> Report:
    """SimulatedTask all tasks over a span of time, a day after the other.

    Args:
        tasks: the configured tasks.
        start_ms: the beginning, milliseconds since the epoch.
        end_ms: the end, which does not count.
        zone: on whose clocks hours are counted.
        durations_ms: durations of runs, by task; tasks without one take no time.
        marks_ms: the newest times that were accounted for, by task.

    Raises:
        TooMuch: it would take too long.
    """
    plays = [SimulatedTask(task, start_ms, durations_ms.get(task.name, 0), marks_ms.get(task.name)) for task in tasks]
    plays = [play for play in plays if not play.schedule.empty]
    zones = {play.task.name: zone_named(play.task.timezone) for play in plays}
    report = Report(start_ms, end_ms, zone)
    report.outcomes = {play.task.name: Counter() for play in plays}
    report.durations_ms = {play.task.name: play.duration_ms for play in plays}
    total = 0
    for day_ms in range(start_ms, end_ms, DAY_MS):
        day_end_ms = min(day_ms + DAY_MS, end_ms)
        arrivals: list[Arrival] = []
        for play in plays:
            arrivals.extend(play.until(day_end_ms))
            report.take_runs(play.ran)
            play.ran.clear()
        arrivals.sort()
        total += len(arrivals)
        if total * (end_ms - start_ms) > MAX_TIMES * (day_end_ms - start_ms):
            raise TooMuch
        report.take(arrivals, zones)
    for play in plays:
        play.finish()
        report.take_runs(play.ran)
    report.waits_ms = {play.task.name: play.longest_wait_ms for play in plays}
    return report
