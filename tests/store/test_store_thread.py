import select
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from store import events
from store.daemon_values import get_meta, set_meta
from store.database import Database, open_reader, open_writer
from store.errors import DatabaseClosed, DatabaseLocked, DiskFull, InstantTaken
from store.runs.writes import insert_run
from store.store_thread import StoreThread
from tests.store.databases import on_sqlite
from tests.store.making import T0, make_run

DEADLINE_S = 30


@pytest.fixture
def store(path: str) -> Iterator[StoreThread]:
    thread = StoreThread(open_writer(path))
    yield thread
    thread.close()


def until_done(store: StoreThread, n: int) -> None:
    """Run the loop's part until n results were delivered."""
    while n > 0:
        assert select.select([store], [], [], DEADLINE_S)[0], "no result"
        n -= store.drain()
    assert n == 0


def hold(store: StoreThread) -> Callable[[], None]:
    """Keep the store thread busy, so that the next submissions are one batch; return the function that releases it."""
    inside, go = threading.Event(), threading.Event()

    def block(_: Database) -> None:
        inside.set()
        go.wait(DEADLINE_S)

    store.submit(block, lambda _: None)
    assert inside.wait(DEADLINE_S)
    return go.set


def put(key: str) -> Callable[[Database], str]:
    def change(db: Database) -> str:
        set_meta(db, key, 1)
        return key

    return change


def keys(path: str) -> set[str]:
    reader = open_reader(path, limit_s=None)
    try:
        return {row[0] for row in reader.rows("SELECT key FROM meta")}
    finally:
        reader.close()


def test_results_in_order(store: StoreThread, path: str) -> None:
    """A result arrives in the loop's thread, after it is stored, in the order of submission."""
    results: list[tuple[Any, bool]] = []
    for n in range(20):
        store.submit(put(f"k{n}"), lambda key: results.append((key, key in keys(path))))
    assert select.select([store], [], [], DEADLINE_S)[0]
    assert results == []
    until_done(store, 20)
    assert results == [(f"k{n}", True) for n in range(20)]
    assert not select.select([store], [], [], 0)[0]
    assert store.drain() == 0


def test_batch_is_one_transaction(store: StoreThread, path: str) -> None:
    """Functions queued during a commit form one transaction, and no reader sees a part of it."""
    seen: list[object] = []
    release = hold(store)
    for n in range(20):
        store.submit(put(f"k{n}"), lambda _: None)
        store.submit(lambda _: len(keys(path)), seen.append)
    release()
    until_done(store, 41)
    assert seen == [0] * 20
    assert len(keys(path)) == 20


def test_failure_in_a_batch(store: StoreThread, path: str) -> None:
    """A function that fails midway leaves nothing, and the others of its batch are stored."""
    results: list[Any] = []
    insert = make_run(scheduled_at=T0)

    def fail(db: Database) -> None:
        set_meta(db, "half", 1)
        events.append(db, "lost", {}, T0)
        raise KeyError("mine")

    def twice(db: Database) -> None:
        insert_run(db, insert)
        insert_run(db, make_run(scheduled_at=T0))

    def leave(_: Database) -> None:
        raise SystemExit(3)

    release = hold(store)
    for change in (put("a"), fail, put("b"), twice, leave, put("c")):
        store.submit(change, results.append)
    store.submit(lambda db: events.append(db, "kept", {}, T0), results.append)
    release()
    until_done(store, 8)
    assert (results[0], results[2], results[5], results[6]) == ("a", "b", "c", 1)
    assert [type(outcome) for outcome in (results[1], results[3], results[4])] == [KeyError, InstantTaken, SystemExit]
    assert keys(path) == {"a", "b", "c"}
    reader = open_reader(path)
    assert reader.rows("SELECT count(*) FROM runs") == [(0,)]
    reader.close()


@on_sqlite
@pytest.mark.parametrize("alone", [True, False])
def test_full_disk(store: StoreThread, path: str, alone: bool) -> None:
    """On a full disk the function that needs room gets the error; small ones of the same batch are stored."""
    results: list[Any] = []

    def limit(db: Database) -> None:
        pages = db.rows("PRAGMA page_count")[0][0]
        db.rows(f"PRAGMA max_page_count = {pages}")

    def big(db: Database) -> None:
        set_meta(db, "big", "x" * 1_000_000)

    store.submit(limit, results.append)
    until_done(store, 1)
    release = hold(store)
    for change in (big,) if alone else (put("a"), big, put("b")):
        store.submit(change, results.append)
    release()
    until_done(store, 2 if alone else 4)
    assert [outcome for outcome in results if not isinstance(outcome, DiskFull)] == (
        [None] if alone else [None, "a", "b"]
    )
    assert sum(isinstance(outcome, DiskFull) for outcome in results) == 1
    assert keys(path) == (set() if alone else {"a", "b"})


@on_sqlite
def test_locked_database(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process writes, every function of a batch gets Busy after one wait; later ones are stored."""
    monkeypatch.setattr("store.backends.sqlite.BUSY_WAIT_S", 0.05)
    store, other = StoreThread(open_writer(path)), open_writer(path)
    results: list[Any] = []
    with other.transaction():
        set_meta(other, "theirs", 1)
        for n in range(3):
            store.submit(put(f"k{n}"), results.append)
        until_done(store, 3)
    assert [type(outcome) for outcome in results] == [DatabaseLocked] * 3
    store.submit(put("mine"), results.append)
    store.close()
    other.close()
    assert keys(path) == {"theirs", "mine"}


def test_exception_in_done(store: StoreThread) -> None:
    """An exception in a `done` propagates, and the results after it are not lost."""
    results: list[Any] = []

    def fail(_: object) -> None:
        raise KeyError("done")

    release = hold(store)
    store.submit(put("a"), fail)
    store.submit(put("b"), results.append)
    release()
    delivered = 0
    while not results:
        assert select.select([store], [], [], DEADLINE_S)[0]
        try:
            store.drain()
        except KeyError:
            delivered += 1
    assert (results, delivered) == (["b"], 1)


def test_close(path: str) -> None:
    """Closing stores all submissions and delivers every result; later submissions are refused."""
    store = StoreThread(open_writer(path))
    results: list[Any] = []
    for n in range(1500):
        store.submit(put(f"k{n}"), results.append)
    store.close()
    store.close()
    assert results == [f"k{n}" for n in range(1500)]
    assert len(keys(path)) == 1500
    with pytest.raises(DatabaseClosed):
        store.submit(put("late"), results.append)


def test_submissions_from_many_threads(store: StoreThread, path: str) -> None:
    """Functions may be submitted from any thread; functions from the same thread run in order."""
    results: list[Any] = []

    def produce(name: str) -> None:
        for n in range(100):
            store.submit(put(f"{name}{n:03}"), results.append)

    threads = [threading.Thread(target=produce, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until_done(store, 400)
    for name in "abcd":
        mine = [key for key in results if key[0] == name]
        assert mine == sorted(mine)
    assert len(keys(path)) == 400


def test_function_sees_earlier_changes(store: StoreThread) -> None:
    """A function sees its own changes and the changes of earlier functions."""
    results: list[Any] = []
    release = hold(store)
    store.submit(put("a"), lambda _: None)
    store.submit(lambda db: get_meta(db, "a"), results.append)
    release()
    until_done(store, 3)
    assert results == [1]
