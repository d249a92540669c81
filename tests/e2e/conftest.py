from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that the test configures and starts; nothing of it is left afterwards."""
    one = Daemon(tmp_path)
    yield one
    one.clean()
