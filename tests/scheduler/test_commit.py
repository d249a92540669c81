from collections.abc import Callable

from store.database import Database
from store.errors import Busy, DiskFull
from supervisor.scheduler.commit import Change, StoreStuck
from tests.scheduler.bench import Bench

Make = Callable[[str], Bench]


class Recorder:
    """Commits changes and notes what becomes of them."""

    def __init__(self, one: Bench) -> None:
        self.one = one
        self.written: list[str] = []
        self.done: list[str] = []
        self.refused: list[tuple[str, BaseException]] = []

    def commit(self, name: str, *, awaited: bool = False, error: Exception | None = None) -> None:
        def write(_db: Database) -> None:
            if error is not None:
                raise error
            self.written.append(name)

        def on_failed(err: BaseException) -> bool:
            self.refused.append((name, err))
            return True

        change = Change(1, on_failed if awaited else None)
        change.write(write)
        change.then(lambda: self.done.append(name))
        self.one.committer.commit(change)


def test_what_comes_together_is_stored_together(bench: Make) -> None:
    """What comes while the store is busy is its next transaction."""
    one = bench("")
    changes = Recorder(one)
    for name in "abc":
        changes.commit(name)
    one.store.work()
    assert changes.done == ["a"]
    one.store.work()
    assert changes.done == ["a", "b", "c"]
    assert one.committer.idle


def test_nothing_overtakes(bench: Make) -> None:
    """What was committed behind a change that cannot be stored is not stored before it, whenever it came."""
    one = bench("")
    changes = Recorder(one)
    changes.commit("started")
    changes.commit("exited")
    one.store.fail(Busy())
    assert changes.written == []
    changes.commit("again")
    assert one.store.jobs == []
    one.committer._feed()  # a second later
    one.store.fail(DiskFull())
    assert one.store.jobs == []
    one.committer._feed()
    one.store.work_all()
    assert changes.written == changes.done == ["started", "exited", "again"]
    assert one.committer.idle


def test_one_that_fails_takes_nothing_with_it(bench: Make) -> None:
    """A transaction that fails is repeated one by one; only the one that cannot be stored is given up."""
    one = bench("")
    changes = Recorder(one)
    changes.commit("first")
    changes.commit("good")
    changes.commit("bad", awaited=True)
    changes.commit("also good")
    one.store.work()
    one.store.fail(DiskFull())
    one.store.work()
    one.store.fail(DiskFull())
    one.store.work_all()
    assert changes.done == ["first", "good", "also good"]
    assert [name for name, _ in changes.refused] == ["bad"]
    assert one.committer.idle


def test_who_waits_is_told_at_once(bench: Make) -> None:
    """While the store is stuck, changes with somebody waiting are refused, those in the queue and new ones alike."""
    one = bench("")
    changes = Recorder(one)
    changes.commit("patient")
    changes.commit("waiting", awaited=True)
    one.store.fail(DiskFull())
    changes.commit("new", awaited=True)
    assert [(name, type(error)) for name, error in changes.refused] == [("waiting", StoreStuck), ("new", StoreStuck)]
    one.committer._feed()
    one.store.work_all()
    changes.commit("later", awaited=True)
    one.store.work_all()
    assert changes.done == ["patient", "later"]


def test_a_refused_head_frees_the_others(bench: Make) -> None:
    """When the one that held everything up is given up at last, all goes on."""
    one = bench("")
    changes = Recorder(one)
    answers = iter([False, True])
    change = Change(1, lambda _error: next(answers))
    change.write(lambda _db: None)
    one.committer.commit(change)
    changes.commit("behind")
    one.store.fail(DiskFull())
    one.committer._feed()
    one.store.fail(DiskFull())
    one.store.work_all()
    changes.commit("later", awaited=True)
    one.store.work_all()
    assert changes.done == ["behind", "later"]
