"""The dashboard, in a real browser on a real daemon."""

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import PAST, Site, choose_statuses
from tests.support.receivers import web_server
from tests.support.waiting import until


def test_failed_tasks_and_services_come_first(page: Page, site: Site) -> None:
    """A task whose last run failed and a fatal service come first, each with a link to its log."""
    site.ok.unlink(missing_ok=True)
    site.run_to_end("backup")
    site.see(page, "#/")
    attention = page.get_by_role("region", name="Needs attention")
    down = attention.get_by_role("listitem").filter(has=page.get_by_role("link", name="broken", exact=True))
    expect(down).to_contain_text("is down")
    failed = attention.get_by_role("listitem").filter(has_text="backup")
    expect(failed).to_contain_text("failed with exit code 1")
    failed.get_by_role("link", name="Details").click()
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("(exit code 1)")
    expect(page.get_by_role("log")).to_contain_text("disk full")


def test_flapping_service_needs_attention(page: Page, site: Site) -> None:
    """A service that runs but fails repeatedly needs attention, and is shown as flapping wherever its state appears."""
    site.see(page, "#/")
    attention = page.get_by_role("region", name="Needs attention")
    row = attention.get_by_role("listitem").filter(has_text="shaky")
    expect(row).to_contain_text("failed more than 0 times within 1d")
    expect(page.get_by_role("row").filter(has_text="shaky")).to_contain_text(re.compile("running.*flapping"))
    row.get_by_role("link", name="shaky").click()
    expect(page.get_by_role("main")).to_contain_text(re.compile("running.*flapping"))
    site.see(page, "#/notifications")
    expect(page.get_by_role("main")).to_contain_text("shaky is flapping")


def test_slow_start_needs_attention(timed: Page, site: Site) -> None:
    """A service that has been starting for more than a minute needs attention, with the reason of its wait."""
    instances = until(lambda: site.task("waits").get("instances"), "its instance")
    since = datetime.fromisoformat(instances[0]["since"])
    timed.route("**/api/events/stream", lambda _route: None)  # without pings, the browser's clock counts
    timed.clock.set_fixed_time(since + timedelta(seconds=59))
    site.see(timed, "#/")
    row = timed.get_by_role("region", name="Needs attention").get_by_role("listitem").filter(has_text="waits")
    expect(timed.get_by_role("row").filter(has_text="waits")).to_contain_text("starting")
    expect(row).to_have_count(0)
    timed.clock.set_fixed_time(since + timedelta(seconds=120))
    expect(row).to_contain_text("has been starting for 2m")
    expect(row).to_contain_text("waits for broken to be ready")


def test_failed_backup_is_found_and_repaired(page: Page, site: Site) -> None:
    """A user finds a failed backup, reads and repairs its cause, and sees the new run succeed."""
    site.see(page, "#/")
    page.get_by_role("link", name="backup", exact=True).first.click()
    runs = page.get_by_role("region", name="Runs", exact=True)
    runs.get_by_role("link", name=re.compile("^Run ")).first.click()
    expect(page.get_by_role("log")).to_contain_text("disk full")
    site.ok.touch()
    before = page.url
    page.get_by_role("button", name="Run again").click()
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")
    assert page.url != before
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Overview").click()
    expect(page.get_by_role("region", name="Needs attention")).not_to_contain_text("backup")


def test_address_has_filters_and_sorting(page: Page, site: Site) -> None:
    """The address contains filters and sorting, so that users can share it."""
    site.see(page, "#/runs")
    choose_statuses(page, "failed", "timed out")
    page.get_by_role("button", name="Duration").click()
    rows = page.get_by_role("region", name="Runs").locator("tbody tr")
    expect(rows.filter(has_text="succeeded")).to_have_count(0)
    address = page.url
    assert "status=failed%2Ctimeout" in address
    assert "sort=duration" in address
    page.goto("about:blank")
    page.goto(address)
    statuses = page.get_by_role("button", name="Status: failed, timed out")
    statuses.press("Enter")
    expect(page.get_by_role("checkbox", name="timed out", exact=True)).to_be_checked()
    assert complaints_of(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name="timed out", exact=True)).to_have_count(0)
    expect(statuses).to_be_focused()
    expect(rows.filter(has_text="succeeded")).to_have_count(0)
    expect(rows.first).to_contain_text("failed")


