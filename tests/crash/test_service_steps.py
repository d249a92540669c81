"""The scheduler killed at labelled steps while services are stopped, started and restarted."""

import contextlib
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness import Report, compare, numbered
from tests.crash.test_each_step import StepsDaemon
from tests.e2e.daemon import Daemon
from tests.waiting import until

LABELS = (
    "settled",
    "before storing",
    "stored",
    "before spawn",
    "after spawn",
    "before stop",
    "after stop",
    "before exited",
    "after exited",
    "before ack",
    "before answering",
    "answered",
)
COMMANDS = ("stop", "start", "restart", "restart?rolling=true")
INSTANCES = 2


class Asking:
    """Gives commands until they are taken."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.repeated = False

    def __call__(self, command: str) -> None:
        """409: one of before was taken, and the answer lost with the scheduler."""
        if not self._taken(command):
            self.repeated = True
            until(lambda: self._taken(command), f"{command} to be taken")

    def _taken(self, command: str) -> bool:
        with contextlib.suppress(OSError):
            return self._daemon.request("POST", f"/api/tasks/s/{command}").status in (204, 409)
        return False


def states(daemon: Daemon) -> list[str]:
    return [one["state"] for one in daemon.task("s")["instances"]]


def settled(daemon: Daemon, ids: set[str]) -> set[str]:
    """Ids of the runs when all instances run, none of them as one of `ids`."""
    task = daemon.task("s")
    found = {one.get("runId", "") for one in task["instances"] if one["state"] == "running"}
    return found if len(found) == INSTANCES and not found & ids and "rolling" not in task else set()


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("label", LABELS)
def test_the_scheduler_dies_at(label: str, number: int, tmp_path: Path) -> None:
    """Each command is carried out to its end, no two processes of an instance ever run, and no ending is lost."""
    sides = tmp_path / "sides"
    sides.mkdir()
    daemon = StepsDaemon(tmp_path, label, number)
    daemon.write(
        f"[services.s]\n{numbered(1_000_000, 0.01, sides)}\n"
        f'instances = {INSTANCES}\nrestart_delay = "1h"\nhealthy_after = "10ms"\n'
    )
    try:
        daemon.start()
        asked = Asking(daemon)
        seen = until(lambda: settled(daemon, set()), "the service")
        asked("stop")
        until(lambda: states(daemon) == ["stopped"] * INSTANCES, "it to be stopped")
        for command in COMMANDS[1:]:
            asked(command)
            seen |= until(lambda old=seen: settled(daemon, old), f"its processes after {command}")  # type: ignore[misc]
        until(daemon.ready, "the daemon to be ready")
        assert daemon.stop() == 0
        reached = not daemon.plan.exists()
        daemon.start()
        report = Report()
        compare(daemon, sides, report)
        runs = [run for run in daemon.runs("s") if run["status"] == "ended"]
    finally:
        daemon.clean()
    assert report.differences == []
    assert {run["endReason"] for run in runs} == {"stopped", "daemon_stopped"}
    assert not overlapping(runs)
    if not asked.repeated:
        assert {run["id"] for run in runs} == seen
    assert reached or number > 1


def overlapping(runs: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of runs of one instance of which the second began before the first had ended."""
    found = []
    for _, group in groupby(sorted(runs, key=lambda run: run["instanceIndex"]), key=lambda run: run["instanceIndex"]):
        begun = sorted((run for run in group if "startedAt" in run), key=lambda run: run["startedAt"])
        found += [
            (first["id"], second["id"]) for first, second in pairwise(begun) if second["startedAt"] < first["endedAt"]
        ]
    return found
