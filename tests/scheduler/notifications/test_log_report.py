"""Reports about logs that cannot store output."""

from collections.abc import Callable

import pytest

from store import events, notifications
from store.notifications import Notification
from supervisor.scheduler.notifications.run_alerts import LogReport
from tests.scheduler.bench import Bench

Make = Callable[[str], Bench]


class Reports:
    """The reports of a daemon with one run, which has not ended."""

    def __init__(self, harness: Bench) -> None:
        self._harness = harness
        self.run = harness.trigger("t")
        harness.store.work_all()
        self.reports = LogReport(harness.engine.live, harness.notifications, harness.log)

    def changed(self, state: str, reason: str | None = None, run: str | None = None) -> list[str]:
        """Report a state of a log, by default that of the run; return all problems."""
        change = self._harness.committer.change()
        message = {"op": "log", "run": run or self.run.id, "state": state, "reason": reason}
        self.reports.changed(message, change)
        self._harness.committer.commit(change)
        return self.reports.facts()["log_problems"]

    def notified(self) -> list[Notification]:
        self._harness.store.work_all()
        return notifications.page(self._harness.store.database, 100)

    def announced(self) -> list[object]:
        self._harness.store.work_all()
        found = events.since(self._harness.store.database, 0)
        return [event.body["log"] for event in found if event.kind == "run.updated" and "log" in event.body]


@pytest.fixture
def bench(bench: Make) -> Reports:
    return Reports(bench('[tasks.t]\nrun = "true"\n'))


@pytest.mark.parametrize(("state", "fate"), [("waiting", "waits"), ("dropping", "is dropped")])
def test_refused_output(bench: Reports, state: str, fate: str) -> None:
    """Output that waits or is dropped is a problem until the log stores it; one notification names the log."""
    run = bench.run.id
    assert bench.changed(state, "Input/output error") == [f"t {run}: its output {fate}: Input/output error"]
    assert bench.changed(state, "Stale file handle") == [f"t {run}: its output {fate}: Stale file handle"]
    assert bench.changed("ok") == []
    (notification,) = bench.notified()
    assert (notification.kind, notification.severity, notification.task_name, notification.run_id) == (
        "log.disk_pressure",
        "warn",
        "t",
        run,
    )
    assert notification.title == f"Output of t {fate}"
    assert notification.body == f"Run {run}: its log accepts no output: Input/output error."
    assert bench.announced()[0] == {"state": state, "reason": "Input/output error"}
    assert bench.announced()[-1] == {"state": "ok"}


def test_log_of_an_ended_run(bench: Reports) -> None:
    """A log that is not written when its run has ended is a problem as well."""
    assert bench.changed("waiting", "No space left on device", "Z") == [
        "run Z: its output waits: No space left on device"
    ]
    (notification,) = bench.notified()
    assert (notification.title, notification.run_id) == ("Output of an ended run waits", "Z")
    assert bench.changed("ok", run="Z") == []
    assert bench.announced() == []


def test_log_that_is_full_by_its_policy(bench: Reports) -> None:
    """Output that ``log_on_full`` drops is reported, but is no problem of the daemon."""
    assert bench.changed("dropping", "the log is full") == []
    assert [item.title for item in bench.notified()] == ["Output of t is dropped"]


def test_rings_without_a_place(bench: Reports) -> None:
    """A runtime directory without room for rings is a problem until it has room; one notification says so."""
    problem = "rings have no place, so lines appear up to a second late: /run/R.ring: No space left on device"
    for _ in range(2):
        assert bench.changed("waiting", "/run/R.ring: No space left on device", "daemon") == [problem]
    (notification,) = bench.notified()
    assert (notification.title, notification.body) == ("The runtime directory has no room", f"{problem}.")
    assert bench.changed("ok", run="daemon") == []
    assert len(bench.notified()) == 1


def test_many_problems(bench: Reports) -> None:
    """Twenty problems are listed, and the others are counted."""
    for number in range(25):
        problems = bench.changed("waiting", "slow", str(number))
    assert len(problems) == 21
    assert problems[-1] == "5 more"
