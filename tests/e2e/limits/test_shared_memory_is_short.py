"""Shared memory that is far too small for all active runs; tests/logring tests each step of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.frozen import in_namespace
from tests.support.waiting import until

RUNS = 80
MEGABYTES = 10
ECHOES = 300
PAD = "\n".join(["x" * 99] * 9)
PROGRAM = f"""\
i=0
while [ $i -lt {ECHOES} ]; do echo "$i $PAD"; i=$((i+1)); done
read _ < {{gate}} || :
echo end
"""
PRINTED = "".join(f"{number} {PAD}\n" for number in range(ECHOES)).encode()
assert RUNS * len(PRINTED) > 2 * MEGABYTES << 20


class ShortMemory(Daemon):
    """A daemon whose runtime directory is on its own small tmpfs."""

    def command(self) -> list[str]:
        script = f'mount -t tmpfs -o size={MEGABYTES}m,mode=700 tmpfs /run/ringward && exec "$@"'
        return [*in_namespace(), "sh", "-c", script, "sh", *super().command()]

    def client_command(self) -> list[str]:
        return ["nsenter", "--mount", "-t", str(self.pid), *super().client_command()]

    def free(self) -> int:
        """Return the number of free bytes."""
        filesystem = os.statvfs(f"/proc/{self.pid}/root/run/ringward")
        return filesystem.f_bavail * filesystem.f_frsize


def why_not() -> str | None:
    """Return why no tmpfs can be mounted here, or None."""
    if os.geteuid():
        return "mounting a tmpfs takes root"
    Path("/run/ringward").mkdir(mode=0o700, exist_ok=True)
    command = [*in_namespace(), "mount", "-t", "tmpfs", "tmpfs", "/run/ringward"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as err:
        return f"{err.filename} is not installed"
    return None if tried.returncode == 0 else f"no tmpfs can be mounted: {tried.stderr.strip()}"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ShortMemory]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    new_daemon = ShortMemory(tmp_path)
    yield new_daemon
    new_daemon.clean()


class Gate:
    """A FIFO that blocks its readers until it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        os.mkfifo(path)

    def open(self) -> None:
        """Release the readers that wait now."""
        with suppress(OSError):  # ENXIO: no reader waits
            os.close(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))


FILLS = """
import os, sys, time

file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.unlink(sys.argv[1])
while True:
    try:
        os.write(file, bytes(4096))
    except OSError:  # ENOSPC
        time.sleep(0.0005)
"""
"""A program that takes all room of a file system, also what others give back, until it is ended."""


def has_printed(daemon: Daemon, run_id: str) -> bool:
    """Return whether the run waits at the gate."""
    lines: int = daemon.get(f"/api/runs/{run_id}/log?from=-1").json()["totalLines"]
    return lines == PRINTED.count(b"\n")


def test_output_beyond_shared_memory_is_kept(daemon: ShortMemory, tmp_path: Path) -> None:
    """80 runs print more than shared memory holds at once; no process is killed, and every line is kept."""
    gate = Gate(tmp_path / "gate")
    program = PROGRAM.format(gate=tmp_path / "gate")
    daemon.write(f"[tasks.t]\nrun = '''\n{program}'''\nmax_concurrent = {RUNS}\n[tasks.t.env]\nPAD = '''\n{PAD}'''\n")
    daemon.start()
    scheduler = daemon.helper("ringward scheduler").pid
    runs = [daemon.trigger("t") for _ in range(RUNS)]
    for run in runs:
        until(partial(has_printed, daemon, run), f"the output of {run}")
    assert daemon.free() < MEGABYTES << 18

    def all_ended() -> bool:
        gate.open()
        running: int = daemon.get("/api/runs?status=running&limit=1").json()["total"]
        return not running

    until(all_ended, "all runs to end", 55)
    assert {run["endReason"] for run in daemon.runs("t")} == {"succeeded"}
    for run in runs:
        assert daemon.get(f"/api/runs/{run}/log/raw").body == PRINTED + b"end\n"
    assert daemon.helper("ringward scheduler").pid == scheduler
    assert daemon.stop() == 0


def test_runs_in_a_full_runtime_directory(daemon: ShortMemory) -> None:
    """In a full runtime directory, runs lose nothing and an upgrade is answered; all probes report it meanwhile."""
    daemon.write('[tasks.t]\nrun = "seq 100000"\n')
    daemon.start()
    filler = subprocess.Popen([sys.executable, "-Ic", FILLS, f"/proc/{daemon.pid}/root/run/ringward/full"])
    try:
        until(lambda: daemon.free() == 0, "no room")
        run = daemon.ended(daemon.trigger("t"))
        assert run["endReason"] == "succeeded"
        assert (
            daemon.get(f"/api/runs/{run['id']}/log/raw").body == "".join(f"{n}\n" for n in range(1, 100_001)).encode()
        )
        until(lambda: daemon.get("/readyz").json()["status"] == "degraded", "the probe to say so")
        (problem,) = daemon.get("/api/daemon").json()["logProblems"]
        assert problem.endswith("No space left on device")
        assert [item["kind"] for item in daemon.get("/api/notifications").json()["items"]] == ["log.disk_pressure"]
        upgraded = daemon.cli("upgrade")
        assert upgraded.returncode == 0, upgraded.stderr
    finally:
        filler.terminate()
        filler.wait()
    until(lambda: daemon.get("/readyz").json()["status"] == "ok", "the end of the problem")
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    assert daemon.stop() == 0
