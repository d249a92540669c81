import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from store.database import Database
from store.errors import (
    Conflict,
    DatabaseDamaged,
    DatabaseLocked,
    DatabaseUnusable,
    DiskFailed,
    DiskFull,
    ReadOnly,
    ServerUnreachable,
    StoreError,
)
from supervisor.scheduler.database.commits import Change, StoreStuck
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

Make = Callable[[str], Bench]


class Recorder:
    """Commits changes and records their results."""

    def __init__(self, one: Bench) -> None:
        self.one = one
        self.written: list[str] = []
        self.done: list[str] = []
        self.refused: list[tuple[str, BaseException]] = []

    def commit(
        self, name: str, *, awaited: bool = False, error: Exception | None = None, can_wait: bool = False
    ) -> None:
        def write(_db: Database) -> None:
            if error is not None:
                raise error
            self.written.append(name)

        def on_failed(err: BaseException) -> None:
            self.refused.append((name, err))

        change = Change(1, on_failed if awaited else None)
        change.write(write)
        change.then(lambda: self.done.append(name))
        self.one.committer.commit(change, can_wait=can_wait)


def test_changes_during_a_commit_share_the_next_transaction(bench: Make) -> None:
    """Changes made while the store is busy form its next transaction."""
    one = bench("")
    changes = Recorder(one)
    for name in "abc":
        changes.commit(name)
    one.store.work()
    assert changes.done == ["a"]
    one.store.work()
    assert changes.done == ["a", "b", "c"]
    assert one.committer.idle


def test_one_transaction_per_round(bench: Make) -> None:
    """All changes of one round of the loop share one transaction, even if the store is idle."""
    one = bench("")
    changes = Recorder(one)
    for name in "abc":
        one.loop.after(0, functools.partial(changes.commit, name))
    one.loop.round(0)
    assert len(one.store.jobs) == 1
    one.store.work()
    assert changes.done == ["a", "b", "c"]
    assert one.committer.idle


def test_deferrable_change_joins_the_next(tmp_path: Path) -> None:
    """A change that can wait is stored with the next change, in order, or alone after a moment."""
    clock = FakeClock()
    one = Bench(tmp_path, "", clock)
    changes = Recorder(one)
    for name in "ab":
        changes.commit(name, can_wait=True)
    assert one.store.jobs == []
    changes.commit("c")
    one.store.work()
    assert changes.done == ["a", "b", "c"]
    changes.commit("d", can_wait=True)
    one.loop.round(0)
    assert one.store.jobs == []
    clock.advance(0.005)
    one.loop.round(0)
    one.store.work()
    assert changes.done == ["a", "b", "c", "d"]
    assert one.committer.idle
    one.close()


def test_failed_change_blocks_later_ones(bench: Make) -> None:
    """A failed change is retried before any later change is stored."""
    one = bench("")
    changes = Recorder(one)
    changes.commit("started")
    changes.commit("exited")
    one.store.fail(DatabaseLocked())
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


def test_failing_change_does_not_discard_others(bench: Make) -> None:
    """The changes of a failed transaction are retried one by one; only the failing change is dropped."""
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


def test_read_in_a_transaction(bench: Make) -> None:
    """A read sees the writes before it; a repeated transaction reads again, and the effect gets that result once."""
    one = bench("")
    attempts: list[int] = []
    results: list[int] = []

    def write(_db: Database) -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise DiskFull

    change = Change(1)
    early = change.read(lambda _db: len(attempts))
    change.write(write)
    early.then(results.append)
    change.read(lambda _db: 10 * len(attempts)).then(results.append)
    one.committer.commit(change)
    one.store.work()
    assert results == []
    one.committer._feed()  # a second later
    one.store.work_all()
    assert results == [1, 20]
    assert one.committer.idle


def test_unbegun_transaction_is_not_split(bench: Make) -> None:
    """If a transaction cannot begin, waiting clients get an error at once. Its other changes are retried together."""
    one = bench("")
    changes = Recorder(one)
    for name in ("first", "awaited", "patient", "behind"):
        changes.commit(name, awaited=name == "awaited")
    one.store.work()
    one.store.fail(DatabaseLocked())
    assert ([name for name, _ in changes.refused], one.committer.storing, one.store.jobs) == (["awaited"], False, [])
    one.committer._feed()
    one.store.work_all()
    assert changes.done == ["first", "patient", "behind"]


def test_waiting_clients_are_refused_while_the_store_is_stuck(bench: Make) -> None:
    """While the store is stuck, changes with a waiting client are refused, queued and new ones alike."""
    one = bench("")
    changes = Recorder(one)
    changes.commit("patient")
    changes.commit("waiting", awaited=True)
    one.store.fail(DiskFull())
    changes.commit("new", awaited=True)
    assert [(name, type(error)) for name, error in changes.refused] == [("waiting", StoreStuck), ("new", StoreStuck)]
    assert {str(error) for _, error in changes.refused} == {"earlier changes cannot be stored yet"}
    one.committer._feed()
    one.store.work_all()
    changes.commit("later", awaited=True)
    one.store.work_all()
    assert changes.done == ["patient", "later"]


