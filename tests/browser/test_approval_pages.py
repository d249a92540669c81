"""Approvals on the dashboard: the buttons of runs that wait, the form with a note, and the answer."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site

CONFIG = """
[tasks.deploy]
run = "echo deployed"
needs_approval = ["admin", "alice"]
[flows.release.steps.build]
run = "true"
[flows.release.steps.publish]
after = ["build"]
run = "echo published"
needs_approval = true
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    approving = Site(tmp_path_factory.mktemp("site"))
    try:
        approving.write(CONFIG)
        approving.start()
        yield approving
    finally:
        approving.clean()


@pytest.mark.parametrize("window", ["page", "phone"])
def test_approve_a_run(site: Site, window: str, request: pytest.FixtureRequest) -> None:
    """The page of a waiting run says who may approve it; with the keyboard, a person approves it with a note."""
    page: Page = request.getfixturevalue(window)
    run = site.trigger("deploy")
    site.see(page, f"#/run/{run}")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("Waiting for approval by admin or alice, at most until")
    assert complaints_of(page) == []
    verdict.get_by_role("button", name="Approve deploy").press("Enter")
    form = page.get_by_role("dialog", name="Approve deploy")
    note = form.get_by_label("Note")
    expect(note).to_be_focused()
    assert complaints_of(page) == []
    note.fill("tested on staging")
    note.press("Enter")
    expect(verdict).to_contain_text("Succeeded")
    expect(verdict).to_contain_text("Approved by admin: tested on staging")
    expect(verdict.get_by_role("button", name="Approve deploy")).to_have_count(0)


@pytest.mark.parametrize("window", ["page", "phone"])
def test_reject_a_step(site: Site, window: str, request: pytest.FixtureRequest) -> None:
    """The page of a flow's run has the buttons beside the step that waits, and then the answer with its note."""
    page: Page = request.getfixturevalue(window)
    run = site.trigger("release")
    site.see(page, f"#/run/{run}")
    step = page.get_by_role("region", name="Steps", exact=True).locator("#step-publish")
    step.get_by_role("button", name="Reject publish").click()
    form = page.get_by_role("dialog", name="Reject publish")
    form.get_by_label("Note").fill("not today")
    form.get_by_role("button", name="Reject").click()
    expect(step).to_contain_text("it was rejected")
    expect(step).to_contain_text("Rejected by admin: not today")
    expect(step.get_by_role("button", name="Reject publish")).to_have_count(0)
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Stopped")
    assert complaints_of(page) == []
