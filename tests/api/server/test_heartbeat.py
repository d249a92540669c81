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
