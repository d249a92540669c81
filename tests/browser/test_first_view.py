"""Size and requests of the first view."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import falcon
import pytest
from falcon.testing import TestClient
from playwright.sync_api import Browser, Locator, Page, Request, Route, StorageState, expect

from api.resources.pages import FOLDER, Site
from tests.browser import site as sites
from tests.browser.conftest import opened, watched
from tests.support.waiting import until

ROOT = Path(__file__).parent.parent.parent
MOST_REQUESTS = 12
MOST_BYTES = 150_000
MOST_ROUNDS = 4
"""A link with a latency of 150 ms needs 1.2 s for eight.

One more opens the connection. Two more load a bundle of up to 100 KB, because a connection sends 14 KB in its first
round trip, and twice as much in each that follows.
"""
DRAWN = """() => new Promise((done) => document.getElementById("app")?.firstElementChild
    ? requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(false))))
    : setTimeout(() => done(false)))"""
"""A page that waits for its style sheets draws nothing."""
LOADED = """() => performance.getEntriesByType("resource")
    .filter((one) => /[.](js|css)$/.test(one.name)).map((one) => [one.name, one.transferSize])"""
"""Scripts and style sheets, with the bytes that came over the network."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """The files of a release, with the bundle."""
    if shutil.which("npm") is None:
        pytest.skip("no npm")
    folder = tmp_path_factory.mktemp("release") / "static"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("bundle"))
    environ = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(["sh", str(ROOT / "deploy/bundle.sh"), str(folder)], check=True, env=environ)
    app, site = falcon.App(), Site(str(folder))
    for path in (*site.paths, "/static/{digest}/{name:path}"):
        app.add_route(path, site)
    return TestClient(app)


def serve(page: Page, released: TestClient, address: str) -> None:
    """Serve the page and its files from the release."""
    page.route(address, lambda route: fulfil(route, released, address))
    page.route(f"{address}static/**", lambda route: fulfil(route, released, address))


def fulfil(route: Route, released: TestClient, address: str) -> int:
    """Answer with a file of the release; return its size, compressed."""
    answer = released.simulate_get("/" + route.request.url.removeprefix(address))
    route.fulfill(status=answer.status_code, headers=dict(answer.headers), body=answer.content)
    return len(gzip.compress(answer.content))


class Lockstep:
    """A page whose requests are answered in rounds, as on a slow link: all requests of a round at once.

    A request that depends on an answer is in a later round, so the number of rounds is the length of the longest chain
    of dependent requests.
    """

    def __init__(self, page: Page, answer: Callable[[Route], None]) -> None:
        self._page = page
        self._answer = answer
        self._held: list[Route] = []
        self._unanswered: set[Request] = set()
        self.requests: list[Request] = []
        self.finished: dict[str, Request] = {}
        """Completely answered requests, by URL. A slow load is repeated once the event stream is open."""
        page.route("**", self._hold)
        page.on("requestfinished", self._finished)
        page.on("requestfailed", self._ended)

    def _ended(self, request: Request) -> None:
        self._unanswered.discard(request)

    def _finished(self, request: Request) -> None:
        self._ended(request)
        self.finished[request.url] = request

    def _hold(self, route: Route) -> None:
        self.requests.append(route.request)
        if route.request.is_navigation_request():
            self._answer(route)
        else:
            self._held.append(route)

    def _is_quiet(self) -> bool:
        self._page.evaluate(DRAWN)
        return not self._unanswered

    @property
    def answered(self) -> set[str]:
        """Return the URLs of the requests of all rounds so far."""
        held_requests = {sent_request.request for sent_request in self._held}
        return {request.url for request in self.requests if request not in held_requests}

    def wait_until_quiet(self) -> None:
        """Wait until all answers of a round have arrived; the page aborts a request that a later one replaces."""
        until(self._is_quiet, "all answers of a round")

    def rounds_until(self, address: str, seen: Locator) -> int:
        """Return after how many rounds, from that of the page itself on, an element is visible."""
        self._page.goto(address, wait_until="commit")
        rounds = 1
        while True:
            self.wait_until_quiet()
            until(lambda: self._page.evaluate(DRAWN) or self._held or seen.is_visible(), "the next request")
            if seen.is_visible():
                return rounds
            rounds += 1
            now, self._held = self._held, []
            self._unanswered.update(
                sent_request.request for sent_request in now if "/stream" not in sent_request.request.url
            )
            for route in now:
                self._answer(route)


def test_first_view_is_small(released: TestClient) -> None:
    """A browser loads at most 150 KB, compressed, before it shows anything of a release."""
    page = released.simulate_get("/").text
    paths = ["/", *(f"/{link}" for link in re.findall(r' (?:src|href)="(static/[^"]*)"', page))]
    assert sum(len(gzip.compress(released.simulate_get(path).content)) for path in paths) <= MOST_BYTES


def test_few_requests_at_first(
    browser: Browser, session: StorageState, site: sites.Site, released: TestClient, complaints: list[str]
) -> None:
    """With an empty cache, the overview of a release needs at most twelve requests."""
    context = browser.new_context(storage_state=session, viewport={"width": 1280, "height": 900})
    page = watched(context, complaints)
    serve(page, released, site.url)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto(site.url)
    expect(
        page.get_by_role("region", name="Tasks and services").get_by_role("button", name="Run").first
    ).to_be_visible()
    expect(page.get_by_role("group", name="Last runs of backup").get_by_role("link")).to_have_count(1)
    page.wait_for_load_state("load")
    assert any("/bundle/main.js" in url for url in urls)
    # A slow load is repeated once the event stream is open, with the tasks in the order of their states by then.
    distinct = {url.partition("?")[0] for url in urls}
    assert len(distinct) <= MOST_REQUESTS, urls
    assert not any("/api/resources" in url for url in urls), "needed only further down"
    context.close()


@pytest.mark.parametrize("run", ["colours", "backup"], ids=["succeeded", "failed"])
@pytest.mark.parametrize("bundled", [True, False], ids=["release", "checkout"])
def test_first_log_line_needs_few_round_trips(
    browser: Browser, session: StorageState, site: sites.Site, released: TestClient, bundled: bool, run: str
) -> None:
    """With an empty cache, a log appears after four round trips, or in a release after few and small answers."""
    context = browser.new_context(storage_state=session, viewport={"width": 1280, "height": 900})
    page = opened(context)
    sizes: list[int] = []

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(site.url)
        if bundled and (path == "" or path.startswith("static/")):
            sizes.append(fulfil(route, released, site.url))
        else:
            route.continue_()

    link = Lockstep(page, answer)
    line = page.get_by_role("log").locator(".log-row").first
    assert link.rounds_until(f"{site.url}#/run/{site.done[run]}", line) <= MOST_ROUNDS, link.requests
    assert any("/bundle/" in request.url for request in link.requests) is bundled
    if bundled:
        assert len(link.answered) <= MOST_REQUESTS, link.answered
        link.wait_until_quiet()
        dynamic = [request for url, request in link.finished.items() if "/api/" in url and "/stream" not in url]
        sizes += [request.sizes()["responseBodySize"] for request in dynamic]
        assert sum(sizes) <= MOST_BYTES
    context.close()


def test_bundle_shows_charts(
    browser: Browser, session: StorageState, site: sites.Site, released: TestClient, complaints: list[str]
) -> None:
    """The bundle loads its later part, for charts, when the host is unfolded."""
    context = browser.new_context(storage_state=session)
    page = watched(context, complaints)
    serve(page, released, site.url)
    page.goto(site.url)
    host = page.get_by_role("region", name="Host")
    host.get_by_role("button", name="Show charts").click()
    expect(host.locator("canvas").last).to_be_visible()
    page.reload()
    expect(host.get_by_role("button", name="Hide charts")).to_be_visible()
    context.close()


def test_files_are_loaded_once(browser: Browser, session: StorageState, site: sites.Site) -> None:
    """The second visit requests no file of the first one, not even to check whether it has changed."""
    context = browser.new_context(storage_state=session)
    page = context.new_page()
    site.see(page, "#/")
    expect(page.get_by_role("region", name="Host")).to_be_visible()
    page.goto("about:blank")
    site.see(page, "#/")
    expect(page.get_by_role("region", name="Host")).to_be_visible()
    loaded = page.evaluate(LOADED)
    assert any(url.endswith(("/js/main.js", "/bundle/main.js")) for url, _ in loaded)
    assert [url for url, transferred in loaded if transferred] == []
    context.close()
