"""The content of log and event streams: replay, gaps, live lines and the end."""

import re
from abc import abstractmethod
from collections.abc import Iterator

import gevent

from api.operations.operation import Call
from api.operations.parameters import INT64_MAX
from api.schemas.records import Done
from api.streams import sse_encoding
from api.streams.completion_watch import EVENTS, Watch
from api.streams.former_logs import require_log
from api.streams.ring_follower import DAEMON, unreadable
from api.streams.shared_feed import Chunk, Feed, Rows, read_page, read_rendered
from api.streams.sse_response import EventStream
from api.worker_context import Context
from logring.errors import LogError
from logring.layout import STDERR, STDOUT
from logring.reader import Head, LogReader
from store.runs.writes import Run

DONE_RETRY_MS = 3_600_000
PING_S = 5.0
"""Interval of pings. The dashboard reports a lost connection after two missing pings."""

_FEED_LINES = 4000
"""A stream up to this many lines behind the head reads the ring on the loop; farther behind, it uses a thread."""
_PAGE_LINES = 1000
_BATCH_LINES = 65_536
_PAGE_BYTES = 64 * 1024
_UNFINISHED_DELAY_S = 0.05
_REGION_S = 0.1
_ROTATED_S = 1.0
_COMING_S = 0.25
"""Time to wait for the ring of a log without lines, before the disk is checked too."""
_CLOCK_MS = 1000
"""Tolerance in ms for the time of a first line, which may appear older than it is."""
_NOTHING = Head(0, 0, 0, sealed=False, region_epoch=0)
_INTEGER = re.compile("-?[0-9]+")
_MAX_DIGITS = 19


class Regions:
    """The unfinished lines and drawings that a stream shows.

    Text that is finished within 50 ms is never shown, because the writer was probably just interrupted within a line.
    Shown text changes at most every 100 ms, and is removed once it is finished.
    """

    def __init__(self) -> None:
        self._shown: dict[int, Rows] = {}
        self._due_s: dict[int, float] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is shown or about to be shown."""
        return not self._shown and not self._due_s

    def events(self, drawn: dict[int, Rows], epoch: int, now_s: float) -> tuple[bytes, float | None]:
        """Return the events to send, and the seconds after which to call again; None: only after a change.

        `now_s` is monotonic.
        """
        if not drawn and self.idle:
            return b"", None
        parts: list[bytes] = []
        again_s: float | None = None
        for stream in (STDOUT, STDERR):
            rows, shown = drawn.get(stream, ()), self._shown.get(stream, ())
            if rows == shown:
                if not rows:
                    self._due_s.pop(stream, None)
                continue
            due_s = self._due_s.setdefault(stream, now_s + _UNFINISHED_DELAY_S) if rows else now_s
            if due_s > now_s:
                again_s = min(again_s or _REGION_S, due_s - now_s)
                continue
            if rows:
                self._shown[stream] = rows
                self._due_s[stream] = now_s + _REGION_S
            else:
                del self._shown[stream]
                self._due_s.pop(stream, None)
            parts.append(sse_encoding.region(epoch, [row.decode("utf-8", "replace") for row in rows], stream))
        return b"".join(parts), again_s


class LogStream(EventStream):
    """The common base of the streams of run logs and the daemon's log: replay, gaps and live lines."""

    def __init__(self, context: Context, call: Call) -> None:
        super().__init__(context, call)
        self._anchor: int = call.query["from"]
        self._last_event_id = last_event_id(call)
        self._replay_limit: int = call.query["replayLimit"]
        self.render = sse_encoding.log_batch if call.query["batch"] else sse_encoding.log_line
        self._first_shown = 0
        self._rotated_s = 0.0
        self._preamble = sse_encoding.RETRY

    @abstractmethod
    def fetch(self, position: int, limit: int) -> Chunk:
        """Return rendered lines from `position` on, from the ring or the disk."""

    def preamble(self) -> bytes:
        """Return the bytes that begin every stream, on the first call; later b""."""
        preamble, self._preamble = self._preamble, b""
        return preamble

    def _start(self, lines: int) -> int:
        if self._last_event_id is not None:
            return min(self._last_event_id + 1, lines)
        return min(self._anchor, lines) if self._anchor >= 0 else max(0, lines + self._anchor)

    def replay(self, first: int, lines: int, *, live: bool) -> Iterator[tuple[bytes, int]]:
        """Yield events from the anchor on, each with the line at which to continue.

        The log has the lines `first` to `lines` - 1. If all lines of a `live` log are wanted, the last ones are left to
        the live part, which reads them from the ring and renders them once for all concurrent streams.
        """
        position = self._start(lines)
        events = self.preamble()
        if position < first:
            events += sse_encoding.dropped(position - 1, first - position)
            position = first
        self._first_shown = first
        yield events, position
        end = min(position + self._replay_limit, lines)
        while position < end and not self.over:
            if live and end == lines and lines - position <= _FEED_LINES:
                return
            data, position = self.fetch(position, end - position)
            yield data, position
            gevent.sleep(0)
        if position < lines and not self.over:
            yield sse_encoding.dropped(position - 1, lines - position), lines

    def lines_from(self, feed: Feed, head: Head, position: int) -> Chunk:
        """Return the next lines of a live log, from the ring if it has them."""
        if head.lines - position <= _FEED_LINES:
            chunk = feed.chunk(position, self.render)
            if chunk is not None:
                return chunk
        return self.fetch(position, _PAGE_LINES if self.render is sse_encoding.log_line else _BATCH_LINES)

    def rotation(self, head: Head, *, last: bool = False) -> bytes:
        """Return the event for removed lines, at most once a second; the `last` one is always returned."""
        if head.first_available <= self._first_shown:
            return b""
        now_s = self.clock.monotonic_s()
        if not last and now_s - self._rotated_s < _ROTATED_S:
            return b""
        self._first_shown, self._rotated_s = head.first_available, now_s
        return sse_encoding.rotated(head.first_available)


