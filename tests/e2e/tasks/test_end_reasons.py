"""Explanations of all ends of runs, through the real daemon."""

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from store.database import open_writer
from store.tasks import update_task
from tests.support.daemon import Daemon, program
from tests.support.waiting import until

pytestmark = pytest.mark.lent


def ending(daemon: Daemon, run_id: str) -> dict[str, Any]:
    daemon.ended(run_id)
    answer = daemon.get(f"/api/runs/{run_id}/ending")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json()
    del body["$schema"]
    return body


def texts(run_ending: dict[str, Any]) -> list[str]:
    return [line["text"] for line in run_ending["lastLines"]]


def test_success_failure_signal_and_failed_start(daemon: Daemon, tmp_path: Path) -> None:
    """A run shows its trigger and whether it succeeded, failed, was signalled or could not start."""
    daemon.write(
        '[tasks.good]\nrun = "echo done"\n'
        '[tasks.bad]\nrun = "seq 1 30; exit 3"\n'
        '[tasks.killed]\nrun = "kill -9 $$"\n'
        f'[tasks.broken]\nrun = "true"\nworking_dir = "{tmp_path}/nowhere"\n'
    )
    daemon.start()
    who = dict.fromkeys(("startedBy", "requestedBy"), f"uid {os.getuid()}")
    good = ending(daemon, daemon.trigger("good"))
    assert (texts(good), good.pop("lastLines")[0]["stream"]) == (["done"], "stdout")
    assert good == {"reason": "succeeded", "exitCode": 0, **who}
    bad = ending(daemon, daemon.trigger("bad"))
    assert (bad["reason"], bad["exitCode"], texts(bad)) == ("failed", 3, [str(n) for n in range(11, 31)])
    assert "signal" not in bad
    killed = ending(daemon, daemon.trigger("killed"))
    assert killed == {
        "reason": "failed",
        "exitCode": 137,
        "signal": "SIGKILL",
        "coreDumped": False,
        "lastLines": [],
        **who,
    }
    broken = ending(daemon, daemon.trigger("broken"))
    assert (broken["reason"], broken["exitCode"]) == ("start_failed", -1)
    assert [line["stream"] for line in broken["lastLines"]] == ["system"]
    assert "nowhere: no such directory" in texts(broken)[0]
    command = daemon.cli("ending", "bad")
    assert command.returncode == 0, command.stderr
    assert "reason\tfailed" in command.stdout.splitlines()
    assert command.stdout.splitlines()[-1] == "30"
    assert json.loads(daemon.cli("ending", "--json", "good").stdout)["exitCode"] == 0


@pytest.mark.skipif(
    Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"), reason="here a program takes core dumps"
)
def test_core_dump_is_reported_only_if_written(daemon: Daemon, tmp_path: Path) -> None:
    """A run shows a core dump if the kernel says that it wrote one, not because of its signal."""
    tasks = [
        f'[tasks.c{limit}]\nrun = "ulimit -c {limit}; kill -ABRT $$"\nworking_dir = "{tmp_path}"\n'
        for limit in ("0", "unlimited")
    ]
    daemon.write("".join(tasks))
    daemon.start()
    endings = [ending(daemon, daemon.trigger(name)) for name in ("c0", "cunlimited")]
    assert [(an_ending["signal"], an_ending["exitCode"]) for an_ending in endings] == [("SIGABRT", 134)] * 2
    assert [an_ending["coreDumped"] for an_ending in endings] == [False, True]


def test_stop_and_timeout_are_described(daemon: Daemon) -> None:
    """A stop with its author, a timeout and an active run are described as such."""
    daemon.write(
        f"[tasks.stopped]\nrun = {program('obeys_term')}\ngraceful_stop = '60s'\n"
        "[tasks.timeout]\nrun = \"trap '' TERM; echo deaf; exec sleep 1000\"\n"
        "timeout = '200ms'\ngraceful_stop = '100ms'\n"
    )
    daemon.start()
    stopped = daemon.trigger("stopped")
    until(lambda: daemon.texts(stopped), "its first line")
    assert daemon.get(f"/api/runs/{stopped}/ending").status == 409
    daemon.request("POST", f"/api/runs/{stopped}/stop")
    run_ending = ending(daemon, stopped)
    assert (run_ending["reason"], run_ending["exitCode"], run_ending["requestedBy"]) == (
        "stopped",
        5,
        f"uid {os.getuid()}",
    )
    assert texts(run_ending) == ["ready", "bye"]

    def timed_out() -> dict[str, Any] | None:  # once it ignores the signal
        timeout_ending = ending(daemon, daemon.trigger("timeout"))
        return timeout_ending if "deaf" in texts(timeout_ending) else None

    run_ending = until(timed_out, "a time-out")
    assert (run_ending["reason"], run_ending["signal"]) == ("timeout", "SIGKILL")
    assert [text for text in texts(run_ending) if text.startswith("timed out after 200 ms")]
    assert run_ending["exitCode"] == 128 + signal.SIGKILL


