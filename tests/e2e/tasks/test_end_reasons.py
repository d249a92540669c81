"""The verdict on runs that ended in every way, through the real daemon."""

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from store.database import open_writer
from store.tasks import update_task, upsert_task
from tests.support.daemon import Daemon, program
from tests.support.waiting import until

pytestmark = pytest.mark.lent


def ending(daemon: Daemon, run_id: str) -> dict[str, Any]:
    daemon.ended(run_id)
    answer = daemon.get(f"/api/runs/{run_id}/ending")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    del found["$schema"]
    return found


def texts(found: dict[str, Any]) -> list[str]:
    return [line["text"] for line in found["lastLines"]]


def test_what_ends_by_itself(daemon: Daemon, tmp_path: Path) -> None:
    """Success, failure, a signal, and one that could not start; who triggered it is known."""
    daemon.write(
        '[tasks.good]\nrun = "echo done"\n'
        '[tasks.bad]\nrun = "seq 1 30; exit 3"\n'
        '[tasks.killed]\nrun = "kill -9 $$"\n'
        f'[tasks.broken]\nrun = "true"\nworking_dir = "{tmp_path}/nowhere"\n'
    )
    daemon.start()
    who = {"requestedBy": f"uid {os.getuid()}"}
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
    assert "nowhere cannot be entered" in texts(broken)[0]
    command = daemon.cli("ending", "bad")
    assert command.returncode == 0, command.stderr
    assert "reason\tfailed" in command.stdout.splitlines()
    assert command.stdout.splitlines()[-1] == "30"
    assert json.loads(daemon.cli("ending", "--json", "good").stdout)["exitCode"] == 0


@pytest.mark.skipif(
    Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"), reason="here a program takes core dumps"
)
def test_core_dumps(daemon: Daemon, tmp_path: Path) -> None:
    """Whether a core was written is told as the kernel says, not as the signal would let one think."""
    tasks = [
        f'[tasks.c{limit}]\nrun = "ulimit -c {limit}; kill -ABRT $$"\nworking_dir = "{tmp_path}"\n'
        for limit in ("0", "unlimited")
    ]
    daemon.write("".join(tasks))
    daemon.start()
    found = [ending(daemon, daemon.trigger(name)) for name in ("c0", "cunlimited")]
    assert [(one["signal"], one["exitCode"]) for one in found] == [("SIGABRT", 134)] * 2
    assert [one["coreDumped"] for one in found] == [False, True]


def test_what_is_ended(daemon: Daemon) -> None:
    """A stop and who asked for it, a time-out, and a run that is still there."""
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
    found = ending(daemon, stopped)
    assert (found["reason"], found["exitCode"], found["requestedBy"]) == ("stopped", 5, f"uid {os.getuid()}")
    assert texts(found) == ["ready", "bye"]

    def timed_out() -> dict[str, Any] | None:  # after it came so far as to be deaf
        found = ending(daemon, daemon.trigger("timeout"))
        return found if "deaf" in texts(found) else None

    found = until(timed_out, "a time-out")
    assert (found["reason"], found["signal"]) == ("timeout", "SIGKILL")
    assert [text for text in texts(found) if text.startswith("timed out after 200 ms")]
    assert found["exitCode"] == 128 + signal.SIGKILL


def test_leftovers(daemon: Daemon) -> None:
    """What outlived the main process and was killed is named."""
    daemon.write(f"[tasks.t]\nrun = {program('leaves_child')}\n")
    daemon.start()
    found = ending(daemon, daemon.trigger("t"))
    assert found["killedLeftovers"] == [f"sleep ({texts(found)[0]})"]


def test_what_did_not_run_and_what_runs_again(daemon: Daemon) -> None:
    """A skipped run has nothing but its reason; a failed one tells when it is tried again, as long as that waits."""
    daemon.write(
        f'[tasks.busy]\nrun = {program("obeys_term")}\non_overlap = "skip"\n'
        '[tasks.again]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "2m"\n'
    )
    daemon.start()
    daemon.trigger("busy")
    skipped = ending(daemon, daemon.trigger("busy"))
    assert skipped.pop("requestedBy") == f"uid {os.getuid()}"
    assert skipped == {"reason": "skipped", "exitCode": -1, "lastLines": []}
    failed = daemon.ended(daemon.trigger("again"))
    found = ending(daemon, failed["id"])
    delay = timedelta(minutes=2)
    due = datetime.fromisoformat(found["retryAt"])
    assert datetime.fromisoformat(failed["endedAt"]) + delay <= due <= datetime.now(UTC) + delay
    (retry,) = [run for run in daemon.runs("again") if run["status"] == "pending"]
    daemon.request("POST", f"/api/runs/{retry['id']}/stop")
    assert "retryAt" not in ending(daemon, failed["id"])
    assert ending(daemon, retry["id"])["reason"] == "stopped"


@pytest.mark.own
def test_missed_times(daemon: Daemon) -> None:
    """The run that stands for several says for how many, and for the last of which times."""
    daemon.write('[tasks.t]\nrun = "true"\ncron = "* * * * *"\n')
    daemon.data.mkdir(mode=0o700)
    writer = open_writer(str(daemon.data / "ringward.db"))
    with writer.transaction():
        upsert_task(writer, "t", "task", "{}")
        update_task(writer, "t", last_instant=(time.time_ns() // 60_000_000_000 - 10) * 60_000)
    writer.close()
    daemon.start()
    runs = until(lambda: [run for run in daemon.runs("t") if run.get("endReason") == "missed"], "the missed run")
    found = ending(daemon, runs[0]["id"])
    assert found["missedCount"] >= 8
    assert found["scheduledFor"].endswith(":00.000Z")
    assert found["lastLines"] == []


def test_a_service_that_ends_with_its_standard_input(daemon: Daemon) -> None:
    """The ending of a service that succeeds at once again and again names standard input as the likely cause."""
    daemon.write('[services.watcher]\nrun = ["cat"]\nrestart_delay = "0s"\nrestart_attempts = 1\n')
    daemon.start()
    until(lambda: daemon.get("/api/tasks/watcher").json()["state"] == "fatal", "the service to be given up")
    first, second = (run["id"] for run in daemon.runs("watcher"))
    assert "hint" not in ending(daemon, first)
    assert 'stdin = "open"' in ending(daemon, second)["hint"]
