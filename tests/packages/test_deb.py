"""The Debian package, checked by lintian, and installed under a real systemd."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.version import package_version
from supervisor.config.files.lookup import SYSTEM_DATA, SYSTEM_FILE
from supervisor.version import VERSION
from tests.packages.environment import Parts
from tests.packages.host import Host
from tests.support.daemon import Daemon
from tests.support.host_features import require

pytestmark = pytest.mark.packages
UNTOUCHED = "--force-confold"
"""The option of dpkg that keeps a configuration that someone has changed."""
APT = ["apt-get", "--quiet", "--yes", "--no-install-recommends", f"--option=Dpkg::Options::={UNTOUCHED}"]


@pytest.fixture(scope="module")
def package(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the working tree."""
    require("dpkg-deb")
    return parts.package("debian", tmp_path_factory.mktemp("deb"))


def changed(package: Path, directory: Path, version: str, path: str, text: str) -> Path:
    """Build a package of another version, with this text in a file of ours."""
    place = directory / version
    subprocess.run(["dpkg-deb", "--raw-extract", package, place], check=True)
    (file,) = place.glob(f"usr/lib/ringward/lib/python3*/site-packages/ringward/{path}")
    file.write_text(text)
    control = place / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {package_version(VERSION)}-", f"Version: {version}-"))
    built = directory / f"{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", place, built], check=True)
    shutil.rmtree(place)
    return built


@pytest.fixture(scope="module")
def clean_debian(index: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:  # noqa: ARG001 - it skips
    """A minimal root directory of this host's Debian version, with apt and systemd but without Python."""
    require("mmdebstrap")
    if os.geteuid() != 0:
        pytest.skip("only root can boot systemd in namespaces")
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    root = tmp_path_factory.mktemp("debian") / suite
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd", "--dpkgopt=force-unsafe-io"]
    done = subprocess.run([*command, suite, root], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    yield root
    shutil.rmtree(root)


@pytest.fixture
def clean_host(clean_debian: Path, daemon: Daemon, tmp_path: Path) -> Iterator[Host]:
    """A systemd on the minimal root."""
    host = Host(daemon, tmp_path, clean_debian)
    yield host
    host.close()


def test_lintian(package: Path) -> None:
    """The package has no errors for lintian."""
    require("lintian")
    done = subprocess.run(["lintian", "--fail-on", "error", package], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_reproducible_package(package: Path, parts_again: Parts, tmp_path: Path) -> None:
    """A package that is built twice, each time from the sources, is the same, byte for byte."""
    again = parts_again.package("debian", tmp_path / "again")
    assert again.name == package.name
    assert again.read_bytes() == package.read_bytes()


def test_package_contents(package: Path) -> None:
    """The package has the unit, user, directories, man pages, completions, licences, and one configuration file."""
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    assert {
        "./etc/ringward/ringward.toml",
        "./lib/systemd/system/ringward.service",
        "./usr/lib/sysusers.d/ringward.conf",
        "./usr/lib/tmpfiles.d/ringward.conf",
        "./usr/share/bash-completion/completions/ringward",
        "./usr/share/doc/ringward/licences.txt",
        "./usr/share/doc/ringward/ringward.cdx.json",
        "./usr/share/fish/vendor_completions.d/ringward.fish",
        "./usr/share/man/man1/ringward.1.gz",
        "./usr/share/man/man5/ringward.toml.5.gz",
        "./usr/share/zsh/vendor-completions/_ringward",
    } <= {line.split()[5] for line in listed.splitlines()}
    conffiles = subprocess.run(["dpkg-deb", "--info", package, "conffiles"], capture_output=True, text=True).stdout
    assert conffiles == f"{SYSTEM_FILE}\n"


def test_apt_in_a_clean_debian(package: Path, clean_host: Host, tmp_path: Path) -> None:
    """On a minimal Debian, apt installs the package with its dependencies, and the daemon runs under systemd.

    The removal leaves configuration and data, and a later installation continues with them. The purge leaves nothing.
    """
    copy = str(shutil.copy(package, tmp_path))
    install = [*APT, "install", copy]
    assert clean_host.call("find", "/usr/bin", "-name", "python3*") == ""
    clean_host.call(*APT, "update")
    clean_host.call(*install)
    clean_host.wait()
    assert clean_host.call("ringward", "run", "--detach", "long")
    assert clean_host.call("dpkg", "--audit") == ""
    clean_host.call(*APT, "remove", "ringward")
    clean_host.check_removal()
    clean_host.call(*install)
    clean_host.wait()
    assert len(clean_host.daemon.runs("long")) == 1
    clean_host.call(*APT, "purge", "ringward")
    assert clean_host.call("find", "/etc/ringward", SYSTEM_DATA, "/usr/lib/ringward", check=False) == ""
    assert clean_host.call("systemctl", "list-unit-files", "--no-legend", "ringward.service", check=False) == ""


def test_upgrade_restarts_nothing(package: Path, host: Host, tmp_path: Path) -> None:
    """Under systemd, the installation starts the daemon, and a newer package replaces its version, but no process.

    Tasks and services continue. If the new version does not work, dpkg says so, and the daemon continues. The removal
    stops everything and leaves configuration and data; the purge leaves nothing.
    """
    require("deb-systemd-invoke")
    install = ["dpkg", UNTOUCHED, "--install"]
    host.call("rm", "-f", "/usr/sbin/policy-rc.d")
    host.call(*install, str(shutil.copy(package, tmp_path)))
    host.wait()
    assert "ringward" in host.call("systemctl", "list-unit-files", "--state=enabled", "ringward.service")
    newer = changed(package, tmp_path, "99.0", "supervisor/version.py", 'VERSION = "99.0"\n')
    broken = changed(package, tmp_path, "99.1", "api/serve.py", "raise RuntimeError('broken')\n")
    host.upgrade([*install, str(newer)], [*install, str(broken)])
    host.call("dpkg", "--remove", "ringward")
    host.check_removal()
    host.call("dpkg", "--purge", "ringward")
    assert host.call("find", "/etc/ringward", SYSTEM_DATA, check=False) == ""
