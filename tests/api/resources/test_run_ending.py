"""The verdict on runs that have ended, as the API tells it."""

import signal
from pathlib import Path
from typing import Any

import pytest

from logring.log_paths import log_path
from store.runs.ids import new_ulid
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms

T0 = 1_780_000_000_000


def ending(daemon: Daemon, run_id: str) -> dict[str, Any]:
    answer = daemon.get(f"/api/runs/{run_id}/ending")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    assert body.pop("$schema").endswith("/schemas/Ending.json")
    return body


@pytest.mark.parametrize(
    ("reason", "columns", "expected"),
    [
        ("succeeded", {"exit_code": 0}, {"exitCode": 0}),
        ("failed", {"exit_code": 3, "requested_by": "token ci"}, {"exitCode": 3, "requestedBy": "token ci"}),
        (
            "failed",
            {"exit_code": 134, "signal": signal.SIGABRT, "core_dumped": True},
            {"exitCode": 134, "signal": "SIGABRT", "coreDumped": True},
        ),
        (
            "stopped",
            {"exit_code": 143, "signal": signal.SIGTERM, "requested_by": "peer"},
            {"exitCode": 143, "signal": "SIGTERM", "coreDumped": False, "requestedBy": "peer"},
        ),
        (
            "timeout",
            {"exit_code": 128 + signal.SIGRTMIN + 3, "signal": signal.SIGRTMIN + 3},
            {"exitCode": 128 + signal.SIGRTMIN + 3, "signal": "SIGRTMIN+3", "coreDumped": False},
        ),
        (
            "failed",
            {"exit_code": 137, "signal": signal.SIGKILL, "oom_kills": 1, "leftovers": '["sleep (7)"]'},
            {
                "exitCode": 137,
                "signal": "SIGKILL",
                "coreDumped": False,
                "oomKilled": True,
                "killedLeftovers": ["sleep (7)"],
            },
        ),
        ("failed", {"exit_code": 0, "failure_line": 0}, {"exitCode": 0, "failureLine": 0}),
        ("log_overflow", {"exit_code": 0}, {"exitCode": 0}),
        ("crashed", {"exit_code": -2}, {"exitCode": -2}),
        ("daemon_stopped", {"exit_code": 0}, {"exitCode": 0}),
        ("start_failed", {"exit_code": -1, "started_at": None}, {"exitCode": -1}),
        ("skipped", {"exit_code": -1, "started_at": None}, {"exitCode": -1}),
        ("queue_full", {"exit_code": -1, "started_at": None}, {"exitCode": -1}),
        ("dst_skipped", {"exit_code": -1, "started_at": None}, {"exitCode": -1}),
        ("missed", {"exit_code": -1, "started_at": None, "missed_count": 7}, {"exitCode": -1, "missedCount": 7}),
    ],
)
def test_every_reason(daemon: Daemon, reason: str, columns: dict[str, Any], expected: dict[str, Any]) -> None:
    """What is known is there, exact also where lists fold it; what has no value is left out."""
    run = daemon.insert(make_run(task="ended"))
    daemon.end(run.id, reason, **columns)
    assert ending(daemon, run.id) == {"reason": reason, "lastLines": [], **expected}


def test_the_time_of_the_schedule(daemon: Daemon) -> None:
    """For which the run stands, not when it was made."""
    run = daemon.insert(make_run(task=new_ulid(), scheduled_at=T0))
    daemon.end(run.id)
    assert ending(daemon, run.id)["scheduledFor"] == "2026-05-28T20:26:40.000Z"


def test_the_retry_that_waits(daemon: Daemon) -> None:
    """Of those that wait the one for this run; when it has begun there is nothing to wait for."""
    task = new_ulid()
    run, other = (daemon.insert(make_run(task=task)) for _ in range(2))
    for failed in (run, other):
        daemon.end(failed.id, "failed", exit_code=1)
    due = {run.id: T0 + 1500, other.id: T0 + 9000}
    retries = {
        run_id: daemon.insert(make_run(task=task, retry_attempt=1, retry_of_run_id=run_id, due_at=at))
        for run_id, at in due.items()
    }
    assert ending(daemon, run.id)["retryAt"] == "2026-05-28T20:26:41.500Z"
    assert ending(daemon, other.id)["retryAt"] == "2026-05-28T20:26:49.000Z"
    daemon.update(retries[run.id].id, status="running", started_at=now_ms())
    assert "retryAt" not in ending(daemon, run.id)
    assert "retryAt" in ending(daemon, other.id)


def test_the_last_lines(daemon: Daemon) -> None:
    """Twenty at most, of all streams, their text as pages of the log have it."""
    run = daemon.insert(make_run(task="says"))
    log = daemon.log_of(run)
    log.write(b"".join(b"line %d\n" % number for number in range(30)), at_ms=T0)
    log.write(b"bad \xff\x1b[1mbold\n", stream=1, at_ms=T0 + 1)
    log.write(b"timed out after 5 ms: stopping\n", stream=2, at_ms=T0 + 2)
    log.finish()
    daemon.end(run.id, "timeout", exit_code=143, lines=32)
    lines = ending(daemon, run.id)["lastLines"]
    assert lines == daemon.get(f"/api/runs/{run.id}/log?from=-20").json["lines"]
    assert len(lines) == 20
    assert [line["stream"] for line in lines[-3:]] == ["stdout", "stderr", "system"]
    assert lines[-1]["text"] == "timed out after 5 ms: stopping"
    assert "\ufffd" in lines[-2]["text"]


def test_a_log_that_cannot_be_read(own: Daemon) -> None:
    """The rest is told nevertheless; the daemon's log says why there are no lines."""
    run = own.insert(make_run(task="broken"))
    log = own.log_of(run)
    log.write(b"something\n")
    log.finish()
    own.end(run.id, "failed", exit_code=1, lines=1)
    Path(log_path(own.boot.data_dir, run.task_name, run.id)).write_bytes(b"no log" * 1000)
    assert own.get(f"/api/runs/{run.id}/log").status == 500
    assert ending(own, run.id)["lastLines"] == []
    assert f"the log of {run.id} cannot be read" in own.log.read_text()


@pytest.mark.parametrize("status", ["pending", "running"])
def test_one_that_has_not_ended(daemon: Daemon, status: str) -> None:
    """There is no verdict yet: 409."""
    run = daemon.insert(make_run(task="lives", status=status))
    answer = daemon.get(f"/api/runs/{run.id}/ending")
    assert (answer.status, answer.json["detail"]) == (409, f"The run {run.id} has not ended")
    daemon.end(run.id)
