"""Chromium (Debian's) on a real daemon that has something to show."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    StorageState,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.browser.site import Site

PATIENCE_MS = 60_000
"""Only how long a failing test takes."""
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of this process."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium in PATH")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A daemon for all tests of a file."""
    one = Site(tmp_path_factory.mktemp("site"))
    try:
        one.begin()
        yield one
    finally:
        one.clean()


def watched(context: BrowserContext, complaints: list[str]) -> Page:
    """A new page whose errors are written down."""
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(f"{error} {error.stack}"))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    return page


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the browser complained of; a test that expects some empties it."""
    found: list[str] = []
    yield found
    assert found == []


@pytest.fixture(scope="module")
def session(browser: Browser, site: Site) -> Iterator[StorageState]:
    """The cookie of somebody who has logged in."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    site.enter(context.new_page())
    yield context.storage_state()
    context.close()


def visitor(browser: Browser, site: Site, complaints: list[str], **options: Any) -> Iterator[Page]:
    context = browser.new_context(locale="en-GB", timezone_id="UTC", **options)
    page = watched(context, complaints)
    page.goto(site.url)
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    yield page
    context.close()


@pytest.fixture
def page(browser: Browser, site: Site, session: StorageState, complaints: list[str]) -> Iterator[Page]:
    """A window of somebody who has logged in, at the overview."""
    size: ViewportSize = {"width": 1280, "height": 900}
    yield from visitor(browser, site, complaints, storage_state=session, viewport=size)


@pytest.fixture
def phone(browser: Browser, site: Site, session: StorageState, complaints: list[str]) -> Iterator[Page]:
    """The same on a phone, which prefers dark colours."""
    size: ViewportSize = {"width": 390, "height": 844}
    mobile = {"is_mobile": True, "has_touch": True, "color_scheme": "dark"}
    yield from visitor(browser, site, complaints, storage_state=session, viewport=size, **mobile)


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """Where files that a test downloads go."""
    return tmp_path
