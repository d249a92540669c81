"""The files in ``deploy/`` equal the output of the command, and other programs accept them."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from supervisor.tools.service.init_plans import plan
from supervisor.tools.service.plan import InstallOptions
from tests.tools.service.shipped import DEPLOY, shipped

PROGRAM = "/bin/true"
"""A program that exists on every host, because systemd checks whether it is executable."""
SCRIPTS = [path for path, file in shipped().items() if file.text.startswith("#!")]
TOO_OLD = re.compile(r"Unknown key (name )?'DelegateSubgroup' in section .*")
"""Warnings of systemd before version 254, which ignores these settings."""
MOST_EXPOSED = {None: 3.7, "ringward": 2.1}
"""Exposure out of ten with the hardening, by the user of the daemon; 9.6 without it."""


def units(place: Path, options: InstallOptions) -> Path:
    for file in plan("systemd", options).files:
        path = place / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    return place / "etc/systemd/system/ringward.service"


def systemd_analyze(*words: object) -> tuple[int, str]:
    done = subprocess.run(["systemd-analyze", *map(str, words)], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, "\n".join(line for line in lines if not TOO_OLD.search(line))


def test_shipped_files_match_the_command() -> None:
    """The folders have exactly the files that ``python -m tests.tools.service.shipped`` writes."""
    expected = {path: (file.text, file.mode) for path, file in shipped().items()}
    there = [path for kind in ("systemd", "openrc", "s6", "runit") for path in (DEPLOY / kind).rglob("*")]
    by_path = {path: (path.read_text(), stat.S_IMODE(path.stat().st_mode)) for path in there if path.is_file()}
    assert by_path == expected


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="needs logrotate")
def test_openrc_log_is_rotated(tmp_path: Path) -> None:
    """Logrotate accepts the file, and the log goes on in the file that supervise-daemon has open."""
    log, config = tmp_path / "ringward.log", tmp_path / "logrotate"
    config.write_text((DEPLOY / "openrc/ringward.logrotate").read_text().replace("/var/log/ringward.log", str(log)))
    config.chmod(0o644)
    with log.open("a") as file:
        print("before", file=file, flush=True)
        words = ["logrotate", "--force", "--state", str(tmp_path / "state"), str(config)]
        done = subprocess.run(words, capture_output=True, text=True)
        print("after", file=file, flush=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (log.read_text(), (tmp_path / "ringward.log.1").read_text()) == ("after\n", "before\n")


@pytest.mark.parametrize("user", [None, "ringward"])
def test_systemd_accepts_the_unit(tmp_path: Path, user: str | None) -> None:
    """``systemd-analyze verify`` reports nothing, and the hardened unit stays below the exposure limit."""
    unit = units(
        tmp_path, InstallOptions(PROGRAM, "/etc/ringward/ringward.toml", "/var/lib/ringward", user, hardened=True)
    )
    assert systemd_analyze("verify", unit) == (0, "")
    threshold = round(MOST_EXPOSED[user] * 10)
    code, output = systemd_analyze("security", "--offline=true", f"--threshold={threshold}", unit)
    assert code == 0, output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_dedicated_user(tmp_path: Path) -> None:
    """Systemd tools create the user and its directories; only root and the user can read the configuration."""
    options = InstallOptions(PROGRAM, "/etc/ringward/ringward.toml", "/var/lib/ringward", "ringward")
    units(tmp_path, options)
    config = tmp_path / "etc/ringward/ringward.toml"
    config.parent.mkdir()
    config.touch(0o600)
    for command in [words for words in plan("systemd", options).enable if words[0] != "systemctl"]:
        done = subprocess.run([command[0], f"--root={tmp_path}", *command[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done
    # The ids come from the other root directory, not from this host.
    line = next(line for line in (tmp_path / "etc/passwd").read_text().splitlines() if line.startswith("ringward:"))
    _, _, uid, gid, _, home, _ = line.split(":")
    assert home == "/var/lib/ringward"
    statuses = [path.stat() for path in (config.parent, config, tmp_path / "var/lib/ringward")]
    assert [(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) for status in statuses] == [
        (0, int(gid), 0o750),
        (0, int(gid), 0o640),
        (int(uid), int(gid), 0o700),
    ]


@pytest.mark.parametrize("shell", [["dash"], ["bash"], ["busybox", "sh"]], ids=lambda words: words[0])
def test_shells_accept_the_scripts(shell: list[str]) -> None:
    """The scripts are valid for each shell that hosts have as /bin/sh."""
    assert len(SCRIPTS) >= 8
    for path in SCRIPTS:
        done = subprocess.run([*shell, "-n", path], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), path
