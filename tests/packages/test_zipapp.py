"""The single file, replaced by that of another version while its daemon works."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.version import VERSION
from tests.deploy.test_zipapp import OneFile
from tests.packages.environment import RELEASE, put_release, sources
from tests.packages.load import UNITS, load, version

pytestmark = pytest.mark.packages


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[OneFile]:
    file = OneFile(tmp_path)
    yield file
    file.clean()


def archive(directory: Path, output: Path) -> Path:
    """Build the single file from the sources in this directory."""
    command = [sys.executable, "-m", "deploy.zipapp.build", str(output), "1"]
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return output


def put(daemon: OneFile, file: Path) -> None:
    """Replace the file of the daemon."""
    new = daemon.archive.with_suffix(".new")
    shutil.copy(file, new)
    new.replace(daemon.archive)


def test_upgrade_from_a_release_and_back(daemon: OneFile, tmp_path: Path) -> None:
    """Under load, the file of an older release is replaced by that of this version, and back; nothing is lost."""
    ours = archive(sources(tmp_path / "sources"), tmp_path / "ours.pyz")
    place = sources(tmp_path / "older", RELEASE)
    put_release(place, place)
    release = archive(place, tmp_path / "release.pyz")
    put(daemon, release)
    daemon.write(UNITS)
    daemon.start()
    with load(daemon):
        for file, expected in ((ours, VERSION), (release, RELEASE)):
            put(daemon, file)
            done = daemon.cli("upgrade")
            assert done.returncode == 0, done
            assert version(daemon) == expected
    assert daemon.stop() == 0
