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

    def __init__(self, harness: Bench) -> None:
        self.one = harness
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
    harness = bench("")
    changes = Recorder(harness)
    for name in "abc":
        changes.commit(name)
    harness.store.work()
    assert changes.done == ["a"]
    harness.store.work()
    assert changes.done == ["a", "b", "c"]
    assert harness.committer.idle


def test_one_transaction_per_round(bench: Make) -> None:
    """All changes of one round of the loop share one transaction, even if the store is idle."""
    harness = bench("")
    changes = Recorder(harness)
    for name in "abc":
        harness.loop.after(0, functools.partial(changes.commit, name))
    harness.loop.round(0)
    assert len(harness.store.jobs) == 1
    harness.store.work()
    assert changes.done == ["a", "b", "c"]
    assert harness.committer.idle


def test_deferrable_change_joins_the_next(tmp_path: Path) -> None:
    """A change that can wait is stored with the next change, in order, or alone after a moment."""
    clock = FakeClock()
    harness = Bench(tmp_path, "", clock)
    changes = Recorder(harness)
    for name in "ab":
        changes.commit(name, can_wait=True)
    assert harness.store.jobs == []
    changes.commit("c")
    harness.store.work()
    assert changes.done == ["a", "b", "c"]
    changes.commit("d", can_wait=True)
    harness.loop.round(0)
    assert harness.store.jobs == []
    clock.advance(0.005)
    harness.loop.round(0)
    harness.store.work()
    assert changes.done == ["a", "b", "c", "d"]
    assert harness.committer.idle
    harness.close()


def test_failed_change_blocks_later_ones(bench: Make) -> None:
    """A failed change is retried before any later change is stored."""
    harness = bench("")
    changes = Recorder(harness)
    changes.commit("started")
    changes.commit("exited")
    harness.store.fail(DatabaseLocked())
    assert changes.written == []
    changes.commit("again")
    assert harness.store.jobs == []
    harness.committer._feed()  # a second later
    harness.store.fail(DiskFull())
    assert harness.store.jobs == []
    harness.committer._feed()
    harness.store.work_all()
    assert changes.written == changes.done == ["started", "exited", "again"]
    assert harness.committer.idle


def test_failing_change_does_not_discard_others(bench: Make) -> None:
    """The changes of a failed transaction are retried one by one; only the failing change is dropped."""
    harness = bench("")
    changes = Recorder(harness)
    changes.commit("first")
    changes.commit("good")
    changes.commit("bad", awaited=True)
    changes.commit("also good")
    harness.store.work()
    harness.store.fail(DiskFull())
    harness.store.work()
    harness.store.fail(DiskFull())
    harness.store.work_all()
    assert changes.done == ["first", "good", "also good"]
    assert [name for name, _ in changes.refused] == ["bad"]
    assert harness.committer.idle


def test_read_in_a_transaction(bench: Make) -> None:
    """A read sees the writes before it; a repeated transaction reads again, and the effect gets that result once."""
    harness = bench("")
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
    harness.committer.commit(change)
    harness.store.work()
    assert results == []
    harness.committer._feed()  # a second later
    harness.store.work_all()
    assert results == [1, 20]
    assert harness.committer.idle


def test_unbegun_transaction_is_not_split(bench: Make) -> None:
    """If a transaction cannot begin, waiting clients get an error at once. Its other changes are retried together."""
    harness = bench("")
    changes = Recorder(harness)
    for name in ("first", "awaited", "patient", "behind"):
        changes.commit(name, awaited=name == "awaited")
    harness.store.work()
    harness.store.fail(DatabaseLocked())
    assert ([name for name, _ in changes.refused], harness.committer.storing, harness.store.jobs) == (
        ["awaited"],
        False,
        [],
    )
    harness.committer._feed()
    harness.store.work_all()
    assert changes.done == ["first", "patient", "behind"]


def test_waiting_clients_are_refused_while_the_store_is_stuck(bench: Make) -> None:
    """While the store is stuck, changes with a waiting client are refused, queued and new ones alike."""
    harness = bench("")
    changes = Recorder(harness)
    changes.commit("patient")
    changes.commit("waiting", awaited=True)
    harness.store.fail(DiskFull())
    changes.commit("new", awaited=True)
    assert [(name, type(error)) for name, error in changes.refused] == [("waiting", StoreStuck), ("new", StoreStuck)]
    assert {str(error) for _, error in changes.refused} == {"earlier changes cannot be stored yet"}
    harness.committer._feed()
    harness.store.work_all()
    changes.commit("later", awaited=True)
    harness.store.work_all()
    assert changes.done == ["patient", "later"]


