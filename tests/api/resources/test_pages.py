"""The static pages."""

import re

import pytest

from api.resources.pages import Site
from tests.api.support.harness import Daemon

PAGES = ("/", "/docs")
LATER = ("/static/vendor/uplot.js",)
"""What is loaded when it is first needed."""


@pytest.mark.parametrize("path", PAGES)
def test_page(daemon: Daemon, path: str) -> None:
    """It loads only what its own policy permits, from files that are there, by relative links."""
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
    """There is nothing that no page loads, and every module is fetched at once instead of one after the other."""
    pages = "".join(daemon.get(path).body.decode() for path in PAGES)
    scripts = "".join(daemon.get(path).body.decode() for path in Site().paths if path.endswith(".js"))
    for path in Site().paths:
        if path in LATER:
            assert path.rpartition("/")[2] in scripts
        elif path not in PAGES and not path.endswith(".txt"):
            assert path[1:] in pages


def test_no_script_makes_code_or_markup_of_text(daemon: Daemon) -> None:
    """What comes from outside is only ever set as text, and libraries make no code of text."""
    for path in Site().paths:
        if path.endswith(".js"):
            script = daemon.get(path).body.decode()
            assert not re.search(r"\beval\(|new Function|document\.write", script)
            if not path.startswith("/static/vendor/"):
                assert not re.search(r"innerHTML|outerHTML|insertAdjacent|setAttribute\(.style|\bstyle=\"", script)


def test_first_view_is_small(daemon: Daemon) -> None:
    """All that a browser loads before it shows something has at most 150 KB, compressed."""
    page = daemon.get("/").body.decode()
    paths = ["/", *(f"/{link}" for link in re.findall(r' (?:src|href)="([^"]*)"', page))]
    size = sum(len(daemon.get(path, {"Accept-Encoding": "gzip"}).body) for path in paths)
    assert size <= 150_000


def test_tags(daemon: Daemon) -> None:
    """A browser that has a file is told so."""
    tag = daemon.get("/").headers["ETag"]
    again = daemon.get("/", {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert daemon.get("/", {"If-None-Match": '"other"'}).status == 200
    assert daemon.ask("HEAD", "/").body == b""
