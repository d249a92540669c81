"""The database of a measured daemon: a file, or a database on a PostgreSQL server.

The environment variable ``BENCH_DATABASE`` is the URL of a server, with a role that may create databases. Each daemon
has its own database there, which is dropped afterwards.
"""

import contextlib
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from store.runs.ids import new_ulid


@contextlib.contextmanager
def database() -> Iterator[str | None]:
    """Create a database and yield its URL, or None for a file."""
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
