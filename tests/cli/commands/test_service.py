"""``ringward service``: the files that it writes, and the files that it leaves alone."""

import json
import os
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from supervisor.tools.service import init_plans, systemd_plan
from supervisor.tools.service.detection import detect
from tests.support.command_line import Ringward

PROGRAM = "/opt/ringward/bin/ringward"
UNIT = "etc/systemd/system/ringward.service"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _new_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_plan, "version", lambda: 254)


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_install_and_uninstall(ringward: Ringward, root: Path) -> None:
    """The files are written as shown, once; older files stay, and only they remain after a removal."""
    words = ("-c", "/etc/ringward/ringward.toml", "--init", "systemd", "--root", str(root), "--program", PROGRAM)
    install = ("service", "install", *words)
    shown = ringward(*install, "--dry-run", plain=True)
    assert (shown.exit_code, root.exists()) == (exit_codes.OK, False)
    assert f"ExecStart={PROGRAM} up --config /etc/ringward/ringward.toml\n" in shown.stdout
    first = ringward(*install, plain=True)
    assert first.exit_code == exit_codes.OK, first.output
    assert "systemctl enable --now ringward" in first.stdout
    written = files(root)
    assert written[UNIT] in shown.stdout
    assert set(written) == {UNIT, "etc/sysusers.d/ringward.conf", "etc/ringward/ringward.toml"}
    config = root / "etc/ringward/ringward.toml"
    assert config.stat().st_mode & 0o777 == 0o600
    assert ringward("validate", str(config), plain=True).exit_code == exit_codes.OK

    again = ringward(*install, "--json", plain=True)
    document = json.loads(again.stdout)
    assert [file["state"] for file in document["files"]] == ["same", "same"]
    assert (document["configWritten"], document["init"], document["user"]) == (False, "systemd", "root")
    assert files(root) == written

    hardened = ringward(*install, "--hardened", "--user", "jobs", plain=True)
    assert f"replaced {root / UNIT}" in hardened.stdout  # our unchanged file
    assert "+User=jobs" in hardened.stdout
    assert " --data /var/lib" not in written[UNIT]
    assert f"up --config /etc/ringward/ringward.toml --data {root.parent}/data\n" in (root / UNIT).read_text()

    link = root / "etc/systemd/system/multi-user.target.wants/ringward.service"
    link.parent.mkdir()
    link.symlink_to(root / UNIT)
    uninstall = ("service", "uninstall", "--init", "systemd", "--root", str(root))
    enabled = ringward(*uninstall, plain=True)
    assert enabled.exit_code == exit_codes.REFUSED
    assert "systemctl disable --now ringward" in enabled.stderr
    link.unlink()
    assert ringward(*uninstall, plain=True).exit_code == exit_codes.OK
    assert set(files(root)) == {"etc/ringward/ringward.toml"}
    assert not (root / f"{UNIT}.d").exists()


@pytest.mark.parametrize("init", ["systemd", "openrc", "s6", "runit"])
def test_changed_files_are_left_alone(ringward: Ringward, root: Path, init: str) -> None:
    """The difference is shown, and no other file is written; --force overrides, and a removal needs it too."""
    words = ("--init", init, "--root", str(root))
    install = ("service", "install", *words, "--program", PROGRAM)
    assert ringward(*install).exit_code == exit_codes.OK
    changed, *others = [path for path in root.rglob("*") if path.is_file() and "up --config" in path.read_text()]
    assert not others
    changed.write_text(changed.read_text().replace(PROGRAM, "/usr/bin/mine"))
    before = files(root)
    refused = ringward(*install)
    assert refused.exit_code == exit_codes.REFUSED
    assert "-" in refused.stderr
    assert "/usr/bin/mine up" in refused.stderr or "-command=/usr/bin/mine" in refused.stderr
    assert ringward("service", "uninstall", *words, plain=True).exit_code == exit_codes.REFUSED
    assert files(root) == before
    assert ringward(*install, "--force").exit_code == exit_codes.OK
    assert PROGRAM in changed.read_text()
    changed.write_text("mine")
    assert ringward("service", "uninstall", *words, "--force", plain=True).exit_code == exit_codes.OK
    assert set(files(root)) == {str((root.parent / "none.toml").relative_to("/"))}


@pytest.mark.parametrize("init", ["systemd", "openrc", "s6", "runit"])
def test_reinstallation_needs_the_same_options(ringward: Ringward, root: Path, init: str) -> None:
    """An installation without the earlier --user or --hardened is refused, because the daemon would become root."""
    words = ("--init", init, "--root", str(root))
    install = ("service", "install", *words, "--program", PROGRAM)
    options = ("--user", "jobs", *(["--hardened"] if init == "systemd" else []))
    assert ringward(*install, *options).exit_code == exit_codes.OK
    before = files(root)
    for more in ((), ("--force",), ("--dry-run",), ("--user", "others"), options[2:]):
        refused = ringward(*install, *more)
        assert refused.exit_code == exit_codes.REFUSED
        assert "it was installed with --user jobs" in refused.stderr
    assert files(root) == before
    assert ringward(*install, *options).exit_code == exit_codes.OK
    assert ringward("service", "uninstall", *words, plain=True).exit_code == exit_codes.OK
    assert ringward(*install).exit_code == exit_codes.OK


def test_force_needs_the_same_options(ringward: Ringward, root: Path) -> None:
    """Even with --force, a changed unit is reinstalled only with its earlier --user."""
    install = ("service", "install", "--init", "systemd", "--root", str(root), "--program", PROGRAM)
    assert ringward(*install, "--user", "jobs").exit_code == exit_codes.OK
    unit = next(root.rglob("ringward.service"))
    installed = unit.read_text()
    assert "\nUser=jobs\n" in installed
    unit.write_text(installed + "# mine\n")
    for more in ((), ("--user", "others")):
        refused = ringward(*install, "--force", *more)
        assert refused.exit_code == exit_codes.REFUSED
        assert "it was installed with --user jobs" in refused.stderr
        assert unit.read_text() == installed + "# mine\n"
    assert ringward(*install, "--force", "--user", "jobs").exit_code == exit_codes.OK
    assert unit.read_text() == installed


