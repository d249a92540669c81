from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.lent import Lent


@pytest.fixture(scope="session")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lent]:
    new_lent = Lent(tmp_path_factory.mktemp("lent"))
    yield new_lent
    new_lent.clean()


@pytest.fixture
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that the test configures and starts; everything is removed afterwards.

    Tests that are marked as `lent` but not as `own` share a daemon without runs. It keeps its
    notifications, so tests that count them have a daemon of their own.
    """
    if request.node.get_closest_marker("lent") and not request.node.get_closest_marker("own"):
        shared: Lent = request.getfixturevalue("lent")
        yield shared
        shared.take_back()
        return
    new_daemon = Daemon(tmp_path)
    yield new_daemon
    new_daemon.clean()
