"""Fixtures of the logring tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.logring.support.rings import Log


@pytest.fixture
def make_log(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    """Make logs that are closed at the end; see `Log` for the arguments."""
    logs: list[Log] = []

    def make(**arguments: Any) -> Log:
        directory = tmp_path / str(len(logs))
        directory.mkdir()
        logs.append(Log(directory, **arguments))
        return logs[-1]

    yield make
    for log in logs:
        log.close()
