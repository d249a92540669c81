"""A fair semaphore: turns of clients."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from api import read_threads
from api.errors import ApiError
from api.read_threads import DatabaseReads, LogFileReads, LogSearches
from api.server.fair_semaphore import FairSemaphore, asking
from store.database import open_writer


@contextlib.contextmanager
def working_for(who: str) -> Iterator[None]:
    token = asking.set(who)
    try:
        yield
    finally:
        asking.reset(token)


def take(turns: FairSemaphore, who: str, served: list[str]) -> None:
    with working_for(who), turns.turn():
        gevent.sleep(0)
        served.append(who)


def test_greedy_client_waits_for_itself() -> None:
    """However many requests of one client wait, another client's request is at most the second to run."""
    turns, served = FairSemaphore(1), list[str]()
    gevent.joinall([gevent.spawn(take, turns, who, served) for who in [*"aaaaaaaa", "b", "c"]], raise_error=True)
    assert "".join(served) == "aabcaaaaaa"


def test_abandoned_turns() -> None:
    """The turn of a client that no longer waits goes to others, even if it was granted but not noticed yet."""
    turns, served = FairSemaphore(1), list[str]()
    first = gevent.spawn(take, turns, "a", served)
    waiting = [gevent.spawn(take, turns, "b", served) for _ in range(3)]
    gevent.sleep(0)
    waiting[0].kill()
    first.join()
    waiting[1].kill()
    gevent.joinall(waiting)
    assert served == ["a", "b"]
    with gevent.Timeout(30), turns.turn():
        pass


def test_error_ends_a_turn() -> None:
    """An error ends a turn."""
    turns = FairSemaphore(1)
    with pytest.raises(ZeroDivisionError), turns.turn():
        raise ZeroDivisionError
    with gevent.Timeout(30), turns.turn():
        pass


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each kind of reading: of two, one may be late."""
    monkeypatch.setattr(read_threads, "_THREADS", 1)


@pytest.mark.usefixtures("one_thread")
def test_many_queries_of_one_client(tmp_path: Path) -> None:
    """Other clients do not wait for all queries of one client."""
    path = str(tmp_path / "ringward.db")
    open_writer(path).close()
    reads, order = DatabaseReads(path, lambda _error: None), list[str]()

    def ask(who: str) -> None:
        with working_for(who):
            reads(lambda _db: order.append(who))

    gevent.joinall([gevent.spawn(ask, who) for who in [*"a" * 50, "b"]], raise_error=True)
    assert order.index("b") < 10


@pytest.mark.usefixtures("one_thread")
def test_many_reads_of_one_client() -> None:
    """Other clients do not wait for all reads of one client."""
    files, order = LogFileReads(), list[str]()

    def read(who: str) -> None:
        with working_for(who):
            files(order.append, who)

    gevent.joinall([gevent.spawn(read, who) for who in [*"a" * 50, "b"]], raise_error=True)
    assert order.index("b") < 10


def test_many_searches_of_one_client() -> None:
    """Other clients do not wait for all searches of one client."""
    searches, order = LogSearches(), list[str]()

    def search(who: str) -> None:
        with working_for(who), searches.turn():
            gevent.sleep(0)
            order.append(who)

    gevent.joinall([gevent.spawn(search, who) for who in [*"a" * 50, "b"]], raise_error=True)
    assert order.index("b") < 10


def test_too_many_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search waits forever."""
    monkeypatch.setattr(read_threads, "_TURN_S", 0.01)
    searches = LogSearches()
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(searches.turn())
        with pytest.raises(ApiError, match="Too many concurrent searches"):
            stack.enter_context(searches.turn())
