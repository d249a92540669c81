"""Load time and smoothness of the dashboard, in a real Chromium with an empty cache each time.

The floor is a page with a few lines of text, from the same server in the same browser.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from api.resources.pages import FOLDER
from bench.client import Failed
from bench.daemon import PASSWORD, Daemon, toml
from bench.measure import Row, in_turn, limit_row, quantile
from bench.queries.history import task_name

_EMPTY = "static/css/docs.css"
"""A text of some lines: the smallest page on which scripts are allowed."""
_TASKS = 40
_BAR_MS = 1000.0
_LINE = "x" * 91
"""With an eight-digit number, a space and the newline, a line has 100 bytes or slightly more."""
_LINES_A_SECOND = 10_000
_FRAME_BARS_MS = (("p50", 0.5, 34.0), ("p99", 0.99, 50.0))
"""Two and three frames of a screen with 60 frames a second."""
_PROCESSOR_BAR_MS = 700.0
_FAR_MS = 150
_FAR_BAR_MS = 1200.0
_BUNDLE = f"{FOLDER}/bundle/sources.txt"
_FILES_BAR = 12
_KILOBYTES_BAR = 150.0

_USABLE = """selector => new Promise((done) => {
  const look = () => {
    if (document.querySelector(selector)) setTimeout(() => done(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""
"""Milliseconds from the start of the navigation until content is visible and the page handles events."""
_FRAMES = """count => new Promise((done) => {
  const found = [];
  let before = null;
  const next = (at) => {
    if (before !== null) found.push(at - before);
    before = at;
    if (found.length < count) requestAnimationFrame(next);
    else done(found);
  };
  requestAnimationFrame(next);
})"""
"""Milliseconds between frames."""
_TALK = """
import os, time
start = time.monotonic()
for turn in range({seconds} * 100):
    os.write(1, b"".join(b"%08d GET /product/%d 200\\n" % (turn * {each} + n, n) for n in range({each})))
    time.sleep(max(0, start + turn / 100 - time.monotonic()))
"""


@contextlib.contextmanager
def _chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        raise Failed("no chromium in PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def _visitor(browser: Browser, daemon: Daemon) -> Iterator[Page]:
    """Open a page with a session and an empty cache."""
    context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 900})
    context.request.post(f"{_site(daemon)}api/auth/login", data={"password": PASSWORD})
    yield context.new_page()
    context.close()


def _site(daemon: Daemon) -> str:
    return f"http://127.0.0.1:{daemon.port}/"


def _opened(browser: Browser, daemon: Daemon, path: str, selector: str) -> float:
    """Return the milliseconds until the elements of `selector` are usable."""
    with _visitor(browser, daemon) as page:
        page.goto(_site(daemon) + path, wait_until="commit")
        took_ms: float = page.evaluate(_USABLE, selector)
        return took_ms


def _weighed(browser: Browser, daemon: Daemon, path: str, selector: str) -> tuple[int, float, float]:
    """Return requests, kilobytes and milliseconds until `selector` is usable over a link of 150 ms.

    Streams, which never end, count as requests.
    """
    with _visitor(browser, daemon) as page:
        link = page.context.new_cdp_session(page)
        link.send("Network.enable")
        conditions = {"offline": False, "latency": _FAR_MS, "downloadThroughput": -1, "uploadThroughput": -1}
        link.send("Network.emulateNetworkConditions", conditions)
        asked: list[str] = []
        sizes: list[float] = []
        link.on("Network.requestWillBeSent", lambda event: asked.append(event["request"]["url"]))
        link.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        page.goto(_site(daemon) + path, wait_until="commit")
        took_ms: float = page.evaluate(_USABLE, selector)
        page.wait_for_timeout(2 * _FAR_MS)
        return len(asked), sum(sizes) / 1000, took_ms


def _far(browser: Browser, daemon: Daemon, run: str, rounds: int) -> list[Row]:
    """Measure the first view with an empty cache over a slow link, and the first line of a log."""
    views = [_weighed(browser, daemon, "", ".units tbody button:not(:disabled)") for _ in range(rounds)]
    lines = [_weighed(browser, daemon, f"#/run/{run}", "[data-n] .x") for _ in range(rounds)]
    requests, kilobytes = max(one for one, _, _ in views), max(one for _, one, _ in views)
    took_ms = quantile([one for _, _, one in lines], 0.5)
    note = "" if os.path.exists(_BUNDLE) else "no bundle: run make bundle"
    return [
        Row(
            "dashboard: requests of the first view",
            str(requests),
            "",
            "",
            f"<= {_FILES_BAR}",
            requests <= _FILES_BAR,
            note,
        ),
        Row(
            "dashboard: size of the first view",
            f"{kilobytes:.0f} KB",
            "",
            "",
            f"<= {_KILOBYTES_BAR:g} KB",
            kilobytes <= _KILOBYTES_BAR,
            note,
        ),
        Row(
            f"dashboard: first line of a log at {_FAR_MS} ms",
            f"{took_ms:.0f} ms",
            f"{_FAR_MS} ms",
            f"{took_ms / _FAR_MS:.1f} x",
            f"<= {_FAR_BAR_MS:g} ms",
            took_ms <= _FAR_BAR_MS,
            note,
        ),
    ]


def dashboard(quick: bool) -> list[Row]:
    """Measure the first view, a log of 100 MB, and the frames at ten thousand lines a second."""
    rounds, lines, frames, seconds = (1, 10_000, 60, 10) if quick else (7, 1_000_000, 300, 20)
    units = "".join(f"[tasks.{task_name(number)}]\nrun = 'true'\ncron = '@daily'\n" for number in range(_TASKS))
    long = f"[tasks.long]\nrun = \"seq -f '%08.0f{_LINE}' {lines}\"\nlog_max_size = '200mb'\n"
    talk = ["python3", "-c", _TALK.format(seconds=seconds, each=_LINES_A_SECOND // 100)]
    with Daemon(f"{units}{long}[tasks.talks]\nrun = {toml(talk)}\n") as daemon, _chromium() as browser:
        client = daemon.client()
        run = client.trigger("long", wait_s=60)["id"]

        def empty() -> float:
            return _opened(browser, daemon, _EMPTY, "body")

        def first() -> float:
            return _opened(browser, daemon, "", ".units tbody button:not(:disabled)")

        def log() -> float:
            return _opened(browser, daemon, f"#/run/{run}", f"[data-n='{lines - 1}']")

        empty()
        rows = [
            limit_row("dashboard: first view can be used", in_turn(rounds, first, empty), "{:.0f} ms", _BAR_MS),
            limit_row(
                f"dashboard: end of a log of {lines // 10_000} MB", in_turn(rounds, log, empty), "{:.0f} ms", _BAR_MS
            ),
        ]
        rows += _far(browser, daemon, run, rounds)
        with _visitor(browser, daemon) as page:
            return [*rows, *_smooth(daemon, browser, page, client.trigger("talks")["id"], frames)]


def _processor_s(browser: Browser) -> float:
    """Return the processor time of all browser processes so far."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    taken_s: float = sum(one["cpuTime"] for one in found)
    return taken_s


def _smooth(daemon: Daemon, browser: Browser, page: Page, run: str, count: int) -> list[Row]:
    """Measure frame times and processor time while following a log; the floor is the plain page."""
    page.goto(f"{_site(daemon)}#/run/{run}")
    page.wait_for_selector(".log-row", state="attached")
    before, taken_s = page.evaluate("document.querySelector('.log-scroll').view.total"), _processor_s(browser)
    ours: list[float] = page.evaluate(_FRAMES, count)
    after, shown = page.evaluate(
        "(() => { const { view } = document.querySelector('.log-scroll'); return [view.total, view.end]; })()"
    )
    taken_s = _processor_s(browser) - taken_s
    rate = (after - before) / (sum(ours) / 1000)
    if rate < _LINES_A_SECOND * 0.8 or after - shown > _LINES_A_SECOND:
        raise Failed(f"{rate:.0f} lines/s came, and of {after} lines the page was at {shown}")
    page.goto(_site(daemon) + _EMPTY)
    floor_s = _processor_s(browser)
    floor: list[float] = page.evaluate(_FRAMES, count)
    floor_s = (_processor_s(browser) - floor_s) * sum(ours) / sum(floor)
    each_ms, floor_ms = (1000 * one * 10_000 / (after - before) for one in (taken_s, floor_s))
    rows = [
        limit_row("dashboard: the browser, for 10,000 lines", [(each_ms, floor_ms)], "{:.0f} ms", _PROCESSOR_BAR_MS)
    ]
    for name, q, bar in _FRAME_BARS_MS:
        one, other = quantile(ours, q), quantile(floor, q)
        rows.append(
            Row(
                f"dashboard: a frame at {rate:,.0f} lines/s, {name}",
                f"{one:.1f} ms",
                f"{other:.1f} ms",
                f"{one / other:.1f} x",
                f"<= {bar:g} ms",
                one <= bar,
                f"max {max(ours):.0f} ms",
            )
        )
    return rows
