"""The file that reserves disk space for the database, on full disks and on disks with space."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from supervisor.scheduler.database.disk_reserve import BYTES, DiskReserve
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock


class Disk:
    """A disk whose free space a test sets; counts the attempts to create the file."""

    def __init__(self) -> None:
        self.free = 0
        self.attempts = 0

    def statvfs(self, _path: str) -> SimpleNamespace:
        self.attempts += 1
        return SimpleNamespace(f_bavail=self.free, f_frsize=1)


@pytest.mark.parametrize("released", [False, True], ids=("never created", "released"))
def test_attempts_to_create_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, released: bool) -> None:
    """While the disk is full, the scheduler tries to create the reserve every ten seconds, and no more often.

    A removed file is created again.
    """
    clock, disk = FakeClock(), Disk()
    bench = Bench(tmp_path, "", clock)

    def advance(seconds: int) -> None:
        for _ in range(seconds):
            clock.advance(1)
            bench.loop.round(0)
            bench.store.work_all()

    def is_missing() -> bool:
        return reserve.missing

    (tmp_path / "data").mkdir()
    reserve = DiskReserve(bench.loop, str(tmp_path / "data"), bench.notifications, bench.log, bench.committer)
    monkeypatch.setattr(os, "statvfs", disk.statvfs)
    try:
        if released:
            disk.free = 2 * BYTES
            advance(1)
            assert reserve.release()
            disk.free = disk.attempts = 0
            reserve.check()
        else:
            advance(1)
            disk.attempts -= 1
        assert is_missing()
        for count in range(1, 6):
            advance(10)
            assert disk.attempts == count
        disk.free = 2 * BYTES
        advance(10)
        assert not is_missing()
        assert (tmp_path / "data" / "reserve").stat().st_size == BYTES
        advance(60)
        assert disk.attempts == 6
        (tmp_path / "data" / "reserve").unlink()
        advance(10)
        assert (tmp_path / "data" / "reserve").stat().st_size == BYTES
    finally:
        bench.close()
