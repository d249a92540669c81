from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.daemon import StepsDaemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StepsDaemon]:
    new_daemon = StepsDaemon(tmp_path)
    yield new_daemon
    new_daemon.clean()
