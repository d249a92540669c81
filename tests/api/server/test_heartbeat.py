"""Heartbeats of API workers."""

import subprocess
import sys
import time

import pytest
from gunicorn.arbiter import Arbiter

from api.server.heartbeat import Heartbeat


def test_start_of_a_worker_counts_as_a_heartbeat() -> None:
    """A worker that hangs before its first heartbeat has a time limit too."""
    before_s = time.monotonic()
    pulse = Heartbeat(None)
    assert before_s - 1 < pulse.last_update() <= time.monotonic()
    pulse.close()


@pytest.mark.parametrize(("booted", "status"), [(False, Arbiter.WORKER_BOOT_ERROR), (True, 1)])
def test_worker_that_hangs_during_its_start(booted: bool, status: int) -> None:
    """The server ends if a worker hangs during its start; a worker that has served is replaced."""
    code = f"""
from api.server.worker import Worker
worker = Worker.__new__(Worker)
worker.booted, worker._ends_server = {booted}, False
worker.handle_abort(6, None)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == status


def test_arbiter_waits_until_a_worker_can_hang() -> None:
    """The arbiter sleeps until a worker can have missed its heartbeats, but not while one hangs or is missing."""
    code = """
from types import SimpleNamespace as New
from api.server.arbiter import next_check_s
one, other = (New(aborted=False, tmp=New(last_update=lambda at=at: at)) for at in (5.0, 7.0))
hanging = New(aborted=True, tmp=one.tmp)
print(next_check_s([one, other], 2, 30), next_check_s([one], 2, 30), next_check_s([hanging, other], 2, 30))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["35.0", "0.0", "0.0"]
