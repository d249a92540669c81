"""Heartbeats of API workers."""

import time

from api.server.heartbeat import Pulse


def test_the_start_of_a_worker_counts_as_a_heartbeat() -> None:
    """A worker that hangs before its first heartbeat has a time limit too."""
    before_s = time.monotonic()
    pulse = Pulse(None)
    assert before_s - 1 < pulse.last_update() <= time.monotonic()
    pulse.close()
