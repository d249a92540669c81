"""A wall clock that is set by days or hours: retention and notifications."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import simulated_clock
from tests.support.daemon import PYTHON, Daemon
from tests.support.waiting import until

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOON_MS = 1_800_014_400_000
"""12:00 UTC."""


class SettableClock(Daemon):
    """A daemon whose scheduler uses a clock that the test sets."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        clock = str(directory / "clock")
        self.clock = simulated_clock.make(clock, NOON_MS)
        self._python = directory / "python"
        self._python.write_text(f'#!/bin/sh\nexec "{PYTHON}" -I "{simulated_clock.__file__}" "{clock}" "$@"\n')
        self._python.chmod(0o700)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "CLOCK_PYTHON": str(self._python)}

    def command(self) -> list[str]:
        main = f"import sys; from supervisor.cli.entry import main; sys.executable = {str(self._python)!r}; main()"
        return [str(PYTHON), "-I", "-c", main]

    def kinds(self) -> list[str]:
        """Return the kinds of all notifications."""
        return [item["kind"] for item in self.get("/api/notifications").json()["items"]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SettableClock]:
    clock = SettableClock(tmp_path)
    yield clock
    clock.clean()


def test_jump_by_days_removes_nothing(daemon: SettableClock) -> None:
    """Runs are kept while the clock is in doubt, even by the next scheduler, until a person trusts the clock."""
    daemon.write('[tasks.t]\nrun = "true"\nkeep_for = "30d"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))["id"]
    daemon.clock.set_to(NOON_MS + 400 * DAY_MS)
    until(lambda: "clock.doubted" in daemon.kinds(), "the notification")
    later = daemon.ended(daemon.trigger("t"))["id"]  # its end starts the removal of old runs
    daemon.kill_helper("ringward scheduler")
    until(lambda: daemon.get("/api/daemon").json().get("removalsHeldUntil"), "the next scheduler to doubt it, too")
    assert {run["id"] for run in daemon.runs("t")} == {run, later}
    status = daemon.cli("status")
    assert (status.returncode, "trust-clock" in status.stdout) == (1, True)
    assert daemon.cli("trust-clock").returncode == 0
    assert "removalsHeldUntil" not in daemon.get("/api/daemon").json()
    daemon.ended(daemon.trigger("t"))
    until(lambda: run not in [run["id"] for run in daemon.runs("t")], "the old run to be removed")


def test_clock_set_back_by_hours(daemon: SettableClock) -> None:
    """The status and a notification name the silent tasks, and the time from which they run again."""
    daemon.write('[tasks.t]\nrun = "true"\ncron = "0 * * * *"\n', daemon='timezone = "UTC"')
    daemon.start()
    daemon.clock.pass_to(NOON_MS + HOUR_MS)
    until(lambda: daemon.runs("t"), "a run of the schedule")
    daemon.clock.set_to(NOON_MS - 5 * HOUR_MS)
    until(lambda: "clock.set_back" in daemon.kinds(), "the notification")
    (notices,) = [item for item in daemon.get("/api/notifications").json()["items"] if item["kind"] == "clock.set_back"]
    assert "t runs again at 2027-01-15T14:00:00" in notices["body"]
    until(lambda: daemon.get("/api/daemon").json()["silentTaskCount"] == 1, "the API to tell")
    status = daemon.cli("status")
    assert status.returncode == 1
    assert "does not run, because the clock was set back; runs again at 2027-01-15T14:00:00" in status.stdout
    daemon.clock.set_to(NOON_MS + 2 * HOUR_MS)
    until(lambda: len(daemon.runs("t")) == 2, "the next run")
    until(lambda: daemon.get("/api/daemon").json()["silentTaskCount"] == 0, "the silence to be over")
