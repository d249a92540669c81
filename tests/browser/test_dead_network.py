"""The dashboard while the network between it and the daemon is dead, in a real browser on a real daemon."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.site import Site
from tests.support.waiting import until

FOREVER_MS = 20_000
"""Longer than the page's time limit for a command, in ms."""
KNOWS_THE_TIME = """() => import(new URL("server_time.js", document.querySelector("script[type=module]").src))
    .then(({ serverTime }) => serverTime() !== null)"""


def hold(page: Page, url: str) -> list[Route]:
    """Leave these requests unanswered."""
    held_routes: list[Route] = []
    page.route(url, lambda route: held_routes.append(route))  # noqa: PLW0108 - Playwright writes into the function
    return held_routes


def test_command_without_an_answer(timed: Page, site: Site) -> None:
    """A button is pending at once; after its time limit, the page says that the result is unknown."""
    site.see(timed, "#/task/backup")
    held_routes = hold(timed, "**/api/tasks/backup/run?*")
    button = timed.get_by_role("main").get_by_role("button", name="Run", exact=True)
    button.click()
    expect(button).to_have_attribute("aria-busy", "true")
    expect(timed.get_by_text("It may have started")).to_have_count(0)
    timed.clock.fast_forward(FOREVER_MS)
    expect(timed.get_by_text("It may have started; check Runs")).to_be_visible()
    expect(button).to_have_attribute("aria-busy", "false")
    assert len(held_routes) == 1
    timed.get_by_role("status").get_by_role("button", name="Runs").click()
    expect(timed.get_by_role("region", name="Runs", exact=True)).to_be_visible()


def test_menu_is_pending(timed: Page, site: Site) -> None:
    """A command of a menu leaves the menu's button pending."""
    assert site.request("POST", "/api/tasks/backup/pause").status == 204
    site.see(timed, "#/task/backup")
    hold(timed, "**/api/tasks/backup/resume")
    more = timed.get_by_role("main").get_by_role("button", name="More for backup")
    more.click()
    timed.get_by_role("menuitem", name="Resume").click()
    expect(more).to_have_attribute("aria-busy", "true")
    timed.clock.fast_forward(FOREVER_MS)
    expect(timed.get_by_text("The command may have taken effect")).to_be_visible()
    expect(more).to_have_attribute("aria-busy", "false")


def test_silence_is_a_lost_connection(timed: Page, site: Site) -> None:
    """After ten seconds without a ping, the page says that it is disconnected, until the daemon sends again."""
    site.see(timed, "#/")
    expect(timed.get_by_text("live", exact=True)).to_be_visible()
    hold(timed, "**/api/events/stream")
    timed.clock.fast_forward(12_000)
    expect(timed.get_by_text("disconnected", exact=True)).to_be_visible()
    timed.unroute_all(behavior="ignoreErrors")
    timed.clock.fast_forward(12_000)
    expect(timed.get_by_text("live", exact=True)).to_be_visible()


def test_late_command_is_refused(timed: Page, site: Site, complaints: list[str]) -> None:
    """A command that reaches the daemon after its deadline starts nothing, however wrong the browser's clock is."""
    timed.clock.set_system_time(datetime.now(UTC) - timedelta(days=400))
    site.see(timed, "#/task/backup")
    until(lambda: timed.evaluate(KNOWS_THE_TIME), "a ping")
    button = timed.get_by_role("main").get_by_role("button", name="Run", exact=True)
    with timed.expect_request("**/api/tasks/backup/run?*") as sent:
        button.click()
    deadline = datetime.fromisoformat(sent.value.headers["ringward-deadline"])
    assert datetime.now(UTC) - timedelta(seconds=60) < deadline < datetime.now(UTC) + timedelta(seconds=15)
    expect(timed.get_by_text("backup was triggered")).to_be_visible()
    before = site.get("/api/tasks/backup/runs").json()["total"]
    late = {**sent.value.headers, "ringward-deadline": (datetime.now(UTC) - timedelta(seconds=1)).isoformat()}
    timed.route("**/api/tasks/backup/run?*", lambda route: route.continue_(headers=late))
    button.click()
    expect(timed.get_by_text("after its deadline. Nothing was done.")).to_be_visible()
    assert site.get("/api/tasks/backup/runs").json()["total"] == before
    complaints.clear()


@pytest.mark.parametrize(
    "wrong_by", [timedelta(hours=-5), timedelta(hours=5), timedelta(days=400)], ids=["behind", "ahead", "far ahead"]
)
def test_ages_follow_the_server(timed: Page, site: Site, wrong_by: timedelta) -> None:
    """However wrong the browser's clock is, ages are right once the server has sent its time."""
    timed.clock.set_system_time(datetime.now(UTC) + wrong_by)
    site.see(timed, "#/daemon")
    until(lambda: timed.evaluate(KNOWS_THE_TIME), "a ping")
    age = timed.locator("dl.facts div").filter(has_text="Up for").locator("dd")
    expect(age).to_have_text(re.compile(r"^\d+(\.\d)?s$|^\d+m( \d+s)?$"))
    loaded = timed.locator("dl.facts div").filter(has_text="Loaded").locator("time")
    expect(loaded).to_have_text(re.compile(r"^\d+[ms] ago$"))
