"""Simulated runs of tasks, and the queue in which they wait for places.

The scheduler's own functions decide: :mod:`supervisor.schedule.overlap` whether a run may wait at all, and
:mod:`supervisor.schedule.admission` which waiting run starts next. This module only adds a clock, on which runs take as
long as the caller says.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge
from operator import itemgetter
from typing import NamedTuple

from supervisor.config.model import Service, Task
from supervisor.schedule import overlap
from supervisor.schedule.admission import ActiveRuns, Capacity, Claim, WaitingRuns, admit, obstacles, rank_of
from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import Schedule
from supervisor.schedule.windows import WindowTimes

START, QUEUED = "run", "queued"
OUTCOMES = {
    overlap.Admission.START: START,
    overlap.Admission.QUEUE: QUEUED,
    overlap.Admission.SKIP: "skipped",
    overlap.Admission.FULL: "queue_full",
    overlap.Admission.TERMINATE: "terminates",
}
DST_SKIPPED = "dst_skipped"
CLOSED = "closed"


class DueTime(NamedTuple):
    """A scheduled time that is due."""

    starts_at: int
    """When its run starts, in ms since the epoch: the scheduled time plus the task's delay by ``jitter``."""
    task: str
    at: int
    """The scheduled time, in ms since the epoch."""
    outcome: str
    """``run``, ``queued``, ``skipped``, ``queue_full``, ``terminates`` (an older run makes room), ``dst_skipped`` or
    ``closed`` (by a calendar or a window)."""
    note: str | None
    """How a clock change affects the time, or what closes it, as in :class:`supervisor.schedule.cron.Occurrence`."""


class SimulatedTask:
    """A task with its future scheduled times and its runs."""

    def __init__(
        self,
        task: Task,
        start_ms: int,
        duration_ms: int,
        mark_ms: int | None = None,
        windows: Sequence[WindowTimes] = (),
    ) -> None:
        """Begin at `start_ms`, with nothing running.

        Args:
            task: The task to simulate.
            start_ms: The beginning of the simulation.
            duration_ms: The duration of each run, which ``timeout`` limits.
            mark_ms: A time of the schedule from which an interval is counted; None: `start_ms`.
            windows: The windows of the task.
        """
        self.task = task
        self.schedule = Schedule(task)
        self.schedule.windows = list(windows)
        self.duration_ms = duration_ms if task.timeout_ms is None else min(duration_ms, task.timeout_ms)
        self.active: dict[str, int] = {}
        """When each active run started, the oldest first."""
        self.waiting: dict[str, int] = {}
        """Since when each waiting run waits, the oldest first."""
        self.ran: list[tuple[int, int]] = []
        """The begins and ends of ended runs, which the report removes when it has counted them."""
        self.longest_wait_ms = 0
        self.waits: Counter[tuple[str, str]] = Counter()
        """How many runs waited for each :class:`supervisor.schedule.admission.Obstacle`, by kind and name."""
        before_ms = start_ms - 1
        if task.every_ms is not None:
            before_ms = start_ms if mark_ms is None else before_ms - (before_ms - mark_ms) % task.every_ms
        self._coming = self.schedule.occurrences(before_ms)
        self._next = next(self._coming, None)

    def until(self, end_ms: int) -> Iterator[tuple[int, str, Occurrence]]:
        """Yield the times before `end_ms` at which runs start, with the task and the scheduled time of each."""
        name, offset_ms = self.task.name, self.schedule.offset_ms
        while self._next is not None and (starts_at := self._next.at + offset_ms) < end_ms:
            yield starts_at, name, self._next
            self._next = next(self._coming, None)


