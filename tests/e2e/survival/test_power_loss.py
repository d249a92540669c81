"""A power failure: writes that have not reached the disk, all processes and all memory are lost.

Ext4 can simulate it (EXT4_IOC_SHUTDOWN, made for tests of file systems): from that moment on nothing is written, not
even the journal.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from logring.reader import LogReader
from supervisor.startup.runtime_directory import candidates
from tests.support.daemon import program
from tests.support.frozen import FrozenLogs, why_not
from tests.support.waiting import until

_SHUTDOWN, _WITHOUT_JOURNAL = 0x8004587D, struct.pack("=I", 2)
"""EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH, of fs/ext4/ext4.h in Linux."""


class OwnDisk(FrozenLogs):
    """A daemon whose data directory is on its own file system, which can lose its power."""

    def on_disk(self, run_id: str) -> int:
        """Return the number of lines of a log that are on the disk, once there are some."""
        logs = Path(f"/proc/{self.pid}/root{self.data}/logs")

        def lines() -> int:
            path = next(logs.rglob(f"{run_id}.log"), None)
            with contextlib.closing(LogReader(None, str(path))) as reader:
                return reader.head().lines

        count: int = until(lines, "lines of the run in its file")
        subprocess.run(["sync", "--file-system", logs], check=True)
        return count

    def lose_power(self) -> None:
        """Stop everything at once; only the contents of the disk remain."""
        fd = os.open(f"/proc/{self.pid}/root{self.data}", os.O_RDONLY | os.O_DIRECTORY)
        identity = Path(f"/proc/{self.pid}/root{self.data}/id").read_text().strip()
        assert self.process is not None
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _WITHOUT_JOURNAL)
        finally:
            os.close(fd)
        everything = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        for base in candidates(os.environ, os.geteuid()):
            shutil.rmtree(f"{base}/{identity}", ignore_errors=True)
        until(lambda: not self._mounted(), "the disk to be let go of")

    def _mounted(self) -> bool:
        return bool(subprocess.run(["losetup", "--associated", self._image], capture_output=True, check=True).stdout)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[OwnDisk]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    own_disk = OwnDisk(tmp_path, all_data=True)
    try:
        yield own_disk
    finally:
        own_disk.clean()


@pytest.mark.parametrize("durability", ["power", "crash"])
def test_power_loss_keeps_synced_data(daemon: OwnDisk, tmp_path: Path, durability: str) -> None:
    """The database is consistent and, with "power", complete up to the last response.

    A log has all lines on the disk.
    """
    daemon.write(
        f"[tasks.talks]\nrun = {program('numbered', 1_000_000, 0.0005, tmp_path / 'side')}\n"
        '[tasks.small]\nrun = "echo hello"\n'
        f'[storage]\ndurability = "{durability}"\nmin_free_space = "0b"\n'
    )
    daemon.start()
    talks = daemon.trigger("talks")
    ended = [daemon.trigger("small") for _ in range(20)]
    for run in ended:
        daemon.ended(run)
    on_disk = daemon.on_disk(talks)
    triggered = [daemon.trigger("small") for _ in range(5)]
    daemon.lose_power()

    daemon.start()
    kept_by_id = {run["id"]: run for run in daemon.runs("small")}
    if durability == "power":
        assert {*ended, *triggered} <= kept_by_id.keys()
        assert {kept_by_id[run]["endReason"] for run in ended} == {"succeeded"}
    for run in kept_by_id:
        assert daemon.ended(run)["endReason"] in ("succeeded", "crashed")
        assert daemon.texts(run) in (["hello"], [])
    assert daemon.run(talks)["endReason"] == "crashed"  # syncing the logs also synced this transaction
    lines = daemon.texts(talks)
    assert lines == [f"line {number}" for number in range(len(lines))]
    assert len(lines) >= on_disk
    assert daemon.ended(daemon.trigger("small"))["endReason"] == "succeeded"
