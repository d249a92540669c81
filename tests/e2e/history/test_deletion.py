"""Deletion, restoration, purge and retention of ended runs, through the real daemon."""

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store.database import open_reader, open_writer
from store.runs.bulk import SLICE_ROWS, purged_runs
from store.runs.ids import new_ulid
from store.runs.writes import Run, insert_run
from tests.support.client import Stream
from tests.support.daemon import Daemon
from tests.support.waiting import until

TASKS = """
[tasks.t]
run = "echo hello"
[tasks.bar]
run = 'i=0; while [ $i -lt 500 ]; do i=$((i + 1)); printf "at %d\\r" $i; done; echo'
[tasks.waits]
run = "exec sleep 600"
[tasks.scheduled]
run = "true"
api_trigger = false
[services.s]
run = "exec sleep 600"
"""


def log_files(daemon: Daemon) -> set[Path]:
    return {Path(folder, name) for folder, _, names in os.walk(daemon.data / "logs") for name in names}


def bulk(daemon: Daemon, verb: str, **selector: Any) -> Any:
    answer = daemon.request("POST", f"/api/runs/bulk/{verb}", selector)
    assert answer.status == 200, answer.body
    return answer.json()


def delete(daemon: Daemon, run_id: str) -> int:
    return daemon.request("DELETE", f"/api/runs/{run_id}").status


