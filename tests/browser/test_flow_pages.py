"""The pages of flows: the graph of the steps, their runs, the grid of the last runs, and steps on the overview."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site

CONFIG = """
[flows.nightly.steps.extract]
run = "echo rows; echo path=rows.csv >> $RINGWARD_OUTPUT"
[flows.nightly.steps.clean]
after = ["extract"]
each = { region = ["eu", "us"] }
run = ["echo", "clean", "${each:region}"]
[flows.nightly.steps.load]
after = ["clean"]
run = "exit 3"
[flows.nightly.steps.report]
after = ["load"]
run = "true"
[flows.nightly.steps.alarm]
after = ["load"]
when = "failure"
run = "echo alarm"
"""


class FlowSite(Site):
    """A daemon with a flow that failed."""

    def begin(self) -> None:
        """Start, and run the flow."""
        self.write(CONFIG)
        self.start()
        self.done = {"nightly": self.run_to_end("nightly")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlowSite]:
    flow_site = FlowSite(tmp_path_factory.mktemp("site"))
    try:
        flow_site.begin()
        yield flow_site
    finally:
        flow_site.clean()


@pytest.mark.parametrize("window", ["page", "phone"])
def test_page_of_a_flow(site: FlowSite, window: str, request: pytest.FixtureRequest) -> None:
    """The page of a flow has the graph of its newest run, causes in words, outputs, and the grid of its last runs."""
    page: Page = request.getfixturevalue(window)
    site.see(page, "#/task/nightly")
    steps = page.get_by_role("region", name="Steps of the newest run")
    for name, state in (("extract", "succeeded"), ("load", "failed"), ("report", "failed"), ("alarm", "succeeded")):
        expect(steps.get_by_role("button", name=f"{name}: {state}")).to_be_visible()
    expect(steps.locator("#step-report")).to_contain_text("a step before it failed")
    expect(steps.locator("#step-extract")).to_contain_text("path = rows.csv")
    expect(steps.locator("#step-clean").get_by_role("link", name="eu")).to_be_visible()
    steps.get_by_role("button", name="load: failed").press("Enter")
    expect(steps.locator("#step-load")).to_have_class("chosen")
    grid = page.get_by_role("region", name="Last runs")
    expect(grid.get_by_role("link", name=re.compile("^load, .*: failed$"))).to_have_count(1)
    assert complaints_of(page) == []


def test_page_of_its_run(page: Page, site: FlowSite) -> None:
    """The page of a flow's run has its steps, and the lines of all of them in one log."""
    site.see(page, f"#/run/{site.done['nightly']}")
    expect(page.get_by_role("region", name="Steps", exact=True)).to_contain_text("alarm")
    log = page.get_by_role("region", name="Log of all steps")
    for text in ("rows", "clean eu", "clean us", "alarm"):
        expect(log).to_contain_text(text)
    assert complaints_of(page) == []
    page.get_by_role("button", name="Run again what failed").click()
    page.wait_for_url(lambda url: site.done["nightly"] not in url)
    steps = page.get_by_role("region", name="Steps", exact=True)
    expect(steps.locator("#step-extract")).to_contain_text("kept from an earlier attempt")
    expect(steps.get_by_role("button", name="load: failed")).to_be_visible()
    before = page.url
    steps.get_by_role("button", name="Run again from here: clean").click()
    page.wait_for_url(lambda url: url != before)
    expect(steps.locator("#step-clean").get_by_role("link", name="us")).to_be_visible()
    expect(steps.locator("#step-extract")).to_contain_text("kept from an earlier attempt")
    expect(steps.locator("#step-clean")).not_to_contain_text("kept from an earlier attempt")


def test_steps_on_the_overview(page: Page, site: FlowSite) -> None:
    """Steps fold below their flow, and only the flow counts as failing."""
    site.see(page, "#/")
    board = page.get_by_role("region", name="Tasks and services")
    expect(board.locator("tbody td.name a")).to_have_text(["nightly"])
    expect(board.get_by_role("button", name="Failing 1")).to_be_visible()
    board.get_by_role("button", name="Steps of nightly").press("Enter")
    expect(board.locator("tbody td.name a")).to_have_count(6)
    assert complaints_of(page) == []
