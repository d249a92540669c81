"""Facts about the host, read from a fake /proc."""

import os
from pathlib import Path

import psutil
import pytest

from supervisor.host.host_usage import Host

MEMINFO = (
    "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nBuffers: 1 kB\nCached: 1 kB\nActive: 1 kB\n"
    "Inactive: 1 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\nShmem: 1 kB\n"
)
NET_HEAD = "Inter-|   Receive |  Transmit\n face |bytes packets errs\n"


class FakeProc:
    """Files of /proc that a test changes in place, as the kernel does."""

    def __init__(self, path: Path) -> None:
        self.path = path / "proc"
        self.sys = path / "sys"
        for folder in (
            self.path / "net",
            self.path / "pressure",
            *(self.sys / "block" / name for name in ("sda", "loop0")),
        ):
            folder.mkdir(parents=True)
        self.write("meminfo", MEMINFO)
        self.write("vmstat", "pswpin 1\npswpout 1\n")
        self.counters(user=100, idle=100, sectors=10, received=1000)
        for name in ("cpu", "memory", "io"):
            self.write(f"pressure/{name}", "some avg10=1.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.50 total=1\n")

    def write(self, name: str, text: str) -> None:
        fd = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, text.encode())
        os.close(fd)

    def counters(self, *, user: int, idle: int, sectors: int, received: int) -> None:
        self.write("stat", f"cpu  {user} 0 0 {idle} 0 0 0 0 {user} 0\ncpu0 1 2 3 4\nintr 5\n")
        row = f"1 0 {sectors} 0 1 0 {2 * sectors} 0 0 0 0"
        self.write("diskstats", f" 8 0 sda {row}\n 8 1 sda1 {row}\n 7 0 loop0 {row}\n")
        counted = f"{received} 0 0 0 0 0 0 0 {2 * received} 0 0 0 0 0 0 0"
        self.write("net/dev", f"{NET_HEAD}    lo: {counted}\n  eth0:{counted}\n  eth1: {counted}\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    made = FakeProc(tmp_path)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(made.path))
    return made


def host_of(proc: FakeProc) -> Host:
    return Host(str(proc.sys), str(proc.path / "pressure"))


@pytest.fixture
def host(proc: FakeProc) -> Host:
    return host_of(proc)


def test_memory_and_pressure(host: Host) -> None:
    """Memory and pressure have the kernel's figures."""
    facts = host.read()
    assert (facts.memory_used, facts.swap_used) == (600 * 1024, 30 * 1024)
    assert (facts.cpu_pressure, facts.memory_pressure, facts.io_pressure) == (1.5, 1.5, 1.5)


def test_rates(proc: FakeProc, host: Host) -> None:
    """Rates are differences since the last reading, of whole disks and networks but loopback.

    Guest time counts once.
    """
    proc.counters(user=130, idle=170, sectors=110, received=3000)
    facts = host.read()
    assert facts.cpu == pytest.approx(30.0)
    assert None not in (facts.disk_read, facts.disk_written, facts.received, facts.sent)
    assert (facts.disk_written or 0) / (facts.disk_read or 1) == pytest.approx(2.0)
    # Both rates are for the same time: 100 sectors read, and 2000 bytes received by each of two networks.
    assert (facts.received or 0) / (facts.disk_read or 1) == pytest.approx(4000 / (100 * 512))
    assert (facts.sent or 0) / (facts.received or 1) == pytest.approx(2.0)


def test_reset_counters(proc: FakeProc, host: Host) -> None:
    """Counters that restart give no negative rate."""
    proc.counters(user=200, idle=200, sectors=0, received=0)
    facts = host.read()
    assert (facts.disk_read, facts.received) == (0, 0)


def test_missing_files(proc: FakeProc) -> None:
    """Missing figures are left out, and all others are present."""
    for name in ("pressure/cpu", "pressure/io", "net/dev", "meminfo", "stat"):
        (proc.path / name).unlink()
    facts = host_of(proc).read()
    assert (facts.cpu_pressure, facts.io_pressure, facts.received, facts.memory_used) == (None, None, None, None)
    assert (facts.memory_pressure, facts.cpu, facts.disk_read) == (1.5, None, 0)


def test_this_host() -> None:
    """Every Linux host has load, memory and network figures."""
    host = Host()
    facts = host.read()
    assert (facts.load or 0) >= 0
    assert (facts.memory_used or 0) > 0
    assert (facts.received or 0) >= 0
