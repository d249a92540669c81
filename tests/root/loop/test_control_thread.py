"""The control loop's decisions, without its processes."""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from supervisor.host.cgroups import Cgroups
from supervisor.ipc.child_process import ChildProcess
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings, Message, Spawn, encode
from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.handover.run_records import RunRecords
from supervisor.root.helper_processes import Helper
from supervisor.root.loop.control_thread import ControlThread
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process.cgroup_manager import CgroupManager
from supervisor.root.process.dispatcher import Timers
from supervisor.root.process.managed_process import MainProcess, ManagedProcess
from supervisor.root.process.process_manager import ProcessManager
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.transitions import State
from tests.root.debugger import traced
from tests.root.loop.test_shortage import BOOT, FailingStarts
from tests.support.waiting import until


def records_in(directory: Path) -> RunRecords:
    """Return the records of a root whose runtime directory this is."""
    return RunRecords(replace(BOOT, runtime_dir=str(directory)), DescriptorStore(""), Log("test"))


class _Log(Log):
    def __init__(self) -> None:
        super().__init__("test")
        self.lines: list[str] = []

    def emit(self, line: bytes) -> None:
        self.lines.append(line.decode())


class _Pump:
    def connect(self, _listener: object) -> None:
        pass

    def add_helper(self, _fd: int) -> None:
        pass


def spawn(run: str, **more: Any) -> Spawn:
    return Spawn(run=run, task="t", argv=["true"], env={}, log="", log_max_bytes=1, stop_signal=15, grace_ms=1, **more)


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[DoorbellServer]:
    server = DoorbellServer(str(tmp_path / "bell"), "token")
    yield server
    server.close()


@pytest.fixture
def settings(tmp_path: Path) -> DaemonSettings:
    return replace(BOOT, runtime_dir=str(tmp_path))


def test_api_cannot_send_commands(bell: DoorbellServer, settings: DaemonSettings, tmp_path: Path) -> None:
    """No message of the API server, which talks to untrusted clients, makes the root do anything."""
    log = _Log()
    pump = Pump(str(tmp_path), "D", bell, FileThread(log, 2, DiskSpace(str(tmp_path), 0)))
    scheduler, api = (Helper(name, name, settings, []) for name in ("scheduler", "gunicorn"))
    control = ControlThread(settings, log, pump, bell, {}, (scheduler, api))
    frame = encode({"op": "spawn", "spawn": vars(spawn("R"))})
    control._on_messages(api, memoryview(frame))
    assert not control._processes.live
    assert not control._processes.failed_starts
    assert "gunicorn sent an invalid message" in log.lines[0]
    obeyed: list[str] = []
    control._operations = {op: lambda message: obeyed.append(message["op"]) for op in control._operations}
    operations = list(control._operations)
    assert {"spawn", "stop", "ack", "upgrade"} < set(operations)
    for helper in (api, scheduler):
        assert obeyed == []
        for op in operations:
            control._on_messages(helper, memoryview(encode({"op": op})))
    assert obeyed == operations


def test_last_messages_of_a_scheduler(bell: DoorbellServer, settings: DaemonSettings, tmp_path: Path) -> None:
    """A stop that the scheduler sent before its end is carried out, however many messages precede it."""
    log = _Log()
    pump = Pump(str(tmp_path), "D", bell, FileThread(log, 2, DiskSpace(str(tmp_path), 0)))
    scheduler, api = (Helper(name, name, settings, []) for name in ("scheduler", "gunicorn"))
    control = ControlThread(settings, log, pump, bell, {}, (scheduler, api))
    stopped_runs: list[str] = []
    control._operations["stop"] = lambda frame: stopped_runs.append(frame["run"])
    runs = [f"{number:026}" for number in range(500)]
    ours, theirs = socket.socketpair()
    with theirs, subprocess.Popen(["true"], start_new_session=True) as process:
        output = os.open(os.devnull, os.O_RDONLY)
        scheduler._take_over(ChildProcess(process.pid, os.pidfd_open(process.pid), ours, output))
        theirs.sendall(b"".join(encode({"op": "stop", "run": run, "cause": "stop"}) for run in runs))
        control._watch_helper(scheduler)
        while scheduler.pid is not None:
            control._watch.round(None)
        process.returncode = 0
    os.close(output)
    assert stopped_runs == runs


def test_expired_timers_are_freed() -> None:
    """After many short runs with long time limits, only the timers of live runs stay in memory."""
    live: set[str] = set()
    timers = Timers(live)
    for number in range(10_000):
        live.clear()
        live.add(str(number))
        timers.add(1000.0 + number, str(number))
    assert len(timers) < 600
    assert list(timers.due(20_000.0)) == ["9999"]


