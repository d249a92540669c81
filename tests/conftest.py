from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import PostgresServer, programs

# How fast a machine makes examples says nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

_FIRST = (
    "tests/crash/",
    "tests/fuzz/",
    "tests/bench/",
    "tests/store/test_run_",
    "tests/browser/",
    "tests/e2e/",
    "tests/logring/test_fuzz",
)
"""Where the tests are that take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: in the end no process is left alone with one of them."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next((place for place, path in enumerate(_FIRST) if item.nodeid.startswith(path)), len(_FIRST))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; started with the first test of this process that needs one."""
    where = programs()
    if where is None:
        pytest.skip("no PostgreSQL server: neither initdb in PATH nor in /usr/lib/postgresql/*/bin")
    server = PostgresServer(where)
    yield server
    server.close()
