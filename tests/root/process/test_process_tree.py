"""Processes that belong to a run and get its signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervisor.host.procfs import Process, find_process, start_of
from supervisor.root.process import process_tree
from supervisor.root.process.managed_process import MainProcess, ManagedProcess
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.transitions import State
from tests.root.loop.test_control_thread import spawn
from tests.scheduler.fake_clock import FakeClock

_LATE = "import os, sys; sys.stdin.read(1); os.setsid(); print(flush=True); sys.stdin.read()"


def test_group_created_during_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop reaches a new process even if its group is created only a moment later."""
    killpg = os.killpg
    with subprocess.Popen([sys.executable, "-I", "-c", _LATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as late:
        assert late.stdin is not None
        assert late.stdout is not None
        stdin, stdout = late.stdin, late.stdout

        def too_early(group: int, number: int) -> None:
            try:
                killpg(group, number)
            finally:
                stdin.write(b"x")
                stdin.flush()
                stdout.readline()

        monkeypatch.setattr(os, "killpg", too_early)
        process = ManagedProcess(spawn("R"), MainProcess(late.pid, os.pidfd_open(late.pid), 1, 0.0))
        ProcessTrees("D", set, print).signal(process, signal.SIGTERM, signal.SIGCONT)
        os.close(process.main.pidfd)
        assert late.wait(60) == -signal.SIGTERM


def test_zombies_of_the_host_delay_no_end() -> None:
    """A zombie that another process of the host does not reap delays no end of an adopted run without a cgroup."""
    with subprocess.Popen(["true"]) as zombie, subprocess.Popen(["sleep", "1000"]) as main:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        there = find_process(main.pid)
        assert there is not None
        adopted = MainProcess(main.pid, os.pidfd_open(main.pid), 1, 0.0, there.start, adopted=True)
        main.kill()
        main.wait()
        process = ManagedProcess(spawn("R"), adopted)
        process.state = State.SEALING
        assert ProcessTrees("D", set, print).is_empty(process)
        os.close(adopted.pidfd)


def test_ending_processes_of_the_host_delay_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host, processes that belong to no run and end during each search delay no end of an adopted run."""
    listdir = os.listdir
    others = [subprocess.Popen(["sleep", "1000"]) for _ in range(30)]

    def end_one() -> None:
        with others.pop() as other:
            other.kill()

    def one_ends(directory: str) -> list[str]:
        names = listdir(directory)
        if directory == "/proc":
            end_one()
        return names

    with subprocess.Popen(["sleep", "1000"]) as main:
        there = find_process(main.pid)
        assert there is not None
        adopted = MainProcess(main.pid, os.pidfd_open(main.pid), 1, 0.0, there.start, adopted=True)
        main.kill()
    process = ManagedProcess(spawn("R"), adopted)
    process.state = State.SEALING
    monkeypatch.setattr(os, "listdir", one_ends)
    is_empty = ProcessTrees("D", set, print).is_empty(process)
    os.close(adopted.pidfd)
    while others:
        end_one()
    assert is_empty


def test_exiting_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exiting process loses its variables before it ends; for a second it counts as part of the run."""
    clock = FakeClock()

    def without_memory(pid: int) -> Process | None:
        process = find_process(pid)
        return None if process is None else process._replace(memory=0)

    with subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True) as child:
        monkeypatch.setattr(process_tree, "own_children", lambda: [child.pid])
        process = ManagedProcess(spawn("R"), MainProcess(os.getpid(), os.pidfd_open(os.getpid()), 1, 0.0))
        process.state = State.SEALING
        trees = ProcessTrees("D", set, print, clock)
        assert trees.is_empty(process)
        monkeypatch.setattr(process_tree, "find_process", without_memory)
        assert not trees.is_empty(process)
        clock.advance(0.9)
        assert not trees.is_empty(process)
        clock.advance(0.2)
        assert trees.is_empty(process)
        os.close(process.main.pidfd)
        child.kill()


class Unmarked:
    """Runs without cgroups, and an orphan that has no readable environment."""

    def __init__(self, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warnings: list[str] = []
        self.trees = ProcessTrees("D", set, self.warnings.append)
        self.children: list[subprocess.Popen[bytes]] = []
        self.runs = [self.run(name) for name in names]
        self.orphan = self.child(env={})
        monkeypatch.setattr(process_tree, "own_children", lambda: [self.orphan, *self.trees.mains])

    def child(self, **more: Any) -> int:
        self.children.append(subprocess.Popen(["sleep", "1000"], start_new_session=True, **more))
        return self.children[-1].pid

    def run(self, name: str) -> ManagedProcess:
        """Start a run."""
        pid = self.child()
        process = self.trees.mains[pid] = ManagedProcess(spawn(name), MainProcess(pid, os.pidfd_open(pid), 1, 0.0))
        return process

    def ends(self, run: ManagedProcess) -> bool:
        """End the main process of a run, and return whether the orphan is then one of its processes."""
        os.kill(run.main.pid, signal.SIGKILL)
        os.waitid(os.P_PID, run.main.pid, os.WEXITED | os.WNOWAIT)
        run.state = State.DRAINED
        members = self.trees.members(run)
        assert members.keys() <= {self.orphan}
        if not members:
            del self.trees.mains[run.main.pid]
        return bool(members)

    def close(self) -> None:
        for run in self.runs:
            os.close(run.main.pidfd)
        for child in self.children:
            child.kill()
            child.wait()


@pytest.fixture
def unmarked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Unmarked]]:
    """Return a function that starts runs with these names, and then the orphan."""
    made: list[Unmarked] = []

    def make(names: str) -> Unmarked:
        made.append(Unmarked(names, monkeypatch))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


