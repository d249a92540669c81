"""Compressed answers, and those that the client has already."""

import gzip
import json

import pytest

from api.encoding import takes_gzip
from store.tasks import update_task, upsert_task
from tests.api.harness import Daemon, make_run, now_ms

GZIP = {"Accept-Encoding": "gzip, deflate"}


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("gzip", True),
        ("deflate, GZIP", True),
        ("br;q=1.0, gzip;q=0.8", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*;q=0", False),
        ("notgzip", False),
    ],
)
def test_what_clients_take(header: str, taken: bool) -> None:
    """Compression is used only when the header allows it."""
    assert takes_gzip(header) is taken


@pytest.mark.parametrize("path", ["/openapi.json", "/static/app.js", "/api/runs?limit=1000"])
def test_large_answers(daemon: Daemon, path: str) -> None:
    """They are compressed for those who take it, and the same for all; caches are told of the difference."""
    for _ in range(20):
        daemon.insert(make_run())
    plain = daemon.get(path)
    packed = daemon.ask_raw("GET", path, GZIP)
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
    assert len(packed.body) == int(packed.headers["Content-Length"]) < len(plain.body)
    assert gzip.decompress(packed.body) == plain.body


def test_small_answers_and_streams(daemon: Daemon) -> None:
    """They are sent as they are."""
    assert "Content-Encoding" not in daemon.ask_raw("GET", "/healthz", GZIP).headers
    run = daemon.insert(make_run(status="running", started_at=now_ms()))
    log = daemon.log_of(run)
    log.write(b"a line of some length\n" * 1000)
    log.finish()
    daemon.end(run.id)
    for path in ("log/raw", "log/stream"):
        answer = daemon.ask_raw("GET", f"/api/runs/{run.id}/{path}", GZIP)
        assert answer.status == 200
        assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("path", ["/openapi.json", "/schemas/Run.json", "/api/tasks", "/static/style.css", "/"])
def test_tags(daemon: Daemon, path: str) -> None:
    """Who has it is told so, whether it was compressed or not; who has something else gets it."""
    for headers in ({}, GZIP):
        first = daemon.ask_raw("GET", path, headers)
        again = daemon.ask_raw("GET", path, {**headers, "If-None-Match": first.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        assert daemon.ask_raw("GET", path, {**headers, "If-None-Match": '"other"'}).status == 200
    assert daemon.get(path, {"If-None-Match": "*"}).status == 304


def test_a_changed_task_has_another_tag(daemon: Daemon) -> None:
    """The tag stands for the whole answer."""
    with daemon.lock:
        upsert_task(daemon.db, "tagged", "task", json.dumps({"tags": []}))
    first = daemon.get("/api/tasks/tagged")
    assert daemon.get("/api/tasks/tagged", {"If-None-Match": first.headers["ETag"]}).status == 304
    with daemon.lock:
        update_task(daemon.db, "tagged", paused=True)
    second = daemon.get("/api/tasks/tagged", {"If-None-Match": first.headers["ETag"]})
    assert (second.status, second.json["paused"]) == (200, True)
