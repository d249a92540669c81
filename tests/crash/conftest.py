from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.daemon import StepsDaemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StepsDaemon]:
    one = StepsDaemon(tmp_path)
    yield one
    one.clean()
