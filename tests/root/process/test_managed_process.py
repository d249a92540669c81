"""The root's record of a run."""

import time

import pytest

from supervisor.root.process.managed_process import MainProcess, ManagedProcess
from tests.root.loop.test_control_thread import spawn


def test_clock_set_during_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's duration includes sleep of the host, and does not depend on the wall clock."""
    clocks = {time.CLOCK_BOOTTIME: 100.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clocks[clock])
    instance = ManagedProcess(spawn("R"), MainProcess(1, 1, 5_000))
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    clocks[time.CLOCK_BOOTTIME] += 7.25
    instance.has_ended()
    assert instance.outcome.ended_at == 5_000 + 7_250