class RunLogStream(LogStream):
    """The stream of a run's log. The run's row must have been read after the watch for its end began."""

    def __init__(self, context: Context, call: Call, run: Run) -> None:
        super().__init__(context, call)
        self._run = run
        # The row of an ended run has the number of lines, even if its log is gone.
        self._lines = run.lines
        self._live = run.status != "ended"
        self._opened_ms = self.clock.wall_ms() - _CLOCK_MS
        self._head: Head | None = None
        self._reader = LogReader(*context.feeds.paths(run))

    def _acquire(self) -> None:
        if self._live:
            watch = self._watch = self.context.feeds.ends.enter(self._run.id)
            watch.seen = True
            watch.waiters.add(self.woken)
            self._head = self._ring_head(self.follow(self._run.id))
        else:
            self._head = self._whole_head()
            require_log(self.context, self._run, self._head)

    def close(self) -> None:
        """Close the log, then the stream."""
        self._reader.close()
        super().close()

    def _whole_head(self) -> Head:
        """Return the head of the log, from its ring or its file.

        Raises:
            ApiError: 500 the log cannot be read.
        """
        try:
            return self.context.files(self._reader.head)
        except (LogError, OSError) as err:
            raise unreadable(self._run.id, err) from err

    def _ring_head(self, feed: Feed) -> Head | None:
        """Return the head of the log from its ring; None if it has no ring.

        Raises:
            ApiError: 500 the log cannot be read.
        """
        try:
            head = feed.head_now()
        except (LogError, OSError) as err:
            raise unreadable(self._run.id, err) from err
        return head if feed.has_ring else None

    def _head_that_came(self) -> Head:
        """Return the head of a live log that had no ring when the stream was opened.

        The replay then begins at the start, unless the client knows of later lines. A ring may have come and gone
        meanwhile. If the first line is older than this stream, the log had begun earlier.
        """
        knows = self._last_event_id is not None or self._anchor > 0
        if self._feed is not None and self._watch is not None:
            head = self._ring_head(self._feed)
            if head is not None:
                return head if knows else _NOTHING
            if self._watch.outcome is not None and not knows:
                return _NOTHING
        head = self._whole_head()
        return head if knows or not head.lines or self._began_before(head) else _NOTHING

    def _began_before(self, head: Head) -> bool:
        """Return whether the log had lines before this stream was opened."""
        page = self.context.files(read_page, self._reader, head.first_available, 1, _PAGE_BYTES)
        return any(line.ts < self._opened_ms for line in page.lines)

    def fetch(self, position: int, limit: int) -> Chunk:
        """Read in a thread, because the lines may be on the disk."""
        if self.render is sse_encoding.log_line:
            limit = min(limit, _PAGE_LINES)
        return self.context.files(read_rendered, self._reader, position, limit, _PAGE_BYTES, self.render)

    def events(self) -> Iterator[bytes]:
        """Yield the replay, then live lines, then ``done``."""
        head = self._head
        if head is None:
            yield self.preamble()
            yield self.sleep(_COMING_S)
            if self.over:
                return
            head = self._head_that_came()
        lines = head.lines if self._live else max(head.lines, self._lines)
        position = 0
        for data, position in self.replay(  # noqa: B007
            head.first_available if head.lines else lines, lines, live=self._live
        ):
            yield data
        if self.over:
            return
        if self._watch is None or self._feed is None:
            yield _done_event("ended", position)
        else:
            # The reader reopens the log if this stream falls behind. Closing it saves memory and a descriptor for each
            # of thousands of streams.
            self._reader.close()
            yield from self._follow(self._watch, self._feed, position)

    def _follow(self, watch: Watch, feed: Feed, position: int) -> Iterator[bytes]:
        regions = Regions()
        feed.head_now()
        while not self.over:
            self.woken.clear()
            # Read the outcome before the head: a head read after the end includes all lines.
            outcome = watch.outcome
            head = feed.head() if outcome is None else self._whole_head()
            if outcome is None and not feed.has_ring:
                # The ring of a very short run may have come and gone unnoticed.
                head = self._whole_head()
            if position < head.lines:
                data, position = self.lines_from(feed, head, position)
                yield data + self.rotation(head)
                if position < head.lines:
                    gevent.sleep(0)
                    continue
            if outcome is not None:
                end, _ = regions.events({}, head.region_epoch, self.clock.monotonic_s())
                end += self.rotation(head, last=True)
                if position < watch.lines:  # there was no space for the log, or it is already gone
                    end += sse_encoding.dropped(position - 1, watch.lines - position)
                    position = watch.lines
                yield end + _done_event(outcome, position)
                return
            if head.sealed:
                watch.urgent = True
            data, again_s = regions.events(feed.unfinished(), head.region_epoch, self.clock.monotonic_s())
            data += self.rotation(head)
            if data:
                yield data
            if regions.idle and feed.has_ring and not head.sealed:
                beat, position = self.wait_at_end(feed, position, self._first_shown)
                yield beat
            else:
                yield self.sleep(again_s)


