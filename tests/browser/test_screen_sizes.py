"""Pages of the dashboard on screens of several sizes, in a real browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.browser.axe import complaints_of
from tests.browser.conftest import opened
from tests.browser.site import Site

TOO_WIDE = """() => [...document.querySelectorAll("*")].filter(
    (one) => one.getBoundingClientRect().right > innerWidth + 1
        && (one.matches(".units button") || !one.closest(".scroll-x, .nav, .log-scroll"))
).map((one) => one.outerHTML.slice(0, 200))"""
"""Elements that extend beyond the right edge of the screen, except scrollable ones."""
OVERLAPPING = """() => {
    const items = [...document.querySelectorAll(".nav a.item")].filter((item) => item.checkVisibility());
    const names = items.map((item) => {
        const name = [...item.childNodes].find((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
        const range = document.createRange();
        range.selectNodeContents(name);
        return { name: name.data, ...range.getBoundingClientRect().toJSON() };
    });
    const over = (one, other) => one.left < other.right && one.top < other.bottom;
    return names.slice(1).filter((one, at) => over(one, names[at])).map((one) => one.name);
}"""
"""Names of pages in the bar that overlap the previous name."""
TOO_SMALL = """() => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = new Set();
    const size = (one) => {
        const px = parseFloat(getComputedStyle(one).fontSize);
        const drawing = one.closest("svg[viewBox]");
        return drawing ? px * drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width : px;
    };
    while (walk.nextNode()) {
        const one = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || one.closest("script, style, noscript, title")) continue;
        if (one.getClientRects().length && size(one) < 11.9) found.add(`${size(one)} ${one.outerHTML.slice(0, 100)}`);
    }
    return [...found];
}"""
"""Text that is smaller than 12 px on the screen."""
COVERED = """() => [...document.querySelectorAll(".hits > li > a")].filter((hit) => {
    const [label, text] = [...hit.children].map((one) => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return range.getBoundingClientRect();
    });
    return label.right > text.left && label.bottom > text.top + 1;
}).map((hit) => hit.textContent)"""
"""Hits of a search whose line covers the label before it."""
PAGES = (
    "#/",
    "#/task/backup",
    "#/task/web",
    "#/runs",
    "#/timeline",
    "#/timeline?view=table",
    "#/logs?group=Shop",
    "#/logs?task=web,shaky,backup&view=columns",
    "#/search",
    "#/usage",
    "#/calendar",
    "#/deleted",
    "#/notifications",
    "#/notifiers",
    "#/system",
    "#/daemon",
    "#/audit",
    "#/accounts",
    "#/tokens",
)


def shown(page: Page, site: Site) -> Iterator[str]:
    """Yield the address of each page once the page is complete."""
    for address in (*PAGES, f"#/run/{site.done['progress']}"):
        site.see(page, address)
        expect(page.get_by_role("main").get_by_role("heading", level=1)).to_have_count(1)
        expect(page.locator(".skeleton")).to_have_count(0)
        yield address


def test_pages_fit_a_phone(phone: Page, site: Site) -> None:
    """No page is wider than the screen of a phone."""
    for address in shown(phone, site):
        assert phone.evaluate(TOO_WIDE) == [], address
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, address


def test_smallest_text(page: Page, phone: Page, site: Site) -> None:
    """No text of any page is smaller than 12 px, even in drawings, on a desktop and on a phone."""
    for browser_page in (page, phone):
        for address in (*shown(browser_page, site), "docs"):
            if address == "docs":
                browser_page.goto(f"{site.url}docs")
                expect(browser_page.locator("body")).to_contain_text("/api/runs")
            assert browser_page.evaluate(TOO_SMALL) == [], address


@pytest.mark.parametrize("width", [1440, 1300, 1024, 801])
def test_table_fits_a_small_desktop(browser: Browser, session: StorageState, site: Site, width: int) -> None:
    """On screens of 801 to 1440 pixels, the list of runs shows each run in one line and cuts off no column."""
    site.run_to_end("tries")
    context = browser.new_context(storage_state=session, locale="en-GB", viewport={"width": width, "height": 768})
    page = opened(context)
    for address in ("#/runs", "#/runs?status=failed", "#/task/old", "#/task/backup"):
        site.see(page, address)
        table = page.get_by_role("region", name="Runs", exact=True).locator(".scroll-x")
        expect(table.get_by_role("row").nth(1)).to_be_visible()
        assert table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0, address
        heights = table.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.offsetHeight)")
        assert max(heights) < 45, address
    context.close()


@pytest.mark.parametrize("width", [1280, 1024, 801])
def test_board_fits_a_small_desktop(browser: Browser, session: StorageState, site: Site, width: int) -> None:
    """The overview cuts off no column, so that the buttons of each unit are on the screen."""
    context = browser.new_context(storage_state=session, viewport={"width": width, "height": 768})
    page = opened(context)
    site.see(page, "#/")
    table = page.get_by_role("region", name="Tasks and services").locator(".scroll-x")
    expect(table.get_by_role("row").filter(has_text="shaky")).to_be_visible()
    assert table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    context.close()


PLACES = """() => {
    const box = (one) => one.getBoundingClientRect();
    const attention = document.querySelector("[aria-label='Needs attention']");
    const rows = [...attention.querySelectorAll(":scope > ul > li")];
    const ends = (name) => rows.flatMap((row) => [...row.querySelectorAll("a.button, button")]
        .filter((one) => one.textContent === name).map((one) => Math.round(box(one).left)));
    return {
        height: box(attention).height,
        filter: box(document.querySelector("[aria-label='Filter tasks and services']")).bottom,
        columns: ["Details", "Acknowledge"].map((name) => new Set(ends(name)).size),
    };
}"""
"""The height of what needs attention, the place of the filter, and in how many columns its buttons stand."""


@pytest.mark.parametrize(("width", "height", "most"), [(1280, 720, 240), (390, 844, 844 / 3 + 20)])
def test_attention_leaves_room(
    browser: Browser, session: StorageState, site: Site, width: int, height: int, most: float
) -> None:
    """What needs attention takes a third of the screen, its buttons stand in columns, and the filter is visible."""
    for task in ("backup", "tries"):
        site.run_to_end(task)
    context = browser.new_context(storage_state=session, viewport={"width": width, "height": height})
    page = opened(context)
    site.see(page, "#/")
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention.get_by_role("listitem").nth(1)).to_be_visible()
    places = page.evaluate(PLACES)
    assert places["height"] <= most
    assert places["filter"] <= height
    if width > 600:
        assert places["columns"] == [1, 1]
    context.close()


def test_api_page_fits(browser: Browser, site: Site) -> None:
    """The description of the API is not wider than the screen."""
    for width in (1440, 1024, 390):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(f"{site.url}docs")
        expect(page.locator("body")).to_contain_text("/api/runs")
        assert page.locator("#operations").evaluate("box => box.scrollWidth - box.clientWidth") <= 0, width
        page.close()


def test_hits_fit_a_phone(phone: Page, site: Site) -> None:
    """Lines that a search finds are cut at the edge of the screen, and cover no name or time before them."""
    for address in ("#/search?q=1", f"#/run/{site.done['long']}?q=1"):
        site.see(phone, address)
        expect(phone.get_by_role("list", name="Hits").get_by_role("link").first).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
        assert phone.evaluate(COVERED) == []


def test_dialog_fits_a_phone(phone: Page, site: Site) -> None:
    """No part of a dialog is cut off, however long a choice is."""
    site.see(phone, "#/tokens")
    phone.get_by_role("button", name="New token").tap()
    dialog = phone.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert dialog.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_search_of_a_log_fits_the_smallest_phone(phone: Page, site: Site) -> None:
    """The search button of a log is on the screen of the smallest phone."""
    wide = phone.viewport_size
    assert wide
    phone.set_viewport_size({"width": 320, "height": 640})
    site.see(phone, f"#/run/{site.done['backup']}")
    expect(phone.get_by_role("log")).to_contain_text("disk full")
    assert phone.evaluate(TOO_WIDE) == []
    phone.set_viewport_size(wide)


def test_page_names_fit_the_smallest_phone(phone: Page, site: Site) -> None:
    """All names of pages are legible and on the screen, even on a desktop at 400 %."""
    wide = phone.viewport_size
    assert wide
    phone.set_viewport_size({"width": 320, "height": 640})
    site.see(phone, "#/")
    for _ in range(2):
        assert phone.evaluate(OVERLAPPING) == []
        assert phone.evaluate("document.querySelector('.nav').scrollWidth") <= 320
        phone.get_by_role("button", name="More", exact=True).tap()
    phone.set_viewport_size(wide)


def test_phone_has_five_pages_and_more(phone: Page, site: Site) -> None:
    """The bar of a phone is one row of five pages and More, which shows the others."""
    site.see(phone, "#/")
    bar = phone.get_by_role("navigation", name="Pages", exact=True)
    expect(bar.get_by_role("link")).to_have_text(["Overview", "Runs", "Timeline", "Logs", "Search"])
    low = bar.bounding_box()
    assert low
    assert low["height"] < 60
    bar.get_by_role("button", name="More").tap()
    bar.get_by_role("link", name="Tokens").tap()
    expect(phone.get_by_role("heading", name="Tokens", level=1)).to_be_visible()
    expect(bar.get_by_role("link")).to_have_count(5)
    expect(bar.get_by_role("button", name="More")).to_have_attribute("aria-current", "true")
    assert complaints_of(phone) == []


PAINTED = """(log) => {
    const paper = log.getBoundingClientRect();
    const cell = [...log.querySelectorAll(".x")].find((one) => one.textContent.includes("main.py"));
    const range = document.createRange();
    const ends = [...cell.firstChild.data].map((_, at) => {
        range.setStart(cell.firstChild, at);
        range.setEnd(cell.firstChild, at + 1);
        return range.getBoundingClientRect();
    });
    const fits = [(end) => end.right <= paper.right, (end) => end.top === ends[0].top];
    return fits.map((fit) => ends.filter(fit).length);
}"""
"""How many characters of a line are within the log, and how many of them are in its first row."""


def test_phone_shows_whole_lines(phone: Page, site: Site) -> None:
    """On a phone, lines of a log wrap, and number and time leave most of the width to them."""
    site.see(phone, f"#/run/{site.run_to_end('levels')}?line=6")
    log = phone.get_by_role("log")
    expect(log).to_contain_text("main.py")
    text = 'File "/srv/app/main.py", line 3, in <module>'
    assert log.evaluate(PAINTED) == [len(f"  {text}"), pytest.approx(len(text) - 10, abs=10)]
