"""The overview as a board of state: tabs, filters, sorting, and groups that fold."""

import os
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import LONG_NAME, Site
from tests.support.waiting import until

MANY = 200
ROW_PX = 32
TOUCH_ROW_PX = 45


def board(page: Page) -> Locator:
    return page.get_by_role("region", name="Tasks and services")


def names(page: Page) -> Locator:
    """Return the names of the visible units."""
    return board(page).locator("tbody td.name a")


def tab(page: Page, name: str) -> Locator:
    return board(page).get_by_role("group", name="State").get_by_role("button", name=re.compile(f"^{name} "))


def test_tabs_count_and_filter(page: Page, site: Site) -> None:
    """Each tab shows the number of its units, filters by them, and is part of the address."""
    site.see(page, "#/")
    expect(names(page).filter(has_text="colours")).to_have_count(1)
    tab(page, "Failing").click()
    expect(names(page).filter(has_text="colours")).to_have_count(0)
    expect(names(page).filter(has_text="backup")).to_have_count(1)
    expect(names(page).filter(has_text="broken")).to_have_count(1)
    until(
        lambda: tab(page, "Failing").text_content() == f"Failing {names(page).count()}", "the number of failing units"
    )
    assert "state=failing" in page.url
    page.reload()
    expect(tab(page, "Failing")).to_have_attribute("aria-pressed", "true")
    expect(names(page).filter(has_text="backup")).to_have_count(1)
    assert complaints_of(page) == []
    tab(page, "Running").click()
    expect(names(page).filter(has_text="web")).to_have_count(1)
    expect(names(page).filter(has_text="backup")).to_have_count(0)
    tab(page, "Flapping").click()
    expect(names(page)).to_have_text(["shaky"])


def test_paused_tab(page: Page, site: Site) -> None:
    """A paused task is counted and listed in the tab of paused units."""
    site.see(page, "#/?state=paused")
    expect(tab(page, "Paused")).to_have_text("Paused 0")
    site.request("POST", "/api/tasks/backup/pause")
    page.reload()
    expect(names(page)).to_have_text(["backup"])
    expect(tab(page, "Paused")).to_have_text("Paused 1")
    site.request("POST", "/api/tasks/backup/resume")
    page.reload()
    expect(tab(page, "Paused")).to_have_text("Paused 0")
    expect(names(page)).to_have_count(0)


def test_address_has_group_tag_and_sort(page: Page, site: Site) -> None:
    """Group, tag and order are part of the address."""
    site.see(page, "#/?tag=db")
    expect(names(page)).to_have_text(["backup"])
    board(page).get_by_label("Tag").select_option("")
    board(page).get_by_label("Group").select_option("Shop")
    expect(names(page)).to_have_text(["broken", "shaky", "waits", "web"])
    board(page).get_by_label("Sort").select_option("state")
    expect(names(page).last).to_have_text("web")
    expect(board(page).locator("tr.group")).to_have_count(0)
    assert "group=Shop" in page.url
    assert "sort=state" in page.url
    page.reload()
    expect(names(page).last).to_have_text("web")


def test_groups_fold(page: Page, site: Site) -> None:
    """A folded group stays folded, but a filter still searches it."""
    site.see(page, "#/")
    board(page).get_by_role("button", name=re.compile("^Shop 4")).click()
    expect(names(page).filter(has_text="web")).to_have_count(0)
    page.reload()
    expect(names(page).filter(has_text="backup")).to_have_count(1)
    expect(names(page).filter(has_text="web")).to_have_count(0)
    board(page).get_by_label("Filter tasks and services").fill("web")
    expect(names(page)).to_have_text(["web"])


def test_row_height(page: Page, site: Site) -> None:
    """Each row is 32 px high, even with a long name."""
    site.see(page, "#/")
    expect(names(page).filter(has_text=LONG_NAME)).to_have_count(1)
    heights = page.evaluate(
        "[...document.querySelectorAll('.units tbody tr')].map((row) => Math.floor(row.getBoundingClientRect().height))"
    )
    assert set(heights) == {ROW_PX}


NUMBERS = """() => [
    document.title,
    document.querySelector("[aria-label='Needs attention'] header .badge")?.textContent,
    document.querySelector("link[rel=icon]").href,
]"""


def test_title_and_icon_count_problems(page: Page, site: Site) -> None:
    """The title and the icon of the window show the number of units that need attention."""
    site.see(page, "#/")
    expect(page.get_by_role("region", name="Needs attention").locator("header .badge")).to_be_visible()

    def icon() -> str | None:
        """Return the icon, or None while the numbers differ: a slow start may become a problem meanwhile."""
        title, number, href = page.evaluate(NUMBERS)
        agree = title == f"({number}) Overview · Ringward" and href.endswith(f"/badges/{number}.svg")
        return str(href) if agree else None

    assert page.request.get(until(icon, "the same number everywhere")).status == 200


