"""Resource use of runs, read from cgroups that the test makes."""

from pathlib import Path

import pytest

from supervisor.host.cgroup_usage import cgroup_of, mount_of, read_usage
from supervisor.host.cgroups import assign, spare_name
from supervisor.host.run_usage import TotalUsage

RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
FILES = {
    "cpu.stat": "usage_usec 3500000\nuser_usec 2000999\nsystem_usec 1499001\nnr_periods 0\n",
    "memory.stat": "anon 1000\nfile 900000\nkernel 5\nshmem 40\nfile_mapped 200\n",
    "cgroup.procs": "100\n101\n102\n",
    "io.stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=100 wbytes=200 rios=1\n",
}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Return a fake /proc where process 100 is in the run's cgroup, and /proc/self has another cgroup root."""
    for pid in ("self", "100"):
        (tmp_path / "proc" / pid).mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"41 31 0:38 /machine {tmp_path}/my\\040groups rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    (tmp_path / "proc/100/cgroup").write_text(f"9:pids:/elsewhere\n0::/machine/runs/{RUN}\n")
    return tmp_path / "proc"


@pytest.fixture
def group(tmp_path: Path) -> Path:
    path = tmp_path / "my groups/runs" / RUN
    path.mkdir(parents=True)
    for name, text in FILES.items():
        (path / name).write_text(text)
    return path


def test_cgroup_of_a_run(proc: Path, group: Path) -> None:
    """The cgroup of a run has the run's name, and is found wherever the hierarchy is mounted."""
    mount = mount_of(str(proc))
    assert cgroup_of(RUN, 100, mount, str(proc)) == str(group)
    assert read_usage(str(group)) == TotalUsage(2000, 1499, 1200, 3, 110, 220)


def test_spare_cgroup(proc: Path, group: Path) -> None:
    """A spare cgroup has its own name, and an attribute names its run."""
    name = spare_name("D", 7)
    spare = group.rename(group.with_name(name))
    (proc / "100/cgroup").write_text(f"0::/machine/runs/{name}\n")
    mount = mount_of(str(proc))
    assert cgroup_of(RUN, 100, mount, str(proc)) is None
    assign(str(spare), RUN)
    assert cgroup_of(RUN, 100, mount, str(proc)) == str(spare)
    assert cgroup_of("01ARZ3NDEKTSV4RRFFQ69G5FAW", 100, mount, str(proc)) is None


def test_no_io_controller(group: Path) -> None:
    """Without the io controller, byte counters are left out."""
    (group / "io.stat").unlink()
    assert read_usage(str(group)) == TotalUsage(2000, 1499, 1200, 3, None, None)


def test_no_cgroup(proc: Path, group: Path) -> None:
    """A run without its own cgroup, its process, its controllers or the hierarchy has no figures."""
    mount = mount_of(str(proc))
    assert cgroup_of("01ARZ3NDEKTSV4RRFFQ69G5FAW", 100, mount, str(proc)) is None
    assert cgroup_of(RUN, 101, mount, str(proc)) is None
    assert cgroup_of(RUN, 100, None, str(proc)) is None
    assert cgroup_of(RUN, 100, ("/other", "/"), str(proc)) is None
    (group / "memory.stat").unlink()
    assert cgroup_of(RUN, 100, mount, str(proc)) is None
    (proc / "self/mountinfo").write_text("25 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    assert mount_of(str(proc)) is None
    assert mount_of("/no/such/directory") is None


def test_removed_cgroup(group: Path) -> None:
    """A removed cgroup has no figures."""
    assert read_usage(f"{group}-gone") is None
