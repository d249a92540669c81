"""Entries of the audit in their file, on a disk that is full."""

import os
from pathlib import Path

import pytest

from api.audit_spool import Entries, Spool

ONE: Entries = {"a": [1, "x"]}
TWO: Entries = {"b": [2, "y"]}


def test_half_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits in part only is taken out again, so that what follows can be read."""
    spool, write = Spool(str(tmp_path), "one"), os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        assert not spool.add(ONE)
    assert spool.add(TWO)
    os.close(spool._fd)  # its worker is killed
    assert Spool(str(tmp_path), "two").take_over() == TWO


def test_taken_over_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a dead worker stays until its entries are in another one."""
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
