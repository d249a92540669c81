from pathlib import Path

import pytest

from tests.helpers.janitor.support import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty data directory."""
    return Place(tmp_path)
