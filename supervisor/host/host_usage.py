"""Facts about the host from /proc, cheap enough to read every few seconds.

The files are kept open: reading one again from its beginning makes the kernel write it anew (proc(5)), for a fifth of
the price of opening it. Facts that this kernel or container does not provide are left out.
"""

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass

_SECTOR_BYTES = 512
"""Of /proc/diskstats, whatever the disk's own are (Documentation/admin-guide/iostats.rst)."""
_READ_BYTES = 65536
_VIRTUAL_DISK = re.compile(rb"(loop|ram|zram|dm-|md|sr|fd)")
_LOOPBACK = b"lo"
_IDLE, _IOWAIT = 3, 4
_GUEST = 8
"""Fields of /proc/stat from here on are counted in earlier ones as well."""


@dataclass(frozen=True)
class Facts:
    """One reading; rates are means since the previous one. None: this host does not tell."""

    cpu: float | None
    """Percent of all cores together."""
    load: float | None
    memory_used: int | None
    swap_used: int | None
    disk_read: float | None
    """Bytes a second."""
    disk_written: float | None
    received: float | None
    """Bytes a second."""
    sent: float | None
    cpu_pressure: float | None
    """Percent of the last 10 s in which some process waited."""
    memory_pressure: float | None
    io_pressure: float | None


class Host:
    """Reads facts again and again."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._sys = sys
        self._fds: dict[str, int] = {}
        names = ("stat", "loadavg", "meminfo", "net/dev", "diskstats", "pressure/cpu", "pressure/memory", "pressure/io")
        for name in names:
            with suppress(OSError):
                self._fds[name] = os.open(f"{proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        self._whole: dict[bytes, bool] = {}
        self._before: dict[str, tuple[int, int]] = {}
        self._before_s = 0.0
        self.read()

    def read(self) -> Facts:
        """Return the present facts, with rates since the last call (at first: since the creation)."""
        now_s = time.monotonic()
        elapsed_s = max(now_s - self._before_s, 1e-3)
        counters = {"cpu": self._cpu(), "disk": self._disks(), "net": self._network()}
        rates = {}
        for name, pair in counters.items():
            before = self._before.get(name)
            if pair is not None and before is not None:
                # Counters can begin anew: a disk or an interface that went away.
                rates[name] = (max(0, pair[0] - before[0]), max(0, pair[1] - before[1]))
        self._before = {name: pair for name, pair in counters.items() if pair is not None}
        self._before_s = now_s
        busy, all_ticks = rates.get("cpu", (0, 0))
        disk, net = rates.get("disk"), rates.get("net")
        load = self._text("loadavg").split()
        memory, swap = self._memory()
        return Facts(
            cpu=100 * busy / all_ticks if all_ticks else None,
            load=float(load[0]) if load else None,
            memory_used=memory,
            swap_used=swap,
            disk_read=disk[0] / elapsed_s if disk else None,
            disk_written=disk[1] / elapsed_s if disk else None,
            received=net[0] / elapsed_s if net else None,
            sent=net[1] / elapsed_s if net else None,
            cpu_pressure=self._pressure("cpu"),
            memory_pressure=self._pressure("memory"),
            io_pressure=self._pressure("io"),
        )

    def _text(self, name: str) -> bytes:
        """Return the present content of a file of /proc; empty when it does not exist."""
        fd = self._fds.get(name)
        if fd is None:
            return b""
        try:
            data = os.pread(fd, _READ_BYTES, 0)
            while len(data) % _READ_BYTES == 0 and (more := os.pread(fd, _READ_BYTES, len(data))):
                data += more
        except OSError:  # EOPNOTSUPP: PSI that is built in and switched off
            return b""
        return data

    def _cpu(self) -> tuple[int, int] | None:
        """Return the ticks of all cores together: busy, all."""
        line = self._text("stat").partition(b"\n")[0].split()
        if len(line) <= _IOWAIT + 1:
            return None
        ticks = [int(field) for field in line[1 : 1 + _GUEST]]
        whole = sum(ticks)
        return whole - ticks[_IDLE] - ticks[_IOWAIT], whole

    def _memory(self) -> tuple[int | None, int | None]:
        """Return the bytes used: memory, swap."""
        found = {}
        for line in self._text("meminfo").splitlines():
            name, _, rest = line.partition(b":")
            if name in (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree"):
                found[name] = int(rest.split()[0]) * 1024
        memory = found[b"MemTotal"] - found[b"MemAvailable"] if b"MemAvailable" in found else None
        swap = found[b"SwapTotal"] - found[b"SwapFree"] if b"SwapFree" in found else None
        return memory, swap

    def _disks(self) -> tuple[int, int] | None:
        """Return the bytes of all disks: read, written."""
        text = self._text("diskstats")
        if not text:
            return None
        read = written = 0
        for line in text.splitlines():
            fields = line.split()
            if self._is_disk(fields[2]):
                read += int(fields[5])
                written += int(fields[9])
        return read * _SECTOR_BYTES, written * _SECTOR_BYTES

    def _is_disk(self, name: bytes) -> bool:
        """Whether a block device is a disk: not a part of one, nor made of others."""
        known = self._whole.get(name)
        if known is None:
            known = not _VIRTUAL_DISK.match(name) and os.path.isdir(f"{self._sys}/block/{os.fsdecode(name)}")
            self._whole[name] = known
        return known

    def _network(self) -> tuple[int, int] | None:
        """Return the bytes of all interfaces but loopback: received, sent."""
        text = self._text("net/dev")
        if not text:
            return None
        received = sent = 0
        for line in text.splitlines()[2:]:
            name, _, rest = line.partition(b":")
            if name.strip() != _LOOPBACK:
                fields = rest.split()
                received += int(fields[0])
                sent += int(fields[8])
        return received, sent

    def _pressure(self, name: str) -> float | None:
        for word in self._text(f"pressure/{name}").partition(b"\n")[0].split():
            if word.startswith(b"avg10="):
                return float(word[len(b"avg10=") :])
        return None

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
