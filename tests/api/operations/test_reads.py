"""A database that is not ready yet, and reports of unreadable ones to the scheduler."""

from pathlib import Path
from types import SimpleNamespace

import gevent
import pytest

from api import read_threads
from api.errors import unreadable
from api.read_threads import DatabaseReads
from store.database import Database, open_writer
from store.errors import DatabaseDamaged, DatabaseNotOpened, NotReady, QueryTimeout, ServerSlow, StoreError


def ignore(_error: StoreError) -> None:
    """Ignore a report of damage."""


def read_one(db: Database) -> object:
    return db.row("SELECT 1")


def test_missing_database_during_the_first_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A request before the end of the first start reports no damage."""
    monkeypatch.setattr(read_threads, "_COMING_S", 0.0)
    path = str(tmp_path / "ringward.db")
    errors_seen = list[StoreError]()
    reads = DatabaseReads(path, errors_seen.append)
    with pytest.raises(NotReady):
        reads(read_one)
    assert errors_seen == []
    open_writer(path).close()
    assert reads(read_one) == (1,)


def test_request_before_the_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A request that is slightly early is answered once the database exists."""
    monkeypatch.setattr(read_threads, "_COMING_S", 30.0)
    monkeypatch.setattr(read_threads, "_READ_S", 60.0)
    path = str(tmp_path / "ringward.db")
    reads, tried = DatabaseReads(path, ignore), gevent.event.Event()

    def look(_s: float) -> None:
        tried.set()
        gevent.idle()

    monkeypatch.setattr(gevent, "sleep", look)
    asking = [gevent.spawn(reads, read_one) for _ in range(3)]
    assert tried.wait(30)
    open_writer(path).close()
    assert [greenlet.get(timeout=30) for greenlet in asking] == [(1,)] * 3


def test_request_before_the_database_after_a_hung_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An earlier hung disk neither shortens the wait for the database nor is given as the reason."""
    monkeypatch.setattr(read_threads, "_HUNG_S", 0.2)
    monkeypatch.setattr(read_threads, "_READ_S", 60.0)
    monkeypatch.setattr(read_threads, "_COMING_S", 0.5)
    reads = DatabaseReads(str(tmp_path / "ringward.db"), ignore)
    reads._hung = True
    monkeypatch.setattr(reads, "_threads", lambda look: look())  # no thread, which could be late, has to say so
    with pytest.raises(NotReady):
        reads(read_one)
    assert not reads._hung


def test_only_the_first_request_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After one request has waited in vain, others fail at once until the database exists."""
    path = str(tmp_path / "ringward.db")
    reads, waits = DatabaseReads(path, ignore), list[float]()
    monkeypatch.setattr(gevent, "sleep", waits.append)
    monkeypatch.setattr(read_threads, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
    monkeypatch.setattr(read_threads, "_COMING_S", 0.1)
    with pytest.raises(NotReady):
        reads(read_one)
    assert waits
    waits.clear()
    with pytest.raises(NotReady):
        reads(read_one)
    assert not waits
    open_writer(path).close()
    assert reads(read_one) == (1,)
    errors: list[StoreError] = [DatabaseNotOpened()] * 3

    def late(db: Database) -> object:
        if errors:
            raise errors.pop()
        return read_one(db)

    assert reads(late) == (1,)
    assert waits


@pytest.mark.parametrize(("error", "reported"), [(DatabaseNotOpened(), False), (NotReady(), True)])
def test_missing_database_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: StoreError, reported: bool
) -> None:
    """A read reports a missing database to the scheduler, but not while the scheduler opens one."""
    monkeypatch.setattr(read_threads, "_COMING_S", 0.0)
    path = str(tmp_path / "ringward.db")
    open_writer(path).close()
    errors_seen = list[StoreError]()
    reads = DatabaseReads(path, errors_seen.append)
    assert reads(read_one) == (1,)

    def fail(_db: Database) -> None:
        raise error

    with pytest.raises(NotReady):
        reads(fail)
    assert set(errors_seen) == ({error} if reported else set())


def test_slow_server(tmp_path: Path) -> None:
    """A query that a database server stopped by the clock is repeated once; one that did too much work is not."""
    path = str(tmp_path / "ringward.db")
    open_writer(path).close()
    reads = DatabaseReads(path, ignore)

    def read(db: Database, errors: list[StoreError]) -> object:
        if errors:
            raise errors.pop()
        return read_one(db)

    assert reads(read, [ServerSlow()]) == (1,)
    with pytest.raises(ServerSlow):
        reads(read, [ServerSlow(), ServerSlow()])
    with pytest.raises(QueryTimeout):
        reads(read, [QueryTimeout()])


@pytest.mark.parametrize(
    ("error", "detail", "line"),
    [
        (ServerSlow(), "Reading the database took too long", "page: reading the database took too long: "),
        (QueryTimeout(), "Reading the database took too long", "page: reading the database took too long: "),
        (DatabaseDamaged(), "The database cannot be read", "page: cannot read the database: "),
    ],
)
def test_reason_of_a_failed_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: StoreError, detail: str, line: str
) -> None:
    """The response and the daemon's log distinguish a read that took too long from a database that cannot be read."""
    refusal = unreadable(error)
    assert (refusal.status, refusal.detail) == (503, detail)
    DatabaseReads(str(tmp_path), ignore).log_unreadable("page", error)
    assert caplog.messages[-1].startswith(line)


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a thread nothing can be read, but periodic reads, as for the ends of runs, resume later."""

    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    open_writer(str(tmp_path / "ringward.db")).close()
    reads = DatabaseReads(str(tmp_path / "ringward.db"), ignore)
    with monkeypatch.context() as limit:
        limit.setattr("gevent.threadpool.start_new_thread", none_left)
        with pytest.raises(StoreError, match="can't start new thread"):
            reads(read_one)
    assert reads(read_one) == (1,)
