"""The state that a root hands over, without processes."""

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logring.layout import STDOUT
from logring.logfile import log_file
from logring.reader import LogReader
from logring.state_json import from_json, to_json
from supervisor.host.cgroups import Cgroup, CgroupUsage
from supervisor.host.clock import Clock
from supervisor.ipc.child_process import RINGWARD
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Exited, Spawn
from supervisor.root.handover import table as handover
from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.handover.quiesce import Quiesce
from supervisor.root.handover.run_records import RunRecords
from supervisor.root.handover.run_recovery import recover
from supervisor.root.handover.state_schema import (
    ExactState,
    FilesState,
    HelperState,
    KeptDescriptors,
    LogState,
    ProcessesState,
    PumpState,
    RootState,
    RunState,
    exact_of,
    state_of,
)
from supervisor.root.handover.table import HandoverRejected, KeptDescriptorList
from supervisor.root.handover.upgrade import Trial, Upgrade, _reason
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump
from supervisor.root.output.run_log import RunLog
from supervisor.root.process.managed_process import MainProcess, ManagedProcess, RunOutcome
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.process.process_manager import ProcessManager
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.transitions import State
from supervisor.root.service_manager.reload_signal import ReloadSignal
from supervisor.version import VERSION
from tests.root.debugger import traced
from tests.root.loop.test_shortage import BOOT
from tests.root.pump_bench import LINE, PumpBench
from tests.support.waiting import until


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PumpBench]:
    harness = PumpBench(tmp_path)
    yield harness
    harness.close()


def next_root(bench: PumpBench, *, cut_off: bool = False, sealing: bool = False) -> None:
    """Replace the pump and the file thread with new ones that load their state.

    An earlier version had begun to close the pipes (`cut_off`) or to seal the log (`sealing`).
    """
    pump_state: PumpState = from_json(PumpState, json.loads(json.dumps(to_json(bench.pump.dump(lambda fd: fd)))))
    bench.files = FileThread(bench.files._log, 2, DiskSpace("/", 0), bench.clock)
    bench.pump = Pump(bench.pump._runtime_dir, "D", bench.bell, bench.files)
    bench.pump.connect(bench.reports)
    bench.files.connect(bench.pump)
    (log,) = (replace(log, cut_off=cut_off, sealing=log.sealing or sealing) for log in pump_state.logs)
    bench.log = RunLog.load(log)
    bench.pump.load([bench.log], RunLog.load(pump_state.daemon), pump_state)
    bench.pump.adopt(bench.log, log.since_s)


def content(bench: PumpBench) -> bytes:
    """Let the file thread finish the log, and return the content of the log."""
    while not bench.log.finished:
        bench.obey()
        bench.read()
        bench.write_files()
        bench.tick()
    reader = LogReader(bench.ring_path, bench.log_path)
    try:
        return b"".join(reader.raw())
    finally:
        reader.close()


