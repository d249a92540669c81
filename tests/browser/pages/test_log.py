"""Logs in the dashboard, in a real browser on a real daemon."""

import base64
import re
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.site import Site
from tests.support.waiting import until


def test_output_is_escaped(page: Page, site: Site) -> None:
    """Terminal colours are shown, and markup in output is shown as text."""
    site.see(page, f"#/run/{site.done['colours']}")
    log = page.get_by_role("log")
    expect(log.get_by_text("green", exact=True)).to_have_css("color", "rgb(23, 105, 58)")
    expect(log).to_contain_text("<b>bold</b> & <script>alert(1)</script>")
    assert log.locator("b, script").count() == 0


COLOURS = """async () => {
    const { fill } = await import(new URL("static/js/log/text.js", location.href));
    const named = [null, ...Array(16).keys()];
    const many = [16, 17, 21, 46, 51, 88, 124, 160, 190, 196, 201, 208, 231, 232, 240, 255].map((n) => `5;${n}`);
    for (let n = 0; n < 60; n += 1) many.push(`2;${(n * 67) % 256};${(n * 151) % 256};${(n * 211) % 256}`);
    const pairs = named.flatMap((fg) => named.map((bg) => [fg, bg]));
    many.forEach((one, n) => {
        const other = many[(n * 7) % many.length];
        pairs.push([one, null], [null, one], [one, 0], [15, one], [one, other]);
    });
    const sgr = (base, one) => {
        if (one === null) return "";
        if (typeof one === "string") return `${base + 8};${one}`;
        return one < 8 ? base + one : base + 60 + one - 8;
    };
    const row = document.createElement("div");
    document.querySelector("[role=log] .log-rows").append(row);
    return pairs.flatMap(([fg, bg]) => ["", ";2", ";7", ";2;7"].map((more) => {
        const code = `${sgr(30, fg)};${sgr(40, bg)}${more}`;
        row.replaceChildren();
        fill(row, `\\x1b[0;${code}mtext`, null);
        const { color, backgroundColor } = getComputedStyle(row.querySelector("span") ?? row);
        return [code, color, backgroundColor];
    }));
}"""
"""Every named colour on every other, and many of the 256 and RGB colours: [code, colour, background]."""
GROUNDS = ("--log-paper", "--sunken", "--log-hit", "--busy-soft")
"""Backgrounds of lines without a coloured background."""


