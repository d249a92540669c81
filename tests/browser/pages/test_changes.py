"""Who did what, on the pages of units and in the audit, in a real browser on a real daemon."""

import os
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site


def test_who_stopped_a_service(page: Page, site: Site) -> None:
    """A stopped service says who stopped it, and its changes list this, until it is started again."""
    site.request("POST", "/api/tasks/web/stop")
    site.see(page, "#/task/web")
    banner = page.get_by_text(re.compile(rf"Stopped by uid {os.geteuid()} .*(ago|now)"))
    expect(banner).to_be_visible()
    changes = page.get_by_role("region", name="Changes").get_by_role("listitem")
    expect(changes.first).to_contain_text("Stop")
    assert complaints_of(page) == []
    page.get_by_role("button", name="Start", exact=True).click()
    expect(banner).to_have_count(0)
    expect(changes.first).to_have_text(re.compile("Start.*admin"))


def test_changes_of_a_task(page: Page, site: Site) -> None:
    """The changes of a task have the notes of its pauses, and each reload that changed its definition."""
    site.request("POST", "/api/tasks/backup/pause", {"note": "the disk is being replaced"})
    site.request("POST", "/api/tasks/backup/resume")
    site.run_to_end("backup")
    text = site.config.read_text()
    site.config.write_text(text.replace("Nightly backup of the database", "Backup of the database at night"))
    assert site.request("POST", "/api/daemon/reload").status == 200
    site.see(page, "#/task/backup")
    changes = page.get_by_role("region", name="Changes").get_by_role("listitem")
    expect(changes.filter(has_text="Pause schedule")).to_contain_text("the disk is being replaced")
    expect(changes.filter(has_text="Definition changed")).to_contain_text(f"uid {os.geteuid()}")
    expect(changes.filter(has_text="Resume schedule")).to_have_count(1)


@pytest.mark.parametrize("size", ["page", "phone"])
def test_audit_filters(request: pytest.FixtureRequest, site: Site, size: str) -> None:
    """The audit is filtered by user, action, target and time; the address has the filters."""
    page: Page = request.getfixturevalue(size)
    run = str(site.request("POST", "/api/tasks/talks/run?naming=camel").json()["id"])
    site.request("POST", f"/api/runs/{run}/stop?force=true")
    site.see(page, "#/audit?operation=stopRun")
    rows = page.get_by_role("region", name="Audit").locator("tbody tr")
    expect(rows.first).to_contain_text("run of talks")
    expect(rows.first.get_by_role("link", name="talks")).to_have_attribute("href", "#/task/talks")
    assert complaints_of(page) == []
    page.get_by_label("Action").select_option("Run")
    expect(rows.filter(has_text="Stop run")).to_have_count(0)
    page.get_by_label("Target").fill("talk")
    page.get_by_label("Target").press("Enter")
    expect(rows.filter(has_text="backup")).to_have_count(0)
    expect(rows.filter(has_text="talks").first).to_be_visible()
    page.get_by_label("User").fill("nobody")
    page.get_by_label("User").press("Enter")
    expect(page.get_by_role("main")).to_contain_text("No entries match these filters.")
    assert "who=nobody" in page.url
    page.get_by_role("button", name="Clear filters").click()
    expect(rows.first).to_be_visible()
    page.get_by_label("Until").fill("2026-01-01T00:00")
    page.get_by_label("Until").press("Enter")
    expect(rows).to_have_count(0)
