"""The scheduler killed at each labelled step: nothing is lost, nothing runs twice, nothing is said to have crashed."""

import contextlib
import sys
from pathlib import Path

import pytest

from tests.crash import steps
from tests.crash.harness import Report, all_runs, compare, numbered
from tests.e2e.daemon import Daemon
from tests.waiting import until


class StepsDaemon(Daemon):
    """Runs under steps.py instead of Python."""

    def __init__(self, directory: Path, label: str, number: int) -> None:
        super().__init__(directory)
        self.plan = directory / "plan"
        self.plan.write_text(f"{label} {number}")
        self._python = directory / "python"
        self._python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{steps.__file__}" "{self.plan}" "$@"\n')
        self._python.chmod(0o700)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "STEPS_PYTHON": str(self._python)}

    def command(self) -> list[str]:
        code = f"import sys; sys.executable = {str(self._python)!r}; from supervisor.cli.main import main; main()"
        return [sys.executable, "-I", "-c", code]


def configuration(sides: Path) -> str:
    return f"""
[tasks.quick]
{numbered(20, 0, sides)}
max_concurrent = 2
[tasks.failing]
{numbered(5, 0, sides, "; exit 3")}
retry_attempts = 1
retry_delay = "20ms"
[tasks.stopped]
{numbered(1_000_000, 0.01, sides)}
[tasks.superseded]
{numbered(1_000_000, 0.01, sides)}
on_overlap = "terminate"
[services.flaky]
{numbered(10, 0, sides, "; exit 1")}
restart_delay = "50ms"
restart_attempts = 10000
[services.steady]
{numbered(1_000_000, 0.01, sides)}
"""


def load(daemon: Daemon) -> set[str]:
    """Triggers and stops; returns what was accepted."""
    accepted = set()

    def trigger(task: str) -> str | None:
        with contextlib.suppress(OSError):
            answer = daemon.request("POST", f"/api/tasks/{task}/run")
            if answer.status == 201:
                found: str = answer.json()["id"]
                accepted.add(found)
                return found
        return None

    for task in ("quick", "quick", "quick", "failing", "superseded", "superseded", "stopped", "stopped"):
        trigger(task)
    until(lambda: sum(run["status"] == "ended" for run in daemon.runs("quick")) >= 3, "the quick ones to end")
    until(lambda: sum(run["status"] == "ended" for run in daemon.runs("failing")) >= 2, "the attempts to end")
    for task in ("stopped", "superseded"):
        for run in daemon.runs(task):
            if run["status"] != "ended":
                until(lambda run=run: stopped(daemon, run["id"]), "a stop to be taken")  # type: ignore[misc]
                daemon.ended(run["id"])
    return accepted


def stopped(daemon: Daemon, run_id: str) -> bool:
    return daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("label", steps.LABELS)
def test_the_scheduler_dies_at(label: str, number: int, tmp_path: Path) -> None:
    """Every accepted trigger ran once, every line and every ending is there, whatever the moment."""
    sides = tmp_path / "sides"
    sides.mkdir()
    daemon = StepsDaemon(tmp_path, label, number)
    daemon.write(configuration(sides))
    try:
        daemon.start()
        accepted = load(daemon)
        until(daemon.ready, "the daemon to be ready")
        assert daemon.stop() == 0
        reached = not daemon.plan.exists()
        daemon.start()
        report = Report(accepted=accepted)
        compare(daemon, sides, report)
        endings = {run["taskName"]: set[tuple[str, int]]() for run in all_runs(daemon).values()}
        for run in all_runs(daemon).values():
            if run["status"] == "ended" and run["exitCode"] >= 0:
                endings[run["taskName"]].add((run["endReason"], run["exitCode"]))
    finally:
        daemon.clean()
    assert report.differences == []
    assert endings["quick"] == {("succeeded", 0)}
    assert endings["failing"] == {("failed", 3)}
    assert endings["stopped"] | endings["superseded"] == {("stopped", 143)}
    assert reached or number > 1