def test_reinstallation_needs_hardening(ringward: Ringward, root: Path) -> None:
    """An installation without the earlier --hardened is refused, because the drop-in would stay."""
    install = ("service", "install", "--init", "systemd", "--root", str(root), "--program", PROGRAM)
    assert ringward(*install, "--hardened").exit_code == exit_codes.OK
    refused = ringward(*install)
    assert refused.exit_code == exit_codes.REFUSED
    assert "it was installed with --hardened;" in refused.stderr


def test_existing_configuration(ringward: Ringward, root: Path) -> None:
    """An existing configuration is not changed, its data directory is used, and an invalid one is reported."""
    config = root / "etc/ringward/ringward.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[daemon]\ndata_dir = "/srv/ringward"\n')
    config.chmod(0o640)
    words = ("-c", "/etc/ringward/ringward.toml", "--init", "systemd", "--root", str(root), "--user", "jobs")
    install = ("service", "install", *words, "--program", PROGRAM)
    assert ringward(*install, plain=True).exit_code == exit_codes.OK
    unit = (root / UNIT).read_text()
    assert "RequiresMountsFor=/srv/ringward\n" in unit
    assert "--data" not in unit
    assert "StateDirectory" not in unit
    assert config.read_text() == '[daemon]\ndata_dir = "/srv/ringward"\n'
    config.write_text("[daemon]\ndata_dir = 1\n")
    refused = ringward(*install, plain=True)
    assert refused.exit_code == exit_codes.CONFIG
    assert "daemon.data_dir" in refused.stderr


def test_misspelt_subcommand(ringward: Ringward) -> None:
    """A misspelt subcommand gets the nearest one as a suggestion."""
    result = ringward("service", "instal", plain=True)
    assert result.exit_code == exit_codes.USAGE
    assert "No such command 'instal'. Did you mean install?" in result.stderr


@pytest.mark.parametrize(("version", "helped"), [(252, True), (254, False), (None, False)])
def test_old_systemd(
    ringward: Ringward, root: Path, monkeypatch: pytest.MonkeyPatch, version: int | None, helped: bool
) -> None:
    """A systemd before version 254 gets a drop-in that newer versions do not need."""
    monkeypatch.setattr(systemd_plan, "version", lambda: version)
    words = ("--init", "systemd", "--root", str(root), "--program", PROGRAM)
    assert ringward("service", "install", *words).exit_code == exit_codes.OK
    assert (f"{UNIT}.d/before-254.conf" in files(root)) == helped


@pytest.mark.parametrize(
    "words",
    [
        ["--init", "systemd", "--user", "no name"],
        ["--init", "runit", "--hardened"],
        ["--init", "systemd", "--scan-dir", "/run/service"],
        ["--init", "systemd", "--now"],
        ["--init", "upstart"],
        ["--init", "systemd", "--program", "/opt/my programs/ringward"],
    ],
    ids=["user", "hardened", "scan-dir", "now", "init", "path"],
)
def test_impossible_options(ringward: Ringward, root: Path, words: list[str]) -> None:
    """Impossible options are usage errors, and nothing is written."""
    result = ringward("service", "install", *words, "--root", str(root))
    assert (result.exit_code, root.exists()) == (exit_codes.USAGE, False), result.output


def test_now(ringward: Ringward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--now runs the remaining commands and prints them; a command that fails makes the installation fail."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("useradd", "rc-update", "rc-service"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/called\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(init_plans, "OPENRC_SCRIPT", f"{tmp_path}/init.d/ringward")
    monkeypatch.setattr(init_plans, "API_USER", "nobody-on-this-host")
    words = ("--init", "openrc", "--now")
    done = ringward("service", "install", *words, "--program", PROGRAM)
    assert done.exit_code == exit_codes.OK, done.output
    assert "+ rc-service ringward start\n" in done.stdout
    user, *others = (tmp_path / "called").read_text().splitlines()
    assert (user.split()[:2], user.split()[-1]) == (["useradd", "--system"], "nobody-on-this-host")
    assert others == ["rc-update add ringward default", "rc-service ringward start"]
    (tools / "rc-update").write_text("#!/bin/sh\nexit 3\n")
    failed = ringward("service", "install", *words, "--program", PROGRAM)
    assert failed.exit_code == exit_codes.REFUSED
    assert "rc-update add ringward default exited with code 3" in failed.stderr


@pytest.mark.parametrize(
    ("place", "init"),
    [("run/systemd/system", "systemd"), ("run/openrc", "openrc"), ("proc/1", None), ("proc", None)],
)
def test_init_system_by_directory(tmp_path: Path, place: str, init: str | None) -> None:
    """An init system is recognised by its directory in /run."""
    (tmp_path / place).mkdir(parents=True)
    assert detect(str(tmp_path)) == init


@pytest.mark.parametrize(("name", "init"), [("s6-svscan", "s6"), ("runsvdir", "runit"), ("bash", None)])
@pytest.mark.parametrize("pid", ["1", "42"])
def test_init_system_by_process(tmp_path: Path, pid: str, name: str, init: str | None) -> None:
    """An init system is recognised by its process, even if that is not process 1, as in containers."""
    (tmp_path / "proc" / pid).mkdir(parents=True)
    (tmp_path / "proc" / pid / "comm").write_text(f"{name}\n")
    assert detect(str(tmp_path)) == init
