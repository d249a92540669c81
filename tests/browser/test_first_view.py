"""How much the first view loads."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import falcon
import pytest
from falcon.testing import TestClient
from playwright.sync_api import Browser, Page, Route, StorageState, expect

from api.resources.pages import FOLDER, Site
from tests.browser import site as sites
from tests.browser.conftest import watched

ROOT = Path(__file__).parent.parent.parent
MOST_REQUESTS = 12
LOADED = """() => performance.getEntriesByType("resource")
    .filter((one) => /[.](js|css)$/.test(one.name)).map((one) => [one.name, one.transferSize])"""
"""Scripts and style sheets, with the bytes that came over the network."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """The files of a release: with the bundle that the script makes."""
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
    """Have the page and its files come from the release."""

    def fulfil(route: Route) -> None:
        answer = released.simulate_get("/" + route.request.url.removeprefix(address))
        route.fulfill(status=answer.status_code, headers=dict(answer.headers), body=answer.content)

    page.route(address, fulfil)
    page.route(f"{address}static/**", fulfil)


def test_the_first_view_of_a_release_is_small(released: TestClient) -> None:
    """All that a browser loads before it shows something has at most 150 KB, compressed."""
    page = released.simulate_get("/").text
    paths = ["/", *(f"/{link}" for link in re.findall(r' (?:src|href)="(static/[^"]*)"', page))]
    assert sum(len(gzip.compress(released.simulate_get(path).content)) for path in paths) <= 150_000


def test_few_requests(
    browser: Browser, session: StorageState, site: sites.Site, released: TestClient, complaints: list[str]
) -> None:
    """With an empty cache, the overview of a release needs at most twelve requests."""
    context = browser.new_context(storage_state=session, viewport={"width": 1280, "height": 900})
    page = watched(context, complaints)
    serve(page, released, site.url)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site.url)
    expect(
        page.get_by_role("region", name="Tasks and services").get_by_role("button", name="Run").first
    ).to_be_visible()
    expect(page.get_by_role("group", name="Last runs of backup").get_by_role("link")).to_have_count(1)
    page.wait_for_load_state("load")
    assert any("/bundle/main.js" in url for url in asked)
    # A slow load is repeated once the event stream is open, with the tasks in the order of their states by then.
    distinct = {url.partition("?")[0] for url in asked}
    assert len(distinct) <= MOST_REQUESTS, asked
    context.close()


def test_the_bundle_shows_charts(
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
    """The second visit asks for no file of the first one, not even whether it has changed."""
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
