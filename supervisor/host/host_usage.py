"""Resource usage of the host, cheap enough to measure every few seconds.

Values that this kernel or container does not provide are None.
"""

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass

_SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever the sectors of the disk."""
_IDLE = slice(3, 5)
"""Fields of a row in /proc/stat: idle, and idle with pending I/O."""
_COUNTED = slice(0, 8)
"""All fields but guest times, which the user times include (proc_stat(5))."""
_VIRTUAL_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)")
_LOOPBACK = b"lo"


@dataclass(frozen=True)
class HostMeasurement:
    """One measurement. Rates are averages since the previous one. None: the host does not provide the value."""

    cpu: float | None
    """Percentage of the capacity of all cores."""
    load: float | None
    memory_used: int | None
    swap_used: int | None
    disk_read: float | None
    """Bytes per second."""
    disk_written: float | None
    received: float | None
    """Bytes per second."""
    sent: float | None
    cpu_pressure: float | None
    """Percentage of the last 10 s during which at least one process had to wait."""
    memory_pressure: float | None
    io_pressure: float | None


class Host:
    """Measures the host's resource usage repeatedly.

    Args:
        proc: Where /proc is mounted.
        sys: Where /sys is mounted.
    """

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc = proc
        self._sys = sys
        self._is_whole_disk: dict[str, bool] = {}
        self._times: list[int] | None = None
        """The times of all cores at the previous reading, in clock ticks."""
        self._before: list[int | None] = [None] * 4
        self._before_s = 0.0
        self.read()

    def read(self) -> HostMeasurement:
        """Return the present values, with rates since the previous call, or since the creation of the object."""
        memory = dict(line.split()[:2] for line in self._lines("meminfo"))
        return HostMeasurement(
            self._cpu(),
            os.getloadavg()[0],
            _used(memory, b"MemTotal:", b"MemAvailable:"),
            _used(memory, b"SwapTotal:", b"SwapFree:"),
            *self._rates(),
            *map(self._pressure_of, ("cpu", "memory", "io")),
        )

    def _cpu(self) -> float | None:
        """Return the percentage of time in which the cores were not idle; 0 if too little time has passed."""
        lines = self._lines("stat")
        before, self._times = self._times, [int(field) for field in lines[0].split()[1:]] if lines else None
        if before is None or self._times is None:
            return None if self._times is None else 0.0
        # A counter can decrease: of idle cores, because the kernel estimates their times.
        spent = [max(0, now - then) for now, then in zip(self._times, before, strict=True)]
        whole = sum(spent[_COUNTED])
        return round(100 * (whole - sum(spent[_IDLE])) / whole, 1) if whole else 0.0

    def _rates(self) -> list[float | None]:
        """Return the bytes per second that were read from disks, written to disks, received and sent."""
        disks = list(map(bytes.split, self._lines("diskstats")))
        interfaces = [row for row in (line.rpartition(b":") for line in self._lines("net/dev")) if row[1]]
        counters: list[int | None] = [None] * 4
        if disks:
            own = [disk for disk in disks if self._is_disk(disk[2].decode())]
            counters[:2] = [_SECTOR_BYTES * sum(int(disk[column]) for disk in own) for column in (5, 9)]
        if interfaces:
            external = [counts.split() for name, _, counts in interfaces if name.strip() != _LOOPBACK]
            counters[2:] = [sum(int(counts[column]) for counts in external) for column in (0, 8)]
        now_s, before, before_s = time.monotonic(), self._before, self._before_s
        self._before, self._before_s = counters, now_s
        elapsed_s = max(now_s - before_s, 1e-3)
        # A counter decreases when a disk or an interface is removed.
        return [
            None if now is None or then is None else max(0, now - then) / elapsed_s
            for now, then in zip(counters, before, strict=True)
        ]

    def _is_disk(self, name: str) -> bool:
        """Return whether a block device is a disk, not a partition or a virtual device that would count bytes twice."""
        if name not in self._is_whole_disk:
            self._is_whole_disk[name] = not _VIRTUAL_DISK.match(name) and os.path.isdir(f"{self._sys}/block/{name}")
        return self._is_whole_disk[name]

    def _pressure_of(self, resource: str) -> float | None:
        lines = self._lines(f"pressure/{resource}")
        return float(lines[0].partition(b"avg10=")[2].split()[0]) if lines else None

    def _lines(self, name: str) -> list[bytes]:
        """Return the lines of a file in /proc; an empty list if the host does not provide it."""
        # EOPNOTSUPP: PSI is built into the kernel but disabled
        with suppress(OSError), open(f"{self._proc}/{name}", "rb", buffering=0) as file:
            return file.readall().splitlines()
        return []


def _used(memory: dict[bytes, bytes], total: bytes, free: bytes) -> int | None:
    """Return the used part of a kind of memory in bytes; None if the host does not report it."""
    if total not in memory or free not in memory:
        return None
    return (int(memory[total]) - int(memory[free])) * 1024