def test_delete_and_restore_all_matches(page: Page, site: Site) -> None:
    """All matching runs, even on other pages, are deleted and restored.

    Runs created after the selection are kept, and runs that the same filter had deleted before stay deleted.
    """
    first = site.request("GET", "/api/runs?task_name=old&sort_direction=asc&limit=1").json()["runs"][0]["id"]
    site.request("POST", "/api/runs/bulk/delete", {"ids": [first]})
    site.see(page, "#/runs?task_name=old")
    card = page.get_by_role("main")
    expect(card.get_by_text(f"{PAST - 1} runs")).to_be_visible()
    card.get_by_role("checkbox").first.check()
    card.get_by_role("button", name=f"Select all {PAST - 1} that match").click()
    expect(card.get_by_text(f"{PAST - 1} selected")).to_be_visible()
    later = site.run_to_end("old")
    expect(card.get_by_role("checkbox", name=f"Select run {later}")).to_be_disabled()
    card.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name=f"Delete {PAST - 1} runs?").get_by_role("button", name="Delete").click()
    expect(card.get_by_text("1 run", exact=True)).to_be_visible()
    expect(card.get_by_role("link", name=f"Run {later}")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(card.get_by_text(f"{PAST} runs")).to_be_visible()
    assert site.request("GET", f"/api/runs/{first}").status == 404
    card.get_by_role("link", name="Deleted runs").click()
    page.get_by_role("button", name=f"Restore run {first}").click()
    expect(page.get_by_role("button", name=f"Restore run {first}")).to_have_count(0)
    assert site.request("GET", f"/api/runs/{first}").status == 200


def test_audit_names_runs(page: Page, site: Site) -> None:
    """The audit says which runs a bulk action changed, and how many; for "Run again", it names both runs."""
    site.see(page, f"#/run/{site.done['colours']}")
    page.get_by_role("button", name="Run again").click()
    expect(page).not_to_have_url(re.compile(site.done["colours"]))
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")
    again = page.url.rpartition("/")[2]
    site.see(page, "#/audit")  # the page of a deleted run would report a failed request
    selector = {"match_all": True, "filter": {"task_name": "colours", "search": again}}
    assert site.request("POST", "/api/runs/bulk/delete", selector).json()["affected"] == 1

    def row(action: str) -> Locator:
        return page.get_by_role("row").filter(has_text=action).filter(has_text=again)

    def is_there() -> bool:
        page.get_by_role("button", name="Refresh").click()
        return row("Delete runs").count() == 1

    until(is_there, "the entry")
    expect(row("Run again").locator(f"a[href$='/run/{site.done['colours']}']")).to_be_visible()
    expect(row("Run again")).to_contain_text(f"1 run: colours {again}")
    expect(row("Delete runs")).to_contain_text(f"runs with task colours, search {again}")
    expect(row("Delete runs")).to_contain_text(f"1 run: {again}")


def test_run_bars_by_keyboard(page: Page, site: Site) -> None:
    """Tab reaches one bar; arrows move to others, which announce their meaning; Enter opens the run."""
    site.see(page, "#/")
    page.get_by_role("row", name=re.compile("^old ")).scroll_into_view_if_needed()
    bars = page.get_by_role("group", name="Last runs of old").get_by_role("link")
    here = bars.and_(page.locator("[tabindex='0']"))
    expect(here).to_have_count(1)
    bars.last.focus()
    for key, place in (("ArrowLeft", 18), ("ArrowLeft", 17), ("ArrowRight", 18), ("Home", 0), ("End", 19)):
        page.keyboard.press(key)
        expect(bars.nth(place)).to_be_focused()
        expect(here).to_have_count(1)
        expect(page.locator(".tip")).to_have_text(bars.nth(place).get_attribute("aria-label") or "")
    expect(bars.last).to_have_accessible_name(re.compile("^succeeded, "))
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")


def test_year_by_keyboard(page: Page, site: Site) -> None:
    """Tab reaches one day; arrows move to others, which announce their outcome; Enter opens the runs."""
    site.see(page, "#/task/old")
    days = page.get_by_role("region", name="The last year").locator("svg a")
    here = days.and_(page.locator("[tabindex='0']"))
    expect(here).to_have_count(1)
    here.focus()
    newest = here.get_attribute("data-day") or ""
    for key, days_back in (("ArrowLeft", 7), ("ArrowUp", 8), ("ArrowDown", 7), ("ArrowRight", 0), ("End", 0)):
        page.keyboard.press(key)
        expected = date.fromisoformat(newest) - timedelta(days=days_back)
        expect(here).to_have_attribute("data-day", expected.isoformat())
        expect(here).to_be_focused()
    expect(here).to_have_accessible_name(re.compile("1 run, 1 succeeded"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("main").get_by_text("1 run", exact=True)).to_be_visible()
    assert f"created_after={newest}" in page.url


def test_notifications_are_ordered_by_shown_time(page: Page, site: Site) -> None:
    """A repeated notification moves to the top with the date of its last occurrence; all are in order of date."""
    site.ok.unlink(missing_ok=True)
    site.run_to_end("backup")
    before = site.get("/api/tasks/tries/runs").json()["total"]
    site.run_to_end("tries")
    until(lambda: site.get("/api/tasks/tries/runs?status=ended").json()["total"] >= before + 2, "the retry")
    until(lambda: newest_notification(site)["taskName"] == "tries", "the notification about the retry")
    site.see(page, "#/notifications")
    items = page.get_by_role("region", name="Notifications").get_by_role("listitem")
    expect(items.filter(has_text="tries failed")).to_have_count(1)
    site.run_to_end("backup")
    expect(items.first).to_contain_text(re.compile(r"backup failed \d+ times"))
    dates = items.locator("time").evaluate_all("times => times.map((one) => one.dateTime)")
    assert len(dates) > 1
    assert dates == sorted(dates, reverse=True)


def newest_notification(site: Site) -> dict[str, Any]:
    notification: dict[str, Any] = site.get("/api/notifications?limit=1").json()["items"][0]
    return notification


def test_notifiers_show_their_deliveries(page: Page, site: Site) -> None:
    """Notifiers show their deliveries, the cause of failures, and a button that sends a test message."""
    with web_server() as web:
        notifier = f"[notifiers.ops]\nurl = 'json://127.0.0.1:{web.port}/secret'\n"
        site.configure(f"{notifier}[[routes]]\nnotify = 'ops'\nmatch = {{ tasks = 'tries' }}\n")
        site.request("POST", "/api/daemon/reload")
        site.see(page, "#/notifications")
        page.get_by_role("main").get_by_role("link", name="Notifiers").click()
        row = page.get_by_role("row", name=re.compile("ops"))
        expect(row).to_contain_text("not used yet")
        row.get_by_role("button", name="Send test message").click()
        expect(page.get_by_text("ops delivered the message")).to_be_visible()
        web.respond = lambda _number: (500, {})
        row.get_by_role("button", name="Send test message").click()
        expect(page.get_by_role("status").filter(has_text="ops: ")).to_contain_text("500")
        site.run_to_end("tries")
        expect(row).to_contain_text("failing")
        expect(row.locator(".problem")).to_contain_text("500")
        expect(page.get_by_role("main")).not_to_contain_text("secret")
        assert complaints_of(page) == []
    site.configure()
    site.request("POST", "/api/daemon/reload")


def test_run_and_its_retry_link_to_each_other(page: Page, site: Site) -> None:
    """A run and its retry link to each other."""
    first = site.run_to_end("tries")
    site.see(page, f"#/run/{first}")
    page.get_by_role("link", name="2. failed").click()
    expect(page.get_by_role("link", name="2. failed")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="1. failed").click()
    expect(page).to_have_url(re.compile(first))


def test_service_page(page: Page, site: Site) -> None:
    """A service shows its uptime by day, the state of each instance, its restarts, and one log of all instances."""
    site.see(page, "#/task/web")
    days = page.get_by_role("group", name="Uptime of web, the last 90 days").get_by_role("link")
    expect(days).to_have_count(90)
    expect(days.nth(89 - 1)).to_have_accessible_name(re.compile("99.76 % up, down for 3m 20s"))
    assert [days.nth(89 - ago).get_attribute("class") for ago in (70, 40, 30, 1)] == ["none", "good", "bad", "warn"]
    days.last.press("ArrowLeft")
    expect(days.nth(88)).to_be_focused()
    expect(page.get_by_role("region", name="Uptime")).to_contain_text("Restarts in 24 h")
    instances = page.get_by_role("region", name="Instances", exact=True)
    expect(instances.get_by_text(re.compile("^up "))).to_have_count(2)
    instances.get_by_role("button", name="Instance 1: changes of its state").click()
    expect(instances.locator(".changes")).to_contain_text("starting")
    log = page.get_by_role("region", name="Log of all instances")
    names = log.locator(".log-row").filter(has=page.get_by_text("serving", exact=True)).locator(".n")
    until(lambda: {*names.all_inner_texts()} == {"[0] 1", "[1] 1"}, "the lines of both instances")
    names.first.click()
    expect(page.locator(".log-row.target .x")).to_have_text("serving")


def test_instances_of_runs(page: Page, site: Site) -> None:
    """Runs show the index of their instance if the service has several, even at the start of the daemon."""
    site.see(page, "#/runs?task_name=web")
    triggers = page.get_by_role("table").locator("td.trigger")
    expect(triggers.filter(has_text="daemon start [0]")).to_have_count(1)
    expect(triggers.filter(has_text="daemon start [1]")).to_have_count(1)
    site.see(page, "#/runs?task_name=broken")
    expect(triggers.filter(has_text="service restart").first).to_have_text("service restart")
    page.get_by_role("table").get_by_role("link", name=re.compile("^Run ")).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("broken")


def test_stop_and_start_a_service(page: Page, site: Site) -> None:
    """A service stops after a confirmation and starts again, and its state changes on the page."""
    site.see(page, "#/task/web")
    head = page.get_by_role("main")
    expect(head.locator(".page-head .badge").first).to_have_text("running")
    head.get_by_role("button", name="More for web").click()
    page.get_by_role("menuitem", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(head.locator(".page-head .badge").first).to_have_text("stopped")
    head.get_by_role("button", name="Start", exact=True).click()
    expect(head.locator(".page-head .badge").first).to_have_text("running")


def test_paused_schedule_shows_no_next_runs(page: Page, site: Site) -> None:
    """A paused task shows that it is paused, and no next runs until it is resumed."""
    site.see(page, "#/task/backup")
    page.get_by_role("button", name="More for backup").click()
    page.get_by_role("menuitem", name="Pause the schedule").click()
    page.get_by_role("dialog").get_by_label("How long").select_option("for 4 hours")
    page.get_by_role("dialog").get_by_label("Note").fill("the disk is replaced")
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("schedule paused")).to_be_visible()
    expect(page.locator(".banner", has_text="the disk is replaced")).to_contain_text(", until ")
    coming = page.get_by_role("region", name="Next runs")
    expect(coming.get_by_role("listitem")).to_have_count(0)
    expect(coming).to_contain_text("The schedule is paused.")
    page.get_by_role("button", name="More for backup").click()
    page.get_by_role("menuitem", name="Resume the schedule").click()
    expect(page.get_by_text("schedule paused")).to_have_count(0)
    expect(coming.get_by_role("listitem")).to_have_count(6)


def test_disabled_run_button_explains_itself(page: Page, site: Site) -> None:
    """The run button of a task with api_trigger = false is disabled, and says why."""
    site.see(page, "#/task/hidden")
    button = page.get_by_role("main").get_by_role("button", name="Run", exact=True)
    expect(button).to_be_disabled()
    expect(button).to_have_attribute("title", re.compile("api_trigger"))


def test_parameter_form(page: Page, site: Site, complaints: list[str]) -> None:
    """A task with parameters asks for them, explains invalid values, and shows the values with the run."""
    site.see(page, "#/task/report")
    page.get_by_role("main").get_by_role("button", name="Run", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("month").fill("November")
    dialog.get_by_label("WHO").select_option("nobody")
    dialog.get_by_role("button", name="Run").click()
    expect(dialog.get_by_role("alert")).to_contain_text("[0-9]{4}-[0-9]{2}")
    dialog.get_by_label("month").fill("2026-11")
    dialog.get_by_role("button", name="Run").click()
    expect(page.get_by_role("log")).to_contain_text("2026-11 for nobody")
    expect(page.get_by_role("region", name="Run", exact=True)).to_contain_text("2026-11")
    complaints[:] = [complaint for complaint in complaints if "422" not in complaint]


def test_rerun_with_changed_parameters(page: Page, site: Site) -> None:
    """A run can be repeated with some parameters changed; the others keep their values."""
    answer = site.request("POST", "/api/tasks/report/run?wait=60", {"params": {"month": "2026-10", "WHO": "nobody"}})
    site.see(page, f"#/run/{answer.json()['id']}")
    page.get_by_role("button", name="More for this run").click()
    page.get_by_role("menuitem", name="Run again with changes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("month")).to_have_value("2026-10")
    dialog.get_by_label("month").fill("2026-09")
    dialog.get_by_role("button", name="Run").click()
    expect(page.get_by_role("log")).to_contain_text("2026-09 for nobody")


def test_remaining_time_of_a_running_task(page: Page, site: Site) -> None:
    """A running task shows its usual duration, and the remaining time or the delay."""
    for _ in range(3):
        site.run_to_end("colours")
    answer = site.request("POST", "/api/tasks/colours/run?naming=camel").json()
    running = {**answer, "status": "running", "startedAt": answer["createdAt"], "triggeredBy": "api"}
    page.route(re.compile(f"/api/runs/{answer['id']}\\?"), lambda route: route.fulfill(json=running))
    site.see(page, f"#/run/{answer['id']}")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text(re.compile("usually takes [0-9.]+m?s, .* longer so far"))
    expect(verdict.get_by_role("progressbar")).to_be_visible()


def test_calendar_of_upcoming_runs(page: Page, site: Site) -> None:
    """The calendar shows the upcoming runs of five weeks, day by day."""
    site.see(page, "#/task/backup")
    days = page.get_by_role("region", name="Coming runs").get_by_role("cell")
    expect(days).to_have_count(35)
    expect(days.last).to_have_text(re.compile("02:30"))
    expect(days.last).to_have_accessible_name(re.compile("1 run, at 02:30"))


def test_browser_notifications(page: Page, site: Site) -> None:
    """A switch requests the permission; then a warning or error in a hidden tab shows a notification."""
    page.context.grant_permissions(["notifications"])
    page.add_init_script("""
        window.shown = [];
        window.Notification = class { constructor(title) { shown.push(title); } };
        Notification.permission = "granted";
        Notification.requestPermission = async () => "granted";
    """)
    site.see(page, "#/notifications")
    switch = page.get_by_role("button", name="Notify in this browser")
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "true")
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    site.configure("[tasks.fails-at-night]\nrun = 'exit 1'\n")
    site.request("POST", "/api/daemon/reload")
    site.run_to_end("fails-at-night")
    until(lambda: page.evaluate("shown.some((title) => title.includes('fails-at-night'))"), "the notification")
    page.evaluate("delete document.hidden")
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "false")


def test_dashboard_is_installable(page: Page, site: Site) -> None:
    """The page links to a manifest whose start page, scope and icon exist."""
    site.see(page, "#/")
    link = page.locator("link[rel=manifest]").evaluate("one => one.href")
    value = page.evaluate("async (link) => (await fetch(link)).json()", link)
    assert value["display"] == "standalone"
    start = page.evaluate("([start, link]) => new URL(start, link).href", [value["start_url"], link])
    assert start == site.url
    icon = page.evaluate("([icon, link]) => new URL(icon, link).href", [value["icons"][0]["src"], link])
    assert page.request.get(icon).headers["content-type"] == "image/svg+xml"


def test_empty_choice_is_not_the_default(page: Page, site: Site) -> None:
    """A chosen empty value is sent as such, not as the default."""
    params = '[{ name = "M", kind = "env", default = "some", choices = ["some", ""] }]'
    site.configure(f"[tasks.chooses]\nrun = 'echo \"<$M>\"'\nparams = {params}\n")
    site.request("POST", "/api/daemon/reload")
    site.see(page, "#/task/chooses")
    page.get_by_role("main").get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("dialog").get_by_label("M").select_option("")
    page.get_by_role("dialog").get_by_role("button", name="Run").click()
    expect(page.get_by_role("log")).to_contain_text("<>")


def test_dialog_right_after_another(page: Page, site: Site) -> None:
    """A dialog's late close event does not close the next dialog; the focus returns after the last one."""
    site.see(page, "#/")
    page.get_by_role("button", name="Keyboard shortcuts").press("Enter")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.evaluate(
        "() => { document.querySelector('dialog').close();"
        " dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true })); }"
    )
    expect(page.get_by_role("combobox", name="Find tasks")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_focused()


def test_palette_finds_tasks_pages_and_actions(page: Page, site: Site) -> None:
    """Tasks, pages and actions can be found by a few letters, by keyboard alone."""
    site.see(page, "#/")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Find tasks")
    expect(field).to_be_focused()
    page.keyboard.type("syst")
    first = page.get_by_role("listbox", name="Found").get_by_role("option").first
    expect(first).to_contain_text("System")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="System", exact=True)).to_be_visible()
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("colours")
    expect(first).to_contain_text("colours")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="colours", exact=True)).to_be_visible()
    page.evaluate("() => { const at = Date.now(); window.clock = Date.now; Date.now = () => at; }")  # for the chord
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.evaluate("() => { Date.now = window.clock; }")
    expect(page).to_have_url(f"{site.url}#/runs")
    expect(page.get_by_role("region", name="Runs", exact=True)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for name, control in (("Stop web", "Stop"), ("Run report", "month")):
        page.keyboard.press("Control+k")
        expect(field).to_be_focused()
        page.keyboard.type(name)
        expect(first).to_contain_text(name)
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name=re.compile(name))
        expect(dialog.get_by_label(control).or_(dialog.get_by_role("button", name=control))).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_palette_tells_runs_apart(page: Page, site: Site) -> None:
    """Runs that the palette finds differ by their times, not by their ids."""
    site.run_to_end("tries-to-say")
    site.run_to_end("tries-to-say")
    site.see(page, "#/")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find tasks")).to_be_focused()
    page.keyboard.type("tries-to-say")
    runs = page.get_by_role("listbox", name="Found").get_by_role("option").filter(has_text="run, ")
    expect(runs.nth(1)).to_have_text(re.compile(r"^tries-to-say, \d\d:\d\d:\d\drun, succeeded$"))
    page.keyboard.press("Escape")


