"""Pages that stay open for days, across restarts, and with rights that end."""

import re
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, Request, Route, StorageState, expect

from supervisor.ipc.log_line import stamp
from tests.browser.conftest import watched
from tests.browser.site import Site
from tests.browser.test_screen_sizes import PAGES
from tests.support.waiting import until


def talking(site: Site) -> str:
    """Yield the id of a run that prints the input of the pipe."""
    site.pipe.unlink()
    site.mkfifo()
    return str(site.request("POST", "/api/tasks/talks/run?naming=camel").json()["id"])


def turns(page: Page, number: int = 10) -> bool:
    """Let the page and pending answers continue: some round trips, one after the other."""
    for _ in range(number):
        page.evaluate("() => fetch('healthz', { cache: 'no-store' }).then((answer) => answer.text())")
    return True


def holding() -> tuple[list[Route], Callable[[Route], None]]:
    """Return a list of held requests, and a route handler that holds them."""
    held_routes: list[Route] = []

    def hold(route: Route) -> None:
        held_routes.append(route)

    return held_routes, hold


def test_hidden_log_draws_nothing(page: Page, site: Site) -> None:
    """A hidden page draws nothing: it keeps a window of the new lines, and shows the end when it is visible again."""
    site.see(page, f"#/run/{talking(site)}")
    log = page.get_by_role("log")
    with site.pipe.open("w") as pipe:
        pipe.write("0\n")
        pipe.flush()
        expect(log.locator("[data-n='0'] .x")).to_have_text("0")
        page.evaluate("() => { window.draw = requestAnimationFrame; window.requestAnimationFrame = () => 1; }")
        for start in range(1, 20_001, 1000):
            pipe.write("".join(f"{n}\n" for n in range(start, start + 1000)))
            pipe.flush()
        until(lambda: log.evaluate("box => box.view.total") == 20_001, "all lines to be heard of")
        assert log.evaluate("box => box.view.queue.length") <= 4000
        log.evaluate("box => { window.requestAnimationFrame = window.draw; box.view.frame = 0; box.view.later(); }")
        expect(log.locator("[data-n='20000'] .x")).to_have_text("20000")
    texts = log.locator(".log-row .x").all_inner_texts()
    assert texts == [str(n) for n in range(int(texts[0]), 20_001)]
    assert log.locator(".gap").count() == 0


def test_hidden_tabs_hold_no_connection(
    browser: Browser, site: Site, session: StorageState, complaints: list[str]
) -> None:
    """With any number of hidden tabs, the visible one is live, although a browser has six connections.

    A tab that is shown again continues without a gap, and a hidden tab closes its connections.
    """
    run = talking(site)
    context = browser.new_context(storage_state=session)
    context.add_init_script("window.unseen = true; Object.defineProperty(document, 'hidden', { get: () => unseen });")
    show = "unseen => { window.unseen = unseen; document.dispatchEvent(new Event('visibilitychange')); }"
    with site.pipe.open("w") as pipe:
        pipe.write("0\n")
        pipe.flush()
        pages = [watched(context, complaints) for _ in range(4)]
        pages[0].clock.install()
        for page in pages:
            site.see(page, f"#/run/{run}")
            expect(page.locator("[data-n='0'] .x")).to_have_text("0")
            expect(page.get_by_text("connecting", exact=True)).to_be_visible()
        for page, n in ((pages[-1], 1), (pages[0], 2)):
            page.evaluate(show, False)
            expect(page.get_by_text("live", exact=True)).to_be_visible()
            pipe.write(f"{n}\n")
            pipe.flush()
            expect(page.locator(f"[data-n='{n}'] .x")).to_have_text(str(n))
        texts = pages[0].get_by_role("log").locator(".log-row .x")
        expect(texts).to_have_text(["0", "1", "2"])
        connected = "() => document.querySelector('.log-scroll').view.events !== null"
        assert pages[0].evaluate(connected)
        pages[0].evaluate(show, True)
        pages[0].clock.fast_forward(10_000)
        assert not pages[0].evaluate(connected)
        pipe.write("3\n")
        pipe.flush()
        expect(pages[-1].locator("[data-n='3'] .x")).to_have_text("3")
        pages[0].evaluate(show, False)
        expect(texts).to_have_text(["0", "1", "2", "3"])
    context.close()


