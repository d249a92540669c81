"""The timeline of all tasks, in a real browser on a real daemon."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.browser.site import Site
from tests.support.waiting import until

SLOT = """
[slots.db]
size = 1

[tasks.import]
uses = ["db"]
run = "until test -e {done}; do sleep 0.05; done"

[tasks.reindex]
uses = ["db"]
run = "true"

[tasks.mails]
run = "until test -e {done}; do sleep 0.05; done"
"""


@pytest.fixture(scope="module")
def waited(site: Site) -> Iterator[dict[str, str]]:
    """Runs by task: import and mails overlap, and reindex has waited for the slot of import."""
    done = site.directory / "done"
    site.configure(SLOT.replace("{done}", str(done)))
    site.request("POST", "/api/daemon/reload")
    runs = {
        task: str(site.request("POST", f"/api/tasks/{task}/run?naming=camel").json()["id"])
        for task in ("import", "mails", "reindex")
    }

    def reach(phase: str, task: str) -> None:
        address = f"/api/runs/{runs[task]}?naming=camel"
        until(lambda: site.request("GET", address).json()["status"] == phase, f"{task} to be {phase}")

    reach("running", "import")
    reach("running", "mails")
    details = f"/api/runs/{runs['reindex']}/details"
    until(lambda: site.request("GET", details).json().get("waitingFor"), "reindex to wait")
    done.touch()
    for task in runs:
        reach("ended", task)
    yield runs
    site.configure()
    site.request("POST", "/api/daemon/reload")


def span_of(page: Page) -> tuple[datetime, float]:
    """Return the end of the window and its length in seconds, from the address."""
    query = parse_qs(urlsplit(page.evaluate("location.href")).fragment.partition("?")[2])
    names = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0}
    span = query.get("span", ["hour"])[0]
    return datetime.fromisoformat(query["to"][0]), names.get(span) or float(span)


def bars(page: Page, task: str) -> Locator:
    return page.get_by_role("group", name=re.compile(f"^{task}: [0-9]+ run")).locator("a.run")


def test_timeline_shows_overlaps_and_waits(page: Page, site: Site, waited: dict[str, str]) -> None:
    """A bar shows how a run ended, how long it waited, and what ran meanwhile; a slot shows its used places."""
    site.see(page, "#/timeline?span=hour")
    imported = bars(page, "import")
    expect(imported).to_have_accessible_name(re.compile("^import: succeeded, .*at the same time: .*mails"))
    expect(imported).not_to_have_accessible_name(re.compile("at the same time: .*reindex"))
    expect(bars(page, "reindex").locator(".wait")).to_be_visible()
    expect(bars(page, "web")).to_have_count(0)
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline).to_contain_text("slot db, at most 1 of 1")
    page.get_by_label("Slot").select_option("db")
    expect(bars(page, "mails")).to_have_count(0)
    expect(bars(page, "import")).to_have_count(1)
    page.get_by_label("Slot").select_option("")
    page.get_by_role("button", name="Services").click()
    expect(bars(page, "web").first).to_be_visible()
    bars(page, "import").click()
    expect(page).to_have_url(re.compile(f"#/run/{waited['import']}"))


def test_timeline_begins_with_a_day(page: Page, site: Site, waited: dict[str, str]) -> None:
    """Without a span in its address, the timeline shows the last day."""
    site.see(page, "#/timeline")
    expect(page.get_by_role("button", name="Day")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(f"[data-run='{waited['import']}']")).to_be_visible()


def test_late_run_is_marked(page: Page, site: Site, waited: dict[str, str]) -> None:
    """A run that started more than a minute late is marked as late, in the chart and in the table."""

    def delay(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        for run in body["runs"]:
            if run["id"] == waited["reindex"]:
                created = datetime.fromisoformat(run["startedAt"]) - timedelta(seconds=300)
                run["createdAt"] = created.isoformat(timespec="milliseconds")
        route.fulfill(response=answer, json=body)

    page.route("**/api/runs?*", delay)
    site.see(page, "#/timeline?span=hour")
    expect(page.locator(f"[data-run='{waited['reindex']}']")).to_have_class(re.compile(r"\blate\b"))
    expect(page.locator(f"[data-run='{waited['import']}']")).not_to_have_class(re.compile(r"\blate\b"))
    page.get_by_role("button", name="Table").click()
    rows = {
        task: page.get_by_role("row").filter(has=page.locator(f"[href='#/run/{run}']")) for task, run in waited.items()
    }
    expect(rows["reindex"]).to_contain_text(re.compile("5m.*late"))
    expect(rows["import"]).to_contain_text("mails")
    expect(rows["import"]).not_to_contain_text("late")
    assert "view=table" in page.url


def test_timeline_by_keyboard(page: Page, site: Site, waited: dict[str, str]) -> None:
    """Arrow keys move between runs, Shift and an arrow key move the window, plus and minus zoom, Enter opens a run."""
    site.see(page, "#/timeline?span=hour&q=")
    chart = page.get_by_role("group", name=re.compile("^Runs from "))
    expect(bars(page, "import")).to_be_visible()
    expect(chart.locator("a.run[tabindex='0']")).to_have_count(1)
    bars(page, "import").focus()
    page.keyboard.press("ArrowDown")
    expect(bars(page, "long")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(bars(page, "import")).to_be_focused()
    expect(page.locator(".tip")).to_contain_text("import: succeeded")
    page.keyboard.press("-")
    expect(page).to_have_url(re.compile("span=7200"))
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile("span=hour"))
    page.keyboard.press("Shift+ArrowLeft")
    expect(page).to_have_url(re.compile("&to="))
    end, _ = span_of(page)
    page.keyboard.press("Shift+ArrowLeft")
    until(lambda: end - span_of(page)[0] == timedelta(minutes=15), "the window to move")
    page.keyboard.press("PageUp")
    expect(bars(page, "import")).to_have_count(0)
    expect(chart).to_be_focused()
    page.get_by_role("button", name="Now").press("Enter")
    bars(page, "import").press("Enter")
    expect(page).to_have_url(re.compile(f"#/run/{waited['import']}"))


@pytest.mark.parametrize(("name", "span"), [("Hour", "hour"), ("Day", "day"), ("Week", "week")])
def test_hour_day_and_week(page: Page, site: Site, name: str, span: str) -> None:
    """The address has the span, and the runs of that time are shown."""
    site.see(page, "#/timeline?span=300")
    page.get_by_role("button", name=name, exact=True).click()
    expect(page).to_have_url(re.compile(f"span={span}$"))
    expect(bars(page, "old")).to_have_count(6 if name == "Week" else 0)
    expect(bars(page, "backup").first).to_be_visible()


def draw(page: Page, *places: tuple[tuple[float, float], ...]) -> None:
    """Put fingers down, move them from place to place, and lift them."""
    session = page.context.new_cdp_session(page)
    for turn, points in enumerate(places):
        fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        kind = "touchMove" if turn else "touchStart"
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    session.detach()


def test_timeline_by_touch(phone: Page, site: Site) -> None:
    """One finger moves the window, two fingers zoom it, and a tap opens a run."""
    site.see(phone, "#/timeline?span=day")
    expect(bars(phone, "backup").first).to_be_visible()
    box = phone.locator(".gantt-rows").bounding_box()
    assert box
    y = box["y"] + 40
    before = datetime.now().astimezone()
    draw(phone, *(((x, y),) for x in (100, 150, 200, 280)))
    expect(phone).to_have_url(re.compile("span=day&to="))
    end, seconds = span_of(phone)
    assert timedelta(hours=10) < before - end < timedelta(hours=14)
    draw(phone, *(((x, y), (400 - x, y)) for x in (150, 140, 120, 100)))
    until(lambda: span_of(phone)[1] < seconds, "the window to be zoomed")
    assert span_of(phone)[1] == pytest.approx(seconds / 2, rel=0.1)
    phone.get_by_role("button", name="Now").tap()
    bars(phone, "backup").first.tap()
    expect(phone).to_have_url(re.compile("#/run/"))


def test_timeline_by_wheel(page: Page, site: Site) -> None:
    """Ctrl and the wheel zoom at the pointer, Shift and the wheel move; the wheel alone scrolls the page."""
    site.see(page, "#/timeline?span=day")
    bars(page, "backup").first.hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    expect(page).not_to_have_url(re.compile("span=day$"))
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Shift")
    expect(page).to_have_url(re.compile("to="))
    assert span_of(page)[1] < 86_400


def test_limited_runs_are_reported(page: Page, site: Site) -> None:
    """The page requests a limited number of runs; if there are more, it says since when all are shown."""
    page_requests: list[Request] = []

    def more(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        if "triggeredBy=api" in route.request.url:
            body["total"] += 1234
        page_requests.append(route.request)
        route.fulfill(response=answer, json=body)

    page.route("**/api/runs?*", more)
    site.see(page, "#/timeline?span=week")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline).to_contain_text(re.compile("1,234 older runs not shown: complete since .*Zoom in"))
    expect(page.locator(".gantt-grid b")).to_be_visible()
    limits = [int(parse_qs(urlsplit(sent_request.url).query)["limit"][0]) for sent_request in page_requests]
    assert max(limits) <= 500
