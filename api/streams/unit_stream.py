"""The stream of the logs of one or more units: the merge of the logs of all their runs.

    events ring -> UnitRuns (which runs) -> one OpenRun each (its ring, or its file) -> Merge -> events run, lines, end

The stream reads only as fast as the client: at most 200 runs are open, with at most two pages of each in memory.

In each round, it reads all runs that have new lines, and then sends everything that is due as one event, because each
event carries the positions of all runs.
"""

from collections.abc import Iterator

import gevent
from msgspec import UNSET

from api.errors import ApiError, invalid
from api.operations.operation import Call
from api.operations.unit_selector import Units
from api.schemas import unit_logs as schemas
from api.schemas.records import ErrorDetail
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.streams import log_merge, sse_encoding
from api.streams.completion_watch import EVENTS, Watch
from api.streams.log_merge import MAX_RUNS, BadCursor, Cursor, End, Item, Merge, MissingLines, Track
from api.streams.shared_feed import PACE_S, Feed, noted
from api.streams.sse_response import EventStream
from api.streams.stream_content import DONE_RETRY_MS
from api.streams.unit_runs import TailFinder, UnitRuns, tail
from api.worker_context import Context
from logring.block import Batch
from logring.errors import LogError
from logring.follower import LogFollower
from logring.layout import STREAM_NAMES
from logring.log_search import BadPattern, Pattern
from logring.reader import LogReader, Page
from store.errors import StoreError
from store.runs import runs_by_unit
from store.runs.writes import Run

_RING_LINES = 4000
"""A run is read from its ring on the loop up to this many lines behind the end; farther behind, in a thread."""
_FILE_LINES = 1 << 20
_PAGE_BYTES = 64 * 1024
_PATTERN_BYTES = 16 * 1024
"""Amount of text that is searched at once: the slowest patterns search 50 KB/s."""
_TOGETHER_BYTES = 4 << 20
"""Approximate limit for the text of all open runs in memory."""
_BATCH_LINES = 4000
_BATCH_BYTES = 256 * 1024
_HOLD_MS = 50
"""Minimum age of a line to be sent while several runs are open: the others may have older lines, still unread."""
_AGAIN_S = 1.0
_AHEAD_MS = 10_000
"""A time that is further ahead of the present is from before a step of the clock."""
LAST_LINES = 1000


class LineFilter:
    """Chooses lines by stream, time and pattern.

    Args:
        stream: number of the stream; None for all streams.
        until_ms: latest time of a line; None for no limit.
        pattern: pattern that a line must match; None for all lines.
    """

    def __init__(self, stream: int | None, until_ms: int | None, pattern: Pattern | None) -> None:
        self.until_ms = until_ms
        self.pattern = pattern
        self.chooses = stream is not None or pattern is not None
        self._stream = stream

    def __call__(self, batch: Batch) -> Iterator[Batch]:
        """Yield the parts of a batch that are wanted."""
        if self._stream is not None and batch.stream != self._stream:
            return
        pattern = self.pattern
        if pattern is None:
            yield batch
            return
        seen = pattern.seen(batch.text.replace(b"\r\n", b"\n").removesuffix(b"\r"))
        if pattern.find(seen) is None:
            return
        lines = zip(batch.text.split(b"\n"), seen.split(b"\n"), strict=True)
        for number, (line, seen_line) in enumerate(lines, batch.n):
            if pattern.find(seen_line) is not None:
                yield Batch(number, batch.ts, batch.stream, line, batch.continued, batch.frames, 1)


class OpenRun(Track):
    """A run that a stream of units reads at present."""

    __slots__ = ("ended", "feed", "first_line", "log", "number", "row", "stream", "watch")

    def __init__(self, stream: "UnitStream", row: Run, first_line: int, reader: LogReader) -> None:
        super().__init__(row.id, first_line)
        self.stream = stream
        self.row = row
        self.number: int | None = None
        """Number of the run in this stream; None until it was announced."""
        self.first_line = first_line
        self.log = LogFollower(reader, first_line)
        self.ended = False
        """Whether the run's last item is in the merge."""
        self.feed: Feed | None = None
        self.watch: Watch | None = None

    def set(self) -> None:
        """Note that there may be more lines. Called by the run's feed and by the watch for its end."""
        if not self.ended:
            self.stream.news.add(self)
            self.stream.woken.set()