def test_last_lines_of_one_stream(page: Page, site: Site) -> None:
    """The end of a stream shows all its last lines, however far before the end of the log they are."""
    read = site.directory / "read"
    site.configure(f"[tasks.two]\nrun = 'seq 1 30000 >&2; until test -e {read}; do sleep 0.05; done; seq 1 5000'\n")
    site.request("POST", "/api/daemon/reload")
    run = site.trigger("two")
    until(lambda: site.get(f"/api/runs/{run}/log?from=-1").json()["totalLines"] == 30_000, "the lines of stderr")
    read.touch()
    site.ended(run)
    site.see(page, f"#/run/{run}")
    log = page.get_by_role("log")
    expect(log.locator(".log-row .x").last).to_have_text("5000")
    page.get_by_label("Lines of").select_option("stderr")
    expect(log.locator(".log-row .x").last).to_have_text("30000")


def test_complete_stream_is_not_read_again(page: Page, site: Site) -> None:
    """A stream that was read to both ends is not read again on every scroll."""
    site.see(page, f"#/run/{site.done['backup']}")
    log = page.get_by_role("log")
    expect(log.locator(".log-row")).to_have_count(2)
    page.get_by_label("Go to line or time").fill("1")
    page.keyboard.press("Enter")
    expect(log.locator(".target")).to_have_count(1)
    page.get_by_label("Lines of").select_option("stderr")
    expect(log.locator(".log-row")).to_have_count(1)
    expect(log.locator(".log-row .x")).to_have_text("disk full")
    urls: list[str] = []

    def note(request: Request) -> None:
        urls.append(request.url)

    page.on("request", note)
    for _ in range(5):
        log.evaluate("box => { box.view.following = false; box.dispatchEvent(new Event('scroll')); }")
        turns(page, 2)
    page.remove_listener("request", note)
    assert len([url for url in urls if "/log?" in url]) <= 1


def test_later_retry_appears_live(page: Page, site: Site) -> None:
    """A later retry appears on the page of the run that it repeats, and its progress is live."""
    later = "[tasks.later]\nrun = 'exit 3'\nretry_attempts = 1\nretry_delay = '1h'\n"
    site.configure(later)
    site.request("POST", "/api/daemon/reload")
    site.see(page, f"#/run/{site.run_to_end('later')}")
    expect(page.get_by_role("link", name="2. waiting")).to_be_visible()
    site.request("POST", f"/api/runs/{site.runs('later')[1]['id']}/stop")
    expect(page.get_by_role("link", name="2. stopped")).to_be_visible()


def test_search_ends_with_its_page(page: Page, site: Site) -> None:
    """A search stops when its page is left."""
    urls: list[str] = []

    def answer(route: Route) -> None:
        urls.append(route.request.url)
        route.fulfill(json={"items": [], "nextCursor": "next", "exhausted": False, "scannedRuns": 0, "scannedBytes": 1})

    page.route("**/log/search?*", answer)
    site.see(page, "#/task/backup")
    page.get_by_label("Search all runs of backup").fill("nowhere")
    page.get_by_role("button", name="Search", exact=True).click()
    until(lambda: turns(page, 1) and len(urls) > 2, "the search")
    site.see(page, "#/runs")
    expect(page.get_by_role("region", name="Runs", exact=True)).to_be_visible()
    turns(page, 1)
    before = len(urls)
    turns(page)
    assert len(urls) == before


def test_ended_session_shows_the_login_page(browser: Browser, site: Site, complaints: list[str]) -> None:
    """A page whose session ends shows the login page, even if it requests nothing by itself."""
    context = browser.new_context()
    page = watched(context, complaints)
    site.enter(page)
    site.see(page, "#/runs")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    assert page.request.post(f"{site.url}api/auth/logout").status == 204
    expect(page.get_by_label("Password")).to_be_visible()
    context.close()
    complaints[:] = [complaint for complaint in complaints if "401" not in complaint]


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_limited_token_causes_no_refused_requests(
    browser: Browser, site: Site, complaints: list[str], role: str
) -> None:
    """With a token for some tasks, no page requests data that would be refused, not even the first page."""
    body = {"name": f"some-{role}", "role": role, "tasks": "back*"}
    token = site.request("POST", "/api/tokens", body).json()["token"]
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {token}"})
    page = watched(context, complaints)
    for address in PAGES:
        if address == "#/task/web":
            continue
        page.goto("about:blank")
        site.see(page, address)
        expect(page.get_by_role("main").get_by_role("heading", level=1)).to_have_count(1)
        expect(page.locator(".skeleton")).to_have_count(0)
        turns(page, 3)
        assert complaints == [], address
    context.close()


