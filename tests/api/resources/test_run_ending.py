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
        (
            "failed",
            {"exit_code": 3, "requested_by": "token ci"},
            {"exitCode": 3, "startedBy": "token ci", "requestedBy": "token ci"},
        ),
        (
            "failed",
            {"exit_code": 134, "signal": signal.SIGABRT, "core_dumped": True},
            {"exitCode": 134, "signal": "SIGABRT", "coreDumped": True},
        ),
        (
            "stopped",
            {"exit_code": 143, "signal": signal.SIGTERM, "requested_by": "token ci", "stopped_by": "peer"},
            {"exitCode": 143, "signal": "SIGTERM", "coreDumped": False, "startedBy": "token ci", "requestedBy": "peer"},
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
        (
            "skipped",
            {"exit_code": -1, "started_at": None, "cause": "paused", "stopped_by": "paused: x"},
            {"exitCode": -1, "endCause": "paused", "requestedBy": "paused: x"},
        ),
        ("queue_full", {"exit_code": -1, "started_at": None}, {"exitCode": -1}),
        ("dst_skipped", {"exit_code": -1, "started_at": None}, {"exitCode": -1}),
        ("missed", {"exit_code": -1, "started_at": None, "missed_count": 7}, {"exitCode": -1, "missedCount": 7}),
    ],
)
def test_every_reason(daemon: Daemon, reason: str, columns: dict[str, Any], expected: dict[str, Any]) -> None:
    """The answer has all known fields, exact where lists simplify; missing values are left out."""
    run = daemon.insert(make_run(task="ended"))
    daemon.end(run.id, reason, **columns)
    assert ending(daemon, run.id) == {"reason": reason, "lastLines": [], **expected}


def test_scheduled_time(daemon: Daemon) -> None:
    """The answer has the time for which the run was scheduled, not when it was created."""
    run = daemon.insert(make_run(task=new_ulid(), scheduled_at=T0))
    daemon.end(run.id)
    assert ending(daemon, run.id)["scheduledFor"] == "2026-05-28T20:26:40.000Z"


def test_waiting_retry(daemon: Daemon) -> None:
    """A waiting retry of the run is shown until it begins."""
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


def test_last_lines(daemon: Daemon) -> None:
    """The answer has at most twenty last lines of all streams, with the same text as pages of the log."""
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


def test_unreadable_log(own: Daemon) -> None:
    """All other fields are there, and the daemon's log says why the lines are missing."""
    run = own.insert(make_run(task="broken"))
    log = own.log_of(run)
    log.write(b"something\n")
    log.finish()
    own.end(run.id, "failed", exit_code=1, lines=1)
    Path(log_path(own.settings.data_dir, run.task_name, run.id)).write_bytes(b"no log" * 1000)
    assert own.get(f"/api/runs/{run.id}/log").status == 500
    assert ending(own, run.id)["lastLines"] == []
    assert f"the log of {run.id} cannot be read" in own.log.read_text()


@pytest.mark.parametrize("status", ["pending", "running"])
def test_active_run(daemon: Daemon, status: str) -> None:
    """A run that has not ended gets 409."""
    run = daemon.insert(make_run(task="lives", status=status))
    answer = daemon.get(f"/api/runs/{run.id}/ending")
    assert (answer.status, answer.json["detail"]) == (409, f"The run {run.id} has not ended")
    daemon.end(run.id)


def failed(daemon: Daemon, task: str, reason: str = "failed", **output: Any) -> str:
    """The id of a run that has printed the last of some lines of each stream, and then failed."""
    run = daemon.insert(make_run(task=task))
    log = daemon.log_of(run)
    for number, lines in output.items():
        log.write("".join(f"{line}\n" for line in lines).encode(), stream=STREAMS.index(number), at_ms=T0)
    log.finish()
    daemon.end(run.id, reason, exit_code=1, lines=sum(map(len, output.values())))
    return run.id


STREAMS = ("stdout", "stderr", "system")


