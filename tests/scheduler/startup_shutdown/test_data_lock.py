"""The lock that gives a data directory to one scheduler at a time."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.scheduler.startup_shutdown import data_lock
from tests.support.paths import ROOT

HOLD = """
import fcntl, sys
sys.path.insert(0, sys.argv[2])
from supervisor.host.osport import set_title
set_title("ringward scheduler")
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def test_hanging_scheduler_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a scheduler that holds the lock is killed; other programs with the file open continue."""
    really = data_lock._kill

    def kill(pid: int, fd: int) -> None:
        monkeypatch.setattr(data_lock, "_WAIT_S", 60.0)  # long enough for the signal to act
        really(pid, fd)

    monkeypatch.setattr(data_lock, "_kill", kill)
    monkeypatch.setattr(data_lock, "_WAIT_S", 0.1)
    path = tmp_path / "scheduler.lock"
    command = [sys.executable, "-I", "-c", HOLD, str(path), str(ROOT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hangs:
        assert hangs.stdout is not None
        assert hangs.stdout.readline()
        with path.open() as reading, subprocess.Popen(["sleep", "1000"], stdin=reading) as looks:
            lock = data_lock.acquire(str(tmp_path))
            assert hangs.wait(60) == -signal.SIGKILL
            assert looks.poll() is None
            looks.kill()
        with path.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        monkeypatch.setattr(data_lock, "_WAIT_S", 0.1)
        with pytest.raises(data_lock.Locked):
            data_lock.acquire(str(tmp_path))
        os.close(lock)
