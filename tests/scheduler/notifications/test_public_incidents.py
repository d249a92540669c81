"""Incidents on the public status page begin with a public acknowledgement, and end when the unit is healthy again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.notifications import public_incidents
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from tests.scheduler.control.operations import operations_of
from tests.scheduler.notifications.test_outbox import TEXT, OutboxBench


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[OutboxBench]:
    bench = OutboxBench(tmp_path, TEXT)
    yield bench
    bench.close()


def ask(desk: OutboxBench, operation: str, **more: Any) -> None:
    starts = ScheduledStarts(desk.core, desk.engine)
    commands = UnitOperations(desk.core, desk.engine.stop, desk.controller, starts, desk.units)
    operations_of(commands)[operation]({"task": "t", "by": "anna", **more}, lambda _answer: None)
    desk.store.work_all()


def acknowledge(desk: OutboxBench, note: str, **more: Any) -> None:
    ask(desk, "acknowledge", run=None, for_ms=None, note=note, **more)


def shown(desk: OutboxBench) -> list[tuple[str, bool]]:
    return [(one.text, one.ended_at is not None) for one in public_incidents(desk.store.database)]


def test_ends_with_a_success(desk: OutboxBench) -> None:
    """The incident of a task lasts over further failures and another daemon, until a run succeeds."""
    desk.fail()
    acknowledge(desk, "private")
    assert shown(desk) == []
    acknowledge(desk, "we know", public=True)
    desk.fail()
    assert shown(desk) == [("we know", False)]
    desk.store.jobs.clear()
    desk.take_up(first=True)
    desk.begin()
    desk.fail("t", 0)
    assert shown(desk) == [("we know", True)]


def test_ends_when_it_is_withdrawn(desk: OutboxBench) -> None:
    """Withdrawing the acknowledgement ends the incident."""
    desk.fail()
    acknowledge(desk, "we know", public=True)
    ask(desk, "unacknowledge")
    assert shown(desk) == [("we know", True)]
