"""Processes that belong to a run and get its signals."""

import os
import signal
import subprocess
import sys

import pytest

from supervisor.host.procfs import Process, find_process
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
