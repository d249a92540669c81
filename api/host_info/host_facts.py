"""The current state of the host, from psutil, and of the daemon's processes.

A separate thread reads the state, because asking a hanging file system for its size blocks. It is read at most once a
second, for all callers together.
"""

import contextlib
import os
import platform
import socket
import time

import gevent
import psutil
from gevent.lock import BoundedSemaphore
from msgspec import UNSET, UnsetType

from api.errors import unavailable
from api.host_info.own_processes import named_pids
from api.schemas import daemon_info as schemas
from api.schemas.wire_times import rfc3339
from api.server.thread_pool import Threads

_KEEP_S = 1.0
_PATIENCE_S = 3.0
_SPAN_S = 0.1
"""Interval over which the first request measures CPU usage."""
_PSS_KEEP_S = 30.0
"""PSS is cached, because the kernel walks all pages of a process to compute it."""
_RESOURCES = ("cpu", "memory", "io")


def pressure(folder: str = "/proc/pressure") -> schemas.Pressures:
    """Return the pressure stall information that the kernel provides."""
    pressures: dict[str, schemas.Pressure] = {}
    for resource in _RESOURCES:
        rows: dict[str, list[float]] = {}
        with contextlib.suppress(OSError), open(f"{folder}/{resource}", encoding="ascii") as file:
            for line in file:
                kind, *fields = line.split()
                rows[kind] = [float(field.partition("=")[2]) for field in fields[:3]]
        if "some" in rows:
            pressures[resource] = schemas.Pressure(some=rows["some"], full=rows.get("full", UNSET))
    return schemas.Pressures(**pressures)


def _os_name() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return platform.system()
    return release.get("PRETTY_NAME") or release["NAME"]


class Rates:
    """Computes the rates of pairs of counters between two reads."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._now: dict[str, tuple[int, int]] = {}
        self._now_s = time.monotonic()
        self._passed_s = 0.0

    def update(self, counters: dict[str, tuple[int, int]]) -> None:
        """Record the counters as read now."""
        now_s = time.monotonic()
        self._before, self._now = self._now, counters
        self._passed_s, self._now_s = now_s - self._now_s, now_s

    def of(self, name: str) -> tuple[float, float] | tuple[UnsetType, UnsetType]:
        """Return the rates of both counters per second; unset if unknown, 0 for a counter that was reset."""
        now, before = self._now.get(name), self._before.get(name)
        if now is None or before is None or not self._passed_s:
            return UNSET, UNSET
        first, second = (round(max(0, new - old) / self._passed_s, 1) for new, old in zip(now, before, strict=True))
        return first, second


def _disk_counters() -> dict[str, tuple[int, int]]:
    """Return the bytes read and written, by the kernel's name of the device."""
    return {name: (io.read_bytes, io.write_bytes) for name, io in (psutil.disk_io_counters(perdisk=True) or {}).items()}


def _network_counters() -> dict[str, tuple[int, int]]:
    """Return the bytes received and sent, by interface."""
    return {name: (io.bytes_recv, io.bytes_sent) for name, io in psutil.net_io_counters(pernic=True).items()}


def _disks(rates: Rates) -> list[schemas.Disk]:
    disks = {}
    for part in psutil.disk_partitions():
        # A file system can be mounted in many places; list only the first.
        if part.device not in disks:
            with contextlib.suppress(OSError):
                usage = psutil.disk_usage(part.mountpoint)
                # The mounted device may be a symbolic link, such as /dev/mapper/x to /dev/dm-0.
                read, written = rates.of(os.path.basename(os.path.realpath(part.device)))
                disks[part.device] = schemas.Disk(
                    mount_point=part.mountpoint,
                    device=part.device,
                    file_system=part.fstype,
                    total_bytes=usage.total,
                    used_bytes=usage.used,
                    free_bytes=usage.free,
                    read_bytes_per_second=read,
                    written_bytes_per_second=written,
                )
    return list(disks.values())


def _network(counters: dict[str, tuple[int, int]], rates: Rates) -> list[schemas.Network]:
    states = psutil.net_if_stats()
    interfaces = []
    for name, (received, sent) in counters.items():
        received_rate, sent_rate = rates.of(name)
        interfaces.append(
            schemas.Network(
                name=name,
                received_bytes=received,
                sent_bytes=sent,
                received_bytes_per_second=received_rate,
                sent_bytes_per_second=sent_rate,
                up=name in states and states[name].isup,
            )
        )
    return interfaces


def _temperatures() -> list[schemas.Temperature]:
    return [
        schemas.Temperature(sensor=f"{chip} {sensor.label}".strip(), celsius=sensor.current)
        for chip, sensors in psutil.sensors_temperatures().items()
        for sensor in sensors
    ]


