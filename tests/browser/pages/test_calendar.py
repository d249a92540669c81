"""The calendar of the coming two weeks, in a real browser on a real daemon."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site

TIMES = """
[tasks.nightly]
timezone = "UTC"
cron = "0 3 * * *"
run = "true"

[tasks.minutely]
timezone = "UTC"
cron = "* * * * *"
run = "true"

[tasks.resting]
timezone = "UTC"
cron = "15 4 * * *"
run = "true"
"""


@pytest.fixture
def planned(site: Site) -> Site:
    """Tasks that run each night and each minute, and a paused one."""
    if TIMES not in site.config.read_text():
        site.configure(TIMES)
        assert site.request("POST", "/api/daemon/reload").status == 200
        assert site.request("POST", "/api/tasks/resting/pause", {"note": "moving"}).status == 204
    return site


def test_what_runs_at_three_tomorrow(page: Page, planned: Site) -> None:
    """One click shows what runs at 03:00 tomorrow: a task of each minute is one band and hides no other."""
    planned.see(page, "#/")
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Calendar").click()
    week = page.get_by_role("region", name="Hours of the week")
    row = week.get_by_role("row").filter(has=page.get_by_role("rowheader", name="03:00"))
    tomorrow = row.get_by_role("cell").nth(1)
    expect(tomorrow.get_by_role("link")).to_have_text([re.compile("^03:00 nightly$"), re.compile("hidden")])
    everyday = week.get_by_role("row").filter(has=page.get_by_role("rowheader", name="All day"))
    expect(everyday.get_by_role("cell").nth(1)).to_contain_text(re.compile("minutely . 1,440"))
    expect(row.get_by_role("link", name=re.compile("minutely"))).to_have_count(0)
    assert complaints_of(page) == []
    page.get_by_role("button", name="Next week").click()
    expect(week.get_by_role("link", name=re.compile("nightly"))).to_have_count(7)
    tomorrow.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("#/task/nightly"))


def test_day_and_list(page: Page, planned: Site) -> None:
    """A day and the list show each time with what is known about it, such as why none starts; the address has them."""
    planned.see(page, "#/calendar")
    page.get_by_role("button", name="Next week").click()
    page.get_by_role("region", name="Hours of the week").get_by_role("columnheader").first.get_by_role("button").click()
    expect(page).to_have_url(re.compile(r"view=day"))
    page.get_by_role("button", name="Previous day").click()
    rows = page.get_by_role("main").locator("tbody tr")
    expect(rows.filter(has_text="nightly")).to_have_text(re.compile("03:00.*nightly"))
    day = datetime.now(UTC).date() + timedelta(days=6)
    expect(page.get_by_role("heading", level=2)).to_contain_text(f"{day.day} {day:%B}")
    page.get_by_role("button", name="List").click()
    expect(rows.filter(has_text="resting").first).to_contain_text("paused")
    expect(rows.filter(has_text="resting").first).to_have_css("text-decoration-line", "line-through")
    page.reload()
    expect(rows.filter(has_text="nightly").first).to_be_visible()


def test_calendar_on_a_phone(phone: Page, planned: Site) -> None:
    """On a phone, the calendar begins as a list that fits the screen."""
    planned.see(phone, "#/calendar")
    expect(phone.get_by_role("button", name="List")).to_have_attribute("aria-pressed", "true")
    expect(phone.get_by_role("main").locator("tbody tr").filter(has_text="nightly").first).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
