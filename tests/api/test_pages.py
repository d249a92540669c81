"""The static page."""

from api.resources.pages import _FILES
from tests.api.harness import Daemon


def test_page(daemon: Daemon) -> None:
    """It loads only what its own policy permits, from files that are there, by relative links."""
    page = daemon.get("/", unix=False)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    text = page.body.decode()
    assert "<style" not in text
    assert " style=" not in text
    assert " on" + "click=" not in text
    assert "http" not in text
    for path in _FILES:
        assert path == "/" or path[1:] in text
        assert daemon.get(path, unix=False).status == 200


def test_tags(daemon: Daemon) -> None:
    """A browser that has a file is told so."""
    tag = daemon.get("/").headers["ETag"]
    again = daemon.get("/", {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert daemon.get("/", {"If-None-Match": '"other"'}).status == 200
    assert daemon.ask("HEAD", "/").body == b""