def test_start_is_no_outage(page: Page, site: Site) -> None:
    """A day on which a service only took a moment to start counts as up; one with a short outage does not."""
    today = datetime.now(UTC).date()
    days = {today: 400, today - timedelta(days=1): 4000}
    items = [{"day": str(day), "upMs": 60_000, "downMs": ms, "stoppedMs": 0} for day, ms in sorted(days.items())]
    answer = {"items": items, "instances": [], "restarts24h": 0}
    page.route("**/api/tasks/web/uptime?*", lambda route: route.fulfill(json=answer))
    site.see(page, "#/task/web")
    bars = page.get_by_role("group", name="Uptime of web").get_by_role("link")
    expect(bars.nth(89)).to_have_class("good")
    expect(bars.nth(88)).to_have_class("bad")


def test_daemon_page_tells_of_single_modules(page: Page, site: Site) -> None:
    """The page of the daemon says that a checkout serves the modules one by one, and what bundles them."""
    site.see(page, "#/daemon")
    expect(page.get_by_role("region", name="This daemon")).to_contain_text("Not bundled")
    expect(page.get_by_role("region", name="This daemon")).to_contain_text("make bundle")


def test_changed_configuration_can_be_reloaded(page: Page, site: Site, complaints: list[str]) -> None:
    """A changed file is noticed and its plan shown; a reload loads it, and refuses an invalid one with the place."""
    site.see(page, "#/")
    site.configure("\n[tasks.fresh]\nrun = 'true'\n")
    page.get_by_role("link", name="Preview reload").click()
    expect(page.get_by_text("fresh is added")).to_be_visible()
    page.get_by_role("button", name="Reload", exact=True).click()
    expect(page.get_by_text("Configuration is up to date")).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("link", name="fresh", exact=True)).to_be_visible()
    site.configure("\n[tasks.fresh]\nrunn = 'true'\n")
    site.see(page, "#/daemon?plan=1")
    expect(page.get_by_text("The file is invalid")).to_be_visible()
    expect(page.get_by_text("runn").first).to_be_visible()
    site.configure()
    site.request("POST", "/api/daemon/reload")
    complaints[:] = [complaint for complaint in complaints if "422" not in complaint]


