"""Resource usage of the host, cheap enough to measure every few seconds.

Values that this kernel or container does not provide are None.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import psutil

T = TypeVar("T")

_VIRTUAL_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)")
_LOOPBACK = "lo"


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
    """Measures the host's resource usage repeatedly."""

    def __init__(self, sys: str = "/sys", pressure: str = "/proc/pressure") -> None:
        self._sys = sys
        self._pressure_directory = pressure
        self._is_whole_disk: dict[str, bool] = {}
        self._before: list[int | None] = [None] * 4
        self._before_s = 0.0
        self.read()

    def read(self) -> HostMeasurement:
        """Return the present values, with rates since the previous call, or since the creation of the object."""
        memory, swap = _or_none(psutil.virtual_memory), _or_none(psutil.swap_memory)
        return HostMeasurement(
            _or_none(psutil.cpu_percent),
            _or_none(lambda: os.getloadavg()[0]),
            None if memory is None else memory.total - memory.available,
            None if swap is None else swap.used,
            *self._rates(),
            *map(self._pressure_of, ("cpu", "memory", "io")),
        )

    def _rates(self) -> list[float | None]:
        """Return the bytes per second that were read from disks, written to disks, received and sent."""
        disks = _or_none(lambda: psutil.disk_io_counters(perdisk=True))
        interfaces = _or_none(lambda: psutil.net_io_counters(pernic=True))
        counters: list[int | None] = [None] * 4
        if disks:
            own = [disk for name, disk in disks.items() if self._is_disk(name)]
            counters[:2] = sum(disk.read_bytes for disk in own), sum(disk.write_bytes for disk in own)
        if interfaces:
            external = [interface for name, interface in interfaces.items() if name != _LOOPBACK]
            counters[2:] = (
                sum(interface.bytes_recv for interface in external),
                sum(interface.bytes_sent for interface in external),
            )
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
        # ENOENT: no PSI; EOPNOTSUPP: PSI is built into the kernel but disabled
        with suppress(OSError), open(f"{self._pressure_directory}/{resource}", encoding="ascii") as file:
            return float(file.read().partition("avg10=")[2].split()[0])
        return None


def _or_none(read: Callable[[], T]) -> T | None:
    """Return an answer of psutil; None if the host does not provide it."""
    try:
        return read()
    except (OSError, NotImplementedError):
        return None