def test_refusal_that_commits(bench: Make) -> None:
    """A change that a refusal commits is stored after all queued changes, and none of them is lost."""
    harness = bench("")
    changes = Recorder(harness)
    changes.commit("first")
    changes.commit("patient")

    awaited = Change(1, lambda _error: changes.commit("told"))
    awaited.write(lambda _db: None)
    harness.committer.commit(awaited)
    changes.commit("behind")
    harness.store.fail(DiskFull())
    harness.committer._feed()
    harness.store.work_all()
    assert changes.done == ["first", "patient", "behind", "told"]


def test_outbox_is_bounded(bench: Make) -> None:
    """The outbox keeps the newest 10,000 events."""
    harness = bench("")
    for _ in range(12):
        change = Change(1)
        for _ in range(1000):
            change.announce("a", {})
        harness.committer.commit(change)
        harness.store.work_all()
    [(count, newest)] = harness.store.database.rows("SELECT count(*), max(seq) FROM outbox")
    assert (count, newest) == (10_000, 12_000)


def test_dropped_first_change_releases_the_queue(bench: Make) -> None:
    """When the blocking change is dropped at last, all others are stored."""
    harness = bench("")
    changes = Recorder(harness)
    change = Change(1, lambda _error: None, given_up_on=Conflict)
    change.write(lambda _db: None)
    harness.committer.commit(change)
    changes.commit("behind")
    harness.store.fail(DiskFull())
    harness.committer._feed()
    harness.store.fail(Conflict())
    harness.store.work_all()
    changes.commit("later", awaited=True)
    harness.store.work_all()
    assert changes.done == ["behind", "later"]


def storing(harness: Bench) -> bool:
    return harness.committer.storing


@pytest.mark.parametrize("kind", [DatabaseLocked, DiskFailed, DiskFull, ReadOnly, DatabaseUnusable])
def test_failing_store_is_reported_once(tmp_path: Path, kind: type[StoreError]) -> None:
    """A failing store is reported once, even if only awaited changes fail, and the report is stored later."""
    clock = FakeClock()
    harness = Bench(tmp_path, "", clock)
    changes = Recorder(harness)
    harness.commits.failed = lambda _error: changes.commit("told")
    changes.commit("awaited", awaited=True)
    for _ in range(3):
        harness.store.fail(kind())
        harness.loop.round(0)
        clock.advance(1)
        harness.loop.round(0)
    assert not storing(harness)
    harness.store.work_all()
    assert storing(harness)
    assert changes.done == ["told"]
    assert [name for name, _ in changes.refused] == ["awaited"]
    harness.close()


def test_damage_after_another_failure(tmp_path: Path) -> None:
    """Damage that follows another failure is reported, although that failure was reported already."""
    clock = FakeClock()
    harness = Bench(tmp_path, "", clock)
    changes = Recorder(harness)
    damage: list[DatabaseUnusable] = []
    harness.commits.unusable = damage.append
    changes.commit("patient")
    for error in (DiskFull(), DatabaseDamaged()):
        harness.store.fail(error)
        clock.advance(1)
        harness.loop.round(0)
    assert len(damage) == 1
    harness.store.work_all()
    assert changes.done == ["patient"]
    harness.close()


def test_each_reason_is_logged_once(bench: Make, capfd: pytest.CaptureFixture[str]) -> None:
    """Each reason for a failure is logged once, so an outage does not hide that the database came back empty."""
    harness = bench("")
    changes = Recorder(harness)
    for _ in range(2):
        changes.commit("change")
        unreachable, unusable = ServerUnreachable("(gone)"), DatabaseUnusable("(empty)")
        for error in (unreachable, unreachable, unusable, unreachable, unusable):
            harness.store.fail(error)
            harness.committer._feed()
        harness.store.work_all()
        logged = capfd.readouterr().err
        assert (logged.count("(gone)"), logged.count("(empty)")) == (1, 1)


def test_unresponsive_store(tmp_path: Path) -> None:
    """After 5 s without an answer, changes with a waiting client are refused and one failure is reported.

    Other changes are stored later.
    """
    clock = FakeClock()
    harness = Bench(tmp_path, "", clock)
    changes = Recorder(harness)
    troubles: list[BaseException] = []
    harness.commits.failed = troubles.append
    changes.commit("stored")
    harness.store.work()
    clock.advance(5)
    harness.loop.round(0)
    assert storing(harness)
    changes.commit("hangs")
    changes.commit("patient")
    changes.commit("awaited", awaited=True)
    for _ in range(2):
        clock.advance(5)
        harness.loop.round(0)
    assert not storing(harness)
    assert len(troubles) == 1
    changes.commit("late", awaited=True)
    assert [(name, type(error)) for name, error in changes.refused] == [("awaited", StoreStuck), ("late", StoreStuck)]
    harness.store.work_all()
    assert storing(harness)
    assert changes.done == ["stored", "hangs", "patient"]
    harness.close()
