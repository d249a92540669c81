"""The file system of the logs is frozen while runs are active."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.upgrade.test_upgrade import answer, upgrade
from tests.support.client import Event
from tests.support.daemon import program
from tests.support.frozen import FrozenLogs, why_not
from tests.support.waiting import until

BYTES = 20_000_000


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FrozenLogs]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    logs = FrozenLogs(tmp_path)
    try:
        yield logs
    finally:
        logs.clean()


def lines_of(events: Iterator[Event]) -> Iterator[str]:
    """Yield the texts of a live stream."""
    for event in events:
        if event.kind == "line":
            yield event.data["text"]


def test_frozen_logs_block_only_their_writers(daemon: FrozenLogs, tmp_path: Path) -> None:
    """Runs, streams, stops and the API continue. A run with much output waits and is reported; no line is lost.

    An upgrade is refused meanwhile.
    """
    side = tmp_path / "side"
    daemon.write(
        f"[tasks.big]\nrun = {program('floods', BYTES)}\n"
        f"[tasks.talks]\nrun = {program('numbered', 1_000_000, 0.01, side)}\n"
        '[tasks.small]\nrun = "echo hello"\n'
    )
    daemon.start()
    talks = daemon.trigger("talks")
    stream = daemon.stream(f"/api/runs/{talks}/log/stream?from=0")
    texts = lines_of(iter(stream))
    assert next(texts) == "line 0"
    until(lambda: f"{talks}.log" in daemon.log_files(), "its log file")
    events = daemon.stream("/api/events/stream?types=run.updated")
    daemon.freeze()
    try:
        big = daemon.trigger("big")
        small = daemon.ended(daemon.trigger("small"))
        assert small["endReason"] == "succeeded"
        assert daemon.texts(small["id"]) == ["hello"]
        first_event = next(event.data for event in events if event.data["runId"] == big)
        assert (first_event["status"], first_event["log"]["state"]) == ("running", "waiting")
        printed = daemon.get(f"/api/runs/{big}/log?from=-1").json()["totalLines"]
        assert 0 < printed < BYTES // 100
        now = int(side.read_text().split()[-1])
        assert next(text for text in texts if int(text.split()[1]) > now)
        assert daemon.request("POST", f"/api/runs/{talks}/stop").status < 300
        assert daemon.ended(talks)["status"] == "ended"
        assert f"{small['id']}.log" not in daemon.log_files()
        assert daemon.get(f"/api/runs/{big}/log?from=-1").json()["totalLines"] == printed
        # The kernel cannot exec before the file thread's write has ended.
        assert upgrade(daemon) == {**answer(daemon), "state": "refused", "why": "a disk with logs does not respond"}
    finally:
        daemon.thaw()
    assert daemon.ended(big)["endReason"] == "succeeded"
    assert daemon.get(f"/api/runs/{big}/log/raw").body == b"".join(b"%099d\n" % n for n in range(BYTES // 100))
    until(lambda: {f"{run_id}.log" for run_id in (talks, small["id"])} <= set(daemon.log_files()), "the log files")
    numbers = [int(text.split()[1]) for text in daemon.texts(talks)]
    assert numbers == list(range(len(numbers)))
    assert numbers[-1] >= now
    assert daemon.texts(small["id"]) == ["hello"]
    stream.close()
    events.close()
    assert daemon.stop() == 0


@pytest.mark.parametrize("cgroups", ["auto", "off"])
def test_run_ends_despite_a_process_on_a_dead_disk(daemon: FrozenLogs, cgroups: str) -> None:
    """A process that waits for a dead disk is named, its run ends without it, and it ends when the disk is back."""
    stuck = "touch '$LOGS/x' & echo $!; until grep -q '^State:.D' /proc/$!/status; do :; done"
    daemon.write(f'[tasks.t]\nrun = "{stuck.replace("$LOGS", str(daemon.logs))}"\n', daemon=f'cgroups = "{cgroups}"')
    daemon.start()
    daemon.freeze()
    try:
        run_id = daemon.trigger("t")
        assert daemon.ended(run_id)["endReason"] == "succeeded"
        pid = int(daemon.texts(run_id)[0])
        line = f"still there 10 s after SIGKILL (uninterruptible?): touch ({pid})"
        assert line in "\n".join(daemon.texts(run_id, "system"))
        assert psutil.Process(pid).status() == psutil.STATUS_DISK_SLEEP
    finally:
        daemon.thaw()
    until(lambda: not psutil.pid_exists(pid), "it to end")
    assert daemon.stop() == 0


def test_process_with_locked_memory_delays_nothing(daemon: FrozenLogs, tmp_path: Path) -> None:
    """A process whose memory a thread on a dead disk has locked delays nothing: runs start, end and stop."""
    hold = program("holds_memory", daemon.logs / "x", tmp_path)
    daemon.write(
        f'[tasks.t]\nrun = {hold}\n[tasks.other]\nrun = "echo hello"\n[services.s]\nrun = "exec sleep 1000"\n',
        daemon='cgroups = "off"',
    )
    daemon.start()
    run_id = daemon.trigger("t")
    until((tmp_path / "pid").exists, "the program")
    pid = int((tmp_path / "pid").read_text())
    daemon.freeze()
    try:
        (tmp_path / "frozen").touch()
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_DISK_SLEEP, "it to wait for the disk")
        (tmp_path / "go").touch()
        assert daemon.ended(run_id)["endReason"] == "succeeded"
        assert daemon.ended(daemon.trigger("other"))["endReason"] == "succeeded"
        assert daemon.request("POST", "/api/tasks/s/stop").status == 204
        until(lambda: daemon.task("s")["state"] == "stopped", "the service")
        until(lambda: f"({pid}) (uninterruptible?)" in daemon.output.read_text(), "a word about it")
    finally:
        daemon.thaw()
    until(lambda: not psutil.pid_exists(pid), "it to end")
    assert daemon.stop() == 0