def luminance(colour: tuple[float, ...]) -> float:
    parts = [share / 255 for share in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first_colour: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the contrast of two colours, as WCAG defines it."""
    low, high = sorted((luminance(first_colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def rgb(text: str) -> tuple[float, ...]:
    return tuple(float(match) for match in re.findall(r"[\d.]+", text))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colour_contrast(page: Page, site: Site, scheme: Literal["light", "dark"]) -> None:
    """Text has a contrast of at least 4.5 to 1 with any two colours, even dimmed or inverse, in both themes."""
    page.emulate_media(color_scheme=scheme)
    site.see(page, f"#/run/{site.done['paints']}")
    expect(page.get_by_role("log")).to_contain_text("only text")
    names = "name => { const one = document.createElement('i'); document.body.append(one);"
    papers = [
        rgb(page.evaluate(f"{names} one.style.color = `var(${{name}})`; return getComputedStyle(one).color; }}", name))
        for name in GROUNDS
    ]
    value = page.evaluate(COLOURS)
    assert len(value) > 17 * 17 * 4
    low = [
        (code, colour, ground)
        for code, colour, ground in value
        for under in (papers if len(rgb(ground)) == 4 else [rgb(ground)])
        if contrast(rgb(colour)[:3], under[:3]) < 4.5
    ]
    page.emulate_media(color_scheme="light")
    assert low == []


def test_style_continues_after_a_newline(page: Page, site: Site) -> None:
    """A colour that is not reset continues on the next line, up to its reset."""
    site.see(page, f"#/run/{site.done['paints']}")
    log = page.get_by_role("log")
    red = log.get_by_text("red begins").evaluate("one => getComputedStyle(one).color")
    expect(log.get_by_text("and goes on")).to_have_css("color", red)
    assert log.get_by_text("here").evaluate("one => getComputedStyle(one).color") != red


def test_addresses_in_output_are_links(page: Page, site: Site) -> None:
    """Web addresses and OSC 8 links open in a new tab; other schemes stay text, and other sequences are dropped."""
    site.see(page, f"#/run/{site.done['paints']}")
    log = page.get_by_role("log")
    expect(log).to_contain_text("only text")
    links = {link.inner_text(): link.get_attribute("href") for link in log.locator(".x a").all()}
    assert links == {
        "https://example.org/a?b=(c)": "https://example.org/a?b=(c)",
        "http://127.0.0.1:1/x": "http://127.0.0.1:1/x",
        "the manual": "https://example.org/manual",
    }
    assert {link.get_attribute("rel") for link in log.locator(".x a").all()} == {"noopener noreferrer"}
    expect(log.locator("[data-n='4'] .x")).to_have_text("the manual and no link")
    expect(log.locator("[data-n='5'] .x")).to_have_text("only text")


def scroll_until(log: Locator, direction: int, n: int) -> None:
    """Scroll a log up (-1) or down (1) until it has line `n`."""

    def there() -> bool:
        log.evaluate(f"box => box.scrollBy(0, {direction} * 4000)")
        return log.locator(f"[data-n='{n}']").count() == 1

    until(there, f"line {n} to be there")


def test_long_log_shows_a_window(page: Page, site: Site) -> None:
    """A long log opens at its end, jumps to any line, scrolls both ways, and never holds more than a window."""
    site.see(page, f"#/run/{site.done['long']}")
    log = page.get_by_role("log")
    expect(log.locator("[data-n='199999'] .x")).to_have_text("200000")
    page.get_by_label("Go to line or time").fill("100000")
    page.keyboard.press("Enter")
    expect(log.locator(".target .x")).to_have_text("100000")
    assert log.locator("[data-n='199999']").count() == 0
    for direction, n in ((-1, 98_500), (1, 102_000)):
        scroll_until(log, direction, n)
        numbers = log.locator(".log-row .n").all_inner_texts()
        assert len(numbers) <= 2500
        assert numbers == [str(n) for n in range(int(numbers[0]), int(numbers[0]) + len(numbers))]
    log.press("Home")
    expect(log.locator("[data-n='0'] .x")).to_have_text("1")
    log.press("End")
    expect(log.locator("[data-n='199999'] .x")).to_have_text("200000")


def test_permanent_link_to_a_line(page: Page, site: Site) -> None:
    """The number of a line is a link to it, even in a new window."""
    site.see(page, f"#/run/{site.done['long']}?line=54321")
    expect(page.locator(".log-row.target .x")).to_have_text("54321")
    page.locator(".log-row.target .n").click()
    assert page.url.endswith("line=54321")


def test_link_beyond_the_end(page: Page, site: Site) -> None:
    """A link beyond the end of a log leads to its end."""
    site.see(page, f"#/run/{site.done['long']}?line=999999999")
    expect(page.get_by_role("log").locator("[data-n='199999']")).to_be_in_viewport()


def test_filter_shows_earlier_lines_of_a_stream(page: Page, site: Site) -> None:
    """If a stream has no later lines, its earlier ones are shown."""
    read = site.directory / "read"
    site.configure(f"[tasks.early]\nrun = 'seq 1 3 >&2; until test -e {read}; do sleep 0.05; done; seq 1 5000'\n")
    site.request("POST", "/api/daemon/reload")
    run = site.trigger("early")
    until(lambda: len(site.lines(run)) == 3, "the lines of stderr")
    read.touch()
    site.ended(run)
    site.see(page, f"#/run/{run}?line=3000")
    log = page.get_by_role("log")
    expect(log.locator(".target")).to_have_count(1)
    page.get_by_label("Lines of").select_option("stderr")
    expect(log.locator(".log-row .x")).to_have_text(["1", "2", "3"])


def test_levels_are_recognised_and_filtered(page: Page, site: Site) -> None:
    """The gutter shows levels of text, JSON and stack traces; filters search the whole log and are in the address."""
    run = site.run_to_end("levels")
    site.see(page, f"#/run/{run}")
    log = page.get_by_role("log")
    log.press("Home")
    expect(log.locator("[data-n='11'] .g")).to_have_text("E")
    expect(log.locator(".log-row .g").nth(0)).to_have_text("I")
    letters = [log.locator(f"[data-n='{n}'] .g").inner_text() for n in range(12)]
    assert "".join(letters) == "IWEIEEEEEEDE"
    page.get_by_label("Level").select_option("Errors")
    expect(log.locator(".log-row .n").last).to_have_text("4001")
    assert log.locator(".log-row .n").all_inner_texts() == ["3", "5", "6", "7", "8", "9", "10", "12", "4001"]
    page.get_by_label("Filter lines").fill("CANNOT")
    expect(log.locator(".log-row .n")).to_have_text(["3"])
    page.reload()
    expect(log.locator(".log-row .n")).to_have_text(["3"])
    expect(page.get_by_label("Level")).to_have_value("error")
    page.get_by_label("Filter lines").fill("nowhere")
    expect(log).to_contain_text("No line matches the filter.")


def test_filter_shows_its_range(page: Page, site: Site) -> None:
    """A filter reads the newest 100,000 lines and says so; on request, it reads all others."""
    lines = "echo ERROR at the start; seq 2 250000; echo ERROR at the end"
    site.configure(f"[tasks.errors]\nlog_max_size = '100mb'\nrun = '{lines}'\n")
    site.request("POST", "/api/daemon/reload")
    site.see(page, f"#/run/{site.run_to_end('errors')}")
    log = page.get_by_role("log")
    status = page.get_by_role("region", name="Log", exact=True).get_by_role("status").filter(has_text="Filtered")
    expect(log.locator("[data-n='250000']")).to_be_visible()
    page.get_by_label("Level").select_option("Errors")
    expect(log.locator(".log-row .n")).to_have_text(["250001"])
    expect(status).to_have_text(re.compile(r"Filtered lines 1\d\d,\d{3} to 250,001 of 250,001\."))
    page.get_by_label("Filter lines").fill("the start")
    expect(log).to_contain_text("No line matches the filter so far.")
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    status.get_by_role("button", name=re.compile("Filter .* earlier lines")).click()
    expect(log.locator(".log-row .n")).to_have_text(["1"])
    assert len([url for url in urls if "/log?" in url]) < 30  # of 10,000 lines at most
    expect(status).to_have_text("Filtered all 250,001 lines.")
    page.get_by_label("Filter lines").fill("the end")
    expect(log.locator(".log-row .n")).to_have_text(["250001"])
    page.get_by_label("Go to line or time").fill("1000")
    page.keyboard.press("Enter")
    expect(status).to_have_text(re.compile(r"Filtered lines \d+ to 100,\d{3} of 250,001\."))
    status.get_by_role("button", name=re.compile("Filter .* later lines")).click()
    expect(log.locator(".log-row .n")).to_have_text(["250001"])
    site.configure()
    site.request("POST", "/api/daemon/reload")


def test_filter_of_loaded_lines(page: Page, site: Site) -> None:
    """The log of the daemon and that of a service, of which only the newest lines are loaded, say so when filtered."""
    for address, text in (("#/daemon", "scheduler"), ("#/task/web", "serving")):
        site.see(page, address)
        log = page.get_by_role("log")
        expect(log.get_by_text(text).first).to_be_visible()
        page.get_by_label("Filter lines").fill(text)
        expect(page.get_by_text(re.compile(r"^Filtered all [\d,]+ loaded lines\.$"))).to_be_visible()
        expect(log.get_by_text(text).first).to_be_visible()


def test_filter_stops(page: Page, site: Site) -> None:
    """While a filter reads, the page shows the number of lines read, and a button that stops the filter."""
    site.see(page, f"#/run/{site.done['long']}")
    log = page.get_by_role("log")
    expect(log.locator("[data-n='199999']")).to_be_visible()
    held_routes: list[Route] = []
    page.route("**/log?*limit=10000*", lambda route: held_routes.append(route))  # noqa: PLW0108
    page.get_by_label("Filter lines").fill("nowhere")
    panel = page.get_by_role("region", name="Log", exact=True)
    expect(panel).to_contain_text("Filtering: 0 lines read")
    until(lambda: page.evaluate("1") and held_routes, "the first part")
    panel.get_by_role("button", name="Stop").click()
    held_routes.pop().continue_()
    expect(panel).to_contain_text(re.compile("Filtered lines 199,[0-9]+ to 200,000 of 200,000"))
    assert held_routes == []


def test_json_and_stack_traces_unfold(page: Page, site: Site) -> None:
    """A line of JSON unfolds below itself. A stack trace shows its beginning and unfolds, even for a link into it."""
    run = site.run_to_end("levels")
    site.see(page, f"#/run/{run}")
    log = page.get_by_role("log")
    log.press("Home")
    page.get_by_role("button", name="Line 3: unfold JSON").click()
    expect(log.locator("pre.json")).to_contain_text('"tries": [')
    inner = log.locator("[data-n='8']")
    assert inner.evaluate("row => row.offsetHeight") == 0
    page.get_by_role("button", name="… stack trace").click()
    expect(page.get_by_role("button", name="fold stack trace")).to_be_visible()
    assert inner.evaluate("row => row.offsetHeight") > 0
    site.see(page, "#/runs")
    site.see(page, f"#/run/{run}?line=9")
    expect(log.locator(".target .x")).to_have_text('    raise ValueError("no")')
    assert inner.evaluate("row => row.offsetHeight") > 0


def test_range_of_lines_has_an_address(page: Page, site: Site) -> None:
    """A click and a shift-click on numbers mark lines, which the address names; their text and a link can be copied."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    site.see(page, f"#/run/{site.done['long']}?line=100000")
    log = page.get_by_role("log")
    log.locator("[data-n='100000'] .n").click()
    log.locator("[data-n='100002'] .n").click(modifiers=["Shift"])
    expect(log.locator(".target .x")).to_have_text(["100001", "100002", "100003"])
    assert page.url.endswith("?line=100001-100003")
    page.get_by_role("button", name="Copy lines").click()
    expect(page.get_by_text("Copied lines 100,001 to 100,003", exact=True)).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "100001\n100002\n100003"
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Copied a link to lines 100,001 to 100,003")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    page.reload()
    expect(log.locator(".target .x")).to_have_text(["100001", "100002", "100003"])


@pytest.mark.parametrize("anchor", ["", "?line=100000"])
@pytest.mark.parametrize("whole", [False, True])
def test_mark_moves_no_row(page: Page, site: Site, anchor: str, whole: bool) -> None:
    """A click on a number moves no row on the screen, so that a second click hits the intended line."""
    site.see(page, f"#/run/{site.done['long']}{anchor}")
    log = page.get_by_role("log")
    expect(log.locator(f"[data-n='{99_999 if anchor else 199_999}']")).to_be_in_viewport()
    if whole:
        log.press("Shift+F")
    first = int(log.evaluate("box => box.view.topLine()")) + 5
    place = "row => [row.getBoundingClientRect().top, row.closest('[role=log]').getBoundingClientRect().top]"
    row = log.locator(f"[data-n='{first}']")
    row.locator(".n").scroll_into_view_if_needed()
    before = row.evaluate(place)
    row.locator(".n").click()
    expect(log.locator(".target .x")).to_have_text([str(first + 1)])
    expect(page.get_by_text(f"Marked: line {first + 1:,}")).to_be_visible()
    assert row.evaluate(place) == before
    log.locator(f"[data-n='{first + 2}'] .n").click(modifiers=["Shift"])
    expect(log.locator(".target .x")).to_have_text([str(first + 1 + n) for n in range(3)])
    expect(page.get_by_text(f"Marked: lines {first + 1:,} to {first + 3:,}")).to_be_visible()
    assert row.evaluate(place) == before


def test_hits_by_keyboard_and_full_screen(page: Page, site: Site) -> None:
    """N goes to the last hit first; n and N step through the hits, even in full screen, which Escape leaves."""
    site.see(page, f"#/run/{site.done['long']}?q=12345")
    log = page.get_by_role("log")
    expect(page.get_by_role("list", name="Hits").get_by_role("link").first).to_be_visible()
    expect(page.get_by_text("12 hits")).to_be_visible()
    log.press("Shift+F")
    assert log.evaluate("box => box.offsetWidth") > 1200
    log.press("Shift+N")
    expect(log.locator(".target .x")).to_have_text("123459")
    log.press("n")
    expect(log.locator(".target .x")).to_have_text("12345")
    log.press("n")
    expect(log.locator(".target .x")).to_have_text("112345")
    assert "line=112345" in page.url
    log.press("Escape")
    expect(page.get_by_role("navigation", name="Pages", exact=True)).to_be_in_viewport()
    assert log.evaluate("box => box.offsetWidth") < 1200


def test_search_in_a_log(page: Page, site: Site) -> None:
    """Hits are listed, and a chosen hit is shown among its neighbours with the match marked."""
    site.see(page, f"#/run/{site.done['long']}")
    page.get_by_label("Search this log").fill("^1?23456$")
    page.get_by_role("button", name="Regular expression").click()
    page.get_by_role("button", name="Search", exact=True).click()
    hits = page.get_by_role("list", name="Hits").get_by_role("link")
    expect(hits).to_have_count(2)
    hits.nth(1).click()
    expect(page.locator(".log-row.target mark")).to_have_text("123456")
    expect(page.locator("[data-n='123456'] .x")).to_have_text("123457")
    page.reload()
    expect(hits).to_have_count(2)


def test_match_across_colours(page: Page, site: Site) -> None:
    """A match that goes on in another colour is found and marked as a whole."""
    site.see(page, f"#/run/{site.done['colours']}")
    page.get_by_label("Search this log").fill("^green pl")
    page.get_by_role("button", name="Regular expression").click()
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("list", name="Hits").locator("mark")).to_have_text(["green", " pl"])


