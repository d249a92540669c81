"""Files about runs beside the database."""

import os
import stat
from pathlib import Path

import pytest

from supervisor.scheduler.runs.private_data import PrivateFolder


def test_files_survive_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is on disk before it gets its name, and the name is on disk before the run starts."""
    folder = tmp_path / "kept"
    synced = []

    def fsync(fd: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), os.listdir(folder)))

    monkeypatch.setattr(os, "fsync", fsync)
    PrivateFolder(str(folder)).keep("R", {"a": 1})
    assert synced == [(False, ["R.new"]), (True, ["R"])]
    assert PrivateFolder(str(folder)).read("R") == {"a": 1}
    assert (folder.stat().st_mode & 0o777, (folder / "R").stat().st_mode & 0o777) == (0o700, 0o600)


def test_sweep(tmp_path: Path) -> None:
    """Files without a run are removed, and other directory entries stay."""
    (tmp_path / "0").mkdir()
    for name in ("A", "B", "B.new", "C"):
        (tmp_path / name).touch()
    PrivateFolder(str(tmp_path)).sweep(["A"])
    assert sorted(os.listdir(tmp_path)) == ["0", "A"]