def test_refusal_that_commits(bench: Make) -> None:
    """A change that a refusal commits is stored after all queued changes, and none of them is lost."""
    one = bench("")
    changes = Recorder(one)
    changes.commit("first")
    changes.commit("patient")

    awaited = Change(1, lambda _error: changes.commit("told"))
    awaited.write(lambda _db: None)
    one.committer.commit(awaited)
    changes.commit("behind")
    one.store.fail(DiskFull())
    one.committer._feed()
    one.store.work_all()
    assert changes.done == ["first", "patient", "behind", "told"]


def test_outbox_is_bounded(bench: Make) -> None:
    """The outbox keeps the newest 10,000 events."""
    one = bench("")
    for _ in range(12):
        change = Change(1)
        for _ in range(1000):
            change.announce("a", {})
        one.committer.commit(change)
        one.store.work_all()
    [(count, newest)] = one.store.database.rows("SELECT count(*), max(seq) FROM outbox")
    assert (count, newest) == (10_000, 12_000)


def test_dropped_first_change_releases_the_queue(bench: Make) -> None:
    """When the blocking change is dropped at last, all others are stored."""
    one = bench("")
    changes = Recorder(one)
    change = Change(1, lambda _error: None, given_up_on=Conflict)
    change.write(lambda _db: None)
    one.committer.commit(change)
    changes.commit("behind")
    one.store.fail(DiskFull())
    one.committer._feed()
    one.store.fail(Conflict())
    one.store.work_all()
    changes.commit("later", awaited=True)
    one.store.work_all()
    assert changes.done == ["behind", "later"]


def storing(one: Bench) -> bool:
    return one.committer.storing


@pytest.mark.parametrize("kind", [DatabaseLocked, DiskFailed, DiskFull, ReadOnly, DatabaseUnusable])
def test_failing_store_is_reported_once(tmp_path: Path, kind: type[StoreError]) -> None:
    """A failing store is reported once, even if only awaited changes fail, and the report is stored later."""
    clock = FakeClock()
    one = Bench(tmp_path, "", clock)
    changes = Recorder(one)
    one.commits.failed = lambda _error: changes.commit("told")
    changes.commit("awaited", awaited=True)
    for _ in range(3):
        one.store.fail(kind())
        one.loop.round(0)
        clock.advance(1)
        one.loop.round(0)
    assert not storing(one)
    one.store.work_all()
    assert storing(one)
    assert changes.done == ["told"]
    assert [name for name, _ in changes.refused] == ["awaited"]
    one.close()


def test_damage_after_another_failure(tmp_path: Path) -> None:
    """Damage that follows another failure is reported, although that failure was reported already."""
    clock = FakeClock()
    one = Bench(tmp_path, "", clock)
    changes = Recorder(one)
    damage: list[DatabaseUnusable] = []
    one.commits.unusable = damage.append
    changes.commit("patient")
    for error in (DiskFull(), DatabaseDamaged()):
        one.store.fail(error)
        clock.advance(1)
        one.loop.round(0)
    assert len(damage) == 1
    one.store.work_all()
    assert changes.done == ["patient"]
    one.close()


def test_each_reason_is_logged_once(bench: Make, capfd: pytest.CaptureFixture[str]) -> None:
    """Each reason for a failure is logged once, so an outage does not hide that the database came back empty."""
    one = bench("")
    changes = Recorder(one)
    for _ in range(2):
        changes.commit("change")
        unreachable, unusable = ServerUnreachable("(gone)"), DatabaseUnusable("(empty)")
        for error in (unreachable, unreachable, unusable, unreachable, unusable):
            one.store.fail(error)
            one.committer._feed()
        one.store.work_all()
        logged = capfd.readouterr().err
        assert (logged.count("(gone)"), logged.count("(empty)")) == (1, 1)


def test_unresponsive_store(tmp_path: Path) -> None:
    """After 5 s without an answer, changes with a waiting client are refused and one failure is reported.

    Other changes are stored later.
    """
    clock = FakeClock()
    one = Bench(tmp_path, "", clock)
    changes = Recorder(one)
    troubles: list[BaseException] = []
    one.commits.failed = troubles.append
    changes.commit("stored")
    one.store.work()
    clock.advance(5)
    one.loop.round(0)
    assert storing(one)
    changes.commit("hangs")
    changes.commit("patient")
    changes.commit("awaited", awaited=True)
    for _ in range(2):
        clock.advance(5)
        one.loop.round(0)
    assert not storing(one)
    assert len(troubles) == 1
    changes.commit("late", awaited=True)
    assert [(name, type(error)) for name, error in changes.refused] == [("awaited", StoreStuck), ("late", StoreStuck)]
    one.store.work_all()
    assert storing(one)
    assert changes.done == ["stored", "hangs", "patient"]
    one.close()
