"""The processes of runs, found in a fake /proc and in the real one."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host.process_usage import Processes, boot_ticks
from supervisor.host.run_usage import TotalUsage
from tests.support.waiting import until

TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SUPERVISOR = 50
LATE = 10**12
"""A time after every start."""


class FakeProc:
    """A fake /proc with processes of the test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(
        self,
        pid: int,
        *,
        parent: int = SUPERVISOR,
        session: int = 0,
        group: int = 0,
        start: int = 100,
        user: int = 0,
        waited: int = 0,
        pages: int = 1,
        state: str = "S",
        io: tuple[int, int] | None = (0, 0),
        environ: str = "",
    ) -> None:
        """Write a process; `user` and `waited` are clock ticks of its own and of its children."""
        folder = self.path / str(pid)
        folder.mkdir(exist_ok=True)
        fields_after = f"0 0 0 0 0 0 0 {user} 0 {waited} 0 20 0 1 0 {start} 0 {pages} 0 0"
        text = f"{pid} (a) b (c) {state} {parent} {group or pid} {session or group or pid} {fields_after}\n"
        (folder / "stat").write_text(text)
        (folder / "environ").write_text(environ)
        if io is not None:
            (folder / "io").write_text(f"rchar: 9\nread_bytes: {io[0]}\nwrite_bytes: {io[1]}\n")

    def drop(self, pid: int) -> None:
        shutil.rmtree(self.path / str(pid))


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    (tmp_path / "sys").mkdir()
    made = FakeProc(tmp_path)
    made.put(SUPERVISOR, parent=1)
    return made


@pytest.fixture
def processes(proc: FakeProc) -> Processes:
    return Processes(SUPERVISOR, str(proc.path))


def look(processes: Processes, *run_ids: str) -> dict[str, TotalUsage]:
    usages: dict[str, TotalUsage] = {}
    for _ in processes.sample(frozenset(run_ids), usages):
        pass
    return usages


def test_sums(proc: FakeProc, processes: Processes) -> None:
    """A run's usage is the sum over its processes; other processes and runs do not count."""
    proc.put(100, user=3, pages=10, io=(1, 2))
    proc.put(101, parent=100, group=100, user=4, waited=5, pages=20, io=(10, 20))
    proc.put(102, parent=100, group=102, session=102, user=1, pages=30, io=(100, 200))
    proc.put(103, parent=102, group=102, session=102, pages=40)
    proc.put(200, user=7, pages=50, io=(3, 4))
    proc.put(300, parent=1, user=1000, pages=1000)
    processes.add("A", 100, LATE)
    processes.add("B", 200, LATE)
    assert look(processes, "A", "B") == {
        "A": TotalUsage(13 * TICK_MS, 0, 100 * PAGE, 4, 111, 222),
        "B": TotalUsage(7 * TICK_MS, 0, 50 * PAGE, 1, 3, 4),
    }
    assert set(look(processes, "A", "unknown")) == {"A"}


def test_zombies_count_only_processor_time(proc: FakeProc, processes: Processes) -> None:
    """Processor time of a zombie counts, but its memory and the process itself do not."""
    proc.put(100, user=2)
    proc.put(101, parent=100, group=100, user=5, pages=9, state="Z")
    processes.add("A", 100, LATE)
    assert look(processes, "A")["A"] == TotalUsage(7 * TICK_MS, 0, PAGE, 1, 0, 0)


def test_recycled_main_process(proc: FakeProc, processes: Processes) -> None:
    """A process that started after the run was seen, or that replaced the earlier one, is not the run's."""
    proc.put(100, start=500)
    processes.add("A", 100, 499)
    processes.add("B", 100, 500)
    assert set(look(processes, "A", "B")) == {"B"}
    proc.put(100, start=400)
    assert look(processes, "B") == {}


def test_recycled_member(proc: FakeProc, processes: Processes) -> None:
    """A process that left its session stays a member by its id and start time; a stranger with the id does not."""
    proc.put(100)
    proc.put(101, parent=100, group=101, session=101, start=200, user=4)
    processes.add("A", 100, LATE)
    assert look(processes, "A")["A"].processes == 2
    proc.put(101, parent=1, group=101, session=101, start=200, user=5)
    assert look(processes, "A")["A"] == TotalUsage(5 * TICK_MS, 0, 2 * PAGE, 2, 0, 0)
    proc.put(101, parent=1, group=101, session=101, start=300, user=700)
    assert look(processes, "A")["A"] == TotalUsage(5 * TICK_MS, 0, PAGE, 1, 0, 0)


def test_daemonised_child(proc: FakeProc, processes: Processes) -> None:
    """A daemonised child of the supervisor is recognised by its environment; a child of another run is not."""
    proc.put(100)
    proc.put(200)
    proc.put(101, environ="PATH=/bin\0RINGWARD_RUN_ID=A\0X=1\0", user=3)
    proc.put(102, parent=101, group=101, user=1)
    proc.put(103, environ="RINGWARD_RUN_ID=C\0")
    processes.add("A", 100, LATE)
    processes.add("B", 200, LATE)

    def looked() -> dict[str, TotalUsage]:
        usages = look(processes, "A", "B")
        return usages if usages["A"].processes > 1 else {}

    usages = until(looked, "its environment")
    assert (usages["A"].processes, usages["A"].user_ms) == (3, 4 * TICK_MS)
    assert usages["B"].processes == 1


