import gc
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.distribution import Units
from tests.support.host_features import require
from tests.support.postgres import PostgresServer, programs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# How fast a machine makes examples says nothing about the code; and which it makes is to say something about a change,
# not about luck: `make fuzz` draws others each time.
settings.register_profile(
    "any machine",
    deadline=None,
    derandomize="LOGRING_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

_FIRST = (
    "tests/crash/",
    "tests/contract/",
    "tests/fuzz/",
    "tests/bench/",
    "tests/store/test_run_",
    "tests/browser/",
    "tests/e2e/",
    "tests/docs/",
    "tests/logring/test_fuzz",
)
"""Where the tests are that take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: in the end no process is left alone with one of them."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next((place for place, path in enumerate(_FIRST) if item.nodeid.startswith(path)), len(_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Units | None:
    """How `make test` shares the tests out among its processes."""
    return Units(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Whoever ends with an error has the garbage collector as it was: else all that tests leave would pile up."""
    yield
    assert gc.isenabled()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; started with the first test of this process that needs one."""
    where = programs()
    if where is None:
        pytest.skip("not installed: initdb (Debian: postgresql)")
    server = PostgresServer(where)
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """One Chromium for all tests of a file: while there is one, the process can drive no second, and run no loop."""
    from playwright.sync_api import sync_playwright  # only by processes that have such a test

    # The same engine without the windows of a desktop, which nobody would see, takes half the work.
    program = shutil.which("chromium-headless-shell") or require("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()
