"""Cgroups: their places, limits and counters."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from supervisor.host import cgroups
from supervisor.host.cgroups import Cgroup, Cgroups, CgroupUsage, name_of_cgroup, own_cgroup
from supervisor.host.procfs import Process, find_process, send_signal
from supervisor.ipc.log_line import Log
from supervisor.root.handover.run_recovery import limit_again
from supervisor.root.process.managed_process import ManagedProcess
from tests.support.host_features import require_cgroups
from tests.support.waiting import until


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    place = require_cgroups()
    made = place.make(f"test-{os.getpid()}")
    yield made
    made.kill()
    until(made.remove, "the cgroup to be empty")
    place.close()


def sleeper(cgroup: Cgroup) -> subprocess.Popen[bytes]:
    """Start a process in a cgroup."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(cgroup.procs).write_text(str(child.pid))
    return child


def test_members(cgroup: Cgroup) -> None:
    """Members of nested cgroups count, zombies do not, and only an empty cgroup can be removed."""
    below = Cgroup(f"{cgroup.path}/below")
    os.mkdir(below.path)
    children = [sleeper(cgroup), sleeper(below)]
    assert sorted(cgroup.members()) == sorted(child.pid for child in children)
    assert not cgroup.remove()
    assert cgroup.kill()
    until(cgroup.remove, "both to be zombies")
    assert cgroup.remove()
    assert [child.wait() for child in children] == [-9, -9]


def test_usage(cgroup: Cgroup) -> None:
    """Processor time counts even for processes whose parent did not wait for them."""
    burn = f"echo 0 >{cgroup.procs}; for i in $(seq 100000); do :; done"
    subprocess.run(["sh", "-c", burn], check=True)
    usage = cgroup.usage()
    assert usage is not None
    assert usage.user_us > 0
    assert usage.oom_kills == 0
    assert Cgroup("/nonexistent").usage() is None


