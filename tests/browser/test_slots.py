"""Slots on the overview, in a real browser on a real daemon."""

import re

from playwright.sync_api import Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site

SLOT = """
[slots.db]
size = 1

[slots.licences]
size = 5

[tasks.import]
uses = ["db"]
run = "until test -e {done}; do sleep 0.05; done"

[tasks.reindex]
uses = ["db"]
run = "true"
"""


def test_overview_shows_slots(page: Page, site: Site) -> None:
    """A slot shows its places in use as they change, with links to the runs that hold or await it."""
    site.see(page, "#/")
    expect(page.get_by_role("region", name="Host")).to_be_visible()
    slots = page.get_by_role("region", name="Slots")
    expect(slots).to_have_count(0)
    done = site.directory / "done"
    site.configure(SLOT.replace("{done}", str(done)))
    site.config.write_text(site.config.read_text().replace("[daemon]\n", "[daemon]\nmax_running = 4\n", 1))
    site.request("POST", "/api/daemon/reload")
    slot = slots.get_by_role("listitem").filter(has_text="db")
    expect(slot.get_by_role("progressbar", name="Slot db: 0 of 1 place in use")).to_be_visible()
    expect(slots.get_by_role("progressbar", name="0 of at most 4 runs of tasks")).to_be_visible()
    runs = {
        task: str(site.request("POST", f"/api/tasks/{task}/run?naming=camel").json()["id"])
        for task in ("import", "reindex")
    }
    expect(slot.get_by_role("progressbar", name="Slot db: 1 of 1 place in use")).to_be_visible()
    expect(slots.get_by_role("progressbar", name="1 of at most 4 runs of tasks")).to_be_visible()
    expect(slot).to_contain_text(re.compile("1/1.*Held by import.*1 run waits: reindex"))
    expect(slot.get_by_role("link", name="import")).to_have_attribute("href", f"#/run/{runs['import']}")
    assert complaints_of(page) == []
    slot.get_by_role("link", name="reindex").click()
    expect(page).to_have_url(re.compile(f"#/run/{runs['reindex']}"))
    done.touch()
    site.see(page, "#/")
    expect(slot.get_by_role("progressbar", name="Slot db: 0 of 1 place in use")).to_be_visible()