def test_search_in_all_runs(page: Page, site: Site) -> None:
    """A hit in another run of the task opens that run with the match marked, and the search continues."""
    first = site.run_to_end("tries-to-say")
    other = site.run_to_end("tries-to-say")
    site.see(page, f"#/run/{other}")
    page.get_by_label("Search this log").fill("SAYS")
    page.get_by_role("button", name="Search", exact=True).click()
    hits = page.get_by_role("list", name="Hits").get_by_role("link")
    expect(hits).to_have_count(1)
    page.get_by_role("button", name="Search all runs of tries-to-say").click()
    expect(hits).to_have_count(2)
    hits.last.click()
    expect(page.locator(".log-row.target mark")).to_have_text("says")
    assert f"#/run/{first}?" in page.url
    expect(hits).to_have_count(2)
    page.get_by_role("button", name="Search this run only").click()
    expect(hits).to_have_count(1)


def test_search_in_all_logs(page: Page, site: Site) -> None:
    """The page Search finds lines of all units, or of one, and a hit opens its run at the line."""
    site.see(page, "#/search")
    page.get_by_role("searchbox", name="Search all logs").fill("disk")
    page.get_by_role("button", name="Search", exact=True).click()
    hits = page.get_by_role("list", name="Hits").get_by_role("link")
    expect(hits.first).to_contain_text("backup")
    expect(page).to_have_url(re.compile("q=disk"))
    page.get_by_label("Task or service").select_option("web")
    expect(hits).to_have_count(0)
    page.get_by_label("Task or service").select_option("backup")
    page.get_by_label("Time").select_option("24h")
    expect(hits.first).to_be_visible()
    page.reload()
    expect(page.get_by_label("Time")).to_have_value("24h")
    hits.first.click()
    expect(page).to_have_url(re.compile("#/run/.*line=.*q=disk"))


