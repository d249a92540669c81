"""The configured status page, in a real browser without a session."""

import re

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.axe import complaints_of
from tests.browser.conftest import opened
from tests.browser.site import Site
from tests.support.waiting import until

PAGE = 'status_page = { title = "Status of the shop", text = "Ask us.", sections = { Nightly = ["backup"] } }'
PHONE: ViewportSize = {"width": 360, "height": 740}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}


@pytest.fixture
def published(site: Site) -> Site:
    """A page of two units and an incident; the daemon's other units are not on it."""
    if "status_page" not in site.config.read_text():
        site.tables = site.tables.replace('public = ["web"]', f'public = ["web", "backup"]\n{PAGE}')
        site.configure()
        assert site.request("POST", "/api/daemon/reload").status == 200
        until(lambda: b"Status of the shop" in site.request("GET", "/status").body, "the page")
        known = {"note": "The disk is full.\nA bigger one comes.", "public": True}
        assert site.request("POST", "/api/tasks/backup/acknowledge", known).status == 204
        until(lambda: b"bigger one" in site.request("GET", "/status").body, "the incident")
    return site


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_without_scripts(browser: Browser, published: Site, size: ViewportSize) -> None:
    """Without scripts and without a session, the page shows sections, 90 days and incidents; it fits a phone."""
    context = browser.new_context(java_script_enabled=False, viewport=size)
    page = opened(context)
    page.goto(f"{published.url}status")
    expect(page.get_by_role("heading", name="Status of the shop")).to_be_visible()
    expect(page.get_by_role("region", name="Nightly").get_by_role("listitem")).to_contain_text("backup")
    incident = page.get_by_role("region", name="Current incidents").get_by_role("listitem")
    expect(incident).to_contain_text("A bigger one comes.")
    bars = page.get_by_role("region", name="Tasks and services").locator(".uptime i")
    expect(bars).to_have_count(90)
    expect(page.get_by_role("img", name=re.compile("up in 90 days"))).to_be_visible()
    first, last = bars.first.bounding_box(), bars.last.bounding_box()
    assert first
    assert last
    assert first["width"] >= 1
    assert last["x"] + last["width"] <= size["width"]
    expect(page.locator("body")).not_to_contain_text("shaky")
    context.close()


def test_axe(browser: Browser, published: Site) -> None:
    """Axe finds no fault on the page on a phone, in both themes."""
    context = browser.new_context(viewport=PHONE)
    page = opened(context)
    page.goto(f"{published.url}status")
    expect(page.get_by_role("region", name="Past incidents")).to_be_visible()
    assert complaints_of(page) == []
    context.close()


def test_publishing_a_note(page: Page, published: Site) -> None:
    """The form of an acknowledgement offers to publish the note, if the status page shows the unit."""
    assert published.request("POST", "/api/tasks/backup/unacknowledge").status == 204
    published.see(page, "#/")
    attention = page.get_by_role("region", name="Needs attention")
    attention.get_by_role("listitem").filter(has_text="backup").get_by_role("button", name="Acknowledge").click()
    form = page.get_by_role("dialog", name="Acknowledge backup")
    form.get_by_role("checkbox", name="Show the note on the public status page").check()
    expect(form.get_by_label("Note", exact=True)).to_have_attribute("required", "")
    form.get_by_label("Note", exact=True).fill("The new disk is here.")
    form.get_by_role("button", name="Acknowledge").click()
    expect(form).to_have_count(0)
    until(lambda: b"The new disk is here." in published.request("GET", "/status").body, "the incident")
    attention.get_by_role("listitem").filter(has_text="broken").get_by_role("button", name="Acknowledge").click()
    form = page.get_by_role("dialog", name="Acknowledge broken")
    expect(form.get_by_label("Note", exact=True)).to_be_visible()
    expect(form.get_by_role("checkbox")).to_have_count(0)
