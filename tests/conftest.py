from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import PostgresServer, programs

# How fast a machine makes examples says nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: in the end no process is left alone with one of them."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/crash/"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; started with the first test of this process that needs one."""
    where = programs()
    if where is None:
        pytest.skip("no PostgreSQL server: neither initdb in PATH nor in /usr/lib/postgresql/*/bin")
    server = PostgresServer(where)
    yield server
    server.close()
