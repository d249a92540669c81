"""A fair semaphore: turns of clients."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from api import reading
from api.errors import ApiError
from api.reading import Files, Reads, Searches
from api.server.fair_semaphore import Turns, asking
from store.database import open_writer


@contextlib.contextmanager
def working_for(who: str) -> Iterator[None]:
    token = asking.set(who)
    try:
        yield
    finally:
        asking.reset(token)


def take(turns: Turns, who: str, taken: list[str]) -> None:
    with working_for(who), turns.turn():
        gevent.sleep(0)
        taken.append(who)


def test_a_greedy_client_waits_for_itself() -> None:
    """However many requests of one client wait, another client's request is the next but one."""
    turns, taken = Turns(1), list[str]()
    gevent.joinall([gevent.spawn(take, turns, who, taken) for who in [*"aaaaaaaa", "b", "c"]], raise_error=True)
    assert "".join(taken) == "aabcaaaaaa"


def test_turns_of_who_waits_no_more() -> None:
    """They go to the others, also when one had it already but did not hear of it."""
    turns, taken = Turns(1), list[str]()
    first = gevent.spawn(take, turns, "a", taken)
    waiting = [gevent.spawn(take, turns, "b", taken) for _ in range(3)]
    gevent.sleep(0)
    waiting[0].kill()
    first.join()
    waiting[1].kill()
    gevent.joinall(waiting)
    assert taken == ["a", "b"]
    with gevent.Timeout(30), turns.turn():
        pass


def test_an_error_in_a_turn() -> None:
    """It ends it."""
    turns = Turns(1)
    with pytest.raises(ZeroDivisionError), turns.turn():
        raise ZeroDivisionError
    with gevent.Timeout(30), turns.turn():
        pass


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each kind of reading: of two, one may be late."""
    monkeypatch.setattr(reading, "_THREADS", 1)


@pytest.mark.usefixtures("one_thread")
def test_who_asks_the_database_for_much(tmp_path: Path) -> None:
    """Others do not wait for all of that."""
    path = str(tmp_path / "ringward.db")
    open_writer(path).close()
    reads, order = Reads(path, lambda _error: None), list[str]()

    def ask(who: str) -> None:
        with working_for(who):
            reads(lambda _db: order.append(who))

    gevent.joinall([gevent.spawn(ask, who) for who in [*"a" * 50, "b"]], raise_error=True)
    assert order.index("b") < 10


@pytest.mark.usefixtures("one_thread")
def test_who_reads_much() -> None:
    """Others do not wait for all of that."""
    files, order = Files(), list[str]()

    def read(who: str) -> None:
        with working_for(who):
            files(order.append, who)

    gevent.joinall([gevent.spawn(read, who) for who in [*"a" * 50, "b"]], raise_error=True)
    assert order.index("b") < 10


def test_who_searches_much() -> None:
    """Others do not wait for all of that."""
    searches, order = Searches(), list[str]()

    def search(who: str) -> None:
        with working_for(who), searches.place():
            gevent.sleep(0)
            order.append(who)

    gevent.joinall([gevent.spawn(search, who) for who in [*"a" * 50, "b"]], raise_error=True)
    assert order.index("b") < 10


def test_too_many_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request waits without end."""
    monkeypatch.setattr(reading, "_PLACE_S", 0.01)
    searches = Searches()
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(searches.place())
        with pytest.raises(ApiError, match="Too many concurrent searches"):
            stack.enter_context(searches.place())
