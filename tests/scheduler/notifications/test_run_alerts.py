"""Alerts about active runs, with a clock that the test sets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logring.layout import STDOUT, RingShape
from logring.log_paths import ring_path
from logring.ring.writer import RingWriter
from supervisor.scheduler.notifications.run_alerts import RunAlerts
from supervisor.scheduler.runs.live_units import LiveRun
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

MINUTE_S = 60
HOUR_MS = 3_600_000


class Alerts(Bench):
    """A bench with a run that has a log."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        super().__init__(directory, '[tasks.t]\nrun = "true"\nsilence_alert = "10m"\n', self.clock)
        self.alerts = RunAlerts(self.core, self.notifications)
        self.run: LiveRun = self.trigger("t")
        Path(ring_path(self.settings.runtime_dir, self.run.id)).parent.mkdir(exist_ok=True)
        self.ring = RingWriter.new(ring_path(self.settings.runtime_dir, self.run.id), self.run.id, RingShape(0))
        self.alerts.run_is_running(self.run, self.clock.wall)

    def prints(self) -> None:
        self.ring.append(STDOUT, b"word\n", self.clock.wall)
        self.ring.mirror_pending()

    def pass_minutes(self, minutes: int, *, printing: bool = False) -> None:
        """Let time pass while the host is awake."""
        for _ in range(minutes):
            self.clock.advance(MINUTE_S)
            if printing:
                self.prints()
            self.loop.round(0)
            self.store.work_all()

    def raised(self) -> int:
        """Return how often the run was reported as silent."""
        rows = self.store.database.rows("SELECT times FROM notifications WHERE kind = 'run.silent'")
        return sum(times for (times,) in rows)

    def close(self) -> None:
        self.ring.close()
        super().close()


@pytest.fixture
def alerts(tmp_path: Path) -> Iterator[Alerts]:
    made = Alerts(tmp_path)
    yield made
    made.close()


def test_silence(alerts: Alerts) -> None:
    """A silence is reported once, ten minutes after the last line, however long it lasts; a later one again."""
    alerts.pass_minutes(9)
    alerts.prints()
    alerts.pass_minutes(9)
    assert alerts.raised() == 0
    alerts.pass_minutes(1)
    assert alerts.raised() == 1
    alerts.pass_minutes(55)
    assert alerts.raised() == 1
    alerts.prints()
    alerts.pass_minutes(9)
    assert alerts.raised() == 1
    alerts.pass_minutes(2)
    assert alerts.raised() == 2


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 400 * 24 * HOUR_MS, -400 * 24 * HOUR_MS])
def test_set_clock(alerts: Alerts, step_ms: int) -> None:
    """A run that prints is not reported because the wall clock was set, and one that stops printing still is."""
    alerts.pass_minutes(15, printing=True)
    alerts.clock.wall += step_ms
    alerts.pass_minutes(30, printing=True)
    assert alerts.raised() == 0
    alerts.pass_minutes(20)
    assert alerts.raised() >= 1


def test_suspended_host(alerts: Alerts) -> None:
    """A run is not reported for the time in which the host slept, but later if it stays silent."""
    alerts.pass_minutes(5, printing=True)
    alerts.clock.suspend(3600)
    alerts.pass_minutes(9)
    assert alerts.raised() == 0
    alerts.pass_minutes(10)
    assert alerts.raised() == 1
