"""Details of the dashboard that users rely on, in a real browser on a real daemon."""

import re

from playwright.sync_api import Browser, Page, Route, StorageState, expect

from tests.browser.conftest import opened, watched
from tests.browser.site import LONG_NAME, Site
from tests.support.daemon import PASSWORD
from tests.support.waiting import until

NOTED = """() => addEventListener("click", () => {
    window.position = () => scrollY + document.querySelector(".view").scrollTop;
    window.left = position();
}, { capture: true })"""
"""Notes the reader's position with each click: content that loads before the click may still move it."""


def test_back_returns_to_the_position(page: Page, site: Site) -> None:
    """Back returns to the reader's position on the page; a new page begins at its top."""
    size = page.viewport_size
    assert size
    page.set_viewport_size({"width": 1280, "height": 400})
    site.see(page, "#/")
    page.evaluate(NOTED)
    host = page.get_by_role("region", name="Host")
    host.get_by_role("button", name="Show charts").click()
    expect(host.locator("canvas").last).to_be_visible()
    link = page.get_by_role("link", name="web", exact=True)
    link.click()  # which scrolls to it
    before = page.evaluate("left")
    assert before > 100
    expect(page.get_by_role("heading", name="web", exact=True)).to_be_visible()
    until(lambda: page.evaluate("position()") == 0, "the top of the page")
    page.go_back()
    expect(link).to_be_visible()
    until(lambda: abs(page.evaluate("position()") - before) < 3, "the position")
    page.set_viewport_size(size)


def test_back_returns_to_the_position_on_a_phone(phone: Page, site: Site) -> None:
    """On a phone, where the content scrolls between two bars, Back returns to the same position."""
    site.see(phone, "#/")
    phone.evaluate(NOTED)
    link = phone.get_by_role("link", name="web", exact=True)
    link.tap()  # which scrolls to it
    before = phone.evaluate("left")
    assert before > 100
    heading = phone.get_by_role("heading", name="web", exact=True)
    expect(heading).to_be_in_viewport()
    phone.go_back()
    expect(link).to_be_in_viewport()
    until(lambda: abs(phone.evaluate("position()") - before) < 3, "the position")


def test_back_waits_for_slow_content(timed: Page, site: Site) -> None:
    """Back returns to the position even if the content of the page takes long to load."""
    timed.set_viewport_size({"width": 1280, "height": 400})
    site.see(timed, "#/runs")
    timed.evaluate(NOTED)
    timed.get_by_role("region", name="Runs", exact=True).get_by_role("link", name=re.compile("^Run ")).last.click()
    before = timed.evaluate("left")
    assert before > 400
    expect(timed.get_by_role("region", name="Verdict")).to_be_visible()
    held_routes: list[Route] = []
    timed.route(re.compile(r"/api/runs\?"), lambda route: held_routes.append(route))  # noqa: PLW0108
    timed.go_back()
    until(lambda: timed.evaluate("1") and held_routes, "the request for runs")
    timed.clock.fast_forward(5000)
    assert timed.evaluate("position()") < before
    for route in held_routes:
        route.continue_()
    until(lambda: abs(timed.evaluate("position()") - before) < 3, "the position")


def test_back_closes_a_dialog(page: Page, site: Site) -> None:
    """Back closes a dialog without its action."""
    site.see(page, "#/runs")
    page.evaluate("location.hash = '#/task/web'")
    page.get_by_role("button", name="More for web").click()
    page.get_by_role("menuitem", name="Stop").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert site.get("/api/tasks/web").json()["state"] == "running"


def test_badges_move_for_five_seconds(browser: Browser, session: StorageState, site: Site) -> None:
    """The badge of a running service moves for at most five seconds, so that an open page costs nothing later."""
    context = browser.new_context(storage_state=session)
    page = opened(context)
    site.see(page, "#/task/web")
    badge = page.get_by_role("main").locator(".badge.busy svg").first
    ends = badge.evaluate("icon => icon.getAnimations().map((one) => one.effect.getComputedTiming().endTime)")
    assert len(ends) == 1
    assert ends[0] <= 5000
    context.close()


