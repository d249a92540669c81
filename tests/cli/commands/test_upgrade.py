"""``ringward upgrade`` without a daemon; with one it is the matter of tests/e2e/upgrade/test_versions.py."""

import fcntl
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli.main import cli

ID = "0" * 26


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that says it is ours."""
    (tmp_path / "id").write_text(f"{ID}\n")
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    return tmp_path


def refused(data: Path) -> str:
    result = CliRunner().invoke(cli, ["upgrade", "--data", str(data)], prog_name="ringward")
    assert result.exit_code == 69
    return result.output


def test_no_data_directory(tmp_path: Path) -> None:
    """Where there is none, there is no daemon."""
    assert refused(tmp_path / "none") == f"ringward: no daemon runs on {tmp_path / 'none'}\n"


def test_a_daemon_that_has_ended(data: Path) -> None:
    """A pid that nobody holds the lock for means nothing."""
    assert "no daemon runs" in refused(data)


def test_a_process_that_is_no_daemon(data: Path) -> None:
    """Whoever has the pid in our namespace is not signalled when it is not the supervisor."""
    with (data / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "no daemon runs" in refused(data)