def test_daemon_page_shows_problems(page: Page, site: Site) -> None:
    """The daemon's page shows the problems that `ringward status` reports about it, each with its subject."""
    site.see(page, "#/daemon")
    expect(page.get_by_role("region", name="This daemon")).to_contain_text("Version")
    expect(page.get_by_role("region", name="Problems")).to_have_count(0)
    changes = {
        "databaseProblem": "the disk is full; free some space",
        "configWarnings": ['ringward.toml:4: http.public[0]: no task or service named "bakcup"'],
        "inotifyProblems": ["all inotify watches of the user are in use; raise fs.inotify.max_user_watches"],
        "exports": [{"name": "loki", "error": "connection refused"}, {"name": "files"}],
    }
    page.route("**/api/daemon", lambda route: route.fulfill(json=route.fetch().json() | changes))
    page.reload()
    problems = page.get_by_role("region", name="Problems")
    expect(problems.get_by_role("term")).to_have_text(["Database", "Configuration", "File changes", "Export loki"])
    expect(problems.get_by_role("definition").nth(2)).to_contain_text("raise fs.inotify.max_user_watches")
    assert complaints_of(page) == []


def test_unknown_addresses_are_explained(page: Page, site: Site, complaints: list[str]) -> None:
    """An unknown address or a removed run is explained on the page and in its title, with a link to continue."""
    site.see(page, "#/tokens")
    site.see(page, "#/nonsense")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    expect(page).to_have_title(re.compile(r"^(\(\d+\) )?No such page · Ringward$"))
    site.see(page, "#/run/01ARZ3NDEKTSV4RRFFQ69G5FAV")
    expect(page.get_by_text("No run 01")).to_be_visible()
    complaints[:] = [complaint for complaint in complaints if "404" not in complaint]


