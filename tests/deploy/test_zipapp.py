"""All of Ringward in one file: it unpacks itself where no other user can write, and then works as any installation."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.version import version
from tests.support.daemon import PASSWORD, Daemon
from tests.support.paths import ROOT

_DAMAGED = "is damaged: ringward/supervisor/version.py was changed"


class OneFile(Daemon):
    """A daemon of such a file alone: no environment, no installation, an empty home."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.home = directory / "home"
        self.home.mkdir()
        self.archive = directory / "ringward.pyz"

    def environment(self) -> dict[str, str]:
        place = str(self.home / ".cache" / "ringward")
        search = f"{os.path.dirname(os.path.realpath(sys.executable))}:/usr/bin:/bin"
        return {"HOME": str(self.home), "RINGWARD_CACHE": place, "PATH": search, "RINGWARD_PASSWORD": PASSWORD}

    def command(self) -> list[str]:
        return [str(self.archive)]

    def client_command(self) -> list[str]:
        return self.command()

    def called(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command(), *arguments],
            capture_output=True,
            text=True,
            env={**self.environment(), **environment},
            cwd=self.home,
            timeout=120,
        )

    def unpacked(self) -> list[Path]:
        """Return the unpacked environments, and remains of failed attempts."""
        return [path for path in self.home.glob(".cache/ringward/*/*") if not path.is_symlink()]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zipapp") / "ringward.pyz"
    command = [sys.executable, "-m", "deploy.zipapp.build", str(path), "1"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return path


def put(daemon: OneFile, archive: Path, *, honest: bool = True, **about: str) -> None:
    """Replace the archive, with another version of Ringward if `about` names one."""
    new = daemon.archive.with_suffix(".new")
    new.write_bytes(archive.read_bytes())
    new.chmod(0o755)
    with zipfile.ZipFile(new, "a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last of two entries of a name counts
        about_file = json.loads(file.read("about.json")) | about
        name, hashes = "ringward/supervisor/version.py", json.loads(file.read("manifest.json"))
        source = f'VERSION = "{about_file["version"]}"\n'.encode()
        if honest:
            hashes[name] = hashlib.sha256(source).hexdigest()
        manifest = json.dumps(hashes).encode()
        about_file["id"] = hashlib.sha256(manifest).hexdigest()
        for path, data in (
            ("about.json", json.dumps(about_file).encode()),
            ("manifest.json", manifest),
            (f"site/{name}", source),
        ):
            file.writestr(path, data, zipfile.ZIP_DEFLATED)
    new.replace(daemon.archive)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[OneFile]:
    file = OneFile(tmp_path)
    yield file
    file.clean()


def test_daemon_of_one_file(daemon: OneFile, archive: Path) -> None:
    """The daemon runs tasks, outlives its scheduler, and upgrades in place to the file at its path."""
    put(daemon, archive)
    daemon.write('[tasks.t]\nrun = "echo $0 $HOME"\nshell = "/bin/sh"\n[services.s]\nrun = "exec sleep 3600"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert (run["endReason"], daemon.texts(run["id"])[0].split()[-1]) == ("succeeded", str(daemon.home))
    daemon.kill_helper("ringward scheduler")
    assert daemon.cli("run", "t").returncode == 0
    assert daemon.cli("upgrade", "--if-different").stdout == f"Ringward {version()} is already running\n"
    (service,) = daemon.runs("s")
    (before,) = daemon.unpacked()
    put(daemon, archive, version="99.0")
    upgraded = daemon.cli("upgrade", "--if-different")
    assert (upgraded.returncode, upgraded.stdout) == (0, f"Ringward {version()} -> 99.0\n"), upgraded.stderr
    assert daemon.get("/api/daemon").json()["version"] == "99.0"
    assert (daemon.run(service["id"])["status"], len(daemon.runs("s"))) == ("running", 1)
    assert daemon.cli("run", "t").returncode == 0
    (after,) = daemon.unpacked()
    assert (before.parent, before.exists()) == (after.parent, False)


def test_archive_is_unpacked_once(daemon: OneFile, archive: Path) -> None:
    """The first process unpacks the archive, under its name.

    If root unpacks it, API workers of another user can read it; other users unpack it only for themselves.
    """
    put(daemon, archive)
    command = [*daemon.command(), "--version"]
    first = [subprocess.Popen(command, env=daemon.environment(), stdout=subprocess.PIPE) for _ in range(2)]
    assert {first_process.communicate()[0] for first_process in first} == {f"ringward, version {version()}\n".encode()}
    (there,) = daemon.unpacked()
    readable = os.geteuid() == 0
    for place in (there, there.parent, there / "bin"):
        assert stat.S_IMODE(place.stat().st_mode) == (0o755 if readable else 0o700)
    assert stat.S_IMODE((there / "pyvenv.cfg").stat().st_mode) == (0o644 if readable else 0o600)
    status = (there / "pyvenv.cfg").stat()
    assert daemon.called("--version").returncode == 0
    assert (there / "pyvenv.cfg").stat() == status
    unit = daemon.called("service", "install", "--dry-run", "--init=systemd", f"--root={daemon.home}")
    assert f"ExecStart={daemon.archive} up " in unit.stdout


def test_unsafe_archives_and_places_are_refused(daemon: OneFile, archive: Path) -> None:
    """Changed archives, archives for another Python, and places that other users can change are refused."""
    put(daemon, archive, honest=False, version="98.0")
    damaged = daemon.called("--version")
    assert (damaged.returncode, damaged.stderr) == (1, f"ringward: {daemon.archive} {_DAMAGED}\n")
    put(daemon, archive, suffix=".cpython-39-vax.so")
    other = daemon.called("--version")
    assert other.returncode == 1
    assert "needs a Python whose compiled modules end in .cpython-39-vax.so" in other.stderr
    put(daemon, archive)
    (daemon.home / "file").touch()
    (daemon.home / "open").mkdir()
    (daemon.home / "open").chmod(0o777)
    for name in ("open", "open/below", "file"):
        refused = daemon.called("--version", RINGWARD_CACHE=str(daemon.home / name))
        assert (refused.returncode, refused.stderr.startswith("ringward: nothing ")) == (73, True), refused
    assert list(daemon.home.rglob("*/bin")) == []