def test_stop_and_restart_ask_first(page: Page, site: Site) -> None:
    """Restart asks first, and so does Stop, which is in the header of a running task."""
    site.see(page, "#/task/web")
    page.get_by_role("main").get_by_role("button", name="Restart", exact=True).click()
    expect(page.get_by_role("dialog", name="Restart web?")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    site.pipe.unlink()
    site.mkfifo()
    run = site.request("POST", "/api/tasks/talks/run?naming=camel").json()["id"]
    site.see(page, f"#/run/{run}")
    page.get_by_role("main").get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("dialog", name="Stop this run of talks?")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    site.see(page, "#/task/talks")
    page.get_by_role("main").get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.get_by_role("main").get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    until(lambda: site.get(f"/api/runs/{run}").json()["end_reason"] == "stopped", "the end of the run")


def test_run_header_leads_to_its_neighbours(page: Page, site: Site) -> None:
    """The keyboard steps through the runs of a task; at an end, the link is disabled until there is a newer run."""
    runs = [site.run_to_end("colours") for _ in range(2)]
    newest = site.run_to_end("colours")
    retry_urls: list[str] = []
    site.see(page, f"#/run/{runs[0]}")
    page.on("request", lambda request: retry_urls.append(request.url) if "/colours/runs?" in request.url else None)
    crumbs = page.get_by_role("navigation", name="Breadcrumb")
    expect(crumbs.get_by_role("listitem")).to_have_text(["Overview", "colours", re.compile("^Run of ")])
    previous = page.get_by_role("link", name="Previous run")
    following = page.get_by_role("link", name="Next run")
    expect(following).to_have_attribute("href", f"#/run/{runs[1]}")
    following.press("Enter")
    expect(page).to_have_url(f"{site.url}#/run/{runs[1]}")
    expect(previous).to_have_attribute("href", f"#/run/{runs[0]}")
    expect(following).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}#/run/{newest}")
    expect(previous).to_have_attribute("href", f"#/run/{runs[1]}")
    expect(following).to_be_disabled()
    expect(previous).to_be_focused()
    retry_urls.clear()
    later = site.run_to_end("colours")
    expect(following).to_have_attribute("href", f"#/run/{later}")
    assert len(set(retry_urls)) == 2
    crumbs.get_by_role("link", name="colours").click()
    expect(page).to_have_url(f"{site.url}#/task/colours")


PLACES = """links => links.map((link) => {
    const { left, top, width, height } = link.getBoundingClientRect();
    const head = link.closest(".page-head").getBoundingClientRect();
    return [left - head.left, top - head.top, width, height];
})"""
"""Position and size of links within the head of the page."""


def test_first_run_has_no_previous_one(page: Page, site: Site) -> None:
    """Without a previous or next run, that link is disabled and stays in its place."""
    run = site.run_to_end(LONG_NAME)
    site.see(page, f"#/run/{run}")
    page.get_by_role("region", name="Resources").wait_for()
    previous, following = (page.get_by_role("link", name=name) for name in ("Previous run", "Next run"))
    expect(previous).to_be_disabled()
    expect(following).to_be_disabled()
    links = previous.or_(following)
    places = links.evaluate_all(PLACES)
    assert len(places) == 2
    later = site.run_to_end(LONG_NAME)
    expect(following).to_have_attribute("href", f"#/run/{later}")
    expect(previous).to_be_disabled()
    assert links.evaluate_all(PLACES) == places
    crumb = page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Overview")
    crumb.press("Enter")
    expect(page).to_have_url(f"{site.url}#/")


def test_overview_filters_by_state(page: Page, site: Site) -> None:
    """The filter of the overview finds units by their state."""
    site.see(page, "#/?q=failed")
    rows = page.get_by_role("region", name="Tasks and services").get_by_role("row")
    expect(rows.filter(has_text="backup")).to_be_visible()
    expect(rows.filter(has_text="colours")).to_have_count(0)


def test_long_name_takes_one_line(page: Page, site: Site) -> None:
    """A name of 100 characters takes one line, has a full tooltip, and widens no page."""
    site.see(page, "#/")
    link = page.get_by_role("region", name="Tasks and services").get_by_role("link", name=LONG_NAME)
    expect(link).to_have_attribute("title", LONG_NAME)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="hidden", exact=True))
    assert link.bounding_box()["height"] < 1.5 * row.get_by_role("link").first.bounding_box()["height"]  # type: ignore[index]