def test_log_waiting_for_room(bench: PumpBench) -> None:
    """If a ring is full, the next root makes room and continues to read; no output in the pipes is lost."""
    total = round_bytes = 0
    while not bench.stalled():
        total += bench.fill(bench.out, bench.err)
        round_bytes += bench.read()
    next_root(bench)
    assert bench.stalled()
    while round_bytes < total:
        bench.write_files()
        bench.obey()
        round_bytes += bench.read()
    assert bench.seal() == LINE * (total // len(LINE))


def test_enlarged_pipes(bench: PumpBench) -> None:
    """The next root knows which pipes were enlarged, and how many."""
    total = bench.fill(bench.out)
    round_bytes = bench.read()
    assert bench.pump._wide_pipes == 1
    next_root(bench)
    assert [source.wide for source in bench.log.sources if source.stream == STDOUT] == [True]
    assert bench.pump._wide_pipes == 1
    while round_bytes < total:
        round_bytes += bench.read()
    os.close(bench.out)
    bench.read()
    assert bench.pump._wide_pipes == 0
    bench.out = os.open(os.devnull, os.O_WRONLY)
    assert bench.seal() == LINE * (total // len(LINE))


def test_log_with_pipes_to_close(bench: PumpBench) -> None:
    """If a run has ended and the ring is full, this root closes the pipes for which an earlier version waited."""
    total = 0
    while not bench.stalled():
        total += bench.fill(bench.out, bench.err)
        bench.read()
    next_root(bench, cut_off=True)
    bench.obey()
    assert bench.reports.ended == ["R"]
    assert bench.seal() == LINE * (total // len(LINE))


def test_log_with_lines_to_place(bench: PumpBench) -> None:
    """If the last lines of a sealed log had no room in the ring, this root completes what an earlier version began."""
    total = 0
    while not bench.stalled():
        total += bench.fill(bench.out, bench.err)
        bench.read()
    bench.pump.drain("R")
    bench.obey()
    bench.log.writer.seal(bench.clock.wall_ms())
    next_root(bench, sealing=True)
    bench.obey()
    assert bench.reports.lines == [("R", total // len(LINE))]
    assert content(bench) == LINE * (total // len(LINE))


def test_unwritten_log(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next root writes a log that is complete but not yet written."""
    write = log_file.pwritev

    def full(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    os.write(bench.out, b"first\nlast\n")
    bench.read()
    monkeypatch.setattr(log_file, "pwritev", full)
    bench.pump.seal("R", [])
    bench.obey()
    bench.write_files()
    assert bench.log.sealed
    next_root(bench)
    bench.write_files()
    assert not bench.log.finished
    monkeypatch.setattr(log_file, "pwritev", write)
    assert content(bench) == b"first\nlast\n"


def test_output_of_helpers(bench: PumpBench) -> None:
    """The next root gets half a line of a helper, and the lines that standard error has not accepted."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    bench.pump.add_helper(reading)
    bench.obey()
    os.write(writing, b"whole\nhalf a ")
    bench.pump._read_helper(reading)
    next_root(bench)
    assert bench.files._echo.waiting == b"whole\n"
    os.write(writing, b"line\n")
    bench.pump._read_helper(reading)
    assert bench.files._echo.waiting == b"whole\nhalf a line\n"
    for fd in (reading, writing):
        os.close(fd)


def change(process: ManagedProcess) -> None:
    """Give every attribute a value other than its initial one."""
    process.state, process.abandoned = State.CLOSING, True
    process.cause, process.by, process.deadline_s, process.sweep_interval_s = "stop", "me", 12.5, 0.25
    process.steps_left = None
    process.outcome = RunOutcome(
        reason="why",
        ended_at=1_700_000_000_000,
        status=9,
        usage=CgroupUsage(1, 2, 3, filled_up=True),
        leftovers={(3, 4): "left (3)"},
        not_permitted={5},
        log_notes=["said"],
        lines=3,
    )
    assert process.cgroup is not None
    process.cgroup.limits.add("cpu")
    assert process.notify_socket is not None
    process.notify_socket.ready_at, process.notify_socket.status, process.notify_socket.resume_at_s = 8, "well", 3.5
    process.notify_socket.stopping_at, process.notify_socket.triggered = 9, True


def test_managed_process(tmp_path: Path) -> None:
    """The next root knows every attribute of a process, with its stop ladder and its notification socket."""
    spawn = Spawn(
        run="R",
        task="t",
        argv=["x"],
        env={"A": "\udcff"},
        log=str(tmp_path),
        log_max_bytes=1,
        stop_signal=15,
        grace_ms=5,
        stop_then=[[2, 7]],
        notify=f"@{tmp_path}",
    )
    main = MainProcess(6, 7, 9, started_s=1.5, ticks=77, adopted=True)
    process = ManagedProcess(spawn, main, 8, Cgroup("/x", frozenset({"memory"})), NotifySocket(spawn))
    change(process)
    keep = KeptDescriptorList()
    exact = exact_of(process, None, keep)
    assert process.notify_socket is not None
    assert keep.fds == {7, 8, process.notify_socket.fileno()}
    state, exact = json.loads(json.dumps([to_json(state_of(process)), to_json(exact)]))
    other = recover(from_json(RunState, state), from_json(ExactState, exact)).process
    assert other is not None
    for name in set(ManagedProcess.__slots__) - {"notify_socket", "cgroup"}:
        assert getattr(other, name) == getattr(process, name), name
    assert other.cgroup is not None
    assert (other.cgroup.path, other.cgroup.limits, other.cgroup.controllers) == ("/x", {"cpu"}, frozenset({"memory"}))
    assert other.notify_socket is not None
    assert (other.notify_socket.fileno(), other.notify_socket.state()) == (
        process.notify_socket.fileno(),
        process.notify_socket.state(),
    )
    assert other.notify_socket.resume_at_s == 3.5
    process.notify_socket.close()
    other.notify_socket._sock.detach()


def test_unacknowledged_exits(bench: PumpBench, tmp_path: Path) -> None:
    """The next root reports unacknowledged exits and failed starts as this one would have."""
    records = RunRecords(replace(BOOT, runtime_dir=str(tmp_path)), DescriptorStore(""), Log("test"))

    def lives() -> ProcessManager:
        return ProcessManager(
            "D", EpollWatch(), bench.pump, Log("test"), {}, lambda _frame: None, ProcessTrees("D", set, print), records
        )

    here, there = lives(), lives()
    here.exits["A"] = Exited(run="A", status=9 << 8, ended_at=5, lines=3, leftovers=["x (1)"])
    here.failed_starts["B"] = "cannot be started: no"
    here._trees._owners[7, 8] = "C"
    document = json.loads(json.dumps(to_json(here.dump(KeptDescriptorList()))))
    there.load(from_json(ProcessesState, document))
    assert there.snapshot() == here.snapshot()
    assert there.failed_starts == here.failed_starts
    assert there._trees._owners == {(7, 8): "C"}
    there.acknowledge({"runs": ["A"]})
    assert there.exits == {}


DAEMON = LogState("daemon", "", [], {}, None, False, "ok", False, 0, False, False, False, False)
NOTHING = RootState(
    boot=BOOT,
    number=1,
    told_ready=True,
    terminal=False,
    kept=KeptDescriptors([], []),
    scheduler=HelperState(1, None, None, None),
    api=HelperState(1, None, None, None),
    runs=[],
    lives=ProcessesState([], {}, [], [], 1024, [], {}),
    pump=PumpState([], DAEMON, [], FilesState({}, b"")),
)


def table(**more: Any) -> int:
    fd = handover.write(NOTHING, KeptDescriptorList(), {15})
    if more:
        whole = {**json.loads(os.pread(fd, 65536, 0)), **more}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(whole).encode(), 0)
    return fd


def test_table_round_trip() -> None:
    """A table is read as it was written, with its version."""
    data = handover.read(table())
    assert (data["handover"], data["version"], data["signals"]) == (handover.HANDOVER, VERSION, [15])
    assert from_json(RootState, {name: data[name] for name in to_json(NOTHING)}) == NOTHING


def test_newer_table_is_refused() -> None:
    """A table of a newer format is refused, and the message names the other version."""
    with pytest.raises(HandoverRejected, match="cannot read the handover of 9"):
        handover.read(table(handover=handover.HANDOVER + 1, version="9"))


def test_older_table_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older table is converted step by step; one without a converter is refused."""
    steps: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
        1: lambda table: {**table, "x": table["x"] + 1},
        2: lambda table: {**table, "x": table["x"] * 10},
    }
    monkeypatch.setattr(handover, "CONVERSIONS", steps)
    monkeypatch.setattr(handover, "HANDOVER", 3)  # independent of the present version
    assert handover.read(table(handover=1, x=1))["x"] == 20
    assert handover.read(table(handover=2, x=1))["x"] == 10
    with pytest.raises(HandoverRejected, match="no longer reads"):
        handover.read(table(handover=0))


def test_hung_disk_delays_nothing(bench: PumpBench) -> None:
    """A pause is abandoned if the file thread hangs. The pump never stops for it, and both continue later."""
    hangs = threading.Event()
    watch, hold_results = EpollWatch(), list[bool]()
    hold = Quiesce(watch, bench.pump, bench.files)

    def hang() -> None:
        hangs.wait()

    bench.files.hold(hang)
    bench.files.start()
    bench.pump.start()
    hold.start(hold_results.append)
    due_s = hold.due_s
    assert due_s is not None
    hold.tick(due_s - 0.001)
    assert hold_results == []
    hold.tick(due_s)
    assert hold_results == [False]
    hangs.set()
    hold.start(hold_results.append)

    def both_wait() -> bool:
        watch.round(0)
        return len(hold_results) > 1

    until(both_wait, "both to wait")
    assert hold_results == [False, True]
    hold.release()
    bench.pump.finish(timeout_s=60)
    assert bench.files.finish(timeout_s=60)
    assert not bench.pump.is_alive()


@pytest.mark.parametrize("stage", ["trial", "execution"])
def test_no_memory_for_the_table(bench: PumpBench, tmp_path: Path, stage: str) -> None:
    """Without memory for the table, the upgrade is refused; threads and scheduler continue, and others may follow."""
    watch, refused, stayed = EpollWatch(), list[str](), list[bool]()

    class Root:
        reloading = ReloadSignal(lambda _frame: None, Clock())

        def dump(self, keep: KeptDescriptorList) -> RootState:
            keep(0)
            raise MemoryError

        def retire_scheduler(self) -> None: ...

        def restart_scheduler(self) -> None:
            stayed.append(True)

        def is_starting(self) -> bool:
            return False

        def refuse_upgrade(self, reason: str) -> None:
            refused.append(reason)

        def caught_signals(self) -> set[int]:
            return set()

    upgrade = Upgrade(
        watch,
        bench.files._log,
        str(tmp_path),
        {},
        Quiesce(watch, bench.pump, bench.files),
        Root(),
    )
    bench.files.start()
    bench.pump.start()
    for times in (1, 2):
        if stage == "trial":
            upgrade.request(ready=True, ending=False)
        else:
            upgrade.scheduler_retired()
            upgrade.tick(time.monotonic())
        until(lambda times=times: watch.round(0) or len(refused) == times, "the refusal")  # type: ignore[misc, func-returns-value]
    assert all(reason.endswith(os.strerror(errno.ENOMEM)) for reason in refused)
    assert stayed == ([] if stage == "trial" else [True, True])
    assert not upgrade.scheduler_retires
    bench.pump.finish(timeout_s=60)
    assert bench.files.finish(timeout_s=60)
    assert not bench.pump.is_alive()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", ""),
        ("one\ntwo\n", "two"),
        ('Traceback:\n  File "a.py", line 3\n    class X\nSyntaxError: bad\n', 'File "a.py", line 3: SyntaxError: bad'),
    ],
)
def test_reason_of_a_failed_trial(output: str, reason: str) -> None:
    """The reason is the last line of the output; for an error in Python, it includes the place."""
    assert _reason(output) == reason


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that never answers."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_trial_in_a_removed_directory() -> None:
    """A trial of the API server works although the current directory was removed."""
    somewhere = ["sh", "-c", 'cd "$(mktemp -d)" && rmdir "$PWD" && exec "$@"', "sh"]
    subprocess.run([*somewhere, sys.executable, *RINGWARD, "api", "--check"], check=True)


@pytest.mark.usefixtures("endless")
def test_unkillable_trial() -> None:
    """A trial that does not die is abandoned without waiting, and is reaped when it ends."""
    before = set(os.listdir("/proc/self/fd"))
    watch = EpollWatch()
    answers: list[str | None] = []
    trial = Trial(watch, sys.executable, {"PATH": os.environ["PATH"]}, os.memfd_create("table"), set(), answers.append)
    with traced(trial.pid):
        trial.end()
        assert os.waitpid(trial.pid, os.WNOHANG) == (0, 0)
    watch._epoll.close()
    assert set(os.listdir("/proc/self/fd")) <= before
    assert os.waitpid(trial.pid, 0) == (trial.pid, signal.SIGKILL)
    assert not answers


@pytest.mark.usefixtures("endless")
def test_trial_without_a_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pidfd, the trial is killed at once, leaves no descriptor, and reports the reason."""
    tried = []

    def full(pid: int) -> int:
        tried.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", full)
    watch = EpollWatch()
    answers: list[str | None] = []
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many open files"):
        Trial(watch, sys.executable, {"PATH": os.environ["PATH"]}, os.memfd_create("table"), set(), answers.append)
    assert set(os.listdir("/proc/self/fd")) <= before
    assert os.waitpid(tried[0], 0)[1] == signal.SIGKILL
    assert not answers


def test_change_covers_every_attribute() -> None:
    """The test of a process gives each attribute a value other than its initial one."""
    spawn = Spawn(
        run="R", task="t", argv=[], env={}, log="", log_max_bytes=1, stop_signal=15, grace_ms=5, notify="@every"
    )

    def values(process: ManagedProcess) -> dict[str, Any]:
        by_name = {name: copy.copy(getattr(process, name)) for name in ManagedProcess.__slots__ if name != "outcome"}
        return {**by_name, **{name: copy.copy(getattr(process.outcome, name)) for name in RunOutcome.__slots__}}

    process = ManagedProcess(spawn, MainProcess(6, 7, 9, 0.0), 8, Cgroup("/x"), NotifySocket(spawn))
    before = values(process)
    change(process)
    after = values(process)
    assert process.notify_socket is not None
    process.notify_socket.close()
    given = {"spawn", "main", "status_fd", "cgroup", "notify_socket"}
    read_again = {"executed_nothing"}
    assert {name for name in before if before[name] == after[name]} <= given | read_again
