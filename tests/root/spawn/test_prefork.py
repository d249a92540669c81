"""A run whose spare is killed before its exec starts elsewhere, once."""

import os
import signal
from pathlib import Path

import pytest

from supervisor.host.procfs import has_executed_nothing
from supervisor.ipc.messages import Spawn
from supervisor.root.handover.run_recovery import RecoveredRun
from supervisor.root.process.managed_process import MainProcess, ManagedProcess
from supervisor.root.process.transitions import State
from supervisor.root.spawn.posix_spawn import StartedProcess
from tests.root.process.test_transitions import Bench, bench
from tests.root.spawn.test_posix_spawn import make_spawn
from tests.root.spawn.test_zygote import Outcome, root, state
from tests.root.start_bench import StartBench
from tests.support.waiting import until

__all__ = ["bench", "root"]


def killed_spare(root: StartBench, spawn: Spawn) -> StartedProcess:
    """Start a run with a spare that is killed before its exec; return the start of the zombie, without descriptors."""
    spare = root.prepare()
    os.kill(spare, signal.SIGSTOP)
    until(lambda: state(spare) == "T", "it to stop")
    assert not root.begin(spawn)
    started = root.settle(spawn)
    assert started.pid == spare
    os.kill(spare, signal.SIGKILL)
    until(lambda: state(spare) == "Z", "its end")
    for fd in (*started.pipes, started.pidfd, started.status_fd):
        if fd is not None:
            os.close(fd)
    return started


def test_killed_spare_executed_nothing(root: StartBench, tmp_path: Path) -> None:
    """The zombie of a spare that was killed before its exec shows that it executed nothing; that of a run does not."""
    side = tmp_path / "side"
    spawn = make_spawn(["/bin/sh", "-c", f"echo $$ >> {side}"])
    spare = killed_spare(root, spawn).pid
    assert has_executed_nothing(spare)
    assert os.waitstatus_to_exitcode(os.waitpid(spare, 0)[1]) == -signal.SIGKILL
    root.starts.start_again(spawn, None)
    second = root.settle(spawn)
    until(lambda: state(second.pid) == "Z", "its end")
    assert not has_executed_nothing(second.pid)
    assert Outcome(second).code == 0
    assert len(side.read_text().split()) == 1
    assert root.started_runs == [spawn.run, spawn.run]


def test_next_root_replaces_a_killed_spare(
    root: StartBench, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an upgrade follows the death of a spare that executed nothing, the next root starts another process."""
    spawn = make_spawn(["/bin/sh", "-c", f"echo >> {tmp_path}/side"])
    process = ManagedProcess(spawn, MainProcess(killed_spare(root, spawn).pid, -1, 1, 0.0))
    process.state = State.DRAINED
    again: list[str] = []
    monkeypatch.setattr(bench.manager.starts, "start_again", lambda spawn, _notify_socket: again.append(spawn.run))
    bench.manager.adopt(RecoveredRun(spawn.run, process))
    bench.manager.run_timers(0.0)
    assert again == [spawn.run]
    assert not (tmp_path / "side").exists()


def test_missing_process_is_in_doubt() -> None:
    """A process that no longer exists is not assumed to have executed nothing."""
    assert not has_executed_nothing(1 << 30)
