"""The logs of several units together, in a real browser on a real daemon."""

import re
from datetime import datetime

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site
from tests.support.waiting import until

TICKS = "".join(
    f"""
[services.tick-{name}]
group = "Clocks"
tags = ["{tag}"]
run = "for i in $(seq 400); do echo {name} tick $i; sleep 0.01; done; echo ERROR {name} stopped; exec sleep 3600"
"""
    for name, tag in (("one", "odd"), ("two", "even"), ("three", "odd"))
)
NAMES = ("tick-one", "tick-two", "tick-three")
TOP = """log => {
    const top = log.getBoundingClientRect().top;
    const row = [...log.querySelectorAll(".log-row")].find((one) => one.getBoundingClientRect().bottom > top + 1);
    return row && row.querySelector(".t").title;
}"""
"""The time of the first visible line."""
FILLED = """log => log.scrollHeight > 2 * log.clientHeight"""


@pytest.fixture
def clocks(site: Site) -> Site:
    """Three services that have printed at the same time."""
    if TICKS not in site.config.read_text():
        site.configure(TICKS)
        assert site.request("POST", "/api/daemon/reload").status == 200
    for name in NAMES:
        run = until(lambda name=name: site.task(name)["lastRun"], "its run")  # type: ignore[misc]
        until(lambda run=run: len(site.lines(run["id"])) == 401, "its lines")  # type: ignore[misc]
    return site


def column(page: Page, name: str) -> Locator:
    return page.get_by_role("log", name=f"Lines of {name}")


def test_merged_log_of_a_group(page: Page, clocks: Site) -> None:
    """The logs of a group are merged in the order of time, each line with the coloured name of its unit."""
    clocks.see(page, "#/logs")
    page.get_by_label("Group").select_option("Clocks")
    log = page.get_by_role("log")
    expect(log).to_contain_text("ERROR three stopped")
    page.get_by_label("Level").select_option("error")
    expect(log.locator(".log-row")).to_have_count(3)
    times = log.locator(".t").evaluate_all("cells => cells.map((cell) => cell.title)")
    assert times == sorted(times)
    names = log.locator(".n")
    assert {name.removesuffix(" [0]") for name in names.all_text_contents()} == set(NAMES)
    assert len(set(names.evaluate_all("cells => cells.map((cell) => getComputedStyle(cell).color)"))) == 3
    assert complaints_of(page) == []
    page.get_by_label("Tag").select_option("even")
    expect(log.locator(".log-row")).to_have_text([re.compile("tick-two.*ERROR two stopped")])
    page.reload()
    expect(log.locator(".log-row")).to_have_text([re.compile("tick-two.*ERROR two stopped")])
    names.click()
    expect(page).to_have_url(re.compile(r"#/run/.*line=401"))


def test_follow_three_services_and_filter(page: Page, clocks: Site) -> None:
    """From the overview, three services are followed after two clicks, and new lines pass the filter live."""
    clocks.see(page, "#/")
    page.get_by_label("Group").select_option("Clocks")
    page.get_by_role("link", name="Logs", exact=True).nth(1).click()
    log = page.get_by_role("log")
    page.get_by_label("Filter lines").fill("two tick 4")
    expect(log.locator(".log-row").last).to_contain_text("two tick 400")
    count = log.locator(".log-row").count()
    assert clocks.request("POST", "/api/units/restart", {"group": "Clocks"}).status == 200
    expect(log.locator(".log-row").nth(2 * count - 1)).to_contain_text("two tick 400")
    expect(log.locator(".log-row").filter(has_text="three")).to_have_count(0)


def test_columns_scroll_together_in_time(page: Page, clocks: Site) -> None:
    """Side by side, logs scroll together in time, whichever of them the reader scrolls, and follow again at the end."""
    clocks.see(page, f"#/logs?task={','.join(NAMES)}&view=columns")
    for name in NAMES:
        expect(column(page, name)).to_contain_text("stopped")
        until(lambda name=name: column(page, name).evaluate(FILLED), "its lines")  # type: ignore[misc]
    assert complaints_of(page) == []
    for leader in ("tick-two", "tick-one"):
        box = column(page, leader).bounding_box()
        assert box
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        for _ in range(8):
            page.mouse.wheel(0, -500 if leader == "tick-two" else 150)
        lead = page.wait_for_function(f"log => ({TOP})(log)", arg=column(page, leader).element_handle()).json_value()

        def aligned() -> bool:
            """Return whether the first lines of all columns are of nearly the same time."""
            tops = [column(page, name).evaluate(TOP) for name in NAMES]
            times = [datetime.fromisoformat(top).timestamp() for top in tops]
            return max(times) - min(times) < 0.2

        until(aligned, f"all columns to show {lead}")
    assert not column(page, "tick-three").evaluate("log => log.scrollTop + log.clientHeight >= log.scrollHeight - 24")
    page.get_by_role("button", name="Follow").click()
    for name in NAMES:
        expect(column(page, name).locator(".log-row").last).to_be_in_viewport()
    page.get_by_label("Filter lines").fill("stopped")
    for name in NAMES:
        expect(column(page, name).locator(".log-row")).to_have_count(column(page, name).get_by_text("stopped").count())


def test_search_in_several_logs(page: Page, clocks: Site) -> None:
    """A search in several logs finds lines of these only, and a hit leads to its line."""
    clocks.see(page, "#/logs?task=tick-t*")
    page.get_by_role("searchbox", name="Search these logs").fill("tick 77")
    page.get_by_role("button", name="Search", exact=True).click()
    hits = page.get_by_role("list", name="Hits").get_by_role("link")
    expect(hits.first).to_contain_text("tick 77")
    assert {text.partition(" ")[0] for text in hits.all_text_contents()} == {"tick-two", "tick-three"}
    hits.first.click()
    expect(page.locator(".log-row.target")).to_contain_text("tick 77")


def test_saved_view_of_logs(page: Page, clocks: Site) -> None:
    """A choice of logs can be saved as a view."""
    clocks.see(page, "#/logs?group=Clocks&view=columns")
    page.get_by_role("button", name="Save view").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Clocks")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    clocks.see(page, "#/logs")
    page.get_by_label("View", exact=True).select_option("Clocks")
    expect(column(page, "tick-two")).to_contain_text("two stopped")
