"""The static pages."""

import re

import pytest

from api.resources.pages import _FILES
from tests.api.harness import Daemon

PAGES = ("/", "/docs")


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
    """There is nothing that no page loads, and no script makes code of text."""
    pages = "".join(daemon.get(path).body.decode() for path in PAGES)
    for path in _FILES:
        assert path in PAGES or path[1:] in pages
        if path.endswith(".js"):
            script = daemon.get(path).body.decode()
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|\.style\b", script
            )


def test_tags(daemon: Daemon) -> None:
    """A browser that has a file is told so."""
    tag = daemon.get("/").headers["ETag"]
    again = daemon.get("/", {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert daemon.get("/", {"If-None-Match": '"other"'}).status == 200
    assert daemon.ask("HEAD", "/").body == b""
