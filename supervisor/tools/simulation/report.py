"""Simulates tasks over time, and reports collisions, overlaps, the load by hour and effects of clock changes.

The scheduler's own functions decide when runs start; see :mod:`supervisor.tools.simulation.simulated_queue`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo

from supervisor.config.model import Config
from supervisor.config.window_times import units_of_windows
from supervisor.host.zones import zone_named
from supervisor.ipc.log_line import stamp
from supervisor.schedule.admission import Capacity
from supervisor.schedule.windows import Windows
from supervisor.tools.simulation.simulated_queue import CLOSED, DST_SKIPPED, OUTCOMES, DueTime, SimulatedTask, queues

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MAX_TIMES = 30_000_000
"""Limit of scheduled times. More would take minutes, and are probably a mistake."""


class TooManyInstants(Exception):
    """The configuration has too many scheduled times in the span."""


@dataclass
class _Hours:
    """Totals of one hour of the day over all days."""

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
    """The results of a simulation."""

    start_ms: int
    end_ms: int
    zone: ZoneInfo
    """The time zone in which the hours of the day are counted."""
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    """The number of scheduled times with each outcome, by task."""
    waits: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    """How many runs waited for each obstacle (kind and name), by task."""
    waits_ms: dict[str, int] = field(default_factory=dict)
    """The longest wait of a run, by task."""
    durations_ms: dict[str, int] = field(default_factory=dict)
    collisions: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """How often a group of tasks starts at the same time."""
    first_collision: dict[tuple[str, ...], int] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)
    """The number of starts in each hour, which is counted since the epoch."""
    busy_ms: Counter[int] = field(default_factory=Counter)
    changes: dict[tuple[str, str], _Change] = field(default_factory=dict)
    closed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """The number of times that do not run, by date, task, and window or calendar with the name of the day."""

    def to_dict(self) -> dict[str, Any]:
        """Return the results for JSON. Times are in RFC 3339, durations in milliseconds."""
        return {
            "from": stamp(self.start_ms),
            "to": stamp(self.end_ms),
            "timezone": str(self.zone),
            "tasks": [
                {
                    "name": name,
                    "times": sum(counts.values()),
                    **{outcome: counts[outcome] for outcome in (*OUTCOMES.values(), DST_SKIPPED, CLOSED)},
                    "durationMs": self.durations_ms[name],
                    "longestWaitMs": self.waits_ms[name],
                    "waitingFor": [
                        {"kind": kind, "name": obstacle, "count": count} if obstacle else {"kind": kind, "count": count}
                        for (kind, obstacle), count in sorted(self.waits[name].items())
                    ],
                }
                for name, counts in self.outcomes.items()
            ],
            "collisions": [
                {"tasks": list(names), "count": count, "first": stamp(self.first_collision[names])}
                for names, count in sorted(
                    self.collisions.items(), key=lambda collision: (-len(collision[0]), -collision[1], collision[0])
                )
            ],
            "hours": [
                {
                    "hour": hour,
                    "starts": load.starts / max(1, load.hours),
                    "mostStarts": load.most,
                    "running": load.busy_ms / HOUR_MS / max(1, load.hours),
                }
                for hour, load in enumerate(self._by_hour())
            ],
            "closedDays": [
                {"date": day, "task": task, "calendar": calendar, "times": count}
                for (day, task, calendar), count in sorted(self.closed.items())
            ],
            "clockChanges": [
                {
                    "date": change.date,
                    "task": change.task,
                    "timezone": change.zone,
                    "movedToGapEnd": change.moved,
                    "repeated": change.repeated,
                    "dst_skipped": change.skipped,
                }
                for change in sorted(self.changes.values(), key=attrgetter("date", "task"))
            ],
        }

    def _by_hour(self) -> list[_Hours]:
        hours = [_Hours() for _ in range(24)]
        for number in range(self.start_ms // HOUR_MS, -(-self.end_ms // HOUR_MS)):
            load = hours[datetime.fromtimestamp(number * 3600, UTC).astimezone(self.zone).hour]
            load.hours += 1
            load.starts += self.starts[number]
            load.most = max(load.most, self.starts[number])
            load.busy_ms += self.busy_ms[number]
        return hours

    def count(self, arrivals: Sequence[DueTime], zones: Mapping[str, ZoneInfo]) -> None:
        """Count scheduled times, which must be in the order of their starts."""
        outcomes = self.outcomes
        for (task, outcome), count in Counter((arrival.task, arrival.outcome) for arrival in arrivals).items():
            outcomes[task][outcome] += count
        for arrival in arrivals:
            if arrival.note is not None:
                self._change(arrival, zones[arrival.task])
        for starts_at, together in groupby(arrivals, attrgetter("starts_at")):
            names = [start.task for start in together if start.outcome not in (DST_SKIPPED, CLOSED)]
            if names:
                self.starts[starts_at // HOUR_MS] += len(names)
            if len(names) > 1:
                key = tuple(names)
                self.collisions[key] += 1
                self.first_collision.setdefault(key, starts_at)

    def _change(self, arrival: DueTime, zone: ZoneInfo) -> None:
        date = datetime.fromtimestamp(arrival.at / 1000, zone).date().isoformat()
        if arrival.outcome == CLOSED:
            self.closed[date, arrival.task, arrival.note or ""] += 1
            return
        change = self.changes.setdefault((date, arrival.task), _Change(date, arrival.task, str(zone)))
        if arrival.outcome == DST_SKIPPED:
            change.skipped += 1
        elif arrival.note == "gap":
            change.moved += 1
        else:
            change.repeated += 1

    def take_runs(self, spans: Sequence[tuple[int, int]]) -> None:
        """Add the time that runs took to the hours in which they ran; `spans` has their begins and ends.

        Hours after the last one of the report are left out: a run may take years.
        """
        busy_ms = self.busy_ms
        last_ms = -(-self.end_ms // HOUR_MS) * HOUR_MS
        for began_ms, full_end_ms in spans:
            ended_ms = min(full_end_ms, last_ms)
            if began_ms >= ended_ms:
                continue
            hour = began_ms // HOUR_MS
            while ended_ms > (following_ms := (hour + 1) * HOUR_MS):
                busy_ms[hour] += following_ms - began_ms
                began_ms, hour = following_ms, hour + 1
            busy_ms[hour] += ended_ms - began_ms


def simulate(
    config: Config, start_ms: int, end_ms: int, durations_ms: Mapping[str, int], marks_ms: Mapping[str, int]
) -> Report:
    """Simulate all tasks over a span of time, day by day.

    Args:
        config: The configuration with the tasks, the limits that they share, and services, which hold slots all the
            time.
        start_ms: The beginning of the span, in ms since the epoch.
        end_ms: The end of the span, which is not part of it.
        durations_ms: The durations of runs by task. Runs of other tasks take no time.
        marks_ms: The last instants on which the scheduler has decided, by task.

    Raises:
        TooManyInstants: the tasks have too many scheduled times in the span.
    """
    windows = Windows(config.windows.values(), units_of_windows(config))
    plays = [
        SimulatedTask(task, start_ms, durations_ms.get(name, 0), marks_ms.get(name), windows.of(name))
        for name, task in config.tasks.items()
        if not task.external  # which takes nothing here
    ]
    plays = [play for play in plays if not play.schedule.empty]
    together = queues(plays, Capacity(config.slots, config.daemon.max_running), config.services.values())
    zones = {play.task.name: zone_named(play.task.timezone) for play in plays}
    report = Report(start_ms, end_ms, zone_named(config.daemon.timezone))
    report.outcomes = {play.task.name: Counter() for play in plays}
    report.durations_ms = {play.task.name: play.duration_ms for play in plays}
    total = 0
    for day_ms in range(start_ms, end_ms, DAY_MS):
        day_end_ms = min(day_ms + DAY_MS, end_ms)
        arrivals: list[DueTime] = []
        for queue in together:
            arrivals.extend(queue.until(day_end_ms))
        for play in plays:
            report.take_runs(play.ran)
            play.ran.clear()
        arrivals.sort()
        total += len(arrivals)
        if total * (end_ms - start_ms) > MAX_TIMES * (day_end_ms - start_ms):
            raise TooManyInstants
        report.count(arrivals, zones)
    for queue in together:
        queue.finish(end_ms)
    for play in plays:
        report.take_runs(play.ran)
    report.waits = {play.task.name: play.waits for play in plays}
    report.waits_ms = {play.task.name: play.longest_wait_ms for play in plays}
    return report