def test_reason_for_no_upcoming_runs(page: Page, site: Site) -> None:
    """A task without upcoming runs says what starts it instead of a schedule."""
    more = "[tasks.at-start]\nrun_on_start = true\nrun = 'true'\n"
    site.configure(f"{more}[tasks.on-file]\non_change = ['{site.directory}/*.csv']\nrun = 'true'\n")
    site.request("POST", "/api/daemon/reload")
    for name, kind, reason in (
        ("at-start", "When the daemon starts", "It runs each time the daemon starts, and has no other schedule."),
        ("on-file", "When files change", "It runs when files change, and has no other schedule."),
        ("report", "On demand", "No schedule. Run it by hand or through the API."),
    ):
        site.see(page, f"#/task/{name}")
        expect(page.get_by_role("region", name="Next runs")).to_contain_text(reason)
        expect(page.get_by_role("region", name="At a glance")).to_contain_text(kind)
    site.configure()
    site.request("POST", "/api/daemon/reload")


def test_failure_to_cause_on_a_phone(phone: Page, site: Site) -> None:
    """On a phone, two taps lead from a failure to its cause."""
    site.see(phone, "#/")
    phone.get_by_role("region", name="Needs attention").get_by_role("link", name="Details").first.tap()
    expect(phone.get_by_role("log")).to_contain_text("cannot")