@pytest.mark.parametrize(
    ("reason", "output", "cause"),
    [
        (
            "failed",
            {"stderr": ["first", "last", " "], "stdout": ["more"]},
            {"line": 1, "stream": "stderr", "text": "last"},
        ),
        ("failed", {"stdout": ["a", "b"]}, {"line": 1, "stream": "stdout", "text": "b"}),
        (
            "failed",
            {"stderr": ["\x1b[31mred\x1b[0m \x1b]8;;http://a\x1b\\and\x1b]8;;\x1b\\\tthe rest"]},
            {"line": 0, "stream": "stderr", "text": "red and the rest"},
        ),
        ("failed", {"stderr": ["x" * 1000]}, {"line": 0, "stream": "stderr", "text": "x" * 299 + "…"}),
        (
            "start_failed",
            {"stderr": ["e"], "system": ["could not start: no such file"]},
            {"line": 1, "stream": "system", "text": "could not start: no such file"},
        ),
        ("timeout", {"stderr": ["slow"], "system": ["timed out"]}, {"line": 0, "stream": "stderr", "text": "slow"}),
        ("failed", {}, None),
        ("succeeded", {"stderr": ["a warning"]}, None),
        ("stopped", {"stderr": ["ends"]}, None),
    ],
)
def test_cause(daemon: Daemon, reason: str, output: dict[str, list[str]], cause: dict[str, Any] | None) -> None:
    """The cause of a failure is the last line of stderr, or else of stdout, as plain text in one piece."""
    run = failed(daemon, "caused", reason, **output)
    assert ending(daemon, run).get("cause") == cause
    items = daemon.get(f"/api/runs/failures?runs={run}").json["items"]
    assert [failure.get("cause") for failure in items] == ([] if reason in ("succeeded", "stopped") else [cause])


def test_cause_by_failure_output(daemon: Daemon) -> None:
    """The cause is the line that matched failure_output, however far before the end."""
    run = daemon.insert(make_run(task="matched"))
    log = daemon.log_of(run)
    log.write(b"0 errors\nERROR 7\n" + b"on\n" * 300, at_ms=T0)
    log.finish()
    daemon.end(run.id, "failed", exit_code=0, lines=302, failure_line=1)
    assert ending(daemon, run.id)["cause"] == {"line": 1, "stream": "stdout", "text": "ERROR 7"}


def test_failure_among_many_of_another_task(daemon: Daemon) -> None:
    """A task that keeps failing hides no failure of another task, and `total` says how many tasks failed."""
    backup = failed(daemon, "nightly", stderr=["disk full"])
    total = daemon.get("/api/runs/failures?limit=1").json["total"]
    for _ in range(250):
        daemon.insert(make_run(task="each-minute", status="ended", end_reason="failed", exit_code=1))
    answer = daemon.get("/api/runs/failures?limit=50").json
    assert backup in [item["run"]["id"] for item in answer["items"]]
    cut = daemon.get("/api/runs/failures?limit=1").json
    assert (len(cut["items"]), cut["total"], answer["total"]) == (1, total + 1, total + 1)


def test_newest_failure_of_each_task(daemon: Daemon) -> None:
    """Without ids, the newest failure of each task is listed, newest first."""
    first = failed(daemon, "fails-a", stderr=["one"])
    second = failed(daemon, "fails-a", stderr=["two"])
    third = failed(daemon, "fails-b", stderr=["three"])
    items = daemon.get("/api/runs/failures?limit=50").json["items"]
    by_id = {item["run"]["id"]: item["cause"]["text"] for item in items if item["run"]["taskName"].startswith("fails-")}
    assert list(by_id.items()) == [(third, "three"), (second, "two")]
    assert first not in by_id
    assert daemon.get("/api/runs/failures?runs=" + first).json["total"] == 1
    assert daemon.get("/api/runs/failures?since=2999-01-01T00:00:00Z").json["items"] == []
    assert daemon.get("/api/runs/failures?runs=x").status == 422
