import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.database import Database, open_reader, open_writer
from store.errors import DatabaseClosed
from tests.store.databases import BACKENDS, database


@pytest.fixture(params=BACKENDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The database to open: a file, or the URL of a schema; see `database`."""
    with database(request, request.param, tmp_path) as where:
        yield where


@pytest.fixture
def writer(path: str) -> Iterator[Database]:
    database = open_writer(path)
    yield database
    with contextlib.suppress(DatabaseClosed):
        database.close()


@pytest.fixture
def reader(path: str, writer: Database) -> Iterator[Database]:  # noqa: ARG001 - the writer makes the file
    database = open_reader(path, limit_s=None)
    yield database
    database.close()