def test_region_ended_during_an_outage(page: Page, site: Site, complaints: list[str]) -> None:
    """A redrawn region that ended while the API was down disappears."""
    site.see(page, f"#/run/{talking(site)}")
    region = page.locator(".log-region")
    with site.pipe.open("w") as pipe:
        pipe.write("half")
        pipe.flush()
        expect(region).to_have_text("half")
        site.helper("ringward gunicorn").children()[0].kill()
        pipe.write(" and half\n")
        pipe.flush()
        expect(page.get_by_role("log").locator("[data-n='0'] .x")).to_have_text("half and half")
        expect(region).to_be_hidden()
    complaints.clear()


def test_region_stays_with_its_stream(page: Page, site: Site) -> None:
    """A redrawn region of one stream is not shown among the lines of another."""
    site.see(page, f"#/run/{talking(site)}")
    region = page.locator(".log-region")
    with site.pipe.open("w") as pipe:
        pipe.write("half")
        pipe.flush()
        expect(region).to_have_text("half")
        page.get_by_label("Lines of").select_option("stderr")
        expect(region).to_be_hidden()
        page.get_by_label("Lines of").select_option("stdout")
        expect(region).to_have_text("half")


def test_run_deleted_elsewhere(page: Page, site: Site, complaints: list[str]) -> None:
    """The page of a run that another client deletes says so, and shows the run when it is restored."""
    for operation in ("one", "bulk"):
        run = site.run_to_end("tries-to-say")
        site.see(page, f"#/run/{run}")
        verdict = page.get_by_role("region", name="Verdict")
        expect(verdict).to_contain_text("Succeeded")
        if operation == "one":
            site.request("DELETE", f"/api/runs/{run}")
        else:
            site.request("POST", "/api/runs/bulk/delete", {"ids": [run]})
        expect(page.get_by_text("No run 01")).to_be_visible()
        site.request("POST", "/api/runs/bulk/restore", {"ids": [run]})
        expect(verdict).to_contain_text("Succeeded")
    complaints[:] = [complaint for complaint in complaints if "404" not in complaint]


def test_absent_scheduler_is_explained(page: Page, site: Site) -> None:
    """A command reports that it was not carried out, and a banner says why; both disappear by themselves."""

    def away(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "schedulerActive": False})

    site.see(page, "#/task/backup")
    page.route("**/api/daemon", away)
    page.route("**/api/tasks/*/run?*", lambda route: route.fulfill(status=503, json={"detail": "Not now"}))
    page.get_by_role("main").get_by_role("button", name="Run", exact=True).click()
    banner = page.get_by_text("The scheduler is restarting")
    expect(banner).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="Not now")).to_be_visible()
    page.unroute("**/api/daemon")
    expect(banner).to_have_count(0)


def test_single_late_answer_of_the_scheduler_shows_no_banner(page: Page, site: Site) -> None:
    """A scheduler that is late for one poll, as on a busy host, shows no banner, which would move the page."""
    polls: list[Route] = []

    def late(route: Route) -> None:
        polls.append(route)
        if len(polls) == 1:
            absent(route)

    def absent(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "schedulerActive": False})

    page.route("**/api/daemon", late)
    site.see(page, "#/daemon")
    expect(page.get_by_text("scheduler restarting")).to_be_visible()
    until(lambda: turns(page, 1) and polls[1:], "the next poll")
    banner = page.get_by_text("The scheduler is restarting")
    expect(banner).to_have_count(0)
    absent(polls[1])
    expect(banner).to_be_visible()


def test_late_answer_does_not_replace_a_newer_one(page: Page, site: Site) -> None:
    """An answer that arrives after the answer to a later request changes nothing on the page."""
    late: list[Callable[[], None]] = []

    def delay_first(route: Route) -> None:
        if late:
            route.continue_()
            return
        answer = route.fetch()
        late.append(lambda: route.fulfill(response=answer))

    site.see(page, "#/task/backup")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.route(re.compile(r"/api/tasks$"), delay_first)
    site.run_to_end("colours")
    until(lambda: turns(page, 1) and late, "the request that a run causes")
    page.get_by_role("button", name="More for backup").click()
    page.get_by_role("menuitem", name="Pause the schedule").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    paused = page.get_by_text("schedule paused")
    expect(paused).to_be_visible()
    late[0]()
    turns(page)
    assert paused.is_visible()
    assert site.request("POST", "/api/tasks/backup/resume").status == 204