def test_search_by_group_and_time(page: Page, site: Site) -> None:
    """The page Search narrows by group, tag and both ends of a time; its hits are links and fill the screen."""
    site.see(page, "#/search?q=1")
    hits = page.get_by_role("list", name="Hits").get_by_role("link")
    expect(hits.nth(40)).to_be_attached()
    expect(hits.first).to_have_attribute("href", re.compile(r"#/run/\w+\?line=\d+&q=1"))
    box = page.get_by_role("list", name="Hits").bounding_box()
    assert box
    assert box["y"] + box["height"] >= 880, "the list ends above the end of the screen"
    assert hits.locator("a").count() == 0
    site.see(page, "#/search?q=serving|copying&regex=true")
    expect(hits.filter(has_text="copying").first).to_be_visible()
    page.get_by_label("Group").select_option("Shop")
    expect(hits.filter(has_text="serving").first).to_be_visible()
    expect(hits.filter(has_text="copying")).to_have_count(0)
    page.get_by_label("Group").select_option("")
    page.get_by_label("Tag").select_option("db")
    expect(hits.filter(has_text="backup").first).to_be_visible()
    expect(hits.filter(has_text="web")).to_have_count(0)
    page.get_by_label("Time", exact=True).select_option("between")
    page.get_by_label("to", exact=True).fill("2026-01-01T00:00")
    expect(hits).to_have_count(0)
    assert "until=2026-01-01" in page.url
    page.reload()
    expect(page.get_by_label("to", exact=True)).to_have_value("2026-01-01T00:00")


