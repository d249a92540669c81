"""Slots on the overview, in a real browser on a real daemon."""

import re
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import complaints_of
from tests.browser.conftest import opened
from tests.browser.site import Site
from tests.support.waiting import until

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


BUSY = """
[slots.press]
size = 1

[slots.paper]
size = 1

[tasks.print]
uses = ["press"]
max_concurrent = 3
run = "sleep 3600"

[tasks.bind]
uses = ["press", "paper"]
run = "true"

[services.spooler]
uses = ["press"]
autostart = false
run = "exec sleep 3600"
"""


@pytest.fixture
def busy(site: Site) -> Site:
    """Two runs of a task and one of another wait for a slot of one place, as does a service."""
    if BUSY not in site.config.read_text():
        site.configure(BUSY)
        assert site.request("POST", "/api/daemon/reload").status == 200
        for task in ("print", "print", "print", "bind"):
            site.request("POST", f"/api/tasks/{task}/run")
        site.request("POST", "/api/tasks/spooler/start")
    return site


def test_slot_tells_equal_names_apart(page: Page, busy: Site) -> None:
    """Runs of one task are told apart by their times, and a free slot says that its run waits for something else."""
    busy.see(page, "#/")
    slots = page.get_by_role("region", name="Slots")
    press = slots.get_by_role("listitem").filter(has_text="press")
    expect(press).to_contain_text(re.compile(r"4 runs wait: print \(.*:.*\), print \(.*:.*\), bind"))
    paper = slots.get_by_role("listitem").filter(has_text="paper")
    expect(paper).to_contain_text("1 run waits for something else: bind")
    expect(paper).not_to_have_class(re.compile("wanted"))


def test_limited_token_sees_its_slots(browser: Browser, busy: Site) -> None:
    """With a token for some tasks, the overview shows the slots of these tasks only."""
    for tasks, shown in (("bind", 2), ("print", 1), ("back*", 0)):
        body = {"name": f"slots-{shown}", "role": "viewer", "tasks": tasks}
        token = busy.request("POST", "/api/tokens", body).json()["token"]
        context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {token}"})
        page = opened(context)
        busy.see(page, "#/")
        expect(page.get_by_role("region", name="Tasks and services")).to_be_visible()
        expect(page.get_by_role("region", name="Slots").get_by_role("listitem")).to_have_count(shown)
        context.close()


def test_wait_for_a_slot_needs_attention(timed: Page, busy: Site) -> None:
    """A service that has waited for a slot for minutes needs attention with its reason, and no restart is advised."""
    instances = until(lambda: busy.task("spooler").get("instances"), "its instance")
    since = datetime.fromisoformat(instances[0]["since"])
    timed.route("**/api/events/stream", lambda _route: None)  # without pings, the browser's clock counts
    timed.clock.set_fixed_time(since + timedelta(seconds=120))
    busy.see(timed, "#/")
    row = timed.get_by_role("region", name="Needs attention").get_by_role("listitem").filter(has_text="spooler")
    expect(row).to_contain_text("has been starting for 2m")
    expect(row).to_contain_text("Waiting for the slot press (1 place): print")
    expect(row.get_by_role("button", name="Restart")).to_have_count(0)
    row.get_by_role("button", name="More for spooler").click()
    expect(row.get_by_role("menuitem", name="Restart")).to_be_visible()
