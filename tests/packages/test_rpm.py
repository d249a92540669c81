"""The RPM package, installed below another directory, and with its scripts under a real systemd."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.version import package_version
from supervisor.config.files.lookup import SYSTEM_FILE
from supervisor.version import VERSION
from tests.packages.environment import Parts, sources
from tests.packages.host import Host
from tests.support.host_features import require

pytestmark = pytest.mark.packages
SCRIPTS = ("%{POSTIN}", "%{PREUN}", "%{POSTUN}")


@pytest.fixture(scope="module")
def package(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the working tree."""
    require("rpmbuild")
    return parts.package("rpm", tmp_path_factory.mktemp("rpm"))


def rpm(*arguments: str | Path) -> str:
    done = subprocess.run(["rpm", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_reproducible_package(package: Path, parts_again: Parts, tmp_path: Path) -> None:
    """A package that is built twice, each time from the sources, is the same, byte for byte."""
    again = parts_again.package("rpm", tmp_path / "again")
    assert again.name == package.name
    assert again.read_bytes() == package.read_bytes()


def test_package_contents(package: Path) -> None:
    """The package has the files of the Debian package, and other users cannot read its configuration file."""
    assert {
        "/etc/ringward/ringward.toml",
        "/usr/bin/ringward",
        "/usr/lib/systemd/system/ringward.service",
        "/usr/lib/sysusers.d/ringward.conf",
        "/usr/lib/tmpfiles.d/ringward.conf",
        "/usr/share/bash-completion/completions/ringward",
        "/usr/share/doc/ringward/licences.txt",
        "/usr/share/doc/ringward/ringward.cdx.json",
        "/usr/share/man/man1/ringward.1.gz",
        "/usr/share/man/man5/ringward.toml.5.gz",
    } <= set(rpm("-qpl", package).splitlines())
    assert rpm("-qp", "--configfiles", package).split() == [SYSTEM_FILE]
    assert rpm("-qp", "--queryformat", "%{VERSION}", package) == package_version(VERSION)
    listing = rpm("-qp", "--queryformat", "[%{FILENAMES} %{FILEMODES:octal} %{FILEUSERNAME}\n]", package)
    assert f"{SYSTEM_FILE} 100640 root" in listing
    assert "libpython" not in rpm("-qp", "--requires", package)


def test_scripts_are_valid(package: Path) -> None:
    """The scripts of the package are valid for a POSIX shell, and an upgrade calls ``ringward upgrade``."""
    for script in SCRIPTS:
        text = rpm("-qp", "--queryformat", script, package)
        assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0, script
    after = rpm("-qp", "--queryformat", SCRIPTS[0], package)
    assert "ringward upgrade --if-different" in after
    assert [line for line in after.splitlines() if "restart" in line and "echo" not in line] == []


def test_installation(package: Path, tmp_path: Path) -> None:
    """An installation has exactly the package's files and works, and the removal leaves nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root can install packages")
    root = tmp_path / "root"
    root.mkdir()
    rpm("--root", root, "--initdb")
    rpm("--root", root, "--nodeps", "--noscripts", "-i", package)
    assert rpm("--root", root, "--verify", "--nodeps", "--noscripts", "ringward") == ""
    program = [str(root / "usr/lib/ringward/bin/python"), "-I", "-B", "-m", "ringward"]
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, cwd="/")
    assert done.stdout == f"ringward, version {VERSION}\n", done.stderr
    checked = subprocess.run(
        [*program, "validate", str(root / SYSTEM_FILE[1:])], capture_output=True, text=True, cwd="/"
    )
    assert checked.returncode == 0, checked.stderr
    assert (root / "usr/bin/ringward").readlink() == Path("../lib/ringward/bin/ringward")
    rpm("--root", root, "--nodeps", "--noscripts", "-e", "ringward")
    assert not (root / "usr/lib/ringward").exists()
    assert not (root / "etc/ringward").exists()


def test_upgrade_restarts_nothing(package: Path, parts: Parts, host: Host, tmp_path: Path) -> None:
    """Under systemd, the scripts of the package create the user, and a newer package replaces only the version.

    Tasks and services continue. If the new version does not work, rpm says so, and the daemon continues. The removal
    stops everything and leaves configuration and data.
    """
    newer = parts.changed(tmp_path / "newer", "supervisor/version.py", 'VERSION = "99.0"\n')
    broken = parts.changed(tmp_path / "broken", "api/serve.py", "raise RuntimeError('broken')\n")
    built = {VERSION: str(shutil.copy(package, tmp_path))}
    for version, changed_version in {"99.0": newer, "99.1": broken}.items():
        directory = sources(tmp_path / f"sources-{version}", version)
        built[version] = str(changed_version.package("rpm", tmp_path / version, directory))
    # Debian's rpm knows no installed packages, so nothing could satisfy dependencies.
    command = ["rpm", "--force-debian", "--nodeps"]
    assert "systemctl enable --now ringward" in host.output(*command, "--install", built[VERSION])
    assert host.call("cat", SYSTEM_FILE) == host.daemon.config.read_text()
    host.call("systemctl", "enable", "--now", "ringward")
    host.wait()
    host.upgrade([*command, "--upgrade", built["99.0"]], [*command, "--upgrade", built["99.1"]])
    host.call(*command, "--erase", "ringward")
    host.check_removal(f"{SYSTEM_FILE}.rpmsave")
    assert "ringward" in host.call("getent", "passwd", "ringward")