def test_emptied_page_leads_to_the_last_one(page: Page, site: Site) -> None:
    """When the shown page of a list disappears, the last remaining page is shown."""
    page.route(re.compile(r"/api/runs\?.*offset=50(&|$)"), lambda route: route.fulfill(json={"runs": [], "total": 50}))
    site.see(page, "#/runs?offset=50")
    expect(
        page.get_by_role("region", name="Runs", exact=True).get_by_role("link", name=re.compile("^Run ")).first
    ).to_be_visible()


def test_reload_does_not_abort_the_first_load(timed: Page, site: Site) -> None:
    """A page appears with the first answer, even if the event stream opens before it and requests a new one."""
    held_routes, hold = holding()
    timed.route(re.compile(rf"/api/runs/{site.done['backup']}\?"), hold)
    site.see(timed, f"#/run/{site.done['backup']}")
    expect(timed.get_by_role("status").filter(has_text="live")).to_be_visible()
    timed.clock.run_for(1000)
    until(lambda: held_routes if turns(timed, 1) else None, "the first load")[0].continue_()
    expect(timed.get_by_role("region", name="Verdict")).to_be_visible()


def test_one_request_for_histories_at_a_time(page: Page, site: Site) -> None:
    """With any number of tasks on the screen, one request at a time fetches their last runs."""
    held_routes, hold = holding()
    site.see(page, "#/tokens")
    page.route("**/api/runs/newest?*", hold)
    site.see(page, "#/")
    page.get_by_role("region", name="Tasks and services").get_by_role("link", name="web").scroll_into_view_if_needed()
    until(lambda: turns(page, 1) and held_routes, "the first")
    turns(page)
    assert len(held_routes) == 1
    page.unroute("**/api/runs/newest?*")  # which releases the held ones
    expect(page.get_by_role("row", name=re.compile("^backup")).locator(".strip a").first).to_be_visible()


def test_focus_returns_after_a_dialog(page: Page, site: Site) -> None:
    """After a dialog, the keyboard focus returns to its previous place."""
    site.see(page, "#/task/web")
    main = page.get_by_role("main")
    expect(main.get_by_role("button", name="Restart")).to_be_enabled()  # the current user is known
    more = main.get_by_role("button", name="More for web")
    more.press("Enter")
    expect(page.get_by_role("menuitem", name="Restart one by one")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Stop")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(more).to_be_focused()


def test_second_enter_starts_no_second_run(page: Page, site: Site, complaints: list[str]) -> None:
    """Enter pressed twice triggers one run."""
    held_routes, hold = holding()
    page.route("**/api/tasks/*/run?*", hold)
    site.see(page, "#/task/report")
    page.get_by_role("main").get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("month").fill("2026-11")
    page.get_by_label("month").press("Enter")
    page.get_by_label("month").press("Enter")
    turns(page, 3)
    assert len(held_routes) == 1
    held_routes.pop().abort()
    page.keyboard.press("Escape")
    site.see(page, "#/task/backup")
    button = page.get_by_role("main").get_by_role("button", name="Run", exact=True)
    button.click()
    button.click()
    turns(page, 3)
    assert len(held_routes) == 1
    held_routes[0].abort()
    expect(page.get_by_text("Cannot reach the daemon. It may have started; check Runs")).to_be_visible()
    complaints.clear()


def test_pages_continue_after_a_restart(page: Page, site: Site, complaints: list[str]) -> None:
    """The daemon's log continues with the new daemon, and the charts of the host include the time between."""
    for _ in range(30):
        site.request("POST", "/api/daemon/reload")
    site.see(page, "#/daemon")
    times = page.get_by_role("log").locator(".log-row .t")
    expect(times.first).to_be_visible()
    site.stop()
    expect(page.get_by_role("alert").filter(has_text="Disconnected")).to_be_visible()
    between = stamp(time.time_ns() // 1_000_000)
    site.start()
    until(lambda: (times.last.get_attribute("title") or "") > between, "a line of the new daemon")
    site.see(page, "#/system")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    with page.expect_request("**/api/system/metrics?*"):
        site.stop()
        site.start()
    complaints.clear()
