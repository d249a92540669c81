"""A ring that many follow in one worker."""

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from api.streams import sse_encoding
from api.streams.shared_feed import LIVE_BYTES, PACE_S, Budget, Feed
from logring.errors import Corrupt
from logring.layout import STDOUT, RingShape
from logring.reader import Head
from logring.ring.writer import RingWriter
from tests.scheduler.fake_clock import FakeClock

RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


class TickingClock(FakeClock):
    """A clock on which time passes between two readings; the thread has a processor for some of it."""

    def __init__(self, passes_s: float = 0.001, used_s: float = 0.001) -> None:
        super().__init__()
        self._monotonic, self._thread = count(1000.0, passes_s), count(0.0, used_s)

    def monotonic_s(self) -> float:
        return next(self._monotonic)

    def thread_s(self) -> float:
        return next(self._thread)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingWriter]:
    """A ring without a log file, whose oldest lines go when it is full."""
    writer = RingWriter.new(str(tmp_path / "run.ring"), RUN, RingShape(0, 4, 65536))
    yield writer
    writer.close()


@pytest.fixture
def feed(ring: RingWriter) -> Iterator[Feed]:
    """It follows the ring; a wake-up takes a millisecond of its clock, so the next bell comes too early for another."""
    made = Feed(RUN, ring.blocks.path, Budget(), TickingClock(), alone=True)
    yield made
    made.close()


def catch_up(feed: Feed, position: int, render: sse_encoding.Render) -> tuple[bytes, int]:
    """The lines that a follower at `position` sends, and its new position."""
    sent = b""
    while position < feed.head().lines:
        chunk = feed.chunk(position, render)
        assert chunk is not None
        sent += chunk[0]
        position = chunk[1]
    return sent, position


def test_each_line_is_rendered_once(ring: RingWriter, feed: Feed) -> None:
    """A line is rendered once for any number of followers and wake-ups."""
    rendered: Counter[int] = Counter()

    def render(record: Any) -> bytes:
        rendered[record.n] += 1
        return sse_encoding.log_line(record)

    followers = [0] * 200
    sent = [b""] * 200
    for turn in range(50):
        ring.append(STDOUT, b"".join(b"%d\n" % number for number in range(turn * 20, turn * 20 + 20)), 1000 + turn)
        feed.rang()
        for index in range(len(followers)):
            data, followers[index] = catch_up(feed, followers[index], render)
            sent[index] += data
    assert rendered == Counter(range(1000))
    assert len(set(sent)) == 1
    assert sent[0].count(b"event: line\n") == 1000


def test_followers_share_one_pace(ring: RingWriter, feed: Feed) -> None:
    """Lines that arrive while followers are served wait for the next round; a new follower sees them at once."""
    woken = Event()
    feed.waiters.add(woken)
    for _ in range(2):
        ring.append(STDOUT, b"line\n", 1000)
        feed.rang()
        assert woken.is_set()
        assert feed.head().lines == 1
    assert feed.head_now().lines == 2
    woken.clear()
    assert woken.wait(30)
    assert feed.head().lines == 2


def test_wake_ups_take_a_tenth_of_the_time() -> None:
    """All rings of a worker share the budget. Unused time is not saved up, and excess is forgotten after 20 ms."""
    budget = Budget()
    budget.spend(100.0, 0.001)
    assert budget.free_s == pytest.approx(100.01)
    budget.spend(100.002, 0.0005)
    assert budget.free_s == pytest.approx(100.015)
    budget.spend(200.0, 0.001)
    assert budget.free_s == pytest.approx(200.01)
    for _ in range(100):
        budget.spend(200.0, 0.001)
    assert budget.free_s == pytest.approx(200.0 + PACE_S)


def test_no_line_waits_longer_than_the_pace(ring: RingWriter) -> None:
    """A ring whose last wake-up was 20 ms ago wakes its streams at the next bell, whatever other rings cost."""
    clock, budget = FakeClock(), Budget()
    budget.spend(clock.monotonic_s(), 1.0)
    feed, woken = Feed(RUN, ring.blocks.path, budget, clock, alone=True), Event()
    feed.waiters.add(woken)
    for _ in range(3):
        woken.clear()
        ring.append(STDOUT, b"line\n", 1000)
        feed.rang()
        assert woken.is_set()
        clock.advance(PACE_S)
    feed.close()


def test_only_processor_time_counts(ring: RingWriter) -> None:
    """Time for which a wake-up waits for a processor does not delay the next one."""
    feed, woken = Feed(RUN, ring.blocks.path, Budget(), TickingClock(0.005, 0.0002), alone=True), Event()
    feed.tails.add(Standing())
    feed.waiters.add(woken)
    for _ in range(3):
        woken.clear()
        ring.append(STDOUT, b"line\n", 1000)
        feed.rang()
        assert woken.is_set()
    feed.close()


