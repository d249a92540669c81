"""Deletion, restoration and rerun of runs from the command line."""

import json
import subprocess
from typing import Any

from tests.support.daemon import Daemon
from tests.support.waiting import until

TASKS = """
[tasks.good]
run = "echo hello"
[tasks.bad]
run = "exit 3"
[services.web]
run = "exec sleep 1000"
"""


def ringward(daemon: Daemon, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*daemon.command(), "--config", str(daemon.config), *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def total(daemon: Daemon, **query: Any) -> int:
    query_string = "&".join(f"{name}={value}" for name, value in query.items())
    matches: int = daemon.get(f"/api/runs?{query_string}").json()["total"]
    return matches


def test_delete_restore_and_rerun(daemon: Daemon) -> None:
    """Runs can be selected by name or filter and restored; the exit code reports undeletable ones."""
    daemon.write(TASKS)
    daemon.start()
    good = [daemon.trigger("good") for _ in range(3)]
    bad = [daemon.trigger("bad") for _ in range(2)]
    for run_id in (*good, *bad):
        daemon.ended(run_id)
    until(lambda: daemon.task("web")["state"] == "running", "the service to run")
    (service,) = daemon.runs("web")

    shown = ringward(daemon, "rm", "--status", "failed", "--dry-run", "--json")
    assert {run["id"] for run in json.loads(shown.stdout)["runs"]} == set(bad)
    assert total(daemon, task_name="bad") == 2

    done = ringward(daemon, "rm", good[0], service["id"], good[1])
    assert (done.returncode, done.stdout) == (1, "2 runs deleted\n")
    assert [run["id"] for run in daemon.runs("good")] == [good[2]]
    done = ringward(daemon, "rm", "--status", "failed", "--json")
    assert (done.returncode, json.loads(done.stdout)["affected"]) == (0, 2)
    assert total(daemon, task_name="bad") == 0

    assert ringward(daemon, "restore", good[0]).stdout == "1 run restored\n"
    assert ringward(daemon, "restore", good[0]).returncode == 1
    assert ringward(daemon, "restore", "--all").stdout == "3 runs restored\n"
    assert {run["id"] for run in daemon.runs("good")} == set(good)

    again = ringward(daemon, "rerun", "--status", "failed", "--json")
    (started,) = json.loads(again.stdout)["triggered"]
    assert (again.returncode, started["task_name"]) == (0, "bad")
    assert daemon.ended(started["run_id"])["exitCode"] == 3
    assert ringward(daemon, "rerun", service["id"]).returncode == 1
    wrong = ringward(daemon, "rm", "--after", "yesterday")
    assert wrong.returncode == 64
    assert "--after: " in wrong.stderr