def test_back_from_a_hit(page: Page, site: Site) -> None:
    """The back button leads from a hit to the list of hits."""
    site.see(page, "#/task/backup")
    page.get_by_label("Search all runs of backup").fill("disk")
    page.get_by_role("button", name="Search", exact=True).click()
    hits = page.get_by_role("list", name="Hits").get_by_role("link")
    hits.first.click()
    expect(page.get_by_role("log").locator(".target")).to_contain_text("disk full")
    page.go_back()
    expect(page.get_by_label("Search all runs of backup")).to_have_value("disk")
    expect(hits.first).to_contain_text("disk full")


def test_text_size(page: Page, site: Site) -> None:
    """The text of a log has 13 px; a choice of smaller and larger text holds for all logs."""
    size = "row => parseFloat(getComputedStyle(row).fontSize)"
    site.see(page, f"#/run/{site.done['backup']}")
    row = page.get_by_role("log").locator(".log-row").first
    assert round(row.evaluate(size), 1) == 13
    page.get_by_label("Text size").select_option("small")
    assert 12 <= row.evaluate(size) < 13
    page.get_by_label("Text size").select_option("large")
    assert row.evaluate(size) > 14
    site.see(page, "#/daemon")
    assert row.evaluate(size) > 14


def test_daemon_log_shows_each_time_once(page: Page, site: Site) -> None:
    """A line of the daemon's log shows its time only beside its text, so that the text fits a phone."""
    site.see(page, "#/daemon")
    row = page.get_by_role("log").locator(".log-row").first
    expect(row.locator(".t")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d"))
    expect(row.locator(".x")).to_have_text(re.compile(r"^[A-Z]+ \w+: "))


def test_time_leads_to_its_line(page: Page, site: Site) -> None:
    """A time leads to the first line at or after it."""
    site.see(page, "#/daemon")
    log = page.get_by_role("log")
    expect(log.locator(".log-row").first).to_be_visible()
    page.get_by_label("Go to line or time").fill("2026-01-01 00:00")
    page.keyboard.press("Enter")
    expect(log.locator(".target")).to_have_attribute("data-n", "0")


LEFT_EDGE = """async (png) => {
    const bytes = Uint8Array.from(atob(png), (one) => one.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes]));
    const paper = new OffscreenCanvas(image.width, image.height).getContext("2d");
    paper.drawImage(image, 0, 0);
    const edge = paper.getImageData(1, 1, 1, image.height - 2).data;
    return [...new Set(Array.from({ length: image.height - 2 }, (_, y) => edge.slice(4 * y, 4 * y + 3).join()))];
}"""
"""The colours of a screenshot where a row begins: next to the left border, without pixels of other rows."""


def painted_edges(log: Locator) -> list[list[str]]:
    """Return the colours at the left edge of a line of stdout and of one of stderr, as painted."""
    rows = [log.locator(f".log-row.{stream}").first for stream in ("stdout", "stderr")]
    return [log.page.evaluate(LEFT_EDGE, base64.b64encode(row.screenshot()).decode()) for row in rows]


def test_lines_of_stderr_have_a_bar(page: Page, phone: Page, site: Site) -> None:
    """A bar as high as the line marks stderr, in both themes, in forced colours and on a phone."""
    for window in (page, phone):
        site.see(window, f"#/run/{site.done['backup']}")
        expect(window.get_by_role("log")).to_contain_text("disk full")
    edges = [painted_edges(phone.get_by_role("log"))]
    page.get_by_role("button", name="Wrap long lines").click()
    edges.append(painted_edges(page.get_by_role("log")))
    page.get_by_role("button", name="Wrap long lines").click()
    page.emulate_media(color_scheme="dark")
    edges.append(painted_edges(page.get_by_role("log")))
    page.emulate_media(color_scheme="light", forced_colors="active")
    edges.append(painted_edges(page.get_by_role("log")))
    page.emulate_media(forced_colors="none")
    for out, err in edges:
        assert (len(out), len(err)) == (1, 1)
        assert contrast(rgb(out[0]), rgb(err[0])) >= 3


def see_talking_run(page: Page, site: Site) -> None:
    """Start a run that prints what a test writes to the pipe, and open its page."""
    site.pipe.unlink()
    site.mkfifo()
    site.see(page, f"#/run/{site.trigger('talks')}")


def test_live_log_follows_unless_scrolled(page: Page, site: Site) -> None:
    """New lines appear as they are printed; a reader further up keeps the position and sees how many were added."""
    site.pipe.unlink()
    site.mkfifo()
    site.see(page, "#/task/talks")
    page.get_by_role("main").get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("status").get_by_role("button", name="Show").click()
    log = page.get_by_role("log")
    with site.pipe.open("w") as pipe:
        pipe.write("".join(f"line {n}\n" for n in range(200)))
        pipe.flush()
        expect(log.locator("[data-n='199'] .x")).to_have_text("line 199")
        scroll_until(log, -1, 0)  # lines that arrive while earlier ones are loaded would be loaded as well
        log.evaluate("box => box.scrollTo(0, 0)")
        expect(page.get_by_text("Line 1 of 200")).to_be_visible()
        expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
        pipe.write("more\n" * 3)
        pipe.flush()
        page.get_by_role("button", name="3 more lines").click()
        expect(log.locator("[data-n='202'] .x")).to_have_text("more")
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")


def test_new_lines_count_until_they_are_visible(page: Page, site: Site) -> None:
    """A reader near the end sees how many lines are new, even once they are loaded, until they scroll into view."""
    see_talking_run(page, site)
    log = page.get_by_role("log")
    with site.pipe.open("w") as pipe:
        pipe.write("".join(f"line {n}\n" for n in range(300)))
        pipe.flush()
        expect(log.locator("[data-n='299'] .x")).to_have_text("line 299")
        log.evaluate("box => box.scrollBy(0, -100)")
        expect(page.get_by_text("Paused", exact=True)).to_be_visible()
        pipe.write("more\n" * 200)
        pipe.flush()
        expect(page.get_by_text("Paused · 200 new lines")).to_be_visible()
        log.evaluate("box => box.scrollBy(0, -1)")
        expect(log.locator("[data-n='499'] .x")).to_have_text("more")
        expect(page.get_by_text("Paused · 200 new lines")).to_be_visible()
        expect(page.get_by_role("button", name="200 more lines")).to_be_visible()
        log.evaluate("box => box.scrollBy(0, 1000)")
        expect(page.get_by_text(re.compile("Paused · 1[0-9]{2} new lines"))).to_be_visible()
        log.evaluate("box => box.scrollTo(0, box.scrollHeight)")
        expect(page.get_by_text("Following", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")


def point_at(page: Page, part: Locator, x: float) -> None:
    """Move the pointer to `part`, `x` pixels from its left edge; unlike hover(), never scroll."""

    def pointed() -> bool:
        box = part.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + x, box["y"] + 8)
        return bool(part.evaluate("part => part.matches(':hover')"))

    until(pointed, "the pointer to be there")


COPIED = """() => new Promise((settle) => {
    document.addEventListener("copy", (event) => settle(event.clipboardData.getData("text/plain")), { once: true });
    document.execCommand("copy");
})"""


@pytest.mark.parametrize("wrapped", [False, True], ids=["unwrapped", "wrapped"])
@pytest.mark.parametrize("word", ["line", "ERROR"])
def test_selection_while_following_copies_its_lines(page: Page, site: Site, word: str, wrapped: bool) -> None:
    """A press in the log pauses following, and a selection across rows copies exactly its lines."""
    see_talking_run(page, site)
    if wrapped:
        page.get_by_role("button", name="Wrap long lines").click()
    log = page.get_by_role("log")
    with site.pipe.open("w") as pipe:
        text = "".join(f"{word} {n}\n" for n in range(280)) + "\n  one \033[31mtwo\033[0m three\n"
        pipe.write(text + "below\n" * 21)  # near the edge of the log, selecting would scroll it
        pipe.flush()
        expect(log.locator("[data-n='302'] .x")).to_have_text("below")
        expect(page.get_by_text("Following", exact=True)).to_be_visible()
        start = log.locator("[data-n='278'] .x")
        point_at(page, start, 1)
        page.mouse.down()
        point_at(page, start, 20)  # at the first movement, Chromium looks for the text at the pressed place
        expect(page.get_by_text("Paused", exact=True)).to_be_visible()
        pipe.write("more\n" * 500)
        pipe.flush()
        end = log.locator("[data-n='281'] .x span")
        point_at(page, end, end.evaluate("part => part.getBoundingClientRect().width") - 1)
        page.mouse.up()
        expect(page.get_by_text("Paused · 500 new lines")).to_be_visible()
        assert page.evaluate(COPIED) == f"{word} 278\n{word} 279\n\n  one two"
        log.press("f")
        expect(log.locator("[data-n='802'] .x")).to_have_text("more")
        expect(page.get_by_text("Following", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Succeeded")


SCROLLED = """(box, by) => new Promise((settle) => {
    box.addEventListener("scroll", settle, { once: true });
    box.scrollBy(0, by);
})"""


def test_press_keeps_the_rows(page: Page, site: Site) -> None:
    """While the reader presses a row, the log does not follow, even if it scrolls to the end."""
    see_talking_run(page, site)
    log = page.get_by_role("log")
    with site.pipe.open("w") as pipe:
        pipe.write("".join(f"line {n}\n" for n in range(300)))
        pipe.flush()
        expect(log.locator("[data-n='299'] .x")).to_have_text("line 299")
        point_at(page, log.locator("[data-n='280'] .x"), 1)
        page.mouse.down()
        for by in (-100, 100):
            log.evaluate(SCROLLED, by)
        pipe.write("more\n" * 500)
        pipe.flush()
        expect(page.get_by_text("Paused · 500 new lines")).to_be_visible()
        page.mouse.up()
        log.press("f")
        expect(page.get_by_text("Following", exact=True)).to_be_visible()


def test_flood_keeps_a_window_and_the_end(page: Page, site: Site) -> None:
    """During a flood the page holds a window, and the end is complete. Skipped lines appear after scrolling up."""
    see_talking_run(page, site)
    log = page.get_by_role("log")
    with site.pipe.open("w") as pipe:
        for start in range(0, 60_000, 1000):
            pipe.write("".join(f"{n}\n" for n in range(start, start + 1000)))
            pipe.flush()
    expect(log.locator("[data-n='59999'] .x")).to_have_text("59999")
    expect(page.get_by_text("Complete")).to_be_visible()
    texts = log.locator(".log-row .x").all_inner_texts()
    assert len(texts) <= 2500
    assert texts == [str(n) for n in range(int(texts[0]), 60_000)]
    scroll_until(log, -1, 58_800)
    texts = log.locator(".log-row .x").all_inner_texts()
    assert texts == [str(n) for n in range(int(texts[0]), 60_000)]


def test_frames_of_a_progress_bar(page: Page, site: Site) -> None:
    """A progress bar is one line, and its frames can be browsed."""
    site.see(page, f"#/run/{site.done['progress']}")
    page.get_by_role("button", name=re.compile("was redrawn")).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text("copying 1 of 5")
    expect(dialog.get_by_role("slider")).to_be_focused()
    page.keyboard.press("End")
    expect(dialog.locator("pre")).to_contain_text("copying 5 of 5")


def test_log_download(page: Page, site: Site, downloads: Path) -> None:
    """The whole log is downloaded unchanged, under a descriptive name."""
    site.see(page, f"#/run/{site.done['long']}")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download").click()
    waiting.value.save_as(downloads / "log")
    assert waiting.value.suggested_filename.startswith("long-")
    assert (downloads / "log").read_text() == "".join(f"{n}\n" for n in range(1, 200_001))


def test_log_position_by_keyboard(page: Page, site: Site) -> None:
    """The bar beside a log shows the position and moves with the keys."""
    site.see(page, f"#/run/{site.done['long']}")
    log = page.get_by_role("log")
    expect(log.locator("[data-n='199999']")).to_have_count(1)
    bar = page.get_by_role("slider", name="Position in the log")
    for key, seen in (("Home", 0), ("PageDown", 10_000), ("ArrowUp", 9_999), ("End", 199_999)):
        bar.press(key)
        expect(log.locator(f"[data-n='{seen}']")).to_be_in_viewport()
    bar.press("Home")
    expect(bar).to_have_attribute("aria-valuetext", "Line 1 of 200,000")
