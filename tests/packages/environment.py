"""Fresh environments, copies of the sources, and the files that are built from them."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

from deploy.debian.build import PLACE, Package
from deploy.version import SOURCE, source
from supervisor.version import VERSION
from tests.support.daemon import Daemon
from tests.support.host_features import require
from tests.support.installation import unpacked
from tests.support.paths import ROOT

_GENERATED = {ROOT / name for name in ("build", "dist", "examples/data", "api/static/bundle")}
_VERSIONS = ROOT / "tests/e2e/upgrade/versions"
EPOCH = "1790000000"
"""SOURCE_DATE_EPOCH of all builds."""
RELEASE = "0.1.0"
"""The release that packages are upgraded from; the packages of its code have today's scripts and dependencies."""


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder of the repository that a clone lacks."""
    patterns = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "*.egg-info", ".hypothesis", ".*_cache")
    return patterns(folder, names) | {name for name in names if Path(folder, name) in _GENERATED}


def sources(directory: Path, version: str = VERSION) -> Path:
    """Copy the sources, as a clone has them, to this new directory; return it."""
    shutil.copytree(ROOT, directory, ignore=_left_out, symlinks=True)
    (directory / SOURCE).write_text(source(version))
    return directory


def put_release(place: Path, program: Path) -> None:
    """Replace the packages of Ringward in a directory, and its program in another, by those of the release."""
    for part in unpacked(_VERSIONS / f"{RELEASE}.tar.xz").iterdir():
        if part.name == "ringward.py":
            shutil.copy(part, program)
        else:
            shutil.rmtree(place / part.name)
            shutil.copytree(part, place / part.name, ignore=shutil.ignore_patterns("__pycache__"))


def build(directory: Path, output: Path, *formats: str) -> list[Path]:
    """Build sdist and wheel, or one of them by an option, from these sources; return the files."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), *formats, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH})
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(output.iterdir())


def wheel(directory: Path, version: str = VERSION) -> Path:
    """Build the wheel alone."""
    (built,) = build(sources(directory / "sources", version), directory / "dist", "--wheel")
    return built


def release_wheel(directory: Path) -> Path:
    """Build the wheel of the release."""
    place = sources(directory / "sources", RELEASE)
    put_release(place, place)
    (built,) = build(place, directory / "dist", "--wheel")
    return built


class Parts(NamedTuple):
    """The parts of every distribution's package."""

    wheel: Path
    man: Path
    environment: Path
    """The one in /usr/lib/ringward."""

    @classmethod
    def build(cls, place: Path) -> "Parts":
        """Build the parts from the working tree."""
        require("strip", "/usr/bin/python3")
        built = wheel(place)
        manual = [sys.executable, "-m", "sphinx", "-q", "-b", "man", "docs", str(place / "man")]
        subprocess.run(manual, cwd=ROOT, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH})
        Package(place / "root", "/usr/bin/python3").environment(built)
        return cls(built, place / "man", place / "root" / PLACE.lstrip("/"))

    def changed(self, place: Path, path: str, text: str) -> "Parts":
        """Copy the environment to this new directory, with this text in a file of ours."""
        shutil.copytree(self.environment, place, symlinks=True)
        (file,) = place.glob(f"lib/python3*/site-packages/ringward/{path}")
        file.write_text(text)
        return self._replace(environment=place)

    def package(self, kind: str, output: Path, directory: Path | None = None) -> Path:
        """Build a package, such as "debian", by the program in this directory of sources; return its path.

        Without a directory, it is that of the wheel.
        """
        words = [str(self.wheel.parent), str(self.man), str(output), str(self.environment)]
        done = subprocess.run(
            [sys.executable, "-m", f"deploy.{kind}.build", *words],
            cwd=directory or self.wheel.parent.parent / "sources",
            capture_output=True,
            text=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "DEBFULLNAME": "A Maintainer", "DEBEMAIL": "deb@debian.org"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return Path(done.stdout.strip())


class Environment:
    """A new virtual environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        venv.EnvBuilder(symlinks=True, with_pip=True).create(directory)
        (self.packages,) = directory.glob("lib/python*/site-packages")

    def run(self, program: str, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment outside of the repository."""
        command = [self.directory / "bin" / program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.directory)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def pip(self, *arguments: str | Path) -> None:
        self.run("python", "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)

    def files(self, name: str) -> dict[str, str]:
        """Return hashes of a distribution's files, except pip's own records."""
        code = (
            "import importlib.metadata, sys\n"
            "for file in importlib.metadata.files(sys.argv[1]): print(file.locate().resolve())\n"
        )
        paths = [Path(line) for line in self.run("python", "-I", "-c", code, name).stdout.splitlines()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.suffix != ".pyc"}


class Installed(Daemon):
    """A daemon of such an environment."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        super().__init__(directory)
        self.installation = environment

    def command(self) -> list[str]:
        return [str(self.installation.directory / "bin" / "ringward")]

    def client_command(self) -> list[str]:
        return self.command()
