from pathlib import Path

import pytest

from tests.helpers.janitor.support import DataDirectory


@pytest.fixture
def place(tmp_path: Path) -> DataDirectory:
    """An empty data directory."""
    return DataDirectory(tmp_path)
