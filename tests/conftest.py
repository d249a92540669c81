import gc
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.distribution import ProcessorTime, Units
from tests.support.host_features import require
from tests.support.postgres import PostgresServer, programs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The speed at which a machine makes examples says nothing about the code. The examples are always the same, so that a
# failure comes from a change and not from luck; `make fuzz` draws others each time.
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
"""Folders and files with the longest tests."""
_LONG = (
    "tests/bench/",
    "tests/clients/",
    "tests/crash/",
    "tests/deploy/",
    "tests/docs/",
    "tests/fuzz/",
)
"""Folders whose tests are all `long`."""
_VIEWS = ("tests/browser/test_axe.py", "tests/browser/test_first_view.py")
"""The tests of the dashboard that are not `long`: they show each view."""


def pytest_configure(config: pytest.Config) -> None:
    """Set up this process and the programs that tests start.

    SIGINT interrupts the programs, even if pytest is a background process, which ignores it. A user's usual 1024 open
    files are too few for tests with many clients.
    """
    config.pluginmanager.register(ProcessorTime())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long tests. Run the longest files first, so that no process is busy alone at the end."""
    for item in items:
        if _is_long(item):
            item.add_marker("long")
    items.sort(key=_place)


def _is_long(item: pytest.Item) -> bool:
    """Return whether a test takes long, or repeats with another database or a fresh daemon what others show."""
    file = item.nodeid
    if file.startswith("tests/e2e/"):
        return item.get_closest_marker("lent") is None
    if file.startswith("tests/browser/"):
        return not file.startswith(_VIEWS)
    return file.startswith(_LONG) or "postgresql" in item.name or "postgres" in getattr(item, "fixturenames", ())


def _place(item: pytest.Item) -> int:
    return next((place for place, path in enumerate(_FIRST) if item.nodeid.startswith(path)), len(_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Units | None:
    """Distribute the tests of `make test` among its processes."""
    return Units(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Check that the test left the garbage collector on: without it the memory of all later tests would grow."""
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
    """One Chromium for all tests of a file: a process can drive only one, and runs no event loop beside it."""
    from playwright.sync_api import sync_playwright  # only by processes that have such a test

    # The headless shell has the same engine and takes half the processor time.
    program = shutil.which("chromium-headless-shell") or require("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()
