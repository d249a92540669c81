"""Selection of the runs that a stream of units reads, in order of creation, and of the first line of each."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import msgspec

from api.errors import ApiError
from api.operations.unit_selector import Units
from api.read_threads import DatabaseReads, LogFileReads
from api.streams.log_merge import MAX_RUNS, Cursor, cursor_of
from api.streams.shared_feed import Feed
from logring.block import Line
from logring.errors import LogError
from logring.reader import LogReader
from store.database import Database
from store.errors import StoreError
from store.runs import runs_by_unit
from store.runs.runs_by_unit import RunScope
from store.runs.writes import Run

_PAGE = 200
_MOST_ANNOUNCED = 2000
_MOST_COMPLETE = 4096
_MARGIN_MS = 60_000
"""Maximum delay between the start of a run and its event, in ms."""
_TAIL_BYTES = 1 << 20
_BEFORE_ALL = (-(2**63), "")
_BEHIND_ALL = (2**63 - 1, "~")


class _EventSubject(msgspec.Struct, rename="camel"):
    kind: str
    run_id: str = ""
    task_name: str = ""


_decoder = msgspec.json.Decoder(_EventSubject)


def _unit_event(record: Line) -> bytes:
    """Reduce an event to its kind, run and task; return nothing for kinds that do not concern units."""
    event = _decoder.decode(record.text)
    if event.kind in ("run.started", "run.ended", "config.reloaded"):
        return f"{event.kind} {event.run_id} {event.task_name}\n".encode()
    return b""


class UnitTail(NamedTuple):
    """The last lines of several logs together."""

    floor_ms: int
    """Time of the first of these lines, in ms."""
    runs: list[Run]
    starts: dict[str, int]
    """First line to send, by run id; for a running run without any of these lines, its next line."""


class UnitRuns:
    """Finds the existing and new runs of the selected units.

    Attributes:
        scope: the units.
        starts: first line to send, by run id, of runs that do not begin at the floor.
        floor_ms: time of the oldest lines to send.
    """

    def __init__(
        self,
        reads: DatabaseReads,
        units: Units,
        scope: RunScope,
        until_ms: int | None,
        ahead_ms: int | None = None,
    ) -> None:
        """`until_ms`: runs created later are ignored, unless they run and were created even after `ahead_ms`.

        Such runs were created before the clock was set back.
        """
        self.scope = scope
        self.starts: dict[str, int] = {}
        self.floor_ms = 0
        self._reads = reads
        self._units = units
        self._until_ms = until_ms
        self._ahead_ms = ahead_ms
        self._waiting: list[tuple[int, str, Run]] = []
        self._followed: set[str] = set()
        self._complete: OrderedDict[str, int] = OrderedDict()
        """End time of each run that need not be read any more, by run id."""
        self._cursor: Cursor | None = None
        self._since_ms = 0
        """Runs that ended before this time are ignored."""
        self._sent_ms = 0
        self._more = False
        self._after = _BEFORE_ALL
        self._announced: set[str] = set()
        self._event = 0

    # Beginning

    def follow(self, feed: Feed) -> None:
        """Follow events from now on. Call this before looking up running runs, so that no start is missed."""
        self._event = feed.head_now().lines

    def start(self, *, since_ms: int, cursor: Cursor | None, running: list[Run]) -> None:
        """Begin with all runs since a time, or continue after a cursor."""
        self.floor_ms = self._since_ms = since_ms
        self._more = True
        if cursor is not None:
            self._cursor = cursor
            self.floor_ms, self._since_ms, self._sent_ms = cursor.floor_ms, cursor.time_ms, cursor.time_ms
            self.starts = dict(cursor.lines)
            self._add(self._reads(runs_by_unit.runs_by_id, list(cursor.lines)))
        self._add(running)
        self.starts = {run_id: line for run_id, line in self.starts.items() if run_id in self._followed}

    def begin_with(self, tail: UnitTail) -> None:
        """Begin with the last lines of all logs."""
        self.floor_ms = self._since_ms = tail.floor_ms
        self.starts = tail.starts
        self._add(tail.runs)

    # Changes

    def read_events(self, feed: Feed) -> None:
        """Read new events and add the runs that have started or ended since the last call."""
        head = feed.head()
        reload = hole = False
        mentioned: dict[str, str] = {}
        if not head.first_available <= self._event <= head.lines:
            # The ring is new, or has overwritten unread events, so the runs are read from the database.
            hole, self._event = True, head.lines
        while self._event < head.lines:
            chunk = feed.chunk(self._event, _unit_event)
            if chunk is None:
                hole, self._event = True, head.lines
                break
            text, self._event = chunk
            for line in text.decode().splitlines():
                kind, run_id, task = line.split(" ", 2)
                reload = reload or kind == "config.reloaded"
                if run_id:
                    mentioned[run_id] = task
        try:
            if reload:
                self.scope = self._reads(_resolved, self._units, self.scope)
            self._announced |= {
                run_id
                for run_id, task in mentioned.items()
                if task in self.scope.names and run_id not in self._followed and run_id not in self._complete
            }
            if hole or len(self._announced) > _MOST_ANNOUNCED:
                self._announced.clear()
                self._more, self._after = True, _BEFORE_ALL
                self._since_ms = max(self._since_ms, self._sent_ms - _MARGIN_MS)
                self._add(self._reads(runs_by_unit.running_runs, self.scope))
            if self._announced:
                self._add(self._reads(runs_by_unit.runs_by_id, list(self._announced), self.scope))
                self._announced.clear()
        except StoreError as err:
            self._reads.log_unreadable("runs of units", err)
            self._event = -1  # makes the next call read the database

    def _add(self, runs: Iterable[Run]) -> None:
        for run in runs:
            if (
                run.id not in self._followed
                and run.id not in self._complete
                and run.status != "pending"
                and (run.started_at is not None or run.lines)
                and run.deleted_at is None
                and run.task_name in self.scope.names
                and (self._until_ms is None or run.created_at <= self._until_ms or self._is_ahead(run))
                and not (self._cursor is not None and self._is_complete(run, self._cursor))
            ):
                self._followed.add(run.id)
                heapq.heappush(self._waiting, (run.created_at, run.id, run))

    def _is_ahead(self, run: Run) -> bool:
        return self._ahead_ms is not None and run.status != "ended" and run.created_at > self._ahead_ms

    def _is_complete(self, run: Run, cursor: Cursor) -> bool:
        if run.status != "ended" or run.id in cursor.lines or not cursor.is_complete(run.id):
            return False
        self._remember(run.id, run.ended_at or 0)
        return True

    # Taking runs

    def next_run(self, before_ms: int | None) -> Run | None:
        """Return the next run to read; None if there is none, or none created up to `before_ms`.

        Raises:
            StoreError: the database cannot be read.
        """
        while self._more and not self._is_next_known():
            runs = self._reads(runs_by_unit.ended_runs, self.scope, self._since_ms, self._after, _PAGE)
            self._add(runs)
            self._more = len(runs) == _PAGE
            if runs:
                self._after = (runs[-1].created_at, runs[-1].id)
        if not self._waiting or (before_ms is not None and self._waiting[0][0] > before_ms):
            return None
        return self._waiting[0][2]

    def _is_next_known(self) -> bool:
        return bool(self._waiting) and self._waiting[0][:2] <= self._after

    def opened(self) -> int | None:
        """Take the run that :meth:`next_run` returned; return its first line to send, or None if that is unknown."""
        run = heapq.heappop(self._waiting)[2]
        return self.starts.pop(run.id, None)

    @property
    def waiting(self) -> bool:
        """Whether there may be more runs to read."""
        return bool(self._waiting) or self._more

    def completed(self, run: Run) -> None:
        """Remember that a run need not be read any more."""
        self._followed.discard(run.id)
        self._remember(run.id, run.ended_at or 0)

    def _remember(self, run_id: str, ended_ms: int) -> None:
        self._complete[run_id] = ended_ms
        if len(self._complete) > _MOST_COMPLETE:
            self._complete.popitem(last=False)

    def cursor(self, sent_ms: int, parts: Mapping[str, int]) -> Cursor:
        """Return the cursor of a stream that has sent lines up to `sent_ms`.

        Args:
            sent_ms: time of the newest line that was sent.
            parts: next line of each run that was taken but not completed, by run id.
        """
        self._sent_ms = max(self._sent_ms, sent_ms)
        time_ms = max(self._sent_ms - _MARGIN_MS, self._since_ms)
        if self._more:
            time_ms = self._since_ms
        for _, _, run in self._waiting:
            if run.ended_at is not None and run.ended_at < time_ms:
                time_ms = run.ended_at
        parts = {**parts, **dict(islice(self.starts.items(), max(0, MAX_RUNS - len(parts))))}
        earlier = self._cursor.complete if self._more and self._cursor is not None else frozenset()
        return cursor_of(self.floor_ms, time_ms, parts, self._complete, earlier)


def _resolved(db: Database, units: Units, scope: RunScope) -> RunScope:
    """Return the units after a reload. Removed units are kept: their runs end by themselves."""
    try:
        present = units.resolve(db)
    except ApiError:
        return scope
    chosen = (present.names - present.inner) | (scope.names - scope.inner)
    inner = (present.inner | scope.inner) - chosen
    return replace(present, names=chosen | inner, inner=inner, flows=present.flows | scope.flows)


def tail(
    reads: DatabaseReads,
    files: LogFileReads,
    finder: "TailFinder",
    scope: RunScope,
    running: list[Run],
    now_ms: int,
) -> UnitTail:
    """Return the last lines of all logs together, within the limits of `finder`, which must be new.

    With a limit of 0 lines, the stream begins with lines after `now_ms`.

    Raises:
        StoreError: the database cannot be read.
    """
    lines = finder.limit
    files(finder.read, running)
    before = _BEHIND_ALL if finder.until_ms is None else (finder.until_ms, "~")
    while lines:
        runs = reads(runs_by_unit.newest_ended_runs, scope, finder.floor_ms, before, _PAGE)
        # No supervisor was left to count the lines of a crashed run.
        files(finder.read, [run for run in runs if run.lines or run.end_reason == "crashed"])
        if len(runs) < _PAGE or finder.logs > lines + _MOST_ANNOUNCED:
            break
        before = runs[-1].created_at, runs[-1].id
    found_tail = finder.result(running)
    return found_tail if lines else found_tail._replace(floor_ms=max(finder.since_ms, now_ms))


class TailFinder:
    """Collects the newest lines of logs, and drops lines that are older than the last `limit` lines.

    Attributes:
        limit: the maximum number of lines.
        since_ms: the start of the time span, in ms; earlier lines are dropped.
        until_ms: the end of the time span, in ms; later lines are dropped. None for no limit.
        to_now: whether `until_ms` is the present, so that no line is later; the clock may have been set back.
    """

    def __init__(
        self,
        paths: Callable[[Run], tuple[str, str]],
        limit: int,
        since_ms: int,
        until_ms: int | None = None,
        *,
        to_now: bool = False,
    ) -> None:
        self.logs = 0
        self._paths = paths
        self.limit = limit
        self.since_ms = since_ms
        self.until_ms = until_ms
        self.to_now = to_now
        self._batches: list[tuple[int, str, int, int]] = []
        """A heap of (time, run id, first line, number of lines), oldest first."""
        self._count = 0
        self._runs: dict[str, Run] = {}
        self._ends: dict[str, int] = {}

    @property
    def floor_ms(self) -> int:
        """The time of the oldest line that can still be one of the last, in ms."""
        if self._batches and self._count >= self.limit:
            return max(self.since_ms, self._batches[0][0])
        return self.since_ms

    def read(self, runs: Iterable[Run]) -> None:
        """Collect lines from the ends of these runs' logs."""
        for run in runs:
            if run.ended_at is None or run.ended_at >= self.floor_ms:
                self._read(run)

    def _read(self, run: Run) -> None:
        self.logs += 1
        self._runs[run.id] = run
        reader = LogReader(*self._paths(run))
        try:
            head = reader.head()
            end = self._ends[run.id] = self._end(run, reader, head.lines)
            position = max(head.first_available, end - self.limit)
            latest_ms = 0
            while position < end:
                page = reader.read_batches(position, end - position, _TAIL_BYTES)
                for batch in page.lines:
                    if batch.ts < self.since_ms:
                        continue
                    latest_ms = max(latest_ms, batch.ts)
                    heapq.heappush(self._batches, (latest_ms, run.id, batch.n, batch.lines))
                    self._count += batch.lines
                position = page.next
        except (LogError, OSError):  # the stream reports the lines that it cannot read
            self._ends.setdefault(run.id, run.lines)
        finally:
            reader.close()
        while self._batches and self._count - self._batches[0][3] >= self.limit:
            self._count -= heapq.heappop(self._batches)[3]

    def _end(self, run: Run, reader: LogReader, lines: int) -> int:
        """Return the number of the line after the last line within the time span."""
        until_ms = self.until_ms
        if until_ms is None or self.to_now or (run.ended_at is not None and run.ended_at <= until_ms):
            return lines
        return reader.line_at(until_ms + 1)

    def result(self, running: list[Run]) -> UnitTail:
        """Return the collected lines, and the next line of running runs without any."""
        starts = {run.id: self._ends[run.id] for run in running}
        surplus = max(0, self._count - self.limit) if self._batches else 0
        for index, (_, run_id, first, _) in enumerate(sorted(self._batches)):
            start = first + (surplus if not index else 0)
            starts[run_id] = min(start, starts.get(run_id, start))
        runs = [self._runs[run_id] for run_id in starts]
        return UnitTail(self.floor_ms, runs, starts)
