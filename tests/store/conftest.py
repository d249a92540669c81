import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.database import Database, open_reader, open_writer
from store.errors import Closed


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ringward.db")


@pytest.fixture
def writer(path: str) -> Iterator[Database]:
    database = open_writer(path)
    yield database
    with contextlib.suppress(Closed):
        database.close()


@pytest.fixture
def reader(path: str, writer: Database) -> Iterator[Database]:  # noqa: ARG001 - the writer makes the file
    database = open_reader(path)
    yield database
    database.close()
