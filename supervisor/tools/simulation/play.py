"""Simulation of one task over time, with the scheduler's own schedule and admission of runs."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from supervisor.config.model import Task
from supervisor.schedule.instants import Schedule
from supervisor.schedule.overlap import Admission, admit

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


class Play:
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
