"""Databases for tests: of both kinds, or of one alone."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import PostgresServer

BACKENDS = ["sqlite", "postgresql"]
on_sqlite = pytest.mark.parametrize("path", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("path", ["postgresql"], indirect=True)


@contextlib.contextmanager
def database(request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    """What is opened: a file that is not there yet, or the URL of an empty schema; `request.param` says which."""
    if request.param == "sqlite":
        yield str(directory / "ringward.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create()
    yield url
    server.drop(url)
