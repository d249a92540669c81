"""A daemon with an installation of its own, whose version can be replaced."""

import atexit
import os
import shutil
import site
import tarfile
import tempfile
import venv
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.support import lean
from tests.support.daemon import Daemon
from tests.support.paths import ROOT


@cache
def unpacked(archive: Path) -> Path:
    """Unpack an archive, once in each process of a test run, so that its modules are compiled only once."""
    directory = Path(tempfile.mkdtemp(prefix="version-"))
    atexit.register(shutil.rmtree, directory)
    with tarfile.open(archive) as files:
        extract(files, directory)
    return directory


def extract(files: tarfile.TarFile, directory: Path) -> None:
    """Extract all files, also with a Python before 3.11.4, which has no filters."""
    files.extraction_filter = getattr(tarfile, "data_filter", None)
    files.extractall(directory)


class Installation(Daemon):
    """Versions in sibling directories, and a symbolic link to the installed one."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.environment_dir = directory / "environment"
        venv.EnvBuilder(symlinks=True, with_pip=False).create(self.environment_dir)
        self.python = self.environment_dir / "bin" / "python"
        self._uses(map(str, lean.environment().glob("lib/python*/site-packages")))
        self.add("first")
        self.install("first")

    def _uses(self, packages: Iterable[str]) -> None:
        """Let the environment have the packages in these directories."""
        (own,) = self.environment_dir.glob("lib/python*/site-packages")
        (own / "versions.pth").write_text("\n".join([str(self.directory / "installed"), *packages]))

    def add(self, name: str, edits: dict[str, tuple[str, str]] | None = None) -> None:
        """Add a version that differs by these edits: file, old text, new text."""
        place = self.directory / name
        place.mkdir()
        for name in ("api", "logring", "store", "ringward.py"):
            (place / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "supervisor", place / "supervisor")
        for path, (old, new) in (edits or {}).items():
            file = place / path
            text = file.read_text()
            assert text.count(old) == 1, (path, old)
            file.write_text(text.replace(old, new))

    def unpack(self, archive: Path) -> None:
        """Add the version in an archive, under the archive's name; it may need packages of former times, too."""
        self._uses(site.getsitepackages())
        place = self.directory / archive.name.removesuffix(".tar.xz")
        place.mkdir()
        for part in unpacked(archive).iterdir():
            (place / part.name).symlink_to(part)

    def install(self, name: str) -> None:
        """Install the version with this name."""
        link = self.directory / "installed.new"
        link.symlink_to(self.directory / name)
        os.replace(link, self.directory / "installed")

    def command(self) -> list[str]:
        return [str(self.python), "-I", "-c", "from supervisor.cli.entry import main; main()"]

    def client_command(self) -> list[str]:
        return self.command()
