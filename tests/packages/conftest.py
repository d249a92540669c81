"""Environments, for which these tests need a package index, and fixtures for packages of distributions."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages.environment import Environment, Parts
from tests.packages.host import Host
from tests.support.daemon import Daemon

SUPERVISORD = "supervisor==4.3.0"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip tests if pip reaches no package index."""
    target = tmp_path_factory.mktemp("index")
    command = [sys.executable, "-m", "pip", "download", "--retries=1", "--no-deps", f"--dest={target}", SUPERVISORD]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"pip reaches no package index: {done.stderr.strip()}")


@pytest.fixture
def environment(index: None, tmp_path: Path) -> Environment:  # noqa: ARG001 - it skips
    return Environment(tmp_path / "environment")


@pytest.fixture(scope="session")
def parts(index: None, tmp_path_factory: pytest.TempPathFactory) -> Parts:  # noqa: ARG001 - it skips
    """Wheel, man pages and environment, built once for all packages."""
    return Parts.build(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="session")
def parts_again(index: None, tmp_path_factory: pytest.TempPathFactory) -> Parts:  # noqa: ARG001 - it skips
    """The same parts, built a second time in another place."""
    return Parts.build(tmp_path_factory.mktemp("another") / "place of parts")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A client of the package's daemon, which systemd starts."""
    new_daemon = Daemon(tmp_path)
    yield new_daemon
    new_daemon.clean()


@pytest.fixture
def host(daemon: Daemon, tmp_path: Path) -> Iterator[Host]:
    """A systemd on a copy of this host."""
    new_host = Host(daemon, tmp_path)
    yield new_host
    new_host.close()
