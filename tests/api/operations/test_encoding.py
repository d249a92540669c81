"""Compressed answers, and answers that the client has already."""

import gzip
import json
import sys
from collections.abc import Callable

import pytest

from api.operations.encoding import choose
from store.tasks import update_task, upsert_task
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP = {"Accept-Encoding": "gzip, deflate"}
ZSTD = {"Accept-Encoding": "gzip, deflate, br, zstd"}
UNPACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "zstd": zstd.decompress}


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("gzip", "gzip"),
        ("deflate, GZIP", "gzip"),
        ("x-gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip;q=0.6", "gzip"),
        ("gzip;q=0.5,zstd;q=0.5", "zstd"),
        ("br;q=1.0, gzip;q=0.8", "gzip"),
        ("zstd;q=0, gzip;q=0.001", "gzip"),
        ("*", "zstd"),
        ("zstd;q=0, *;q=0.5", "gzip"),
        ("gzip;q=0.5, identity", None),
        ("gzip, identity", "gzip"),
        ("gzip;q=0.5, identity;q=0", "gzip"),
        ("", None),
        (",,;q=1,", None),
        ("br", None),
        ("identity", None),
        ("gzip;q=0", None),
        ("gzip; q=0.000, zstd;q=0, *", None),
        ("*;q=0", None),
        ("gzip;q=x", None),
        ("gzip;level=9", None),
        ("notgzip", None),
    ],
)
def test_preferred_encoding(header: str, chosen: str | None) -> None:
    """The server uses the allowed encoding with the highest weight, and zstd among equals."""
    assert choose(header) == chosen


@pytest.mark.parametrize(("wanted_range", "coding"), [(GZIP, "gzip"), (ZSTD, "zstd")], ids=["gzip", "zstd"])
@pytest.mark.parametrize("path", ["/openapi.json", "/static/js/main.js", "/api/runs?limit=1000"])
def test_large_answers_are_compressed(daemon: Daemon, path: str, wanted_range: dict[str, str], coding: str) -> None:
    """Large answers are compressed for clients that accept it, with equal content and Vary."""
    for _ in range(20):
        daemon.insert(make_run())
    plain = daemon.get(path)
    packed = daemon.ask_raw("GET", path, wanted_range)
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == coding
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
    assert len(packed.body) == int(packed.headers["Content-Length"]) < len(plain.body)
    assert UNPACK[coding](packed.body) == plain.body


@pytest.mark.parametrize("wanted_range", [{}, GZIP, ZSTD], ids=["plain", "gzip", "zstd"])
def test_head(daemon: Daemon, wanted_range: dict[str, str]) -> None:
    """HEAD has the same headers as GET, but no body."""
    whole, head = (daemon.ask_raw(method, "/openapi.json", wanted_range) for method in ("GET", "HEAD"))
    assert (head.status, head.body) == (200, b"")
    for name in ("Content-Length", "Content-Encoding", "Content-Type", "ETag", "Vary"):
        assert head.headers[name] == whole.headers[name]


def test_small_answers_and_streams_are_not_compressed(daemon: Daemon) -> None:
    """Small answers and streams are not compressed."""
    assert "Content-Encoding" not in daemon.ask_raw("GET", "/healthz", ZSTD).headers
    run = daemon.insert(make_run(status="running", started_at=now_ms()))
    log = daemon.log_of(run)
    log.write(b"a line of some length\n" * 1000)
    log.finish()
    daemon.end(run.id)
    for path in ("log/raw", "log/stream"):
        answer = daemon.ask_raw("GET", f"/api/runs/{run.id}/{path}", ZSTD)
        assert answer.status == 200
        assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("path", ["/openapi.json", "/schemas/Run.json", "/api/tasks", "/static/css/base.css", "/"])
def test_tags(daemon: Daemon, path: str) -> None:
    """A client with the current version gets 304 in any encoding, with the same tag and Vary; others get the answer."""
    for headers in ({}, GZIP, ZSTD):
        first = daemon.ask_raw("GET", path, headers)
        # A strong tag would promise equal bytes, which compression changes.
        assert first.headers["ETag"].startswith("W/") == ("Content-Encoding" in first.headers)
        again = daemon.ask_raw("GET", path, {**headers, "If-None-Match": first.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        for name in ("ETag", "Vary"):
            assert again.headers[name] == first.headers[name]
        assert not {"Content-Encoding", "Content-Type"} & set(again.headers)
        assert daemon.ask_raw("GET", path, {**headers, "If-None-Match": '"other"'}).status == 200
    assert daemon.get(path, {"If-None-Match": "*"}).status == 304


def test_a_changed_task_has_another_tag(daemon: Daemon) -> None:
    """The tag changes with any part of the answer."""
    with daemon.lock:
        upsert_task(daemon.db, "tagged", "task", json.dumps({"tags": []}))
    first = daemon.get("/api/tasks/tagged")
    assert daemon.get("/api/tasks/tagged", {"If-None-Match": first.headers["ETag"]}).status == 304
    with daemon.lock:
        update_task(daemon.db, "tagged", paused=True)
    second = daemon.get("/api/tasks/tagged", {"If-None-Match": first.headers["ETag"]})
    assert (second.status, second.json["paused"]) == (200, True)