def test_starter_and_stopper(daemon: Daemon) -> None:
    """A run names the user who started it after another one stopped it; a retry names that of the first attempt."""
    daemon.write(
        f"[tasks.long]\nrun = {program('obeys_term')}\n"
        '[tasks.again]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "1ms"\n'
    )
    daemon.start()
    secret = json.loads(daemon.cli("token", "create", "ci", "--role", "operator", "--json").stdout)["token"]
    token = {"Authorization": f"Bearer {secret}"}
    run_id = daemon.request("POST", "/api/tasks/long/run", headers=token).json()["id"]
    until(lambda: daemon.texts(run_id), "its first line")
    daemon.kill_helper("ringward scheduler")
    assert daemon.cli("stop", run_id).returncode == 0
    assert daemon.get(f"/api/runs/{run_id}/details").json()["by"] == "token ci"
    assert ending(daemon, run_id)["requestedBy"] == f"uid {os.getuid()}"
    daemon.request("POST", "/api/tasks/again/run", headers={**token, "User-Agent": "ringward/1"})
    until(lambda: [run["status"] for run in daemon.runs("again")] == ["ended"] * 2, "the retry")
    by = {daemon.get(f"/api/runs/{run['id']}/details").json()["by"] for run in daemon.runs("again")}
    assert by == {"token ci (command line)"}


def test_killed_leftovers_are_named(daemon: Daemon) -> None:
    """Processes that outlived the main process and were killed are named."""
    daemon.write(f"[tasks.t]\nrun = {program('leaves_child')}\n")
    daemon.start()
    run_ending = ending(daemon, daemon.trigger("t"))
    assert run_ending["killedLeftovers"] == [f"sleep ({texts(run_ending)[0]})"]


def test_skipped_and_retried_runs_are_described(daemon: Daemon) -> None:
    """A skipped run shows only its reason; a failed run shows the time of its retry while the retry is pending."""
    daemon.write(
        f'[tasks.busy]\nrun = {program("obeys_term")}\non_overlap = "skip"\n'
        '[tasks.again]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "2m"\n'
    )
    daemon.start()
    daemon.trigger("busy")
    skipped = ending(daemon, daemon.trigger("busy"))
    assert skipped.pop("requestedBy") == skipped.pop("startedBy") == f"uid {os.getuid()}"
    assert skipped == {"reason": "skipped", "exitCode": -1, "lastLines": []}
    failed = daemon.ended(daemon.trigger("again"))
    run_ending = ending(daemon, failed["id"])
    delay = timedelta(minutes=2)
    due = datetime.fromisoformat(run_ending["retryAt"])
    assert datetime.fromisoformat(failed["endedAt"]) + delay <= due <= datetime.now(UTC) + delay
    (retry,) = [run for run in daemon.runs("again") if run["status"] == "pending"]
    daemon.request("POST", f"/api/runs/{retry['id']}/stop")
    assert "retryAt" not in ending(daemon, failed["id"])
    assert ending(daemon, retry["id"])["reason"] == "stopped"


@pytest.mark.own
def test_catch_up_run_counts_missed_instants(daemon: Daemon) -> None:
    """A run that records several missed instants shows their number and the last of them."""
    daemon.write('[tasks.t]\nrun = "true"\ncron = "* * * * *"\n')
    daemon.start()
    assert daemon.stop() == 0
    writer = open_writer(str(daemon.data / "ringward.db"))
    with writer.transaction():
        update_task(writer, "t", last_instant=(time.time_ns() // 60_000_000_000 - 10) * 60_000)
    writer.close()
    daemon.start()
    runs = until(lambda: [run for run in daemon.runs("t") if run.get("endReason") == "missed"], "the missed run")
    run_ending = ending(daemon, runs[0]["id"])
    assert run_ending["missedCount"] >= 8
    assert run_ending["scheduledFor"].endswith(":00.000Z")
    assert run_ending["lastLines"] == []


def test_empty_standard_input_is_named_as_the_cause(daemon: Daemon) -> None:
    """A service that repeatedly succeeds right after its start names its standard input as the likely cause."""
    daemon.write('[services.watcher]\nrun = ["cat"]\nrestart_delay = "0s"\nrestart_attempts = 1\n')
    daemon.start()
    until(lambda: daemon.get("/api/tasks/watcher").json()["state"] == "fatal", "the service to become fatal")
    first, second = (run["id"] for run in daemon.runs("watcher"))
    assert "hint" not in ending(daemon, first)
    assert 'stdin = "open"' in ending(daemon, second)["hint"]