def test_lost_connection_is_shown_and_restored(page: Page, site: Site, complaints: list[str]) -> None:
    """The page shows at once that the daemon is gone, and is live again by itself when the daemon is back."""
    site.see(page, "#/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    site.stop()
    expect(page.get_by_role("alert").filter(has_text="Disconnected")).to_be_visible()
    site.start()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    complaints.clear()


def test_disable_and_enable_a_service(page: Page, site: Site) -> None:
    """A disabled service says who disabled it and why, and starts only after a confirmation."""
    site.see(page, "#/task/web")
    main = page.get_by_role("main")
    main.get_by_role("button", name="More for web").click()
    page.get_by_role("menuitem", name="Disable").click()
    page.get_by_role("dialog").get_by_label("Note").fill("moving the disk")
    page.get_by_role("dialog").get_by_role("button", name="Stop and disable").click()
    expect(main.locator(".page-head .badge").first).to_have_text("disabled")
    expect(main.locator(".banner", has_text="moving the disk")).to_contain_text("Disabled by user admin")
    main.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Enable and start").click()
    expect(main.locator(".page-head .badge").first).to_have_text("running")
    expect(main.locator(".banner", has_text="moving the disk")).to_have_count(0)


def test_open_window(page: Page, site: Site) -> None:
    """While a window is open, every page says so, by whom and why, and lists say why scheduled times did not run."""
    site.configure('[windows.release]\nmatch = { tasks = "often" }\n[tasks.often]\nrun = "true"\nevery = "1s"\n')
    assert site.request("POST", "/api/daemon/reload").status == 200
    assert site.request("POST", "/api/windows/release/start", {"note": "version 5"}).status == 204
    opened_s = time.monotonic()
    site.see(page, "#/")
    banner = page.locator(".banner", has_text="version 5")
    expect(banner).to_contain_text("The window release was opened by")
    until(lambda: time.monotonic() > opened_s + 1, "a scheduled time")
    banner.get_by_role("button", name="Close").click()
    expect(banner).to_have_count(0)
    until(lambda: site.get("/api/tasks/often/runs?status=skipped").json()["total"], "a skipped time")
    site.see(page, "#/runs?task_name=often&status=skipped")
    row = page.get_by_role("row").filter(has_text="often").first
    expect(row.locator(".why")).to_have_text("window")
    row.get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Skipped: the window release was open")
    site.configure()
    assert site.request("POST", "/api/daemon/reload").status == 200


def test_pause_of_all_schedules(page: Page, site: Site) -> None:
    """While all schedules are paused, every page says so, by whom and why, until someone resumes them there."""
    site.see(page, "#/daemon")
    page.get_by_role("button", name="Pause all schedules").click()
    page.get_by_role("dialog").get_by_label("Note").fill("release 4.2")
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    banner = page.locator(".banner", has_text="release 4.2")
    expect(banner).to_contain_text("All schedules are paused by user admin")
    site.see(page, "#/runs")
    expect(banner).to_be_visible()
    banner.get_by_role("button", name="Resume").click()
    expect(banner).to_have_count(0)