def test_unmarked_orphan_of_the_only_run(unmarked: Callable[[str], Unmarked], monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphan without a readable environment belongs to the only run that can have started it, also for later roots.

    A run that started after the orphan cannot have started it.
    """
    harness = unmarked("A")
    harness.runs.append(harness.run("B"))
    first, later = harness.runs
    its_start = start_of(harness.orphan)
    assert its_start is not None
    starts = {first.main.pid: its_start, later.main.pid: its_start + 1}
    monkeypatch.setattr(process_tree, "start_of", starts.get)
    assert not harness.ends(later)
    assert harness.ends(first)
    assert [owner.run for owner in harness.trees.dump()] == ["A"]
    assert harness.warnings == []


def test_unmarked_orphan_of_several_runs(unmarked: Callable[[str], Unmarked]) -> None:
    """If several runs can have started it, no end of a run ends it, even of the last one, and logs name it once."""
    harness = unmarked("AB")
    first, last = harness.runs
    assert not harness.ends(first)
    assert not harness.trees.has(last, harness.orphan)
    following = ProcessTrees("D", set, harness.warnings.append)
    following.load(harness.trees.dump())
    following.mains, harness.trees = harness.trees.mains, following
    assert not harness.ends(last)
    (line,) = first.outcome.log_notes
    assert line.endswith(f"sleep ({harness.orphan})")
    assert harness.warnings == [f"t A: {line}"]
    assert last.outcome.log_notes == []


def test_unmarked_orphan_beside_kept_processes(unmarked: Callable[[str], Unmarked]) -> None:
    """After a run has left processes running, an orphan without a readable environment may be theirs."""
    harness = unmarked("A")
    harness.trees.left_running = True
    assert not harness.ends(harness.runs[0])
    assert len(harness.warnings) == 1


def test_unmarked_orphan_of_process_1(unmarked: Callable[[str], Unmarked], monkeypatch: pytest.MonkeyPatch) -> None:
    """As process 1, the root also adopts orphans that it did not start, so it ends none without a mark."""
    harness = unmarked("A")
    monkeypatch.setattr(
        process_tree, "find_process", lambda pid: there._replace(parent=1) if (there := find_process(pid)) else None
    )
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not harness.ends(harness.runs[0])
    assert len(harness.warnings) == 1
