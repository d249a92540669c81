"""The Debian package, checked by lintian, and installed under a real systemd."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.config.files.lookup import SYSTEM_DATA, SYSTEM_FILE
from supervisor.version import VERSION
from tests.e2e.service_manager.test_systemd import HERE, SMALL, Systemd
from tests.packages.environment import EPOCH, wheel
from tests.support.daemon import Daemon
from tests.support.host_features import require, require_cgroups
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.packages
UNTOUCHED = "--force-confold"
"""The option of dpkg that keeps a configuration that someone has changed."""


@pytest.fixture(scope="module")
def package(index: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - it skips
    """The package of the working tree."""
    require("dpkg-deb", "strip", "/usr/bin/python3")
    place = tmp_path_factory.mktemp("deb")
    built = wheel(place)
    manual = [sys.executable, "-m", "sphinx", "-q", "-b", "man", "docs", str(place / "man")]
    subprocess.run(manual, cwd=ROOT, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "deploy.debian.build", str(built.parent), str(place / "man"), str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "DEBFULLNAME": "A Maintainer", "DEBEMAIL": "deb@debian.org"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())


def changed(package: Path, directory: Path, version: str, path: str, text: str) -> Path:
    """Build a package of another version, with this text in a file of ours."""
    place = directory / version
    subprocess.run(["dpkg-deb", "--raw-extract", package, place], check=True)
    (file,) = place.glob(f"usr/lib/ringward/lib/python3*/site-packages/ringward/{path}")
    file.write_text(text)
    control = place / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}-", f"Version: {version}-"))
    built = directory / f"{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", place, built], check=True)
    shutil.rmtree(place)
    return built


class Host(Systemd):
    """A booted systemd on a host without Ringward."""

    def _write_units(self, daemon: Daemon, place: Path, sockets: str) -> None:  # noqa: ARG002
        units = place / "installed/etc/systemd/system"
        (units / "ringward.service.d").mkdir(parents=True)
        (units / "small.target").write_text(SMALL)
        (units / "ringward.service.d/zz.conf").write_text(HERE.format(places=f"{place} {sockets}"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Requests to the daemon of the package, which systemd starts."""
    one = Daemon(tmp_path)
    yield one
    one.clean()


@pytest.fixture
def host(daemon: Daemon, tmp_path: Path) -> Iterator[Host]:
    if os.geteuid() != 0:
        pytest.skip("only root can boot systemd in namespaces")
    require("/lib/systemd/systemd", "unshare", "nsenter", "deb-systemd-invoke")
    require_cgroups().close()
    daemon.write("[tasks.long]\nrun = 'echo ready; sleep 1000'\n[services.s]\nrun = 'exec sleep 1000'\n")
    daemon.config.write_text(daemon.config.read_text().replace('"data"', f'"{SYSTEM_DATA}"'))
    one = Host(daemon, tmp_path)
    yield one
    one.close()


def test_lintian_finds_no_errors(package: Path) -> None:
    """The package has no errors for lintian."""
    require("lintian")
    done = subprocess.run(["lintian", "--fail-on", "error", package], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_package_has_everything(package: Path) -> None:
    """The package has unit, user, directories, man pages, completions, licences, and one configuration file."""
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    assert {
        "./etc/ringward/ringward.toml",
        "./lib/systemd/system/ringward.service",
        "./usr/lib/sysusers.d/ringward.conf",
        "./usr/lib/tmpfiles.d/ringward.conf",
        "./usr/share/bash-completion/completions/ringward",
        "./usr/share/doc/ringward/licences.txt",
        "./usr/share/fish/vendor_completions.d/ringward.fish",
        "./usr/share/man/man1/ringward.1.gz",
        "./usr/share/man/man5/ringward.toml.5.gz",
        "./usr/share/zsh/vendor-completions/_ringward",
    } <= {line.split()[5] for line in listed.splitlines()}
    conffiles = subprocess.run(["dpkg-deb", "--info", package, "conffiles"], capture_output=True, text=True).stdout
    assert conffiles == f"{SYSTEM_FILE}\n"


def test_an_upgrade_restarts_nothing(package: Path, host: Host, daemon: Daemon, tmp_path: Path) -> None:
    """Under systemd the installation starts the daemon, and a newer package replaces its version, but no process of it.

    Tasks and services continue. If the new version does not work, dpkg says so, and the daemon continues. The removal
    stops everything and leaves configuration and data; the purge leaves nothing.
    """
    host.call("rm", "-f", "/usr/sbin/policy-rc.d")
    host.call("install", "-D", "-m", "640", str(daemon.config), SYSTEM_FILE)
    host.call("dpkg", UNTOUCHED, "--install", str(shutil.copy(package, tmp_path)))
    until(lambda: daemon.get("/api/tasks/long").status == 200, "the task")
    assert host.call("ringward", "--version") == f"ringward, version {VERSION}\n"
    assert "ringward" in host.call("systemctl", "list-unit-files", "--state=enabled", "ringward.service")
    main = host.show("MainPID")
    run = daemon.trigger("long")
    until(lambda: daemon.texts(run), "its first line")
    services = until(lambda: daemon.runs("s"), "the service")

    host.call(
        "dpkg",
        UNTOUCHED,
        "--install",
        str(changed(package, tmp_path, "99.0", "supervisor/version.py", 'VERSION = "99.0"\n')),
    )
    assert daemon.get("/api/daemon").json()["version"] == "99.0"
    broken = changed(package, tmp_path, "99.1", "api/serve.py", "raise RuntimeError('broken')\n")
    said = host.call("sh", "-c", '"$@" 2>&1', "sh", "dpkg", UNTOUCHED, "--install", str(broken))
    assert "the daemon continues in its version" in said
    assert daemon.get("/api/daemon").json()["version"] == "99.0"
    assert (host.show("MainPID"), host.show("NRestarts")) == (main, "0")
    assert daemon.run(run)["status"] == "running"
    assert [one["id"] for one in daemon.runs("s")] == [one["id"] for one in services]

    host.call("dpkg", "--remove", "ringward")
    assert host.show("ActiveState") == "inactive"
    assert host.call("ls", SYSTEM_FILE, f"{SYSTEM_DATA}/ringward.db")
    assert host.call("find", "/usr/lib/ringward", check=False) == ""
    host.call("dpkg", "--purge", "ringward")
    assert host.call("find", "/etc/ringward", SYSTEM_DATA, check=False) == ""