def test_unresponsive_tracer(tmp_path: Path) -> None:
    """A traced process is reaped after its tracer has seen the exit; other work continues meanwhile."""
    frames: list[Message] = []
    trees, records = ProcessTrees("D", set, print), records_in(tmp_path)
    lives = ProcessManager("D", EpollWatch(), cast(Pump, _Pump()), _Log(), {}, frames.append, trees, records)
    with subprocess.Popen(["sleep", "1000"]) as process:
        with traced(process.pid):
            main = MainProcess(process.pid, os.pidfd_open(process.pid), 1, 0.0)
            lives.live["R"] = managed = ManagedProcess(spawn("R"), main)
            process.kill()
            select.select([main.pidfd], [], [])
            os.close(main.pidfd)
            managed.state = State.SEALING
            lives.pump_reports.sealed("R", 7)
            lives.pump_reports.catch_up()
            assert (list(lives.live), frames) == (["R"], [])
            assert lives.next_s() is not None

        def has_ended() -> bool:
            lives.run_timers(float("inf"))
            return bool(frames)

        until(has_ended, "its end")
        assert [(frame["op"], frame["status"], frame["lines"]) for frame in frames] == [("exited", signal.SIGKILL, 7)]
        assert not lives.live
        process.returncode = -signal.SIGKILL


def test_end_of_a_run_retries_starts(tmp_path: Path) -> None:
    """When a run has ended, the starts that wait for a resource are due at once."""
    starts = FailingStarts()
    starts.waiting.start(spawn("W"))
    clock = starts.clock
    starts.until(clock.monotonic_s() + 3600)
    trees, records = ProcessTrees("D", set, print, clock), records_in(tmp_path)
    lives = ProcessManager("D", EpollWatch(clock), cast(Pump, _Pump()), _Log(), {}, lambda _: None, trees, records)
    lives._waiting = starts.waiting
    with subprocess.Popen(["true"]) as process:
        main = MainProcess(process.pid, os.pidfd_open(process.pid), 1, 0.0)
        select.select([main.pidfd], [], [])
        os.close(main.pidfd)
        lives.live["R"] = managed = ManagedProcess(spawn("R"), main)
        managed.state = State.SEALING
        due_s = lives.next_s()
        assert due_s is not None
        assert due_s > clock.monotonic_s()
        lives.pump_reports.sealed("R", 7)
        lives.pump_reports.catch_up()
        process.returncode = 0
    assert not lives.live
    due_s = lives.next_s()
    assert due_s is not None
    assert due_s <= clock.monotonic_s()


def test_unkillable_helper(
    bell: DoorbellServer, settings: DaemonSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown does not wait indefinitely for a helper that even SIGKILL cannot end, such as one hung on a disk."""
    monkeypatch.setattr("supervisor.root.loop.control_thread._HELPER_END_S", 0.05)
    log = _Log()
    pump = Pump(str(tmp_path), "D", bell, FileThread(log, 2, DiskSpace(str(tmp_path), 0)))
    scheduler, api = (Helper(name, name, settings, []) for name in ("scheduler", "gunicorn"))
    control = ControlThread(settings, log, pump, bell, {}, (scheduler, api))
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        scheduler.pid, scheduler.pidfd = process.pid, os.pidfd_open(process.pid)
        with traced(process.pid):
            control._end_helpers()
            assert os.waitpid(process.pid, os.WNOHANG) == (0, 0)
        os.close(scheduler.pidfd)
    assert "scheduler did not exit in time" in log.lines[0]


def test_limits_without_a_cgroup(tmp_path: Path) -> None:
    """The log of a run without a cgroup names each limit that is not applied."""
    cgroup_manager = CgroupManager("D", _Log())
    limits = {"cpu": 1, "memory": 1 << 30, "nice": 5}
    reason = "no cgroup with the {0} controller is available"
    assert cgroup_manager.assign(spawn("R", limits=limits)) == (
        None,
        [f"limits.{name} is not applied: {reason.format(name)}" for name in ("memory", "cpu")],
    )
    cgroup_manager._cgroups = Cgroups(str(tmp_path / "removed" / "runs"), frozenset({"cpu"}))
    reason = "the run has no cgroup (No such file or directory)"
    assert cgroup_manager.assign(spawn("R", limits=limits)) == (
        None,
        [f"limits.{name} is not applied: {reason}" for name in ("memory", "cpu")],
    )


def test_limit_without_its_controller(tmp_path: Path) -> None:
    """A limit whose controller the hierarchy lacks is not applied, and the log of the run says so."""
    cgroup_manager = CgroupManager("D", _Log())
    (tmp_path / "runs").mkdir()
    cgroup_manager._cgroups = Cgroups(str(tmp_path / "runs"), frozenset({"io"}))
    cgroup, remarks = cgroup_manager.assign(spawn("R", limits={"memory": 1 << 30}))
    assert cgroup is not None
    assert remarks == ["limits.memory is not applied: no cgroup with the memory controller is available"]