class DaemonLogStream(LogStream):
    """The stream of the daemon's own log, which has no end and no file."""

    def _acquire(self) -> None:
        self._ring = self.follow(DAEMON)

    def fetch(self, position: int, limit: int) -> Chunk:
        """Read from the ring, which has the whole log."""
        return self._ring.part(position, self.render, min(limit, _PAGE_LINES)) or self._hole(position)

    def _hole(self, position: int) -> Chunk:
        lines = max(position, self._ring.head().lines)
        return (sse_encoding.dropped(position - 1, lines - position) if lines > position else b""), lines

    def events(self) -> Iterator[bytes]:
        """Yield the replay, then live lines."""
        head = self._ring.head_now()
        position = 0
        for data, position in self.replay(head.first_available, head.lines, live=True):  # noqa: B007
            yield data
        while not self.over:
            self.woken.clear()
            head = self._ring.head()
            if position < head.lines:
                data, position = self.lines_from(self._ring, head, position)
                yield data + self.rotation(head)
                gevent.sleep(0)
            else:
                yield self.rotation(head)
                beat, position = self.wait_at_end(self._ring, position, self._first_shown)
                yield beat


def _done_event(status: str, position: int) -> bytes:
    last = position - 1
    return sse_encoding.event("done", Done(last, status), number=last, retry_ms=DONE_RETRY_MS)


def last_event_id(call: Call) -> int | None:
    """Return the number in the header ``Last-Event-ID``; None if the header is absent or invalid."""
    text = (call.req.get_header("Last-Event-ID") or "").strip()
    if not _INTEGER.fullmatch(text):
        return None
    beyond = INT64_MAX - 1  # greater than in any log
    digits = text.lstrip("-0") or "0"
    number = int(digits) if len(digits) <= _MAX_DIGITS else beyond
    if text.startswith("-"):
        return -number if number <= 1 else None
    return min(number, beyond)


class EventsStream(EventStream):
    """The stream of events of runs, services and the configuration."""

    def __init__(self, context: Context, call: Call, types: frozenset[str]) -> None:
        super().__init__(context, call)
        self._pings = not types or "ping" in types
        if self._pings:
            self.beat_s = self.clock.monotonic_s() + PING_S
        self.render = sse_encoding.EventLines(types, call.tasks)
        # Samples describe the whole host, so clients that may only see some tasks do not get them.
        self._samples = call.tasks is None and (not types or "system" in types)
        self._last_event_id = last_event_id(call)

    def _acquire(self) -> None:
        self._ring = self.follow(EVENTS)
        if self._samples:
            self.context.samples.enter(self.woken)
        # Fix the start before the first byte is sent: the client must miss nothing after it is connected.
        lines, last = self._ring.head_now().lines, self._last_event_id
        self._position = lines if last is None else last + 1
        self._follows_all = not lines and last is None

    def beat(self) -> bytes:
        """Return a heartbeat or ping. Pings are sent at fixed intervals, even if other events are sent."""
        if not self._pings:
            return super().beat()
        self.beat_s = self.clock.monotonic_s() + PING_S
        return sse_encoding.ping(self.clock.wall_ms())

    def was_sent(self) -> None:
        """Postpone the heartbeat, unless it is a ping."""
        if not self._pings:
            super().was_sent()

    def close(self) -> None:
        """Unsubscribe from samples, then close the stream."""
        self.context.samples.leave(self.woken)
        super().close()

    def events(self) -> Iterator[bytes]:
        """Yield new events, and samples if requested."""
        yield sse_encoding.RETRY
        position = self._position
        samples, sampled = self.context.samples, self.context.samples.at
        started = False
        while not self.over:
            self.woken.clear()
            if self._samples and samples.at != sampled:
                sampled = samples.at
                yield samples.event
            head = self._ring.head()
            if head.lines and not started:
                # Only the ring tells the range of event numbers; a scheduler creates it with the first event.
                started = True
                position = head.first_available if self._follows_all else min(position, head.lines)
            # A chunk of None means that the ring is gone; the next ring has its own range.
            chunk = self._ring.chunk(position, self.render) if started and position < head.lines else None
            if chunk is not None:
                data, position = chunk
                yield data
                gevent.sleep(0)
            elif started:
                beat, position = self.wait_at_end(self._ring, position, INT64_MAX)
                yield beat
            else:
                yield self.sleep()
