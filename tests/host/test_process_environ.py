"""Environments of other processes."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from supervisor.host.process_environ import Environments
from tests.support.waiting import until, until_environment


def test_environment() -> None:
    """The environment is as the process sees it, and that of a dead process is empty."""
    environments = Environments(30)
    with subprocess.Popen(["sleep", "1000"], env={"A": "1=2", "B": ""}) as child:
        until_environment(child)
        assert environments.read(child.pid, 0) == {"A": "1=2", "B": ""}
        child.kill()
    assert environments.read(child.pid, 0) == {}


def test_blocked_read(tmp_path: Path) -> None:
    """A read that blocks is waited for once, briefly, and succeeds later.

    Others are read meanwhile; the first of repeated variables counts.
    """
    for pid in ("7", "8"):
        (tmp_path / pid).mkdir()
    os.mkfifo(tmp_path / "7" / "environ")  # opening a FIFO waits for a writer
    (tmp_path / "8" / "environ").write_bytes(b"A=1\0A=2\0junk\0")
    environments = Environments(0.01, str(tmp_path))
    assert environments.read(7, 1) is None
    assert until(lambda: environments.read(8, 1), "the variables of another process") == {"A": "1"}
    assert environments.read(7, 1) is None
    (tmp_path / "7" / "environ").write_bytes(b"B=3\0")
    assert until(lambda: environments.read(7, 1), "its variables") == {"B": "3"}


@pytest.mark.parametrize("where", ["process_environ._read_environ", "detached_thread.DetachedThread._run"])
def test_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A thread that failed for lack of memory is not waited for, and the next call tries again."""

    def fail(*_arguments: object) -> None:
        raise MemoryError

    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"A=1\0")
    environments = Environments(0.01, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda _unraisable: None)
        patch.setattr(f"supervisor.host.{where}", fail)
        for _ in range(40):
            assert environments.read(7, 1) is None
        until(
            lambda: not any(pending_read.thread.running for pending_read in environments._waiting.values()),
            "the last thread to end",
        )
    assert until(lambda: environments.read(7, 1), "its variables") == {"A": "1"}


def test_reading_thread_blocks_signals(tmp_path: Path) -> None:
    """A hanging reader takes no signals, so that the threads that handle them do."""
    (tmp_path / "7").mkdir()
    os.mkfifo(tmp_path / "7" / "environ")
    before = set(os.listdir("/proc/self/task"))
    assert Environments(0.01, str(tmp_path)).read(7, 1) is None
    (reader,) = set(os.listdir("/proc/self/task")) - before
    status = Path(f"/proc/self/task/{reader}/status")
    signals = sum(1 << number - 1 for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD))
    try:

        def blocked() -> bool:
            (line,) = (line for line in status.read_text().splitlines() if line.startswith("SigBlk"))
            return int(line.split()[1], 16) & signals == signals

        until(blocked, "its signals to be blocked")
    finally:
        (tmp_path / "7" / "environ").write_bytes(b"")


def test_blocked_reads_are_bounded(tmp_path: Path) -> None:
    """The number of hanging readers is bounded, and no other process is read at that limit."""
    environments = Environments(0.001, str(tmp_path))
    for pid in range(40):
        (tmp_path / str(pid)).mkdir()
        os.mkfifo(tmp_path / str(pid) / "environ")
        assert environments.read(pid, 1) is None
    fresh = tmp_path / "40"
    fresh.mkdir()
    (fresh / "environ").write_bytes(b"A=1\0")
    assert environments.read(40, 1) is None
    for pid in range(32):
        (tmp_path / str(pid) / "environ").write_bytes(b"A=1\0")
    assert until(lambda: environments.read(40, 1), "its variables") == {"A": "1"}
