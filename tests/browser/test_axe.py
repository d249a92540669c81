"""Accessibility of all pages, checked by axe in both themes."""

import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from api.resources.pages import FOLDER
from tests.browser.axe import complaints_of, small_targets_of
from tests.browser.conftest import watched
from tests.browser.site import Site
from tests.browser.test_screen_sizes import PAGES, shown
from tests.support.waiting import until


def test_list_of_pages_is_complete() -> None:
    """Each page of the dashboard that has an address is in the list of pages that tests visit."""
    source = Path(FOLDER, "js/main.js").read_text()
    table = re.search(r"const plain = \{(.*)\}\[name\]", source)
    assert table
    names = set(re.findall(r"(\w+):", table[1]))
    assert len(names) > 10
    assert names <= {address.removeprefix("#/").partition("?")[0] for address in PAGES}


def test_axe_on_every_page(page: Page, site: Site) -> None:
    """Axe finds no fault on any page, in light and in dark colours."""
    for address in shown(page, site):
        assert complaints_of(page) == [], address


def test_axe_with_coloured_output(page: Page, site: Site) -> None:
    """Axe finds no fault in output with colours, links, levels, matches and marked lines, in both themes."""
    levels = site.run_to_end("levels")
    for address, text in (
        (f"#/run/{site.done['paints']}?line=1-3", "only text"),
        (f"#/run/{site.done['paints']}?q=red", "only text"),
        (f"#/run/{levels}?level=warn", "giving up"),
        (f"#/run/{site.done['progress']}", "copying 5 of 5"),
        ("#/search?q=ERROR", "giving up"),
        ("#/task/paints?q=ERROR", "ERROR"),
        ("#/task/web", "serving"),
        ("#/daemon", "scheduler"),
    ):
        site.see(page, address)
        expect(page.get_by_role("main")).to_contain_text(text)
        expect(page.locator(".skeleton")).to_have_count(0)
        assert complaints_of(page) == [], address


def test_touch_targets(phone: Page, site: Site) -> None:
    """On a phone, each link and button of an overview, run, task or timeline has at least 24 pixels of room."""
    phone.set_viewport_size({"width": 390, "height": 4000})  # so that all of them are measured
    failed = site.run_to_end("tries")
    site.ok.touch()
    site.run_to_end("backup")
    for address in ("#/", f"#/run/{failed}", f"#/run/{site.done['backup']}", "#/task/backup", "#/timeline?view=table"):
        site.see(phone, address)
        expect(phone.locator(".skeleton")).to_have_count(0)
        assert small_targets_of(phone) == [], address


def test_targets_on_a_desktop(page: Page, site: Site) -> None:
    """On a desktop, each link and button of an overview, run, task or timeline has at least 24 pixels of room."""
    for address in ("#/", f"#/run/{site.done['backup']}?q=disk", "#/task/backup", "#/task/web", "#/timeline"):
        site.see(page, address)
        expect(page.locator(".skeleton")).to_have_count(0)
        assert small_targets_of(page) == [], address


def test_phone_bar_covers_no_control(phone: Page, site: Site) -> None:
    """On a phone, content ends above the bar of pages: no control lies partly below it at any scroll position."""
    size = phone.viewport_size
    assert size
    site.see(phone, "#/")
    control = phone.get_by_role("searchbox", name="Filter tasks and services")
    bar = phone.get_by_role("navigation", name="Pages", exact=True)
    control.scroll_into_view_if_needed()
    at, below = control.bounding_box(), bar.bounding_box()
    assert at
    assert below
    height = at["y"] + at["height"] / 2 + below["height"]  # the bar's edge is in the middle of the control
    phone.set_viewport_size({"width": size["width"], "height": round(height)})
    assert small_targets_of(phone) == []
    phone.set_viewport_size(size)


def test_axe_without_a_session(browser: Browser, site: Site, complaints: list[str]) -> None:
    """Axe finds no fault on the login page, the published states and the description of the API, in both themes."""
    context = browser.new_context()
    page = watched(context, complaints)
    for address, text in (("", "Log in"), ("status", "No failures"), ("docs", "/api/runs")):
        page.goto(f"{site.url}{address}")
        expect(page.locator("body")).to_contain_text(text)
        assert complaints_of(page) == [], address
    context.close()


def test_published_states_update(timed: Page, site: Site) -> None:
    """The page of published states shows a new state after a minute, without a reload."""
    until(lambda: b"running" in site.request("GET", "/status").body, "the service to run")
    timed.goto(f"{site.url}status")
    expect(timed.get_by_role("listitem")).to_have_text(re.compile("web.*running"))
    timed.evaluate("window.same = true")
    site.request("POST", "/api/tasks/web/stop")

    def stopped_after_a_minute() -> bool:
        timed.clock.run_for(61_000)  # again if the API server still had the page of the last two seconds
        return "stopped" in (timed.get_by_role("listitem").text_content() or "")

    until(stopped_after_a_minute, "the page to show that the service is stopped")
    assert timed.evaluate("window.same")
    site.request("POST", "/api/tasks/web/start")
