"""Databases for tests, of both backends or of one."""

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.database import Database, open_reader, open_writer
from store.errors import QueryTimeout
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

BACKENDS = ["sqlite", "postgresql"]
on_sqlite = pytest.mark.parametrize("path", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("path", ["postgresql"], indirect=True)


@contextlib.contextmanager
def database(request: pytest.FixtureRequest, backend: str, directory: Path) -> Iterator[str]:
    """Yield a database without rows, and for a test marked `own` without tables.

    It is a file, which does not exist yet if it has no tables, or the URL of a schema.
    """
    own = request.node.get_closest_marker("own") is not None
    if backend == "sqlite":
        path = directory / "ringward.db"
        if not own:
            path.write_bytes(_without_rows())
        yield str(path)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create() if own else server.lend()
    yield url
    if own:
        server.drop(url)
    else:
        server.take_back(url)


@functools.cache
def _without_rows() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "ringward.db")
        open_writer(str(path)).close()
        assert [part.name for part in Path(directory).iterdir()] == [path.name]
        return path.read_bytes()


def open_hurried_reader(path: str, limit_s: float) -> Database:
    """Open a reader with a time limit that is so short that several attempts may be needed."""

    def opened() -> Database | None:
        with contextlib.suppress(QueryTimeout):
            return open_reader(path, limit_s=limit_s)
        return None

    return until(opened, "a connection in time")
