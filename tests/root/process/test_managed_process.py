"""The root's record of a run."""

from supervisor.root.process.managed_process import MainProcess, ManagedProcess
from tests.root.loop.test_control_thread import spawn


def test_clock_set_during_a_run() -> None:
    """A run's duration includes sleep of the host, and does not depend on the wall clock."""
    process = ManagedProcess(spawn("R"), MainProcess(1, 1, 5_000, started_s=100.0))
    process.note_end(107.25)
    assert process.outcome.ended_at == 5_000 + 7_250
