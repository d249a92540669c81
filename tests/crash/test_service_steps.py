"""The scheduler is killed at labelled steps while services are stopped, started and restarted."""

import contextlib
import random
from itertools import groupby, pairwise
from typing import Any

from tests.crash.daemon import StepsDaemon, at_some_time
from tests.crash.harness import numbered_then_silent
from tests.support.daemon import Daemon
from tests.support.waiting import until

LABELS = (
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


class Repeated:
    """A client that repeats commands until they are accepted."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.repeated = False

    def __call__(self, command: str) -> None:
        """Repeat a command. A 409 means that an earlier one was accepted and its response lost."""
        if not self._taken(command):
            self.repeated = True
            until(lambda: self._taken(command), f"{command} to be taken")

    def _taken(self, command: str) -> bool:
        with contextlib.suppress(OSError):
            return self._daemon.request("POST", f"/api/tasks/s/{command}").status in (204, 409)
        return False


def states(daemon: Daemon) -> list[str]:
    return [instance["state"] for instance in daemon.task("s")["instances"]]


def settled(daemon: Daemon, ids: set[str]) -> set[str]:
    """Return the ids of the runs once all instances run, none of them as one of `ids`."""
    task = daemon.task("s")
    running_ids = {instance.get("runId", "") for instance in task["instances"] if instance["state"] == "running"}
    return running_ids if len(running_ids) == INSTANCES and not running_ids & ids and "rolling" not in task else set()


@at_some_time
def test_scheduler_dies_during_service_commands(times: tuple[int, ...], daemon: StepsDaemon) -> None:
    """Each command is completed, processes of an instance never overlap, and no end is lost."""
    daemon.write(
        f"[services.s]\n{numbered_then_silent(daemon.sides)}\n"
        f'instances = {INSTANCES}\nrestart_delay = "1h"\nhealthy_after = "10ms"\n'
    )
    daemon.plan("settled")
    daemon.start()
    daemon.recovered()
    seen = until(lambda: settled(daemon, set()), "the service")
    for label in LABELS:
        daemon.plan(label, number=random.choice(times))
        repeated = Repeated(daemon)
        started = cycle(daemon, repeated, seen)
        daemon.recovered()
        runs = {run["id"] for run in daemon.runs("s")}
        assert repeated.repeated or runs == seen | started
        seen = runs
    assert daemon.stop() == 0
    assert daemon.verdict(set()).differences == []
    ended = [run for run in daemon.runs("s") if run["status"] == "ended"]
    assert {run["endReason"] for run in ended} == {"stopped", "daemon_stopped"}
    assert not overlapping(ended)


def cycle(daemon: Daemon, repeated: Repeated, seen: set[str]) -> set[str]:
    """Give each command; return the runs that they started."""
    started: set[str] = set()
    repeated("stop")
    until(lambda: states(daemon) == ["stopped"] * INSTANCES, "it to be stopped")
    for command in COMMANDS[1:]:
        repeated(command)
        started |= until(lambda old=seen | started: settled(daemon, old), f"its processes after {command}")  # type: ignore[misc]
    return started


def overlapping(runs: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return pairs of runs of an instance of which the second started before the first had ended."""
    mistakes = []
    for _, group in groupby(sorted(runs, key=lambda run: run["instanceIndex"]), key=lambda run: run["instanceIndex"]):
        started = sorted((run for run in group if "startedAt" in run), key=lambda run: run["startedAt"])
        mistakes += [
            (first["id"], second["id"]) for first, second in pairwise(started) if second["startedAt"] < first["endedAt"]
        ]
    return mistakes
