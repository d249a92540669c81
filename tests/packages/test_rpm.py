"""The RPM package, installed below another directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.config.files.lookup import SYSTEM_FILE
from supervisor.version import VERSION
from tests.packages.environment import EPOCH, wheel
from tests.support.host_features import require
from tests.support.paths import ROOT

pytestmark = pytest.mark.packages
SCRIPTS = ("%{POSTIN}", "%{PREUN}", "%{POSTUN}")


@pytest.fixture(scope="module")
def package(index: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - it skips
    """The package of the working tree."""
    require("rpmbuild", "strip", "/usr/bin/python3")
    place = tmp_path_factory.mktemp("rpm")
    built = wheel(place)
    manual = [sys.executable, "-m", "sphinx", "-q", "-b", "man", "docs", str(place / "man")]
    subprocess.run(manual, cwd=ROOT, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "deploy.rpm.build", str(built.parent), str(place / "man"), str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())


def rpm(*arguments: str | Path) -> str:
    done = subprocess.run(["rpm", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_has_everything(package: Path) -> None:
    """The package has the files of the Debian package; the configuration is kept, and only root can read it."""
    assert {
        "/etc/ringward/ringward.toml",
        "/usr/bin/ringward",
        "/usr/lib/systemd/system/ringward.service",
        "/usr/lib/sysusers.d/ringward.conf",
        "/usr/lib/tmpfiles.d/ringward.conf",
        "/usr/share/bash-completion/completions/ringward",
        "/usr/share/doc/ringward/licences.txt",
        "/usr/share/man/man1/ringward.1.gz",
        "/usr/share/man/man5/ringward.toml.5.gz",
    } <= set(rpm("-qpl", package).splitlines())
    assert rpm("-qp", "--configfiles", package).split() == [SYSTEM_FILE]
    assert rpm("-qp", "--queryformat", "%{VERSION}", package) == VERSION
    told = rpm("-qp", "--queryformat", "[%{FILENAMES} %{FILEMODES:octal} %{FILEUSERNAME}\n]", package)
    assert f"{SYSTEM_FILE} 100640 root" in told
    assert "libpython" not in rpm("-qp", "--requires", package)


def test_the_scripts_are_valid(package: Path) -> None:
    """The scripts of the package are valid for a POSIX shell, and an upgrade calls ``ringward upgrade``."""
    for script in SCRIPTS:
        text = rpm("-qp", "--queryformat", script, package)
        assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0, script
    after = rpm("-qp", "--queryformat", SCRIPTS[0], package)
    assert "ringward upgrade --if-different" in after
    assert [line for line in after.splitlines() if "restart" in line and "echo" not in line] == []


def test_an_installation(package: Path, tmp_path: Path) -> None:
    """An installation has exactly the package's files and works; the removal leaves nothing."""
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