def test_error_belongs_to_its_field(page: Page, site: Site, complaints: list[str]) -> None:
    """The error of a parameter is tied to its field, which is marked as invalid."""
    site.see(page, "#/task/report")
    page.get_by_role("main").get_by_role("button", name="Run", exact=True).click()
    field = page.get_by_role("dialog").get_by_label("month")
    expect(field).to_have_accessible_description("As in 2026-11")
    field.fill("May")
    page.get_by_role("dialog").get_by_role("button", name="Run", exact=True).click()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile("As in 2026-11 .*must match"))
    page.get_by_role("button", name="Cancel").click()
    complaints.clear()


def test_no_success_rate_before_the_first_end(page: Page, site: Site) -> None:
    """While a task's only run is active, the page shows no success rate."""
    page.route(
        "**/api/runs/summary?*",
        lambda route: route.fulfill(json={"total": 1, "success": 0, "failed": 0, "missed": 0}),
    )
    site.see(page, "#/task/report")
    facts = page.get_by_role("region", name="At a glance")
    expect(facts.locator("dl > div").filter(has_text="Runs kept")).to_contain_text("1")
    expect(facts).not_to_contain_text("0 %")


def test_times_follow_the_locale(browser: Browser, session: StorageState, site: Site, complaints: list[str]) -> None:
    """In locales with a 12-hour clock, all times have 12 hours, even in input fields.

    A schedule whose time zone differs from the reader's names it.
    """
    context = browser.new_context(storage_state=session, locale="en-US", timezone_id="UTC")
    page = watched(context, complaints)
    site.see(page, f"#/run/{site.done['backup']}")
    log = page.get_by_role("log")
    expect(log.locator("[data-n='0'] .t")).to_have_text(re.compile("[AP]M"))
    field = page.get_by_label("Go to line or time")
    field.fill("nonsense")
    field.press("Enter")
    expect(page.get_by_text("a time such as 2:05 PM")).to_be_visible()
    field.fill("12:00 am")
    field.press("Enter")
    expect(log.locator(".target")).to_have_count(1)
    site.see(page, "#/task/backup")
    expect(page.get_by_text("At 02:30 AM", exact=True)).to_be_visible()
    context.close()
    context = browser.new_context(storage_state=session, locale="en-GB", timezone_id="Asia/Tokyo")
    page = watched(context, complaints)
    site.see(page, "#/task/backup")
    expect(page.get_by_text(re.compile(r"^At 02:30 \(.+\)$"))).to_be_visible()  # the clocks of the daemon
    context.close()


def test_failures_have_their_own_shape(page: Page, site: Site) -> None:
    """Failures have their own shape in strips and in the year."""
    site.see(page, "#/task/backup")
    expect(page.get_by_role("region", name="The last year").locator(".mark")).to_have_count(1)
    site.see(page, "#/?q=backup")
    bar = page.get_by_role("group", name="Last runs of backup").locator("a.bad").first
    expect(bar).to_have_css("border-top-style", "double")


def test_ended_session_keeps_the_action(browser: Browser, site: Site, complaints: list[str]) -> None:
    """An ended session is explained, and the action that found it is carried out after the login."""
    context = browser.new_context()
    page = watched(context, complaints)
    site.enter(page)
    site.see(page, "#/task/colours")
    before = site.get("/api/tasks/colours/runs").json()["total"]
    run = page.get_by_role("main").get_by_role("button", name="Run", exact=True).element_handle()
    context.clear_cookies()
    run.evaluate("(button) => button.click()")  # at once: a request of the page itself could find out first
    expect(page.get_by_text("Your session has ended. Log in to continue; your last action is then")).to_be_visible()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="colours", exact=True)).to_be_visible()
    until(lambda: site.get("/api/tasks/colours/runs").json()["total"] == before + 1, "the run")
    context.close()
    complaints[:] = [complaint for complaint in complaints if "401" not in complaint]


