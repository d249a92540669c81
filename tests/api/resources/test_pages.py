"""The static pages."""

import inspect
import re
import shutil
from pathlib import Path

import falcon
import pytest
from falcon.testing import TestClient

from api.resources.pages import BUNDLE, FOLDER, Site, digest_of, read
from api.schemas import status_page
from tests.api.support.harness import Daemon

PAGES = ("/", "/docs")
LATER = (
    "/static/vendor/uplot.js",
    "/static/js/runs/diff_worker.js",
    "/static/js/runs/diff.js",
    *(f"/static/badges/{name}.svg" for name in (*range(1, 10), "more")),
)
"""Files that a page loads on first use."""
SOURCES = tuple(path for path in Site().paths if not path.startswith(BUNDLE))
DIGEST = re.compile(r'"static/([0-9a-f]{16})/')


@pytest.mark.parametrize("path", PAGES)
def test_page(daemon: Daemon, path: str) -> None:
    """A page loads only what its policy permits, from existing files and by relative links."""
    page = daemon.get(path, unix=False)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    text = page.body.decode()
    assert "<style" not in text
    assert " style=" not in text
    assert " on" + "click=" not in text
    assert "http" not in text
    links = re.findall(r' (?:src|href)="([^"]*)"', text)
    assert links
    for link in links:
        assert daemon.get(f"/{link.removeprefix('./')}", unix=False).status == 200


def test_every_file_is_used(daemon: Daemon) -> None:
    """Some page loads each file, and all modules are fetched at once."""
    pages = "".join(read()[path].decode() for path in PAGES) + inspect.getsource(status_page)
    scripts = "".join(daemon.get(path).body.decode() for path in SOURCES if path.endswith(".js"))
    for path in SOURCES:
        if path in LATER:
            assert path.rpartition("/")[2 if path.endswith(".js") else 0].removeprefix("/static/") in scripts
        elif path not in PAGES and not path.endswith(".txt"):
            assert path[1:] in pages or path.replace("/static/", "static/status/") in pages


def test_text_never_becomes_code_or_markup(daemon: Daemon) -> None:
    """Scripts set external text only as text, and no library turns text into code."""
    for path in SOURCES:
        if path.endswith(".js"):
            script = daemon.get(path).body.decode()
            assert not re.search(r"\beval\(|new Function|document\.write", script)
            if not path.startswith("/static/vendor/"):
                assert not re.search(r"innerHTML|outerHTML|insertAdjacent|setAttribute\(.style|\bstyle=\"", script)


def test_tags(daemon: Daemon) -> None:
    """A browser that has a file gets 304."""
    tag = daemon.get("/").headers["ETag"]
    again = daemon.get("/", {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert daemon.get("/", {"If-None-Match": '"other"'}).status == 200
    assert daemon.ask("HEAD", "/").body == b""


def client_of(folder: Path) -> TestClient:
    """A client of the pages in a folder."""
    app, site = falcon.App(), Site(str(folder))
    for path in (*site.paths, "/static/{digest}/{name:path}"):
        app.add_route(path, site)
    return TestClient(app)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the files, without a bundle."""
    shutil.copytree(FOLDER, tmp_path / "static", ignore=shutil.ignore_patterns("bundle"))
    return tmp_path / "static"


def digest_in(page: str) -> str:
    """The digest in all links of a page to files."""
    (digest,) = set(DIGEST.findall(page))
    return str(digest)


def test_files_are_cached_forever(folder: Path) -> None:
    """The URL of a file changes with its content, so browsers need not ask for it again."""
    client = client_of(folder)
    digest = digest_in(client.simulate_get("/").text)
    assert digest_in(client.simulate_get("/docs").text) == digest
    file = client.simulate_get(f"/static/{digest}/js/main.js")
    assert file.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert client.simulate_get("/").headers["Cache-Control"] == "no-cache"
    (folder / "js/verdict.js").write_text("export {}")
    assert digest_in(client.simulate_get("/").text) == digest
    assert digest_in(client_of(folder).simulate_get("/").text) != digest


def test_page_of_an_earlier_version(folder: Path) -> None:
    """A page of an earlier version gets the current file, which is not cached under the old URL."""
    file = client_of(folder).simulate_get("/static/0123456789abcdef/vendor/uplot.js")
    assert file.content == (folder / "vendor/uplot.js").read_bytes()
    assert file.headers["Cache-Control"] == "no-cache"
    assert client_of(folder).simulate_get("/static/0123456789abcdef/vendor/none.js").status_code == 404
    assert client_of(folder).simulate_get("/static/0123456789abcdef/../app.py").status_code == 404


def test_bundle_matches_the_files(folder: Path) -> None:
    """The page loads the bundle if it was built from the present files, otherwise the modules."""
    bundle = folder / "bundle"
    bundle.mkdir()
    (bundle / "index.html").write_text('<script type="module" src="static/bundle/main.js"></script>')
    (bundle / "main.js").write_text("")
    (bundle / "sources.txt").write_text(digest_of(read(str(folder))))
    assert "/bundle/main.js" in client_of(folder).simulate_get("/").text
    (folder / "js/verdict.js").write_text("export {}")
    page = client_of(folder).simulate_get("/").text
    assert "/bundle/" not in page
    assert "/js/main.js" in page
