"""Cold start, idling, restart of a killed service, clean stop."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from bench.client import Failed
from bench.daemon import DISK, Daemon, title, toml
from bench.measure import Row, in_turn, latency_rows, limit_row
from supervisor.startup.runtime_directory import candidates

SLEEP = ["/bin/sleep", "1000000"]
SERVICES = "".join(f"[services.s{n}]\nrun = {toml(SLEEP)}\nhealthy_after = '1s'\n" for n in range(10))
TASKS = "".join(f"[tasks.t{n}]\nrun = 'true'\ncron = '{n} 3 1 1 *'\n" for n in range(10))
SETTLE_S = 15.0
"""Time until services are healthy, and the first removal of runs and the first copy of the database are complete."""
_DEADLINE_S = 30.0
_POLL_S = 0.002
"""Pause between two checks; shorter ones would take processor time from the daemon."""


def _python() -> float:
    start_s = time.monotonic()
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
    return time.monotonic() - start_s


def _is_root(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        text = file.read()
    return b"\0ringward\0root\0" in text or text.startswith(b"ringward supervisor")


def _until(daemon: Daemon, condition: Callable[[], bool], what: str) -> None:
    """Poll while the daemon runs, for 30 s at most."""
    deadline_s = time.monotonic() + _DEADLINE_S
    while not condition():
        if daemon.process is None or daemon.process.poll() is not None:
            raise Failed("the daemon ended")
        if time.monotonic() > deadline_s:
            raise Failed(f"still waiting for {what}")
        time.sleep(_POLL_S)


def _bell(daemon: Daemon) -> str:
    """Return the path of the doorbell, once the daemon has created its directories."""
    daemon_id = (daemon.directory / "data" / "id").read_text().strip()
    (place,) = (base for base in candidates(os.environ, os.geteuid()) if os.path.isdir(f"{base}/{daemon_id}"))
    return f"{place}/{daemon_id}/root.bell"


def cold_start(quick: bool) -> list[Row]:
    """Measure ``ringward up`` to the first answer, and the supervisor from its execution to its doorbell.

    The supervisor binds the doorbell when it is completely loaded; the listening sockets exist before.
    """
    rounds = [(first_answer(), _python()) for _ in range(2 if quick else 9)]
    whole = [(took_s, floor_s) for (took_s, _), floor_s in rounds]
    alone = [(alone_s, floor_s) for (_, alone_s), floor_s in rounds]
    return [
        limit_row("cold start to the first API answer", whole, "{:.3f} s", 0.4),
        limit_row("cold start: supervisor alone", alone, "{:.3f} s", 0.1),
    ]


def first_answer() -> tuple[float, float]:
    """Start a daemon; return the seconds to its first answer, and of the supervisor alone."""
    with Daemon("[tasks.t]\nrun = 'true'\n", start=False) as daemon:
        start_s = time.monotonic()
        daemon.launch()
        _until(daemon, lambda: _is_root(daemon.pid), "the supervisor")
        root_s = time.monotonic()
        bell = _bell(daemon)
        _until(daemon, lambda: os.path.exists(bell), "its doorbell")
        alone_s = time.monotonic() - root_s
        client = daemon.client()  # the listening sockets exist before the supervisor
        client.send("GET", "/healthz")
        status, _ = client.answer()
        took_s = time.monotonic() - start_s
        client.close()
        if status != 200:
            raise Failed(f"/healthz: {status}")
        daemon.wait_ready()
    return took_s, alone_s


def cpu_ns(process: psutil.Process) -> int:
    """Return the processor time of all threads, from schedstat; clock ticks are too coarse."""
    total = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def pss_mb(pid: int) -> float:
    """Return the memory (PSS) of a process in MB.

    Raises:
        Failed: the kernel does not tell it.
    """
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    raise Failed(f"/proc/{pid}/smaps_rollup has no Pss")


def idle(quick: bool) -> list[Row]:
    """Measure processor time and memory of the daemon while ten services run and ten tasks wait."""
    span_s = 2.0 if quick else 20.0
    with Daemon(SERVICES + TASKS) as daemon:
        wait_running(daemon, 10)
        time.sleep(1.0 if quick else SETTLE_S)
        processes = daemon.processes()
        used, memory = idling(processes, span_s)
        parts = [title(process).removeprefix("ringward ") for process in processes]
    with _sleeping_python() as pid:
        floor = pss_mb(pid)
    cpu, total = sum(used), sum(memory)
    return [
        Row("idle: processor", f"{cpu:.2f} %", "", "", "<= 0.2 %", cpu <= 0.2, _shares(parts, used, "{:.2f}")),
        Row(
            "idle: memory (PSS)",
            f"{total:.1f} MB",
            f"{floor:.1f} MB",
            f"{total / floor:.1f} x",
            "<= 100 MB",
            total <= 100,
            _shares(parts, memory, "{:.0f}"),
        ),
        Row(
            "idle: memory of the supervisor",
            f"{memory[0]:.1f} MB",
            f"{floor:.1f} MB",
            f"{memory[0] / floor:.1f} x",
            "<= 15 MB",
            memory[0] <= 15,
        ),
    ]


def idling(processes: list[psutil.Process], span_s: float) -> tuple[list[float], list[float]]:
    """Return for each process its share of a core in % over the span, and its memory (PSS) in MB at the end."""
    before, start_s = [cpu_ns(process) for process in processes], time.monotonic()
    time.sleep(span_s)
    took_s = time.monotonic() - start_s
    used = [(cpu_ns(one) - old) / 1e9 / took_s * 100 for one, old in zip(processes, before, strict=True)]
    return used, [pss_mb(process.pid) for process in processes]


def _shares(names: list[str], values: list[float], unit: str) -> str:
    return ", ".join(f"{name} {unit.format(value)}" for name, value in zip(names, values, strict=True))


@contextmanager
def _sleeping_python() -> Iterator[int]:
    code = "import sys; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    try:
        yield child.pid
    finally:
        child.communicate()


def wait_running(daemon: Daemon, count: int) -> None:
    """Wait until so many services run.

    Raises:
        Failed: they do not run in time.
    """
    client = daemon.client()
    deadline_s = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline_s:
        if sum(item.get("state") == "running" for item in client.get("/api/tasks")["items"]) == count:
            client.close()
            return
        time.sleep(0.01)
    raise Failed(f"there are no {count} running services")


class Fifo:
    """A FIFO to which each service process writes its pid."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="ringward-bench-", dir=DISK)
        self.path = f"{self._directory}/fifo"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)  # for writing too, so that it never reports end of file
        self.command = ["/bin/sh", "-c", f"echo $$ > {self.path}; exec {' '.join(SLEEP)}"]

    def next(self) -> int:
        """Wait for the next process id."""
        if not select.select([self._fd], [], [], _DEADLINE_S)[0]:
            raise Failed("the service did not start")
        return int(os.read(self._fd, 64))

    def definition(self) -> str:
        """Return the service, which restarts at once and always."""
        return f"[services.s]\nrun = {toml(self.command)}\nrestart_delay = '0s'\nrestart_attempts = 10000\n"

    def kills(self, count: int, wait_running: Callable[[], None]) -> list[float]:
        """Kill the service so many times; return the seconds to the first write of each successor."""
        took_s = []
        pid = self.next()
        for _ in range(count):
            wait_running()
            time.sleep(0.03)
            start_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            pid = self.next()
            took_s.append(time.monotonic() - start_s)
        return took_s

    def close(self) -> None:
        """Remove the FIFO."""
        os.close(self._fd)
        os.unlink(self.path)
        os.rmdir(self._directory)