class SimulatedQueue:
    """Tasks that share a clock, because their runs can wait for each other."""

    def __init__(
        self, tasks: Sequence[SimulatedTask], capacity: Capacity | None = None, services: Iterable[Service] = ()
    ) -> None:
        """Begin without runs of tasks, but with all instances of `services`, which hold their slots until the end."""
        self._tasks = {simulated.task.name: simulated for simulated in tasks}
        self._capacity = Capacity() if capacity is None else capacity
        self._admitted = ActiveRuns()
        self._queued = WaitingRuns()
        self._ends: list[tuple[int, str, str]] = []
        """The planned end, the run id and the task of each started run, including runs that were stopped earlier."""
        self._runs = 0
        self._alone = len(tasks) == 1 and not tasks[0].task.uses and self._capacity.max_running is None
        """Whether runs can wait only for other runs of the same task."""
        for service in services:
            for _ in range(service.instances):
                self._queued.add(Claim(self._new_run(), service.name, service.uses, None, rank_of(0, 0)))
        self._admit(0)

    def until(self, end_ms: int) -> Iterator[DueTime]:
        """Yield the scheduled times whose runs start before `end_ms`, in the order of the starts."""
        coming = (task.until(end_ms) for task in self._tasks.values())
        for starts_at, name, instant in merge(*coming, key=itemgetter(0, 1)):
            refused = DST_SKIPPED if instant.closed is None else CLOSED
            outcome = self._arrive(self._tasks[name], starts_at) if instant.runs else refused
            yield DueTime(starts_at, name, instant.at, outcome, instant.closed or instant.note)
        self._go_on(end_ms)

    def finish(self, end_ms: int) -> None:
        """Let all active and waiting runs end, even after `end_ms`. A run that can never start waits until `end_ms`."""
        while self._ends:
            self._go_on(self._ends[0][0])
        for task in self._tasks.values():
            task.longest_wait_ms = max(
                task.longest_wait_ms, *(end_ms - since_ms for since_ms in task.waiting.values()), 0
            )

    def _arrive(self, simulated: SimulatedTask, now_ms: int) -> str:
        """Create a run in the same way as the scheduler, and return the outcome."""
        self._go_on(now_ms)
        task = simulated.task
        run = self._new_run()
        claim = Claim(run, task.name, task.uses, task.max_concurrent, rank_of(task.queue_priority, now_ms))
        if self._alone and not simulated.active:  # a shortcut for the usual case
            self._start(simulated, claim, now_ms)
            return START
        decision = overlap.decide(
            task.on_overlap,
            running=len(simulated.active),
            queued=len(simulated.waiting),
            max_concurrent=task.max_concurrent,
            queue_max=task.queue_max,
            another_waits=task.coalesce and bool(simulated.waiting),
        )
        if decision in (overlap.Admission.SKIP, overlap.Admission.FULL):
            return OUTCOMES[decision]
        simulated.waiting[run] = now_ms
        self._queued.add(claim)
        self._admit(now_ms)
        if decision is overlap.Admission.TERMINATE:
            for older in [*simulated.active, *simulated.waiting][: -task.max_concurrent]:
                self._end(simulated, older, now_ms)
            self._admit(now_ms)
        if run not in simulated.waiting:
            return OUTCOMES[decision]
        (reasons,) = obstacles(self._capacity, self._admitted, self._queued, [claim])
        simulated.waits.update((reason.kind, reason.name) for reason in reasons)
        return QUEUED if decision is overlap.Admission.START else OUTCOMES[decision]

    def _go_on(self, now_ms: int) -> None:
        """End the runs that are due until `now_ms`, and give their places to waiting runs."""
        while self._ends and self._ends[0][0] <= now_ms:
            at_ms, run, name = heappop(self._ends)
            simulated = self._tasks[name]
            if run in simulated.active:  # otherwise the run was stopped earlier
                self._end(simulated, run, at_ms)
                self._admit(at_ms)

    def _end(self, simulated: SimulatedTask, run: str, at_ms: int) -> None:
        began_ms = simulated.active.pop(run, None)
        if began_ms is None:
            del simulated.waiting[run]
            self._queued.remove(run)
        else:
            self._admitted.remove(run)
            simulated.ran.append((began_ms, at_ms))

    def _admit(self, now_ms: int) -> None:
        """Start the waiting runs for which there is room."""
        while self._queued and (claim := admit(self._capacity, self._admitted, self._queued)) is not None:
            self._queued.remove(claim.run)
            simulated = self._tasks.get(claim.unit)
            if simulated is None:  # a run of a service
                self._admitted.add(claim)
            else:
                simulated.longest_wait_ms = max(simulated.longest_wait_ms, now_ms - simulated.waiting.pop(claim.run))
                self._start(simulated, claim, now_ms)

    def _start(self, simulated: SimulatedTask, claim: Claim, now_ms: int) -> None:
        self._admitted.add(claim)
        simulated.active[claim.run] = now_ms
        heappush(self._ends, (now_ms + simulated.duration_ms, claim.run, claim.unit))

    def _new_run(self) -> str:
        """Return the id of a new run, which is greater than all earlier ids."""
        self._runs += 1
        return f"{self._runs:012}"


def queues(tasks: Sequence[SimulatedTask], capacity: Capacity, services: Iterable[Service]) -> list[SimulatedQueue]:
    """Divide tasks into queues such that no task waits for one of another queue. Queues of one task are much faster."""
    sharing = [simulated for simulated in tasks if simulated.task.uses or capacity.max_running is not None]
    alone = [task for task in tasks if task not in sharing]
    started = [service for service in services if service.autostart and service.uses]
    return [SimulatedQueue(sharing, capacity, started), *(SimulatedQueue([task]) for task in alone)]