@pytest.fixture
def _many(site: Site) -> Iterator[None]:
    site.configure("".join(f"[tasks.job-{n:03}]\ngroup = 'G{n % 4}'\nrun = 'true'\n" for n in range(MANY)))
    site.request("POST", "/api/daemon/reload")
    yield
    site.configure()
    site.request("POST", "/api/daemon/reload")


@pytest.mark.usefixtures("_many")
def test_many_units_on_a_phone(phone: Page, site: Site) -> None:
    """On a phone, 200 units are one-line rows that fit the screen, and a filter leads to one of them."""
    site.see(phone, "#/?sort=name")
    expect(names(phone).filter(has_text="job-042")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert board(phone).locator(".scroll-x").evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    heights = phone.evaluate(
        "[...document.querySelectorAll('.units tbody tr')].map((row) => row.getBoundingClientRect().height)"
    )
    assert max(heights) <= TOUCH_ROW_PX
    assert (names(phone).filter(has_text="job-042").bounding_box() or {"width": 0})["width"] >= 50
    assert complaints_of(phone) == []
    board(phone).get_by_label("Filter tasks and services").fill("job-199")
    expect(names(phone)).to_have_text(["job-199"])
    board(phone).get_by_role("button", name="Run", exact=True).tap()
    expect(phone.get_by_text("job-199 was triggered")).to_be_visible()


def test_saved_views(page: Page, site: Site) -> None:
    """Filters and order can be saved under a name, restored with one choice, even after a reload, and removed."""
    site.see(page, "#/?kind=service&sort=state")
    board(page).get_by_role("button", name="Save view").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Services")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(board(page).get_by_label("View")).to_have_value("Services")
    site.see(page, "#/")
    page.reload()
    expect(board(page).get_by_label("View")).to_have_value("")
    board(page).get_by_label("View").select_option("Services")
    expect(names(page).first).to_have_text("broken")
    assert "kind=service&sort=state" in page.url
    board(page).get_by_role("button", name="Remove view").click()
    expect(board(page).get_by_label("View")).to_have_count(0)


ALERTS = """
[tasks.quiet]
run = "echo begins; cat {pipe}"
silence_alert = "1s"

[tasks.lasting]
run = "cat {pipe}"
max_duration_alert = "1s"

[services.quiet-service]
run = "exec sleep 3600"
silence_alert = "1s"
"""


def test_silent_and_overlong_runs(page: Page, site: Site) -> None:
    """A silent or overlong run looks so in lists and on its page, needs attention, and is late."""
    pipe = site.directory / "alerts"
    os.mkfifo(pipe)
    site.configure(ALERTS.format(pipe=pipe))
    site.request("POST", "/api/daemon/reload")
    runs = {name: site.request("POST", f"/api/tasks/{name}/run").json()["id"] for name in ("quiet", "lasting")}
    site.see(page, "#/?state=late")
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention).to_contain_text(re.compile(r"quiet has printed nothing for \d+"))
    expect(attention).to_contain_text(re.compile(r"lasting has been running for .*; max_duration_alert is 1"))
    for name, word in {"quiet": "silent", "lasting": "taking long", "quiet-service": "silent"}.items():
        row = board(page).get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        expect(row.locator(".state .badge.warn")).to_have_text(word)
    assert complaints_of(page) == []
    page.set_viewport_size({"width": 1280, "height": 720})
    page.reload()
    assert attention.bounding_box()["height"] <= 720 / 3  # type: ignore[index]
    expect(board(page).get_by_label("Filter tasks and services")).to_be_in_viewport()
    site.see(page, f"#/run/{runs['quiet']}")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("Running, but silent.")
    expect(verdict).to_contain_text(re.compile("last output .* ago"))
    for run_id in runs.values():
        site.request("POST", f"/api/runs/{run_id}/stop?force=true")
    site.configure()
    site.request("POST", "/api/daemon/reload")


LATE = """
[tasks.overdue]
every = "1s"
finish_by = "+1s"
expected_duration = "4m"
on_overlap = "skip"
run = "exec sleep 1000"
"""


def test_late_task(page: Page, site: Site) -> None:
    """A task that misses its deadline looks late in lists and needs attention; its run has deadline and usual time."""
    site.configure(LATE)
    site.request("POST", "/api/daemon/reload")
    site.see(page, "#/?state=late")
    expect(page.get_by_role("region", name="Needs attention")).to_contain_text("overdue was to be done by")
    row = board(page).get_by_role("row").filter(has=page.get_by_role("link", name="overdue", exact=True))
    expect(row.locator(".state .badge.bad")).to_have_text("late")
    site.see(page, "#/task/overdue")
    facts = page.get_by_role("region", name="At a glance")
    expect(facts).to_contain_text("Usually takes4m")
    expect(facts).to_contain_text("To be done by")
    (run,) = site.request("GET", "/api/tasks/overdue/runs?status=running").json()["items"]
    site.see(page, f"#/run/{run['id']}")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("usually takes 4m")
    expect(verdict).to_contain_text("to be done by")
    assert complaints_of(page) == []
    site.request("POST", f"/api/runs/{run['id']}/stop?force=true")
    site.configure()
    site.request("POST", "/api/daemon/reload")
