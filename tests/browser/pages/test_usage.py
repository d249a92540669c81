"""The page of usage, in a real browser on a real daemon."""

import re
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site

HOUR = timedelta(hours=1)


def used(name: str, cpu: int, runs: int, memory: int, **more: int) -> dict[str, object]:
    """Return the usage of a unit: CPU in ms, memory in MB."""
    sums = {"cpuUserMs": cpu, "cpuSystemMs": 0, "runs": runs, "maxRssBytes": memory << 20, "durationMs": 0}
    return {"taskName": name, **sums, **more}


NOW = [
    used("backup", 10_000, 10, 1, durationMs=60_000),
    used("web", 500, 2, 5),
    used("long", 3, 2, 2, readBytes=7 << 30, writeBytes=1 << 30),
]
BEFORE = [used("backup", 5000, 20, 1), used("web", 500, 2, 5), used("long", 0, 0, 2)]


@pytest.fixture
def windows(page: Page) -> list[timedelta]:
    """Answer with fixed figures; return the length of each requested window."""
    lengths: list[timedelta] = []

    def answer(route: Route) -> None:
        query = parse_qs(urlparse(route.request.url).query)
        begin, end = (datetime.fromisoformat(query[name][0]) for name in ("from", "to"))
        lengths.append(end - begin)
        current = datetime.now(end.tzinfo) - end < -HOUR or abs(datetime.now(end.tzinfo) - end) <= HOUR
        body = {"from": query["from"][0], "to": query["to"][0], "items": NOW if current else BEFORE}
        route.fulfill(json=body)

    page.route("**/api/resources/totals?*", answer)
    return lengths


def test_most_processor_time(page: Page, site: Site, windows: list[timedelta]) -> None:
    """The page of usage begins with most processor time this week, beside its trend; any column and period sorts."""
    site.see(page, "#/")
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Usage").click()
    table = page.get_by_role("region", name="Usage")
    names = table.locator("tbody td.name a")
    expect(names).to_have_text(["backup", "web", "long"])
    assert windows == [timedelta(days=7)] * 2
    cells = table.locator("tbody tr").nth(0).locator("td")
    expect(cells.nth(2)).to_have_text(re.compile(r"10s\s*\+100 %"))
    expect(cells.nth(5)).to_have_text(re.compile(r"10\s*.50 %"))
    expect(cells.nth(6)).to_have_text(re.compile(r"^\s*1m\s*$"))
    expect(table.locator("tbody tr").nth(2).locator("td").nth(2)).to_have_text(re.compile(r"3ms\s*new"))
    assert complaints_of(page) == []
    table.get_by_role("button", name="Peak memory").click()
    expect(names).to_have_text(["web", "long", "backup"])
    table.get_by_role("button", name="Disk").click()
    expect(names.first).to_have_text("long")
    table.get_by_role("button", name="Disk").click()
    expect(names.last).to_have_text("long")
    page.get_by_role("button", name="Quarter").click()
    expect(page.get_by_role("button", name="Quarter")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(names.last).to_have_text("long")
    assert windows[-1] == timedelta(days=91)
    names.last.click()
    expect(page).to_have_url(re.compile("#/task/long"))


def test_usage_of_this_daemon(page: Page, site: Site) -> None:
    """Tasks that have just run appear with their figures."""
    site.see(page, "#/usage?period=day&sort=runs")
    row = page.get_by_role("region", name="Usage").locator("tbody tr").filter(has_text="colours")
    expect(row.locator("td").nth(5)).to_have_text(re.compile(r"^\s*[1-9]"))