class DaemonProcesses:
    """The daemon's processes. No other process of the host is read."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._pss: dict[int, tuple[float, int | UnsetType]] = {}

    def of(self, root_pid: int, scheduler_pid: int | None) -> "list[tuple[str, psutil.Process]]":
        """Return the daemon's processes with their names."""
        previous, self._processes = self._processes, {}
        named = []
        for name, pid in named_pids(root_pid, scheduler_pid):
            with contextlib.suppress(psutil.Error):
                process = previous.get(pid)
                if process is None or not process.is_running():
                    process = psutil.Process(pid)
                self._processes[pid] = process
                named.append((name, process))
        self._pss = {pid: measured for pid, measured in self._pss.items() if pid in self._processes}
        return named

    def shown(self, name: str, process: "psutil.Process") -> schemas.Process:
        """Return the resource usage of a process.

        Raises:
            psutil.Error: it has ended, or this process lacks permission.
        """
        with process.oneshot():
            spent = process.cpu_times()
            return schemas.Process(
                name=name,
                pid=process.pid,
                cpu_ms=round(1000 * (spent.user + spent.system)),
                cpu_percent=process.cpu_percent(),
                rss_bytes=process.memory_info().rss,
                pss_bytes=self._pss_of(process.pid),
            )

    def _pss_of(self, pid: int) -> int | UnsetType:
        """Return the proportional set size in bytes, at most 30 s old; unset without permission."""
        measured = self._pss.get(pid)
        if measured is None or time.monotonic() - measured[0] > _PSS_KEEP_S:
            value: int | UnsetType = UNSET
            with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    if line.startswith("Pss:"):
                        value = int(line.split()[1]) * 1024
            measured = self._pss[pid] = (time.monotonic(), value)
        return measured[1]


class System:
    """The state of the host, cached for a second."""

    def __init__(self) -> None:
        self._threads = Threads(1)
        self._asking = BoundedSemaphore()
        self._processes = DaemonProcesses()
        self._disk_rates, self._network_rates = Rates(), Rates()
        self._latest: schemas.System | None = None
        self._latest_s = 0.0

    def __call__(self, root_pid: int, scheduler_pid: int | None) -> schemas.System:
        """Return the state, at most a second old.

        Raises:
            ApiError: 503 the read takes too long, because a file system hangs.
        """
        # The timeout includes the wait for the semaphore. Otherwise each caller could wait for all callers before it.
        with (
            gevent.Timeout(
                _PATIENCE_S, unavailable("Cannot read the state of the host: a file system does not respond")
            ),
            self._asking,
        ):
            system = self._latest
            if system is None or time.monotonic() - self._latest_s > _KEEP_S:
                system = self._threads(self._read, root_pid, scheduler_pid)
                self._latest, self._latest_s = system, time.monotonic()
        return system

    def _read(self, root_pid: int, scheduler_pid: int | None) -> schemas.System:
        processes = self._processes.of(root_pid, scheduler_pid)
        if self._latest is None:
            # Percentages cover the time since the previous call.
            psutil.cpu_percent(percpu=True)
            self._disk_rates.update(_disk_counters())
            self._network_rates.update(_network_counters())
            for _, process in processes:
                with contextlib.suppress(psutil.Error):
                    process.cpu_percent()
            time.sleep(_SPAN_S)
        per_core = psutil.cpu_percent(percpu=True)
        networks = _network_counters()
        self._disk_rates.update(_disk_counters())
        self._network_rates.update(networks)
        shown = []
        for name, process in processes:
            with contextlib.suppress(psutil.Error):
                shown.append(self._processes.shown(name, process))
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        kernel = os.uname()
        return schemas.System(
            hostname=socket.gethostname(),
            os=_os_name(),
            kernel=kernel.release,
            arch=kernel.machine,
            booted_at=rfc3339(int(psutil.boot_time() * 1000)),
            cpu=schemas.Cpu(
                cores=len(per_core),
                percent=round(sum(per_core) / max(1, len(per_core)), 1),
                per_core=per_core,
                load=[round(value, 2) for value in os.getloadavg()],
            ),
            memory=schemas.Memory(
                total_bytes=memory.total, used_bytes=memory.total - memory.available, available_bytes=memory.available
            ),
            swap=schemas.Swap(total_bytes=swap.total, used_bytes=swap.used),
            disks=_disks(self._disk_rates),
            network=_network(networks, self._network_rates),
            temperatures=_temperatures(),
            pressure=pressure(),
            processes=shown,
        )
