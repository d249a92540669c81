"""The running daemon, as seen by commands that do not use its API."""

import os
from pathlib import Path

import pytest

from supervisor.cli.failure import Failure
from supervisor.cli.running_daemon import RunningDaemon


class Served(RunningDaemon):
    """A daemon of this user with a given runtime directory."""

    def __init__(self, directory: Path) -> None:
        self.uid = os.geteuid()
        self._runtime_dir = str(directory)

    def answer(self) -> dict[str, object]:
        return {"request": "upgrade-from.json"}


def test_request_is_removed_after_an_upgrade(tmp_path: Path) -> None:
    """A request that the daemon has not read is removed."""
    with Served(tmp_path).request({"python": "/p"}):
        assert (tmp_path / "upgrade-from.json").read_text() == '{"python": "/p"}'
    assert list(tmp_path.iterdir()) == []


def test_unwritable_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a request cannot be written, the command fails and leaves no file."""

    def refused(_fd: int, _uid: int, _gid: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refused)
    with pytest.raises(Failure, match="Operation not permitted"), Served(tmp_path).request({"python": "/p"}):
        pass
    assert list(tmp_path.iterdir()) == []
