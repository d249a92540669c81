"""Pauses with an end, of single tasks and of the whole daemon, through restarts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store.daemon_values import get_meta
from store.tasks import get_task
from supervisor.scheduler.control.unit_operations import PAUSE, DaemonPause, UnitOperations
from tests.scheduler.control.operations import operations_of
from tests.scheduler.runs.schedules import HOUR, MINUTE, START, Schedules, ms, next_run, task

HOURLY = 'cron = "0 * * * *"\ncatch_up = 10'
Make = Callable[[str], "Pausable"]


class Pausable(Schedules):
    """Schedules that operations can pause."""

    def recall_pauses(self) -> None:
        self.daemon_pause = DaemonPause(
            self.core, self.scheduled_starts, self.units, get_meta(self.store.database, PAUSE)
        )
        for unit in self.units.values():
            self.scheduled_starts.lift_pause(unit)
        self.daemon_pause.lift()

    def act(self, operation: str, **arguments: Any) -> None:
        commands = UnitOperations(self.core, self.engine.stop, self.controller, self.scheduled_starts, self.units)
        named = {} if operation.startswith("daemon") else {"task": "t"}
        request = {**named, "by": "anna", **arguments}
        operations_of(commands, self.daemon_pause)[operation](request, lambda _answer: None)
        self.store.work_all()


@pytest.fixture
def pausable(tmp_path: Path) -> Iterator[Make]:
    made: list[Pausable] = []

    def make(keys: str) -> Pausable:
        made.append(Pausable(tmp_path, task(keys)))
        return made[-1]

    yield make
    for made_bench in made:
        made_bench.close()


WAYS = pytest.mark.parametrize("operation", ["task_pause", "daemon_pause"])


@WAYS
def test_pause_ends_by_itself(pausable: Make, operation: str) -> None:
    """A schedule runs again after the end of its pause; times during the pause neither run nor are missed."""
    harness = pausable(HOURLY)
    harness.act(operation, until=START + 150 * MINUTE, note="a disk")
    assert next_run(harness) is None
    harness.until(START + 5 * HOUR)
    assert harness.rows() == [("run", ms(f"2026-06-01T0{hour}:00:00Z"), None) for hour in (3, 4, 5)]
    stored = get_task(harness.store.database, "t")
    assert stored is not None
    assert (stored.paused, stored.withheld, get_meta(harness.store.database, PAUSE)) == (False, None, None)


@WAYS
@pytest.mark.parametrize("first", [False, True])
def test_pause_ends_while_nothing_runs(pausable: Make, operation: str, *, first: bool) -> None:
    """If a pause ends while the daemon or its scheduler is down, only the times after its end are caught up."""
    harness = pausable(HOURLY)
    harness.act(operation, until=START + 150 * MINUTE)
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=first)
    assert harness.ran() == [ms(f"2026-06-01T0{hour}:00:00Z") for hour in (3, 4, 5)]
    assert {reason for reason, _at, _count in harness.rows()} == {"run"}


@WAYS
def test_pause_survives_restarts(pausable: Make, operation: str) -> None:
    """A pause lasts over restarts until its end, or without one until it is resumed."""
    harness = pausable(HOURLY)
    harness.act(operation)
    for first in (False, True):
        harness.until(harness.clock.wall + HOUR)
        harness.dies(first=first)
    assert harness.rows() == []
    harness.act(operation.replace("pause", "resume"))
    harness.until(START + 3 * HOUR)
    assert harness.ran() == [ms("2026-06-01T03:00:00Z")]


@WAYS
@pytest.mark.parametrize("restart", [False, True])
def test_single_time_during_a_pause_with_an_end(pausable: Make, operation: str, *, restart: bool) -> None:
    """A single time that passes during a pause is recorded as skipped, even if the daemon is down."""
    harness = pausable('at = "2026-06-01T01:00:00Z"')
    harness.act(operation, until=START + 2 * HOUR)
    if restart:
        harness.clock.advance_ms(3 * HOUR)
        harness.dies(first=True)
    harness.until(START + 4 * HOUR)
    assert harness.rows() == [("skipped", ms("2026-06-01T01:00:00Z"), None)]


def test_task_stays_paused_after_the_daemon(pausable: Make) -> None:
    """The end of the daemon's pause does not resume a task that is paused itself, and the other way round."""
    harness = pausable(HOURLY)
    harness.act("task_pause")
    harness.act("daemon_pause")
    harness.act("daemon_resume")
    harness.until(START + HOUR)
    assert harness.rows() == []
    harness.act("daemon_pause")
    harness.act("task_resume")
    harness.until(START + 2 * HOUR)
    assert harness.rows() == []
    harness.act("daemon_resume")
    harness.until(START + 3 * HOUR)
    assert harness.ran() == [ms("2026-06-01T03:00:00Z")]


def test_new_pause_replaces_the_end(pausable: Make) -> None:
    """A task that is paused already can get another end."""
    harness = pausable(HOURLY)
    harness.act("task_pause", until=START + HOUR)
    harness.act("task_pause", until=START + 150 * MINUTE)
    harness.until(START + 3 * HOUR)
    assert harness.ran() == [ms("2026-06-01T03:00:00Z")]


def test_manual_runs_during_a_pause(pausable: Make) -> None:
    """People can still run tasks while all schedules are paused."""
    harness = pausable(HOURLY)
    harness.act("daemon_pause")
    harness.trigger("t")
    harness.store.work_all()
    assert len(harness.root.take("spawn")) == 1