class FakeHierarchy:
    """A hierarchy of plain files that look like the kernel's."""

    def __init__(self, base: Path) -> None:
        self.proc = base / "proc"
        self.mount = base / "cgroup fs"
        self.unit = self.mount / "system.slice" / "ringward.service"
        (self.proc / "self").mkdir(parents=True)
        for directory in (self.unit, self.unit / "runs", self.unit / "ringward"):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup.type").write_text("domain\n")
            (directory / "cgroup.procs").touch()
            (directory / "cgroup.subtree_control").touch()
        (self.unit / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        self.at("/system.slice/ringward.service")

    def at(self, path: str) -> None:
        """Set the cgroup of the current process."""
        (self.proc / "self" / "cgroup").write_text(f"1:name=systemd:/elsewhere\n0::{path}\n")
        place = str(self.mount).replace(" ", "\\040")
        lines = ["24 1 0:22 / /proc rw - proc proc rw", f"25 1 0:23 / {place} rw shared:1 - cgroup2 cgroup2 rw"]
        (self.proc / "self" / "mountinfo").write_text("\n".join(lines))

    def find(self) -> Cgroups | None:
        return Cgroups.find(str(self.proc))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHierarchy:
    def appending(path: str, text: str) -> None:
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{text}\n")

    monkeypatch.setattr(cgroups, "_write_text", appending)
    return FakeHierarchy(tmp_path)


def asked_for(directory: Path) -> list[str]:
    """Return the requested controllers, one item for each write."""
    return (directory / "cgroup.subtree_control").read_text().split("\n")[:-1]


def test_delegated_unit(fake: FakeHierarchy) -> None:
    """In a delegated unit the daemon moves into a leaf and enables the controllers for runs."""
    place = fake.find()
    assert place is not None
    assert place.directory == f"{fake.unit}/runs"
    assert place.controllers == {"memory", "cpu", "io", "pids"}
    assert (fake.unit / "ringward" / "cgroup.procs").read_text() == "0\n"
    for directory in (fake.unit, fake.unit / "runs"):
        assert asked_for(directory) == ["+memory", "+cpu", "+io", "+pids"]


def test_process_group_moves_into_the_leaf(fake: FakeHierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes of the group move, even new ones, because other processes would prevent the controllers."""
    groups = {1001: 1001, 1002: 1001, 1003: 77, 1004: 1001}
    procs, leaf = fake.unit / "cgroup.procs", fake.unit / "ringward" / "cgroup.procs"
    procs.write_text("1001\n1002\n1003\n1005\n")
    forks = ["1004"]

    def group_of(pid: int) -> int:
        if pid not in groups:
            raise ProcessLookupError
        return groups[pid]

    def moving(path: str, text: str) -> None:
        write(path, text)
        if path == str(leaf):
            there = procs.read_text().split()
            procs.write_text("\n".join([line for line in there if line != text] + [forks.pop() for _ in forks[:]]))

    write = cgroups._write_text
    monkeypatch.setattr(cgroups, "_write_text", moving)
    monkeypatch.setattr(os, "getpgid", group_of)
    place = Cgroups.find(str(fake.proc), companion=1001)
    assert place is not None
    assert leaf.read_text().split() == ["0", "1001", "1002", "1004"]
    assert procs.read_text().split() == ["1003", "1005"]


def test_refused_controller(fake: FakeHierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel refuses one controller, the others are enabled, because each is written separately."""

    def refusing(path: str, text: str) -> None:
        if text == "+cpu" and path.endswith("/runs/cgroup.subtree_control"):
            raise OSError(errno.EINVAL, "real-time processes")
        write(path, text)

    write = cgroups._write_text
    monkeypatch.setattr(cgroups, "_write_text", refusing)
    place = fake.find()
    assert place is not None
    assert place.controllers == {"memory", "io", "pids"}


def test_already_in_the_leaf(fake: FakeHierarchy) -> None:
    """A daemon that is executed again in its leaf finds the same place."""
    fake.at("/system.slice/ringward.service/ringward")
    place = fake.find()
    assert place is not None
    assert place.directory == f"{fake.unit}/runs"


def test_no_usable_controllers(fake: FakeHierarchy) -> None:
    """Without usable controllers, runs have cgroups without limits, and the daemon does not move."""
    (fake.unit / "cgroup.controllers").write_text("hugetlb\n")
    place = fake.find()
    assert place is not None
    assert place.controllers == frozenset()
    assert (fake.unit / "ringward" / "cgroup.procs").read_text() == ""


def test_place_removed_by_another_daemon(fake: FakeHierarchy) -> None:
    """A place that another daemon removed at its end is created again, with its controllers."""
    place = fake.find()
    assert place is not None
    shutil.rmtree(place.directory)
    made = place.make("R")
    assert os.path.isdir(made.path)
    assert sorted(asked_for(fake.unit / "runs")) == ["+cpu", "+io", "+memory", "+pids"]


def test_place_removed_during_the_check(fake: FakeHierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that is removed during the check is created again."""
    really = cgroups._is_usable
    gone: list[str] = []

    def removed(runs: str) -> bool:
        if not gone:
            gone.append(runs)
            shutil.rmtree(runs)
            return really(runs)
        (fake.unit / "runs" / "cgroup.type").write_text("domain\n")
        (fake.unit / "runs" / "cgroup.procs").touch()
        return really(runs)

    monkeypatch.setattr(cgroups, "_is_usable", removed)
    assert fake.find() is not None
    assert gone == [f"{fake.unit}/runs"]


def test_give_way(fake: FakeHierarchy) -> None:
    """Commands that systemd executes after the daemon take the controllers from the runs; others change nothing."""
    for directory in (fake.unit / "runs", fake.unit):
        (directory / "cgroup.subtree_control").write_text("memory cpu\n")
    cgroups.give_way(str(fake.proc))
    assert asked_for(fake.unit) == ["memory cpu"]
    fake.at("/system.slice/ringward.service/.control")
    cgroups.give_way(str(fake.proc))
    for directory in (fake.unit / "runs", fake.unit):
        assert asked_for(directory) == ["memory cpu", "-memory", "-cpu"]


def test_limits_of_adopted_runs_are_restored(filled: Cgroup, tmp_path: Path) -> None:
    """Each limit of an adopted run's cgroup is set again, others stay unset, and a failure is reported."""
    filled.limit({"memory": 64 << 20})
    gone = Cgroup(str(tmp_path / "gone"), frozenset({"memory"}))
    gone.limits.add("memory")
    spawn = SimpleNamespace(limits={"memory": 64 << 20, "cpu": 0.5, "nice": 5})
    Path(filled.path, "memory.max").write_text("max\n")
    warnings_seen: list[str] = []
    instances = [
        SimpleNamespace(run=name, main=SimpleNamespace(adopted=True), cgroup=cgroup, spawn=spawn)
        for name, cgroup in (("limited", filled), ("none", None), ("gone", gone))
    ]
    limit_again(cast("list[ManagedProcess]", instances), cast("Log", SimpleNamespace(warning=warnings_seen.append)))
    assert Path(filled.path, "memory.max").read_text() == str(64 << 20)
    assert Path(filled.path, "cpu.max").read_text() == "max 100000\n"
    assert warnings_seen == ["the limits of gone no longer apply: No such file or directory"]


def test_no_usable_hierarchy(fake: FakeHierarchy, tmp_path: Path) -> None:
    """Without a hierarchy, or with an invisible or threaded one, runs have no cgroups."""
    (fake.unit / "runs" / "cgroup.type").write_text("domain invalid\n")
    assert fake.find() is None
    fake.at("/../elsewhere")
    assert fake.find() is None
    (fake.proc / "self" / "mountinfo").write_text("24 1 0:22 / /proc rw - proc proc rw\n")
    assert fake.find() is None
    assert Cgroups.find(str(tmp_path / "nothing")) is None


MEMORY_EVENTS = "low 0\nhigh 0\nmax 7\noom {oom}\noom_kill {kills}\noom_group_kill 0\nsock_throttled 0\n"
CPU_STAT = (
    "usage_usec 30\nuser_usec 10\nsystem_usec 20\nnice_usec 0\ncore_sched.force_idle_usec 0\n"
    "nr_periods 4\nnr_throttled 1\nthrottled_usec 900\nnr_bursts 0\nburst_usec 0\n"
)
IO_STAT = (
    "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n"
    "8:0 rbytes=90430464 wbytes=299008000 rios=8950 wios=1252 dbytes=50331648 dios=3021\n"
    "7:0\n"
)
"""Files from the kernel's cgroup-v2 document; a device with only waiting requests has a line without numbers."""


@pytest.fixture
def filled(tmp_path: Path) -> Cgroup:
    """Return a cgroup with all controllers, made of plain files."""
    for name, text in (("memory.max", "max\n"), ("cpu.max", "max 100000\n"), ("cpu.stat", CPU_STAT)):
        (tmp_path / name).write_text(text)
    for name in ("memory.high", "memory.swap.max", "cpu.weight", "pids.max"):
        (tmp_path / name).touch()
    (tmp_path / "memory.events").write_text(MEMORY_EVENTS.format(oom=1, kills=2))
    (tmp_path / "io.stat").write_text(IO_STAT)
    return Cgroup(str(tmp_path), frozenset({"memory", "cpu", "io"}))


def test_further_limits_of_a_cgroup(filled: Cgroup) -> None:
    """Each limit is written to its file; the reason is returned for one without its controller or its file."""
    limits = {"memory_high": 5, "swap": 0, "cpu_weight": 50, "io_weight": 7, "pids": 9, "nofile": 64}
    assert filled.limit(limits) == {
        "io_weight": "this kernel has no io.weight",
        "pids": "no cgroup with the pids controller is available",
    }
    filled.controllers |= {"pids"}
    filled.limit(limits)
    written = {name: Path(filled.path, name).read_text() for name in ("memory.high", "memory.swap.max", "pids.max")}
    assert written == {"memory.high": "5", "memory.swap.max": "0", "pids.max": "9"}
    assert Path(filled.path, "cpu.weight").read_text() == "50"
    assert filled.limits == {"memory_high", "swap", "cpu_weight", "pids"}


@pytest.mark.parametrize(("cpus", "quota"), [(1.5, 150_000), (0.01, 1000), (1024, 102_400_000)])
def test_limits_of_a_cgroup(filled: Cgroup, cpus: float, quota: int) -> None:
    """Memory is limited in bytes, and processors as time per 100 ms, of which the kernel's minimum is 1 ms."""
    filled.limit({"memory": 64 << 20, "cpu": cpus, "nice": 5})
    assert Path(filled.path, "memory.max").read_text() == str(64 << 20)
    assert Path(filled.path, "cpu.max").read_text() == f"{quota} 100000"
    assert filled.limits == {"memory", "cpu"}


def test_usage_with_controllers(filled: Cgroup) -> None:
    """Processor time, out-of-memory kills, and the bytes of all disks are counted."""
    filled.limit({"memory": 64 << 20})
    assert filled.usage() == CgroupUsage(10, 20, 2, filled_up=True, read_bytes=91_889_664, write_bytes=613_781_504)


@pytest.mark.parametrize(("limit", "oom"), [(None, 1), (64 << 20, 0)])
def test_host_out_of_memory(filled: Cgroup, limit: int | None, oom: int) -> None:
    """A kill because the host is out of memory is counted, but not attributed to the run's limit."""
    Path(filled.path, "memory.events").write_text(MEMORY_EVENTS.format(oom=oom, kills=1))
    filled.limit({} if limit is None else {"memory": limit})
    usage = filled.usage()
    assert usage is not None
    assert (usage.oom_kills, usage.filled_up) == (1, False)


def test_usage_without_controllers(filled: Cgroup) -> None:
    """Without controllers, the kernel counts only processor time."""
    assert Cgroup(filled.path).usage() == CgroupUsage(10, 20, 0)


def test_recycled_pid_is_not_signalled() -> None:
    """A process with another start time than the examined one is not signalled."""
    child = subprocess.Popen(["sleep", "1000"])
    seen = find_process(child.pid)
    assert seen is not None
    assert send_signal(seen._replace(start=seen.start - 1), 9)
    assert child.poll() is None
    assert isinstance(seen, Process)
    assert send_signal(seen, 9)
    assert child.wait() == -9


def test_run_of_a_process(tmp_path: Path) -> None:
    """A process in a run's cgroup or below belongs to the run, and a process elsewhere does not."""
    (tmp_path / "7").mkdir()
    path = tmp_path / "7" / "cgroup"
    for text, run in (("/x/runs/R1", "R1"), ("/runs/R1/below", "R1"), ("/x/runs", ""), ("/user.slice", "")):
        path.write_text(f"3:memory:/runs/R0\n0::{text}\n")
        assert name_of_cgroup(7, str(tmp_path)) == run
    assert name_of_cgroup(8, str(tmp_path)) == ""


def test_daemon_inside_a_run(tmp_path: Path) -> None:
    """A daemon inside another daemon's run does not own that run; its own runs are in cgroups below."""
    for name in ("self", "7"):
        (tmp_path / name).mkdir()
    process = tmp_path / "7" / "cgroup"
    for own, place in (("/x/runs/OUTER", "/x/runs/OUTER"), ("/x/runs/OUTER/ringward", "/x/runs/OUTER"), ("/", "")):
        (tmp_path / "self" / "cgroup").write_text(f"0::{own}\n")
        assert own_cgroup(str(tmp_path)) == place
        for text, run in (("/x/runs/OUTER", ""), (f"{place}/runs/R1", "R1"), (f"{place}/runs/R1/runs/R2", "R1")):
            process.write_text(f"0::{text}\n")
            assert name_of_cgroup(7, str(tmp_path), place) == run
