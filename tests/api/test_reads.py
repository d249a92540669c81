"""What is told to the scheduler of a database that cannot be read."""

from pathlib import Path

import pytest

from api.context import Reads
from store.database import open_writer
from store.errors import NotReady, StoreError


def test_a_database_that_is_not_made_yet_is_not_damaged(tmp_path: Path) -> None:
    """Whoever asks before the first start is done reports nothing."""
    path = str(tmp_path / "ringward.db")
    reads, told = Reads(path), list[StoreError]()
    reads.on_damage = told.append
    with pytest.raises(NotReady):
        reads(lambda db: db.row("SELECT 1"))
    assert told == []
    open_writer(path).close()
    assert reads(lambda db: db.row("SELECT 1")) == (1,)