class _EventsWaiter:
    """A waiter that notes in its stream that there are new events."""

    def __init__(self, stream: "UnitStream") -> None:
        self._stream = stream

    def set(self) -> None:
        """Note that there are new events, and wake the stream."""
        self._stream.events_rang = True
        self._stream.woken.set()


class UnitStream(EventStream):
    """The merged log of the runs of some units; a cursor can resume it."""

    def __init__(self, context: Context, call: Call, units: Units) -> None:
        super().__init__(context, call)
        query = call.query
        self._cursor = _cursor_of(call)
        self._since_ms: int | None = query["since"]
        self._from = _begin_of(query["from"], self._since_ms)
        until_ms: int | None = query["until"]
        now_ms = self.clock.wall_ms()
        self._to_now = query["follow"] is False and (until_ms is None or until_ms >= now_ms)
        """Whether the stream ends with the present, and so has all lines that exist now."""
        if self._to_now:
            until_ms = now_ms
        self._filter = LineFilter(
            None if query["stream"] is None else STREAM_NAMES.index(query["stream"]),
            until_ms,
            pattern_of(query["grep"]),
        )
        scope = context.reads(units.resolve)
        ahead_ms = now_ms + _AHEAD_MS if self._to_now else None
        self._runs = UnitRuns(context.reads, units, scope, until_ms, ahead_ms)
        self._flow_run_id = units.flow_run_id
        self._flow: Watch | None = None
        """The wait for the end of the flow, of whose runs it sends the lines."""
        self._merge = Merge()
        self._open: dict[str, OpenRun] = {}
        self.news: set[OpenRun] = set()
        """Open runs that may have unread lines."""
        self.events_rang = True
        self._bell = _EventsWaiter(self)
        self._announced = 0
        self._sent_ms = 0
        self._retry_s = 0.0

    def _acquire(self) -> None:
        feed = self._feed = self.context.feeds.enter(EVENTS)
        feed.waiters.add(self._bell)
        if self._flow_run_id is not None:
            self._flow = self.context.feeds.ends.enter(self._flow_run_id)
            self._flow.waiters.add(self._bell)
        runs = self._runs
        runs.follow(feed)
        running = self.context.reads(runs_by_unit.running_runs, runs.scope)
        if len(running) > MAX_RUNS:
            raise ApiError(
                409,
                f"{len(running)} runs of the selected tasks and services are running, and a stream follows at most"
                f" {MAX_RUNS} at once; select fewer",
            )
        if self._cursor is None and self._from:
            finder = TailFinder(
                self.context.feeds.paths,
                max(0, -self._from),
                self._since_ms or 0,
                self._filter.until_ms,
                to_now=self._to_now,
            )
            ended_runs = tail(self.context.reads, self.context.files, finder, runs.scope, running, self.clock.wall_ms())
            runs.begin_with(ended_runs)
        else:
            runs.start(since_ms=self._since_ms or 0, cursor=self._cursor, running=running)

    def close(self) -> None:
        """Release all runs, then close the stream."""
        for run in self._open.values():
            self._release(run)
        self._open.clear()
        if self._feed is not None:
            self._feed.waiters.discard(self._bell)
        if self._flow is not None:
            self._flow.waiters.discard(self._bell)
            self.context.feeds.ends.leave(self._flow)
            self._flow = None
        super().close()

    # Reading

    def _fill(self, now_ms: int) -> None:
        """Open runs and read lines until the next line to send is certain.

        Raises:
            OSError: the disk failed.
        """
        for run in list(self.news):
            if run.queued < self._page_bytes:
                self._read(run, now_ms)
            else:
                run.behind = True
        for _ in range(MAX_RUNS):
            row = self._next_row() if len(self._open) < MAX_RUNS else None
            if row is None:
                return
            self._open_run(row, now_ms)

    def _next_row(self) -> Run | None:
        if self.clock.monotonic_s() < self._retry_s:
            return None
        try:
            return self._runs.next_run(self._merge.first_ms if self._merge else None)
        except StoreError as err:
            self.context.reads.log_unreadable("runs of units", err)
            self._retry_s = self.clock.monotonic_s() + _AGAIN_S
            return None

    def _open_run(self, row: Run, now_ms: int) -> None:
        reader = LogReader(*self.context.feeds.paths(row))
        first_line = self._runs.opened()
        if first_line is None:
            first_line = self._first_line(row, reader)
        run = self._open[row.id] = OpenRun(self, row, first_line, reader)
        if row.status != "ended":
            run.watch = self.context.feeds.ends.enter(row.id)
            run.watch.seen = True
            run.watch.waiters.add(run)
            run.feed = self.context.feeds.enter(row.id)
            run.feed.waiters.add(run)
            run.feed.head_now()
        self._read(run, now_ms)

    def _first_line(self, row: Run, reader: LogReader) -> int:
        """Return the first line that is not older than the stream's floor."""
        floor_ms = self._runs.floor_ms
        if (row.started_at or row.created_at) >= floor_ms:
            return 0
        try:
            return self.context.files(reader.line_at, floor_ms)
        except LogError:
            return 0  # the read reports the damage as a gap

    def _read(self, run: OpenRun, now_ms: int) -> None:
        """Read the next lines of a run, and add the matching ones to the merge."""
        self.news.discard(run)
        run.behind = False
        outcome = "ended" if run.watch is None else run.watch.outcome
        start = run.log.line
        page, lines = self._read_live(run) if outcome is None else self._read_file(run)
        items: list[tuple[int, Item]] = []
        if page is not None:
            self._choose(run, page, start, items, now_ms)
            run.log.line = page.next
        if run.log.line < lines and not run.ended:
            run.behind = True
            if not items:
                self.news.add(run)
        elif outcome is not None and not run.ended:
            self._end(run, items)
        self._merge.put(run, items, now_ms)
        if run.ended and not run.queue:  # no line of it is wanted
            self._finish(run)

    def _read_live(self, run: OpenRun) -> tuple[Page[Batch] | None, int]:
        """Read from the ring, or in a thread from the file if the ring no longer has the lines."""
        assert run.feed is not None and run.watch is not None  # noqa: S101, PT018 - it is live
        try:
            head = run.feed.head()
            if head.sealed:
                run.watch.urgent = True
            if run.log.line >= head.lines:
                return None, head.lines
            if self._filter.pattern is None and head.lines - run.log.line <= _RING_LINES:
                page = run.feed.batches(run.log.line, _RING_LINES, self._page_bytes)
                if page is not None:
                    return page, head.lines
        except LogError:  # the end of the run is still awaited
            return None, run.log.line
        return self._read_file(run)

    @property
    def _page_bytes(self) -> int:
        most = _PAGE_BYTES if self._filter.pattern is None else _PATTERN_BYTES
        return min(most, _TOGETHER_BYTES // max(1, len(self._open)))

    def _read_file(self, run: OpenRun) -> tuple[Page[Batch] | None, int]:
        try:
            page = self.context.files(run.log.read_batches, _FILE_LINES, self._page_bytes)
        except LogError:  # at the end of the run, the missing lines are reported as a gap
            return None, run.log.line
        if run.feed is not None and not run.log.is_behind:
            run.log.reader.close()  # the run continues from its ring, or has ended
        return page and noted(page), run.log.head.lines

    def _choose(self, run: OpenRun, page: Page[Batch], start: int, items: list[tuple[int, Item]], now_ms: int) -> None:
        """Add the wanted lines of a page that was read from line `start` on, and its gaps, to `items`.

        A line with a time in the future was read before the clock was set back, so lines up to `until` may follow.
        """
        position, until_ms = start, self._filter.until_ms
        for batch in page.lines:
            if until_ms is not None and until_ms < batch.ts <= now_ms + _AHEAD_MS:
                run.ended = True
                break
            if until_ms is not None and batch.ts > until_ms and not self._to_now:
                position = batch.next
                continue
            if batch.n > position:
                items.append((batch.ts, MissingLines(position - 1, batch.n - position)))
            position = batch.next
            items += [(batch.ts, part) for part in self._filter(batch)]
        else:
            if page.next > position:
                items.append((0, MissingLines(position - 1, page.next - position)))

    def _end(self, run: OpenRun, items: list[tuple[int, Item]]) -> None:
        """Add the end of a run to `items`."""
        if run.watch is not None:
            rows = self.context.reads(runs_by_unit.runs_by_id, [run.run_id])
            run.row = rows[0] if rows else run.row
        read = run.log.line
        if run.row.lines > read:  # there was no space for the log, or it is already gone
            items.append((0, MissingLines(read - 1, run.row.lines - read)))
            run.log.line = run.row.lines
        run.ended = True
        if run.row.ended_at is not None and (
            self._filter.until_ms is None or run.row.ended_at <= self._filter.until_ms
        ):
            items.append((run.row.ended_at, End()))

    def _finish(self, run: OpenRun) -> None:
        """Close a run that was read completely."""
        self._release(run)
        del self._open[run.run_id]
        self._runs.completed(run.row)

    def _release(self, run: OpenRun) -> None:
        self.news.discard(run)
        run.log.reader.close()
        if run.watch is not None:
            run.watch.waiters.discard(run)
            self.context.feeds.ends.leave(run.watch)
            run.watch = None
        if run.feed is not None:
            run.feed.waiters.discard(run)
            self.context.feeds.leave(run.feed)
            run.feed = None

    # Sending

    def events(self) -> Iterator[bytes]:
        """Yield all existing lines, then new ones as they arrive."""
        yield sse_encoding.RETRY
        while not self.over:
            self.woken.clear()
            now_ms = self.clock.wall_ms()
            has_all_runs = self._flow is not None and self._flow.outcome is not None
            try:
                if self.events_rang and self._feed is not None:
                    self.events_rang = False
                    self._runs.read_events(self._feed)
                self._fill(now_ms)
            except StoreError as err:
                self.context.reads.log_unreadable("runs of units", err)
                return
            data = self._take(now_ms)
            yield data or (self.beat() if self.clock.monotonic_s() >= self.beat_s else b"")
            if self._is_over(now_ms) or (has_all_runs and self._is_drained()):
                yield self._done_event()
                return
            if self._is_crowded():
                return  # the client reconnects and gets a 409 with the reason
            self._pause(now_ms, busy=bool(data))

    def _pause(self, now_ms: int, *, busy: bool) -> None:
        """Wait until there may be more to send than at `now_ms`."""
        if self._has_work(now_ms):
            gevent.sleep(0)
            return
        if busy or self._merge:
            gevent.sleep(PACE_S)  # send lines that arrive in quick succession together
        if self._merge:
            return
        at_most_s = None
        if self._retry_s > self.clock.monotonic_s():
            at_most_s = _AGAIN_S
        elif self._filter.until_ms is not None:
            left_ms = self._filter.until_ms + 2 * _HOLD_MS - self.clock.wall_ms()
            at_most_s = max(PACE_S, min(_AGAIN_S, left_ms / 1000))
        self.sleep(at_most_s)

    def _has_work(self, now_ms: int) -> bool:
        """Return whether there was more to read or send at `now_ms`. Later lines wait for the pace."""
        if self._merge:
            if self._merge.first_ms <= self._due_ms(now_ms):
                return True
        elif self._runs.waiting and len(self._open) < MAX_RUNS and self._retry_s <= self.clock.monotonic_s():
            return True
        return any(run.behind and not run.queue for run in self.news)

    def _due_ms(self, now_ms: int) -> int:
        """Return the time of the newest lines that may be sent at `now_ms`."""
        return now_ms - _HOLD_MS if len(self._open) > 1 else now_ms

    def _take(self, now_ms: int) -> bytes:
        """Return all events that can be sent now."""
        parts: list[bytes] = []
        lines: list[schemas.UnitLine] = []
        parts += [self._announce(run) for run in self._open.values() if self._is_due(run)]
        for track, item in self._merge.take(self._due_ms(now_ms), _BATCH_LINES, _BATCH_BYTES):
            run = self._open[track.run_id]
            if not isinstance(item, Batch):
                parts += self._event("lines", lines)
            if run.number is None and not isinstance(item, End):
                parts += [*self._event("lines", lines), self._announce(run)]
            run.advance(item)
            self._sent_ms = max(self._sent_ms, run.latest_ms)
            if isinstance(item, Batch):
                _add_lines(lines, run.number or 0, item)
            elif isinstance(item, MissingLines):
                parts += self._event("gap", schemas.UnitGap(run.number or 0, item.after, item.lines))
            if run.ended and not run.queue:
                parts += self._event("lines", lines)
                self._finish(run)
            elif run.behind and not run.queue:
                self.news.add(run)
            if isinstance(item, End) and run.number is not None:
                parts += self._event("end", _end_of(run))
        parts += self._event("lines", lines)
        return b"".join(parts)

    def _is_due(self, run: OpenRun) -> bool:
        """Return whether to announce a run now. With a filter, an ended run is announced only before its first line."""
        return run.number is None and (run.watch is not None or not self._filter.chooses)

    def _announce(self, run: OpenRun) -> bytes:
        run.number = self._announced
        self._announced += 1
        row = run.row
        return sse_encoding.event(
            "run",
            schemas.UnitRun(
                r=run.number,
                run_id=row.id,
                task_name=row.task_name,
                instance_index=row.instance_index,
                attempt=row.retry_attempt,
                flow_run_id=row.flow_run_id or UNSET,
                step=row.step or UNSET,
                item=row.item or UNSET,
                started_at=known_rfc3339(row.started_at),
                first_line=run.first_line,
            ),
        )

    def _event(self, name: str, data: object) -> list[bytes]:
        """Encode an event with the cursor as its id. An empty list of lines yields no event; others are cleared."""
        if isinstance(data, list):
            if not data:
                return []
            lines, data = data, data.copy()
            lines.clear()
        parts = {run.run_id: run.next for run in self._open.values()}
        cursor = self._runs.cursor(self._sent_ms, parts).encode()
        return [b"id: %b\n" % cursor.encode(), sse_encoding.event(name, data)]

    def _is_over(self, now_ms: int) -> bool:
        """Return whether all lines up to `until` were sent."""
        until_ms = self._filter.until_ms
        if until_ms is None or now_ms < until_ms + 2 * _HOLD_MS or self._merge or self.news or self._runs.waiting:
            return False
        return not any(run.behind for run in self._open.values())

    def _is_drained(self) -> bool:
        """Return whether all runs that are known have ended, and their lines were sent."""
        return not (self._open or self._merge or self.news or self._runs.waiting)

    def _is_crowded(self) -> bool:
        """Return whether more runs are running than a stream can follow."""
        if len(self._open) < MAX_RUNS or any(run.watch is None for run in self._open.values()):
            return False
        row = self._next_row()
        return row is not None and row.status != "ended"

    def _done_event(self) -> bytes:
        return sse_encoding.event("done", schemas.UnitDone(self._announced), retry_ms=DONE_RETRY_MS)


def _add_lines(lines: list[schemas.UnitLine], number: int, batch: Batch) -> None:
    stream = STREAM_NAMES[batch.stream]
    texts = batch.text.decode("utf-8", "replace").split("\n")
    for n, text in enumerate(texts, batch.n):
        lines.append(schemas.UnitLine(number, n, batch.ts, stream, text))
    if batch.continued:
        lines[-1].continued = True
    if batch.frames:
        lines[-1].frame_count = batch.frames


def _end_of(run: OpenRun) -> schemas.UnitEnd:
    row = run.row
    return schemas.UnitEnd(
        r=run.number or 0,
        end_reason=row.end_reason or "crashed",
        exit_code=row.exit_code,
        ended_at=rfc3339(row.ended_at or 0),
    )


def _cursor_of(call: Call) -> Cursor | None:
    """Return the cursor in ``Last-Event-ID``; None for a new stream.

    Raises:
        ApiError: 422 Last-Event-ID is not a valid cursor.
    """
    text = (call.req.get_header("Last-Event-ID") or "").strip()
    if not text:
        return None
    try:
        return log_merge.decode(text)
    except BadCursor as err:
        raise invalid([ErrorDetail("header.Last-Event-ID", str(err), text[:100])]) from err


def _begin_of(given: int | None, since_ms: int | None) -> int:
    """Return where to begin: negative for this many lines before the end, 0 for the start, 1 for new lines only."""
    if given is not None:
        return given
    return 0 if since_ms is not None else -LAST_LINES


def pattern_of(grep: str | None) -> Pattern | None:
    """Compile the parameter ``grep``; None without one.

    Raises:
        ApiError: 422 it is not a valid regular expression.
    """
    if grep is None:
        return None
    try:
        return Pattern(grep, regex=True)
    except BadPattern as err:
        raise invalid([ErrorDetail("query.grep", str(err), grep)]) from err