def test_token_logs_in(browser: Browser, site: Site, complaints: list[str]) -> None:
    """The login accepts a token, with its own role and tasks, and a logout ends it in this browser."""
    token_request = {"name": "reader", "role": "viewer"}
    secret = site.request("POST", "/api/tokens", token_request).json()["token"]
    context = browser.new_context()
    page = watched(context, complaints)
    page.goto(site.url)
    page.get_by_label("Password or token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("viewer")).to_be_visible()
    page.reload()
    expect(page.get_by_text("viewer")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password or token")).to_be_visible()
    assert site.request("DELETE", "/api/tokens/reader").status == 204
    context.close()
    complaints[:] = [complaint for complaint in complaints if "401" not in complaint]


PAINTED = "() => new Promise((settle) => requestAnimationFrame(() => requestAnimationFrame(() => settle(true))))"
SHIFTS = """() => new Promise((settle) => {
    let sum = 0;
    const add = (entries) => { for (const one of entries) if (!one.hadRecentInput) sum += one.value; };
    const watcher = new PerformanceObserver((list) => add(list.getEntries()));
    watcher.observe({ type: "layout-shift", buffered: true });
    requestAnimationFrame(() => requestAnimationFrame(() => { add(watcher.takeRecords()); settle(sum); }));
})"""


def test_attempts_do_not_move_the_log(browser: Browser, session: StorageState, site: Site) -> None:
    """The attempts of a run load without moving the page below them (CLS below 0.02)."""
    site.run_to_end("tries")
    until(lambda: site.get("/api/tasks/tries/runs?status=ended").json()["total"] == 2, "the retry")
    run = site.get("/api/tasks/tries/runs?sortDirection=asc").json()["items"][0]["id"]
    context = browser.new_context(storage_state=session)
    page = context.new_page()
    held_routes: list[Route] = []
    page.route("**/api/tasks/tries/runs?*retriesOnly*", lambda route: held_routes.append(route))  # noqa: PLW0108
    page.goto(f"{site.url}#/run/{run}")
    expect(page.get_by_text("Complete")).to_be_visible()
    until(lambda: page.evaluate(PAINTED) and held_routes, "the question for attempts")
    for route in held_routes:
        route.continue_()
    expect(page.get_by_role("region", name="2 attempts").get_by_role("link")).to_have_count(2)
    assert page.evaluate(PAINTED)
    assert page.evaluate(SHIFTS) < 0.02
    context.close()


def test_lists_by_keyboard(page: Page, site: Site) -> None:
    """In every list, j and k move between rows, Enter opens one, x selects it, r runs it again and s stops it."""
    ids = [site.run_to_end("tries-to-say") for _ in range(3)]
    site.see(page, "#/runs?task_name=tries-to-say")
    rows = page.get_by_role("region", name="Runs", exact=True).locator("tbody tr")
    expect(rows).to_have_count(len(site.runs("tries-to-say")))
    page.keyboard.press("j")
    expect(rows.nth(0).get_by_role("link").first).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("x")
    expect(page.get_by_role("region", name="Selection")).to_contain_text("1 selected")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    page.keyboard.press("r")
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")
    assert not any(run in page.url for run in ids)
    site.see(page, "#/runs?task_name=tries-to-say")
    expect(rows.nth(1)).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/run/"))
    site.see(page, "#/?q=web&kind=service")
    board = page.get_by_role("region", name="Tasks and services")
    expect(board.locator("tbody td.name")).to_have_count(1)
    while not board.evaluate("box => box.contains(document.activeElement) && document.activeElement.matches('td a')"):
        page.keyboard.press("j")
    page.keyboard.press("s")
    expect(page.get_by_role("dialog", name="Stop web?")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("next and previous row")
    page.keyboard.press("Escape")


TEXTS_PAINTED = """
window.painted = [];
const paint = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.painted.push(text);
    return paint.call(this, text, ...rest);
};
"""


def test_charts_have_round_ticks(browser: Browser, session: StorageState, site: Site) -> None:
    """Ticks are round in their unit, bytes in powers of two; the ticks of seconds are times of the day."""
    for _ in range(2):
        site.run_to_end("colours")
    context = browser.new_context(storage_state=session, locale="en-GB", timezone_id="UTC")
    page = opened(context)
    page.add_init_script(TEXTS_PAINTED)
    site.see(page, "#/task/colours")
    times = until(lambda: [one for one in page.evaluate("painted") if ":" in one], "the chart of durations")
    assert [one for one in times if not re.fullmatch(r"\d\d:\d\d:\d\d", one)] == []
    site.see(page, "#/system")
    sizes = until(lambda: [one for one in page.evaluate("painted") if "GB" in one], "the chart of memory")
    assert [one for one in sizes if not re.fullmatch(r"(\d\.0|\d\d+) GB|512 MB", one)] == []
    context.close()