def test_unreadable_environment(proc: FakeProc, processes: Processes) -> None:
    """A process with an unreadable environment, and its descendants, belong to the run once it can be read."""
    proc.put(100)
    proc.put(101)
    proc.put(102, parent=101, group=101)
    environ = proc.path / "101" / "environ"
    environ.unlink()
    os.mkfifo(environ)  # opening a FIFO waits for a writer
    processes.add("A", 100, LATE)
    for _ in range(2):
        assert look(processes, "A")["A"].processes == 1
    environ.write_text("RINGWARD_RUN_ID=A\0")
    until(lambda: look(processes, "A")["A"].processes == 3, "all three")


def test_usage_never_decreases(proc: FakeProc, processes: Processes) -> None:
    """The usage of a dead process still counts: in its parent, in the run's sums, or in earlier reports."""
    proc.put(100, user=1)
    proc.put(101, parent=100, group=100, user=10, io=(5, 6))
    proc.put(102, parent=SUPERVISOR, group=100, user=20, io=(50, 60))
    processes.add("A", 100, LATE)
    assert look(processes, "A")["A"].user_ms == 31 * TICK_MS
    proc.drop(101)
    proc.put(100, user=1, waited=12, io=(7, 8))
    assert look(processes, "A")["A"].user_ms == 33 * TICK_MS
    proc.drop(102)
    usage = look(processes, "A")["A"]
    assert (usage.user_ms, usage.read_bytes, usage.written_bytes) == (33 * TICK_MS, 57, 68)
    proc.put(100, user=2, waited=12, io=(7, 8))
    assert look(processes, "A")["A"].user_ms == 34 * TICK_MS
    proc.put(100, user=2, waited=0, io=(7, 8))
    assert look(processes, "A")["A"].user_ms == 34 * TICK_MS
    proc.put(100, user=3, waited=0, io=(7, 8))
    assert look(processes, "A")["A"].user_ms == 35 * TICK_MS


def test_scheduler_restart(proc: FakeProc, processes: Processes) -> None:
    """Sums of the earlier scheduler are neither counted again nor forgotten."""
    proc.put(100, user=30, io=(10, 20))
    processes.add("A", 100, LATE, TotalUsage(20 * TICK_MS, 5 * TICK_MS, 0, 0, 100, None))
    assert look(processes, "A")["A"] == TotalUsage(30 * TICK_MS, 5 * TICK_MS, PAGE, 1, 100, 20)
    proc.put(100, user=31, io=(11, 20))
    assert look(processes, "A")["A"] == TotalUsage(31 * TICK_MS, 5 * TICK_MS, PAGE, 1, 101, 20)


def test_unreadable_io(proc: FakeProc, processes: Processes) -> None:
    """Unreadable byte counters of another user's processes are left out."""
    proc.put(100, io=None)
    processes.add("A", 100, LATE)
    usage = look(processes, "A")["A"]
    assert (usage.read_bytes, usage.written_bytes, usage.processes) == (None, None, 1)


def test_unrelated_processes_are_read_once(proc: FakeProc, processes: Processes) -> None:
    """An old process of no run is not read again; a young one may still turn out to belong to a run."""
    proc.put(100)
    proc.put(300, parent=1, start=1)
    proc.put(301, parent=1, start=boot_ticks())
    processes.add("A", 100, LATE)
    assert look(processes, "A")["A"].processes == 1
    proc.put(300, parent=100, group=100, start=1)
    proc.put(301, parent=100, group=100, start=boot_ticks())
    assert look(processes, "A")["A"].processes == 2


def test_run_ends_during_a_pass(proc: FakeProc, processes: Processes) -> None:
    """A pass yields to other work; a run that ended meanwhile is not reported."""
    for pid in range(100, 400):
        proc.put(pid)
    processes.add("A", 100, LATE)
    processes.add("B", 101, LATE)
    usages: dict[str, TotalUsage] = {}
    portions = processes.sample(frozenset({"A", "B"}), usages)
    next(portions)
    processes.remove("A")
    for _ in portions:
        pass
    assert set(usages) == {"B"}


TREE = """
import os, sys, time
children = []
for leave in (False, True):
    pid = os.fork()
    if not pid:
        if leave:
            os.setsid()
        if os.fork():
            time.sleep(1000)
    if not pid:
        time.sleep(1000)
block = b"x" * (32 << 20)
print("ready", flush=True)
while True:
    sum(range(10000))
"""


@pytest.fixture
def tree() -> Iterator[int]:
    """Yield the id of a busy process that holds memory and has four descendants in two sessions."""
    child = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    yield child.pid
    listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in (line.split() for line in listing.splitlines())}
    family = {child.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    child.stdout.close()
    child.wait()


def test_real_processes(tree: int) -> None:
    """All five processes are found, with their memory and their growing processor time."""
    processes = Processes(os.getpid())
    processes.add("A", tree, boot_ticks() + 1)

    def usage_now() -> TotalUsage:
        return look(processes, "A")["A"]

    until(lambda: usage_now().processes == 5, "all five")
    before = usage_now()
    assert before.rss_bytes > 32 << 20
    until(lambda: usage_now().user_ms > before.user_ms, "its time to pass")
