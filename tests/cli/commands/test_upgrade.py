"""``ringward upgrade`` without a daemon; tests/e2e/upgrade/test_versions.py has upgrades of real daemons."""

import fcntl
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli.commands.daemon.upgrade import unit_warning
from supervisor.cli.main import cli

ID = "0" * 26


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory whose lock names this process."""
    (tmp_path / "id").write_text(f"{ID}\n")
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    return tmp_path


def refused(data: Path) -> str:
    result = CliRunner().invoke(cli, ["upgrade", "--data", str(data)], prog_name="ringward")
    assert result.exit_code == 69
    return result.output


def test_no_data_directory(tmp_path: Path) -> None:
    """Without a data directory, the command reports that no daemon runs."""
    assert refused(tmp_path / "none") == f"ringward: no daemon runs on {tmp_path / 'none'}\n"


def test_ended_daemon(data: Path) -> None:
    """A pid without a held lock is ignored."""
    assert "no daemon runs" in refused(data)


def test_other_process(data: Path) -> None:
    """Another process with this pid is not signalled."""
    with (data / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "no daemon runs" in refused(data)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A replacement for systemctl that prints the contents of the returned file."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/asked\ncat {tmp_path}/answer\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path / "answer"


SYSTEM = "/system.slice/ringward.service/ringward"
USER = "/user.slice/user-5.slice/user@5.service/app.slice/ringward.service/ringward"


@pytest.mark.parametrize(("cgroup", "option"), [(SYSTEM, ""), (USER, "--user ")])
def test_unit_of_another_environment_is_named(systemctl: Path, cgroup: str, option: str) -> None:
    """The system's or the user's manager is asked about the unit; the warning names the unit and the program."""
    systemctl.write_text("MainPID=7\nExecStart={ path=/opt/x/bin/ringward ; argv[]=/opt/x/bin/ringward up ; }\n")
    warning = unit_warning(7, cgroup)
    assert warning is not None
    assert warning.startswith(f"ringward.service starts /opt/x/bin/ringward, which does not belong to {sys.prefix}; ")
    commands = systemctl.with_name("asked").read_text()
    assert commands == f"{option}show --property=MainPID,ExecStart ringward.service\n"


def test_unit_of_the_same_environment(systemctl: Path, tmp_path: Path) -> None:
    """A program of this environment, even through a link, needs no warning."""
    for program in (f"{sys.prefix}/bin/ringward", f"{tmp_path}/link"):
        systemctl.write_text(f"MainPID=7\nExecStart={{ path={program} ; argv[]={program} up ; }}\n")
        if not os.path.exists(program):
            os.symlink(f"{sys.prefix}/bin/ringward", program)
        assert unit_warning(7, SYSTEM) is None


def test_unrelated_unit(systemctl: Path) -> None:
    """A daemon that was not started by its unit, or runs in no unit, needs no warning."""
    systemctl.write_text("MainPID=6\nExecStart={ path=/usr/sbin/cron ; argv[]=/usr/sbin/cron ; }\n")
    assert unit_warning(7, "/system.slice/cron.service") is None
    assert unit_warning(7, "/user.slice/user-0.slice/session-3.scope") is None
    assert unit_warning(7, "/") is None
