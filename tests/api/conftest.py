from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.api.support.harness import Daemon
from tests.api.support.starting import PATIENCE


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("api"))
    yield daemon
    daemon.close()


@pytest.fixture
def daemon(shared: Daemon) -> Daemon:
    """A running server; a test that needs certain runs gives them a task of their own."""
    shared.scheduler.defaults()
    shared.scheduler.calls.clear()
    return shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Daemon]:
    """A server for this test alone, which may be harmed."""
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.close()


class Lenient(Daemon):
    """A server that gives its workers all the time that they want to end."""

    constants: ClassVar = {**PATIENCE, "api.server.arbiter": {"_GRACE_S": 300}}


@pytest.fixture
def lenient(tmp_path: Path) -> Iterator[Daemon]:
    """One for a test that has something to do meanwhile."""
    daemon = Lenient(tmp_path)
    yield daemon
    daemon.close()


class Real(Daemon):
    """A server that waits for others no longer than it does in reality."""

    constants: ClassVar = {}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for tests that are about how long it waits."""
    daemon = Real(tmp_path_factory.mktemp("real"))
    yield daemon
    daemon.close()