def events_of(stream: Stream, kinds: set[str], enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Return events of these kinds from a stream, until `enough` is true."""
    parts = []
    for event in stream:
        if event.kind in kinds:
            parts.append(event.data)
            if enough(parts):
                break
    stream.close()
    return parts


def store_runs(daemon: Daemon, count: int, task: str = "old") -> list[str]:
    """Insert ended runs into the database of a stopped daemon."""
    writer = open_writer(str(daemon.data / "ringward.db"))
    now_ms = time.time_ns() // 1_000_000
    ids = [new_ulid(now_ms - 60_000) for _ in range(count)]
    with writer.transaction():
        for run_id in ids:
            base = Run(run_id, task, "task", "ended", "succeeded", 0, 0, 0, None, "api", now_ms - 60_000)
            insert_run(writer, base._replace(started_at=now_ms - 60_000, ended_at=now_ms - 50_000))
    writer.close()
    return ids


@pytest.mark.lent
def test_deleted_run_is_hidden_and_restored(daemon: Daemon) -> None:
    """A deleted run gets 404 and is in no list or count; a restored run is as before."""
    daemon.write(TASKS)
    daemon.start()
    stream = daemon.stream("/api/events/stream?types=run.deleted,run.restored")
    gone, stays = daemon.trigger("bar"), daemon.trigger("bar")
    for run_id in (gone, stays):
        daemon.ended(run_id)
        daemon.log_file(run_id)  # including its frames, which the file thread writes
    paths = [f"/api/runs/{gone}{suffix}" for suffix in ("", "/log", "/log/raw", "/log/stream", "/log/line/0/history")]
    before = {path: daemon.get(path).body for path in paths if not path.endswith("stream")}
    summary = daemon.get("/api/runs/summary?task_name=bar").json()
    assert (summary["total"], summary["success"]) == (2, 2)
    assert delete(daemon, gone) == 204
    assert {daemon.get(path).status for path in paths} == {404}
    assert daemon.request("POST", f"/api/runs/{gone}/stop").status == 404
    assert delete(daemon, gone) == 404
    assert [run["id"] for run in daemon.runs("bar")] == [stays]
    assert daemon.get("/api/runs?search=" + gone).json()["total"] == 0
    assert daemon.get("/api/runs/summary?task_name=bar").json()["total"] == 1
    assert {item["runId"] for item in daemon.hits("bar", "q=at")} == {stays}
    assert delete(daemon, stays) == 204
    assert "lastRun" not in daemon.task("bar")
    assert bulk(daemon, "restore", ids=[gone, gone, "0" * 26]) == {
        "$schema": "http://localhost/schemas/Affected.json",
        "affected": 1,
    }
    assert {path: daemon.get(path).body for path in before} == before
    assert daemon.task("bar")["lastRun"]["id"] == gone
    deletion_events = events_of(stream, {"run.deleted", "run.restored"}, lambda events: len(events) == 3)
    assert [(event["kind"], event.get("runId"), event.get("affected")) for event in deletion_events] == [
        ("run.deleted", gone, None),
        ("run.deleted", stays, None),
        ("run.restored", None, 1),
    ]
    assert deletion_events[0]["taskName"] == "bar"


@pytest.mark.lent
def test_deletion_of_unfinished_runs(daemon: Daemon) -> None:
    """A running run is not deleted; a pending one ends as stopped and never starts, and its stream says deleted."""
    daemon.write(TASKS)
    daemon.start()
    running, waiting = daemon.trigger("waits"), daemon.trigger("waits")
    until(lambda: daemon.run(running)["status"] == "running", "the run to begin")
    assert delete(daemon, running) == 409
    assert bulk(daemon, "delete", ids=[running, waiting])["affected"] == 0
    stream = daemon.stream(f"/api/runs/{waiting}/log/stream")
    assert delete(daemon, waiting) == 204
    assert [(event.kind, event.data) for event in stream] == [("done", {"finalLine": -1, "status": "deleted"})]
    stream.close()
    assert daemon.task("waits")["active"] == {"running": 1, "pending": 0}
    assert daemon.request("POST", f"/api/runs/{running}/stop").status == 204
    daemon.ended(running)
    assert [run["id"] for run in daemon.runs("waits")] == [running]
    assert bulk(daemon, "restore", ids=[waiting])["affected"] == 1
    assert daemon.run(waiting)["endReason"] == "stopped"


@pytest.mark.lent
def test_bulk_stop_and_rerun(daemon: Daemon) -> None:
    """Bulk stop ends running and pending runs; bulk rerun starts each startable task once."""
    daemon.write(TASKS)
    daemon.start()
    ids = [daemon.trigger("waits") for _ in range(4)]
    until(lambda: daemon.run(ids[0])["status"] == "running", "the run to begin")
    assert bulk(daemon, "stop", match_all=True, filter={"task_name": "waits"})["affected"] == 4
    assert {daemon.ended(run_id)["endReason"] for run_id in ids} == {"stopped"}
    assert bulk(daemon, "stop", ids=ids)["affected"] == 0
    daemon.ended(daemon.trigger("t"))
    daemon.ended(daemon.trigger("t"))
    until(lambda: daemon.runs("s"), "the service")
    again = bulk(daemon, "rerun", match_all=True)["triggered"]
    assert [run_again["task_name"] for run_again in again] == ["t", "waits"]
    assert daemon.ended(again[0]["run_id"])["triggeredBy"] == "api"
    assert len(daemon.runs("t")) == 3
    assert bulk(daemon, "rerun", ids=["0" * 26])["triggered"] == []


def test_purge_removes_row_log_and_frames(daemon: Daemon) -> None:
    """After the restore window a run cannot be restored, and its row, log and frames are removed."""
    daemon.write(f'{TASKS}[storage]\nundo_window = "0s"\n')
    daemon.start()
    kept_run, gone = daemon.trigger("t"), daemon.trigger("bar")
    daemon.ended(kept_run)
    daemon.ended(gone)
    until(lambda: any(path.name == f"{gone}.log.frames" for path in log_files(daemon)), "the frames")
    assert delete(daemon, gone) == 204
    assert bulk(daemon, "restore", match_all=True)["affected"] == 0
    until(lambda: {path.name for path in log_files(daemon)} == {f"{kept_run}.log"}, "the files to be removed")
    until(lambda: not (daemon.data / "logs" / "bar").exists(), "the folder to be removed")
    reader = open_reader(str(daemon.data / "ringward.db"), limit_s=None)
    assert reader.rows("SELECT id FROM runs WHERE kind = 'task'") == [(kept_run,)]
    until(lambda: not purged_runs(reader, 0, 9), "the removal to be forgotten")
    reader.close()


def test_purged_log_does_not_return(daemon: Daemon) -> None:
    """The log of a purged run is removed even if its delayed lines can be written only after the purge."""
    daemon.write(f'{TASKS}[storage]\nundo_window = "0s"\n')
    daemon.start()
    nowhere = daemon.data / "logs" / "t"
    nowhere.parent.mkdir(exist_ok=True)
    nowhere.symlink_to("nowhere")
    gone = daemon.trigger("t")
    daemon.ended(gone)
    until(lambda: f"{gone}: cannot write the log file" in daemon.own_output(), "the log to find no place")
    assert delete(daemon, gone) == 204
    until(lambda: "removed 1 run for good" in daemon.own_output(), "the row to be removed")
    until(lambda: not daemon.children("janitor", of="ringward scheduler"), "the janitor to end")
    nowhere.unlink()
    until(lambda: f"{gone}: the log file can be written again" in daemon.own_output(), "the log to be written")
    until(lambda: not log_files(daemon), "the log to be removed")
    assert daemon.stop() == 0
    assert log_files(daemon) == set()


def test_purge_after_a_downtime(daemon: Daemon) -> None:
    """The restore window counts downtime, and the next daemon removes the files of runs whose window has passed."""
    daemon.write(f'{TASKS}[storage]\nundo_window = "1h"\n')
    daemon.start()
    gone, late = daemon.trigger("t"), daemon.trigger("t")
    for run in (gone, late):
        daemon.ended(run)
        assert delete(daemon, run) == 204
    assert daemon.stop() == 0
    assert {path.stem for path in log_files(daemon)} == {gone, late}
    writer = open_writer(str(daemon.data / "ringward.db"))
    earlier = "UPDATE deleted_runs SET deleted_at = deleted_at - ? WHERE run = (SELECT seq FROM runs WHERE id = ?)"
    assert writer.execute(earlier, [3_600_000, gone]) == 1
    assert writer.execute(earlier, [1_800_000, late]) == 1
    writer.close()
    daemon.start()
    assert bulk(daemon, "restore", ids=[gone, late])["affected"] == 1
    assert daemon.get(f"/api/runs/{gone}").status == 404
    until(lambda: gone not in {path.stem for path in log_files(daemon)}, "the file to be removed")
    assert daemon.texts(late) == ["hello"]


def test_retention_keeps_the_newest_runs_of_each_task(daemon: Daemon) -> None:
    """The newest runs of each task are kept, even of a removed task, and a running run is never removed."""
    daemon.write(f"{TASKS}[tasks.some]\nrun = 'echo hello'\n")
    daemon.start()
    ids = [daemon.trigger("t") for _ in range(5)]
    some = [daemon.trigger("some") for _ in range(3)]
    for run_id in (*ids, *some):
        daemon.ended(run_id)
    live = daemon.trigger("waits")
    until(lambda: daemon.run(live)["status"] == "running", "the run to begin")
    assert daemon.stop() == 0
    text = TASKS.replace('run = "echo hello"', 'run = "echo hello"\nkeep_runs = 2')
    daemon.write(f'{text}[defaults]\nkeep_runs = 1\nkeep_for = "7d"\n')
    daemon.start()
    live = daemon.trigger("waits")
    last = daemon.trigger("t")
    until(lambda: [run["id"] for run in daemon.runs("t")] == [ids[4], last], "the old runs to be removed")
    until(lambda: [run["id"] for run in daemon.runs("some")] == some[2:], "runs of the removed task to be removed")
    remaining_ids = {ids[4], last, some[2]}
    until(lambda: {path.stem for path in log_files(daemon)} == remaining_ids, "the files to be removed")
    until(lambda: daemon.run(live)["status"] == "running", "the other run to begin")
    until(lambda: len(daemon.runs("waits")) == 2, "the ended run to stay, beside the running one")


@pytest.mark.lent
def test_refused_runs_do_not_displace_history(daemon: Daemon, tmp_path: Path) -> None:
    """Refused triggers displace no run that ran. The newest refusals are kept, and the daily counts include all."""
    flag = tmp_path / "flag"
    daemon.write(
        f'[tasks.refuses]\nrun = "test ! -e {flag} || exec sleep 600"\nqueue_max = 0\nkeep_runs = 3\nkeep_refused = 2\n'
    )
    daemon.start()
    ran = daemon.trigger("refuses")
    daemon.ended(ran)
    flag.touch()
    live = daemon.trigger("refuses")
    refused = [daemon.trigger("refuses") for _ in range(6)]
    until(
        lambda: [run["id"] for run in daemon.runs("refuses")] == [ran, live, *refused[-2:]], "the refused to be removed"
    )
    days = daemon.get("/api/tasks/refuses/days").json()["items"]
    assert sum(day["counts"].get("queue_full", 0) for day in days) == 6


def test_keep_for_zero_keeps_nothing(daemon: Daemon) -> None:
    """With a retention of zero, nothing of an ended run is kept."""
    daemon.write('[tasks.t]\nrun = "echo hello"\nkeep_for = "0s"\n[tasks.u]\nrun = "echo hello"\nkeep_runs = 0\n')
    daemon.start()
    daemon.trigger("t")
    daemon.trigger("u")
    until(lambda: daemon.get("/api/runs").json()["total"] == 0, "the runs to be removed")
    until(lambda: not log_files(daemon), "the files to be removed")
    assert daemon.stop() == 0
    assert log_files(daemon) == set()


def test_scheduler_killed_during_a_bulk_delete(daemon: Daemon) -> None:
    """A killed scheduler has deleted whole slices.

    The repeated request deletes the rest, and all deletions are announced.
    """
    daemon.write(TASKS)
    daemon.start()
    assert daemon.stop() == 0
    count = 12 * SLICE_ROWS
    store_runs(daemon, count)
    daemon.write(f"{TASKS}[tasks.old]\nrun = 'true'\nkeep_runs = 1000000\n")
    daemon.start()
    selector = {"match_all": True, "filter": {"task_name": "old"}}
    answers: list[Any] = []

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answers.append(daemon.request("POST", "/api/runs/bulk/delete", selector))

    def remaining_count() -> int:
        total: int = daemon.get("/api/runs?task_name=old&limit=1").json()["total"]
        return total

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.connect(f"{daemon.runtime_dir()}/control.sock")
            return True
        return False

    asking = threading.Thread(target=ask)
    scheduler = daemon.helper("ringward scheduler")
    (worker,) = daemon.helper("ringward gunicorn").children()
    asking.start()
    until(lambda: remaining_count() < count, "the first slice")
    worker.suspend()  # so that it does not time out before the next scheduler runs
    scheduler.kill()
    scheduler.wait(60)
    until(listens, "the next scheduler")
    worker.resume()
    asking.join()
    # The worker repeated the request to the next scheduler.
    assert [json.loads(answer.body).get("affected") for answer in answers] == [count]
    assert remaining_count() == 0
    stream = daemon.stream("/api/events/stream?types=run.deleted", last_event_id="-1")
    deletion_events = events_of(
        stream, {"run.deleted"}, lambda events: sum(event["affected"] for event in events) >= count
    )
    assert sum(event["affected"] for event in deletion_events) == count
    assert all(event["affected"] % SLICE_ROWS == 0 for event in deletion_events)
    assert bulk(daemon, "delete", **selector)["affected"] == 0
    assert bulk(daemon, "restore", **selector)["affected"] == count
    assert remaining_count() == count
