"""Where a daemon that is measured keeps its state: in a file, or in a database of a PostgreSQL server.

The environment variable ``BENCH_DATABASE`` names the server, by the URL of a role that may make databases. Each daemon
that is measured has a database of its own there, which is dropped afterwards.
"""

import contextlib
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from store.runs.ids import new_ulid


@contextlib.contextmanager
def database() -> Iterator[str | None]:
    """The URL of a new database; None: it is to be a file."""
    server = os.environ.get("BENCH_DATABASE")
    if not server:
        yield None
        return
    import psycopg

    name = f"ringward_bench_{new_ulid().lower()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
