"""Debian's Chromium on a real daemon with tasks, services and runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    StorageState,
    ViewportSize,
    expect,
)

from tests.browser.site import Site

PATIENCE_MS = 60_000
"""Limits only how long a failing test takes."""
expect.set_options(timeout=PATIENCE_MS)
_STAYING = """
const inTime = window.setTimeout;
window.setTimeout = (work, ms, ...rest) => inTime(work, ms < 8000 ? ms : 100 * ms, ...rest);
"""
"""Messages that disappear by themselves stay long enough for a slow test to read them."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A daemon for all tests of a file."""
    new_site = Site(tmp_path_factory.mktemp("site"))
    try:
        new_site.begin()
        yield new_site
    finally:
        new_site.clean()


def opened(context: BrowserContext) -> Page:
    """Return a new page, with time limits for slow tests."""
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.add_init_script(_STAYING)
    return page


def watched(context: BrowserContext, complaints: list[str]) -> Page:
    """Return a new page whose errors are recorded."""
    page = opened(context)
    watch(page, complaints)
    return page


def watch(page: Page, complaints: list[str]) -> Callable[[], None]:
    """Write down the errors of a page, until the returned is called.

    A late answer is no error: the page asks again, and a test sees missing parts.
    """

    def failed(error: Error) -> None:
        complaints.append(f"{error} {error.stack}")

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error" and "status of 503" not in message.text:
            complaints.append(message.text)

    def leave() -> None:
        page.remove_listener("pageerror", failed)
        page.remove_listener("console", on_console)

    page.on("pageerror", failed)
    page.on("console", on_console)
    return leave


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Errors that the browser reported; a test that expects errors clears the list."""
    collected: list[str] = []
    yield collected
    assert collected == []


@pytest.fixture(scope="module")
def session(browser: Browser, site: Site) -> StorageState:
    """The cookie of a logged-in user."""
    context = browser.new_context()
    site.enter(opened(context))
    state = context.storage_state()
    context.close()  # an open page would be drawn during all tests
    return state


def profile(browser: Browser, **options: Any) -> Iterator[Page]:
    """A browser context with cookies and a cache that tests share, so that files are loaded once."""
    context = browser.new_context(locale="en-GB", timezone_id="UTC", reduced_motion="reduce", **options)
    yield opened(context)
    context.close()


@pytest.fixture(scope="module")
def at_desk(browser: Browser, session: StorageState) -> Iterator[Page]:
    """A desktop browser of a logged-in user."""
    size: ViewportSize = {"width": 1280, "height": 900}
    yield from profile(browser, storage_state=session, viewport=size)


@pytest.fixture(scope="module")
def on_phone(browser: Browser, session: StorageState) -> Iterator[Page]:
    """The same on a phone, which prefers dark colours."""
    size: ViewportSize = {"width": 390, "height": 844}
    mobile = {"is_mobile": True, "has_touch": True, "color_scheme": "dark"}
    yield from profile(browser, storage_state=session, viewport=size, **mobile)


def window(page: Page, complaints: list[str]) -> Iterator[Page]:
    """A window without a page; stored preferences are removed after it."""
    leave = watch(page, complaints)
    yield page
    leave()
    page.unroute_all(behavior="ignoreErrors")
    page.evaluate("localStorage.clear()")
    page.goto("about:blank")


@pytest.fixture
def page(at_desk: Page, complaints: list[str]) -> Iterator[Page]:
    """A window of a logged-in user; see :meth:`Site.see`."""
    yield from window(at_desk, complaints)


@pytest.fixture
def phone(on_phone: Page, complaints: list[str]) -> Iterator[Page]:
    """The same on a phone."""
    yield from window(on_phone, complaints)


@pytest.fixture
def timed(browser: Browser, session: StorageState, complaints: list[str]) -> Iterator[Page]:
    """A separate window whose clock a test can set forward with ``page.clock``."""
    context = browser.new_context(storage_state=session, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    watch(page, complaints)
    page.clock.install()
    yield page
    context.close()


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """The directory of downloaded files."""
    return tmp_path
