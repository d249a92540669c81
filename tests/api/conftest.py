from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.harness import Daemon


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("api"))
    yield daemon
    daemon.close()


@pytest.fixture
def daemon(shared: Daemon) -> Daemon:
    """A running server; whoever needs certain runs gives them a task of their own."""
    shared.scheduler.defaults()
    shared.scheduler.calls.clear()
    return shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Daemon]:
    """A server for this test alone, which may be harmed."""
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.close()
