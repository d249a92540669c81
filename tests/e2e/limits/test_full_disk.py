"""The whole data directory on a small full disk: changes are stored in the reserve."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.scheduler.database.disk_reserve import BYTES
from tests.e2e.limits.test_shared_memory_is_short import why_not
from tests.support.daemon import Daemon, gone
from tests.support.frozen import in_namespace
from tests.support.waiting import until

MEGABYTES = 64


class SmallDisk(Daemon):
    """A daemon whose data directory is on its own small tmpfs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.data.mkdir(mode=0o700)
        self.before_start = "true"
        """A shell command that runs in the data directory before the daemon starts."""
        self.namespace: list[str] = []
        """A command prefix for the namespace of an earlier daemon, whose disk is used."""

    def command(self) -> list[str]:
        if self.namespace:
            return [*self.namespace, *super().command()]
        script = f'mount -t tmpfs -o size={MEGABYTES}m,mode=700 tmpfs "$1" && (cd "$1" && {self.before_start})'
        script += ' && shift && exec "$@"'
        return [*in_namespace(), "sh", "-c", script, "sh", str(self.data), *super().command()]

    @property
    def disk(self) -> Path:
        """Return the path of the data directory in the daemon's namespace."""
        return Path(f"/proc/{self.pid}/root{self.data}")

    def fill(self, name: str) -> Path:
        """Fill the disk; return the file that does."""
        path = self.disk / name
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):  # ENOSPC
            while True:
                file.write(bytes(4096))
        return path

    def kinds(self) -> list[str]:
        """Return the kinds of notifications, newest first."""
        return [item["kind"] for item in self.get("/api/notifications").json()["items"]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SmallDisk]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    disk = SmallDisk(tmp_path)
    yield disk
    disk.clean()


def test_reserve_stores_runs_on_a_full_disk(daemon: SmallDisk) -> None:
    """On a full disk, runs are still triggered, executed and stored; start and end of the shortage are notified."""
    daemon.write('[storage]\nmin_free_space = "1mb"\n[tasks.t]\nrun = "echo hello"\n')
    daemon.start()
    reserve = daemon.disk / "reserve"
    until(lambda: reserve.exists() and reserve.stat().st_size == BYTES, "the reserve")
    ballast = daemon.fill("ballast")
    runs = [daemon.ended(daemon.trigger("t")) for _ in range(20)]
    assert {run["endReason"] for run in runs} == {"succeeded"}
    assert not reserve.exists()
    until(lambda: "disk.full" in daemon.kinds(), "the notification")
    until(lambda: daemon.get("/readyz").json()["status"] == "degraded", "the probe to say so")
    notice = "has no room for the 16 MiB reserved for the database"
    until(lambda: notice in daemon.output.read_text(), "a word about it")
    # More changes than the reserve holds: changes that cannot be stored are refused.
    more = daemon.fill("more")
    until(lambda: daemon.request("POST", "/api/tasks/t/run").status == 503, "the disk to be full again")
    until(lambda: "the database cannot be written" in daemon.get("/readyz").body.decode(), "the probe to say so")
    assert daemon.get("/api/runs").status == 200
    ballast.unlink()
    more.unlink()
    until(lambda: daemon.get("/readyz").json()["status"] == "ok", "it to recover")
    until(lambda: daemon.kinds()[0] == "disk.recovered", "everybody to hear of it")
    assert "database.failing" in daemon.kinds()
    assert reserve.stat().st_size == BYTES
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    assert daemon.stop() == 0


@pytest.mark.parametrize("free", [0, 8192])
def test_start_on_a_full_disk(daemon: SmallDisk, free: int) -> None:
    """A daemon starts on a full disk, even if a few kilobytes are free: it uses the reserve of the last start."""
    daemon.write('[tasks.t]\nrun = "echo hello"\n')
    filled = f"! cat /dev/zero > ballast && truncate -s -{free} ballast"
    daemon.before_start = f"touch lock && head -c {BYTES} /dev/zero > reserve && {filled}"
    daemon.start()
    assert not (daemon.disk / "reserve").exists()
    assert daemon.get("/api/daemon").json()["configWarnings"] == []
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    until(lambda: "disk.full" in daemon.kinds(), "the notification")
    (daemon.disk / "ballast").unlink()
    until(lambda: daemon.kinds()[0] == "disk.recovered", "it to recover")
    assert (daemon.disk / "reserve").stat().st_size == BYTES


@pytest.mark.parametrize(
    ("spoil", "repair", "reason"),
    [
        ("rm -f reserve && ! cat /dev/zero > ballast", "rm ballast", "full"),
        ("mount -o remount,ro .", "mount -o remount,rw .", "read-only"),
    ],
)
def test_start_without_a_writable_disk(daemon: SmallDisk, spoil: str, repair: str, reason: str) -> None:
    """A start on a read-only disk, or a full one without a reserve, ends and names the runs of a killed supervisor."""
    daemon.write('[tasks.t]\nrun = "exec sleep 1000"\n')
    daemon.start()
    run = daemon.trigger("t")
    process = until(lambda: daemon.children("sleep 1000"), "its process")[0]
    until(lambda: daemon.run(run)["status"] == "running", "the run, as it is stored")
    namespace = os.open(f"/proc/{daemon.pid}/ns/mnt", os.O_RDONLY)
    scheduler = daemon.helper("ringward scheduler")
    daemon.namespace = ["nsenter", f"--mount=/proc/{os.getpid()}/fd/{namespace}"]
    daemon.stop(signal.SIGKILL)

    def sh(command: str) -> bool:
        words = [*daemon.namespace, "sh", "-c", f"cd {daemon.data} && {command}"]
        return subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0

    until(lambda: gone(scheduler), "its scheduler to end")
    until(lambda: sh(spoil), "its files to be closed")
    assert process.is_running()
    daemon.launch()
    assert daemon.process is not None
    assert daemon.process.wait(60) == 73
    assert gone(process)
    output = daemon.output.read_text()
    assert f"ringward: ended runs that a killed supervisor left: t ({run})\n" in output
    assert output.endswith(f"cannot use the data directory {daemon.data}: its file system is {reason}\n")
    assert sh(repair)
    daemon.start()
    os.close(namespace)
    assert daemon.run(run)["endReason"] == "crashed"