def revive(quick: bool) -> list[Row]:
    """Measure from the death of a service process to the first write of the next; floor: reap and spawn."""
    count = 10 if quick else 100
    fifo = Fifo()
    floor = []
    try:
        for _ in range(count):
            child = subprocess.Popen(fifo.command)
            start_s = time.monotonic()
            pid = fifo.next()
            floor.append(time.monotonic() - start_s)
            os.kill(pid, signal.SIGKILL)
            child.wait()
        with Daemon(fifo.definition()) as daemon:
            ours = fifo.kills(count, lambda: wait_running(daemon, 1))
    finally:
        fifo.close()
    return latency_rows("service killed -> running again", ours, floor, (6, None))


def _ten_sleeps() -> float:
    children = [subprocess.Popen(SLEEP) for _ in range(10)]
    start_s = time.monotonic()
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
    return time.monotonic() - start_s


def clean_stop(quick: bool) -> list[Row]:
    """Measure from SIGTERM to the end of the supervisor, with nothing left; floor: end ten processes."""
    pairs = in_turn(2 if quick else 7, stopped, _ten_sleeps)
    return [limit_row("clean stop, 10 services", pairs, "{:.3f} s", 0.3)]


def stopped() -> float:
    """Measure the seconds to stop a daemon with ten services.

    Raises:
        Failed: processes are left.
    """
    with Daemon(SERVICES) as daemon:
        wait_running(daemon, 10)
        children = psutil.Process(daemon.pid).children(recursive=True)
        took_s = daemon.stop()
        left = [child for child in children if child.is_running()]
        identity = (daemon.directory / "data" / "id").read_text().strip()
        if left or any(os.path.exists(f"{base}/{identity}") for base in ("/run/ringward", "/dev/shm/ringward-0")):
            raise Failed(f"left behind: {left}")
    return took_s