class Standing:
    """A stream at the end of the feed, without a client."""

    def __init__(self) -> None:
        self.woken = Event()
        self.position = 0
        self.error: Exception | None = None
        self.taken = 0

    def take(self, feed: Feed, head: Head) -> bool:
        self.taken += 1
        if self.error is not None:
            raise self.error
        _sent, self.position = catch_up(feed, self.position, sse_encoding.log_line)
        return self.position == head.lines


def test_early_wake_up_does_not_delay_the_bell(ring: RingWriter, feed: Feed) -> None:
    """Followers at the end get present lines at an early wake-up, and the bell after it is not delayed."""
    tail = Standing()
    feed.tails.add(tail)
    feed.expect()
    assert tail.woken.is_set()  # there is no ring yet
    tail.woken.clear()
    for lines in (1, 3):
        ring.append(STDOUT, b"line\n", 1000)
        feed.expect()
        assert tail.position == lines
        ring.append(STDOUT, b"line\n", 1000)
        feed.rang()
        if lines == 1:
            assert tail.position == 2
    assert tail.position == 3  # the second bell comes too early after the first
    assert not tail.woken.is_set()
    with gevent.Timeout(30):
        while tail.position < 4:
            gevent.sleep(0.001)


def test_bell_without_news(ring: RingWriter, feed: Feed) -> None:
    """After a late early wake-up, the ring is read again only if a follower or other news needs it."""
    feed._alone = False  # of a run
    tail, woken = Standing(), Event()
    feed.tails.add(tail)
    ring.append(STDOUT, b"line\n", 1000)
    assert feed.head_now().lines == 1
    feed.expect()
    feed.rang()
    assert (tail.position, tail.taken) == (1, 1)
    ring.append(STDOUT, b"unfinished", 1000)
    ring.mirror_pending()
    feed.rang()  # comes too early after the other bell
    assert tail.woken.wait(30)
    assert (tail.position, tail.taken) == (1, 2)
    ring.append(STDOUT, b"\n", 1000)
    ring.mirror_pending()
    tail.woken.clear()
    feed.expect()
    assert (tail.position, tail.woken.is_set()) == (2, False)
    feed.waiters.add(woken)
    feed.rang()
    assert woken.wait(30)


def test_followers_at_the_end_are_woken_for_other_changes(ring: RingWriter, feed: Feed) -> None:
    """Unfinished lines, the end of the log and errors wake them, as well as earlier positions."""
    tails = [Standing(), Standing()]
    feed.tails.update(tails)
    ring.append(STDOUT, b"line\n", 1000)
    feed.expect()
    assert [tail.woken.is_set() for tail in tails] == [False, False]
    ring.append(STDOUT, b"unfinished", 1000)
    ring.mirror_pending()
    feed.expect()
    assert [tail.woken.is_set() for tail in tails] == [True, True]
    ring.append(STDOUT, b"\n", 1000)
    ring.mirror_pending()
    for error in (OSError("the disk"), Corrupt("the ring"), MemoryError()):
        tails[1].woken.clear()
        tails[1].error = error
        feed.expect()
        assert tails[1].woken.is_set()
    tails[1].error = None
    for tail in tails:
        tail.woken.clear()
    ring.seal(1000)
    feed.expect()
    assert [tail.woken.is_set() for tail in tails] == [True, True]


def test_kept_chunks_are_bounded(ring: RingWriter, feed: Feed) -> None:
    """Followers at many positions cost no more than a few chunks, and each still gets every line."""
    ring.append(STDOUT, b"".join(b"%d\n" % number for number in range(8000)), 1000)
    feed.rang()
    for start in range(0, 8000, 100):
        data, position = catch_up(feed, start, sse_encoding.log_line)
        assert position == 8000
        assert data.count(b"event: line\n") == 8000 - start
    chunks = [data for data, _following in feed._chunks.values()]
    assert len(chunks) <= 4
    assert sum(map(len, chunks)) < 4 * 8 * LIVE_BYTES


def test_slow_follower(ring: RingWriter, feed: Feed) -> None:
    """The next chunk of a slow follower begins with the counted gap and continues with the first kept line."""
    for number in range(60_000):
        ring.append(STDOUT, b"line %d\n" % number, 1000)
    feed.rang()
    first = feed.head().first_available
    assert first > 10_000
    data, position = catch_up(feed, 5, sse_encoding.log_line)
    assert position == 60_000
    assert data.startswith(sse_encoding.dropped(4, first - 5) + b"id: %d\n" % first)
    assert data.count(b"event: line\n") == 60_000 - first
