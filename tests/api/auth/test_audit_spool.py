"""Entries of the audit in their file, on a disk that is full."""

import os
from pathlib import Path

import pytest

from api.auth.audit_spool import Entries, Spool

ONE: Entries = {"a": [1, "x", "", "stopRun", "", 204, "", False]}
TWO: Entries = {"b": [2, "y", "", "stopRun", "", 204, "", False]}


def test_partly_written_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partly written entry is removed again, so that later entries can be read."""
    spool, write = Spool(str(tmp_path), "one"), os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        assert not spool.add(ONE)
    assert spool.add(TWO)
    os.close(spool._fd)  # its worker is killed
    assert Spool(str(tmp_path), "two").take_over() == TWO


def test_takeover_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spool of a dead worker stays until another file contains its entries."""
    dead = Spool(str(tmp_path), "dead")
    assert dead.add(ONE)
    os.close(dead._fd)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda _fd, _data: 0)
        first = Spool(str(tmp_path), "first")
        assert first.take_over() == ONE
        os.close(first._fd)
    assert Spool(str(tmp_path), "second").take_over() == ONE
    assert not list(tmp_path.glob("*dead*"))


def test_foreign_files_in_the_spool(tmp_path: Path) -> None:
    """Foreign files in the spool delay nothing, are not followed, and never reach the scheduler."""
    dead = Spool(str(tmp_path), "dead")
    assert dead.add(ONE)
    os.close(dead._fd)
    os.mkfifo(tmp_path / "audit-0fifo.entries")
    (tmp_path / "audit-0folder.entries").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text('["z", [3, "z", "", "stopRun", "", 204, "", false]]\n')
    (tmp_path / "audit-0link.entries").symlink_to(elsewhere)
    (tmp_path / "audit-0short.entries").write_text('["k", [1]]\n["k", ["a", {}, [], {}, {}, {}, {}, true]]\n')
    assert Spool(str(tmp_path), "next").take_over() == ONE
