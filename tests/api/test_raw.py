"""The whole text of a log: its size, parts of it, and what the client has already."""

import http.client

import pytest

from api import rawlog
from api.context import Files
from logring.layout import STDERR, STDOUT, SYSTEM
from logring.paths import log_path, ring_path
from logring.reader import LogReader
from store.runs import Run
from tests.api.harness import Daemon, make_run, now_ms

BLOCK = 65536


def ended(daemon: Daemon, pieces: list[tuple[int, bytes]]) -> Run:
    """A run that has printed this and ended."""
    run = daemon.insert(running())
    if pieces:
        log = daemon.log_of(run)
        for stream, data in pieces:
            log.write(data, stream)
        log.finish()
    daemon.end(run.id)
    return run


def running() -> Run:
    return make_run(status="running", started_at=now_ms())


def url(run: Run, query: str = "") -> str:
    return f"/api/runs/{run.id}/log/raw{query}"


PIECES = [
    (stream, b"%d %s %d\n" % (stream, b"x" * (7 * number % 300), number))
    for number in range(3000)
    for stream in (STDOUT, STDERR, SYSTEM)
]
TEXT = b"".join(data for stream, data in PIECES if stream != SYSTEM)


@pytest.fixture(scope="module")
def long(shared: Daemon) -> Run:
    """The log of an ended run, some ten blocks long."""
    assert len(TEXT) > 10 * BLOCK
    return ended(shared, PIECES)


def test_size_and_tag(daemon: Daemon, long: Run) -> None:
    """The size of an ended run's log is told before it is sent; HEAD tells the same and sends nothing."""
    whole = daemon.get(url(long))
    assert (whole.status, whole.body) == (200, TEXT)
    assert whole.headers["Content-Length"] == str(len(TEXT))
    assert whole.headers["Accept-Ranges"] == "bytes"
    head = daemon.ask("HEAD", url(long))
    assert (head.status, head.body) == (200, b"")
    for name in ("Content-Length", "ETag", "Accept-Ranges", "Content-Type"):
        assert head.headers[name] == whole.headers[name]
    again = daemon.get(url(long), {"If-None-Match": f'"other", {whole.headers["ETag"]}'})
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", whole.headers["ETag"])
    other = daemon.get(url(long, "?stream=system"))
    assert other.headers["ETag"] != whole.headers["ETag"]
    assert other.headers["Content-Length"] == str(len(other.body))


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("0-0", 0, 1),
        ("0-", 0, len(TEXT)),
        ("5-99", 5, 100),
        (f"{BLOCK - 10}-{BLOCK + 10}", BLOCK - 10, BLOCK + 11),
        (f"{3 * BLOCK + 17}-{7 * BLOCK}", 3 * BLOCK + 17, 7 * BLOCK + 1),
        (f"{len(TEXT) - 1}-{len(TEXT) + 5}", len(TEXT) - 1, len(TEXT)),
        ("-1", len(TEXT) - 1, len(TEXT)),
        ("-70000", len(TEXT) - 70_000, len(TEXT)),
        ("-99999999999999999999999", 0, len(TEXT)),
    ],
)
def test_a_range(daemon: Daemon, long: Run, asked: str, begin: int, end: int) -> None:
    """Exactly the bytes that were asked for, from anywhere in the log."""
    answer = daemon.get(url(long), {"Range": f"bytes={asked}"})
    assert answer.status == 206
    assert answer.body == TEXT[begin:end]
    assert answer.headers["Content-Range"] == f"bytes {begin}-{end - 1}/{len(TEXT)}"
    assert answer.headers["Content-Length"] == str(end - begin)


@pytest.mark.parametrize("asked", [f"{len(TEXT)}-", f"{len(TEXT) + 5}-{len(TEXT) + 9}", "-0", "9" * 500 + "-"])
def test_no_such_bytes(daemon: Daemon, long: Run, asked: str) -> None:
    """416, which tells how many there are."""
    answer = daemon.get(url(long), {"Range": f"bytes={asked}"})
    assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(TEXT)}")


@pytest.mark.parametrize("asked", ["bytes=0-1,5-6", "lines=0-1", "bytes=-", "bytes=5-4", "bytes=x-1", "0-1"])
def test_what_is_no_single_range(daemon: Daemon, long: Run, asked: str) -> None:
    """Everything is sent, as if it was not there."""
    answer = daemon.get(url(long), {"Range": asked})
    assert (answer.status, answer.body) == (200, TEXT)


def test_if_range(daemon: Daemon, long: Run) -> None:
    """A part only of the version that the client has a part of."""
    tag = daemon.get(url(long), {"Range": "bytes=0-0"}).headers["ETag"]
    same = daemon.get(url(long), {"Range": "bytes=0-4", "If-Range": tag})
    assert (same.status, same.body) == (206, TEXT[:5])
    for other in ('"other"', f"W/{tag}", "Sat, 21 Nov 2026 00:00:00 GMT"):
        answer = daemon.get(url(long), {"Range": "bytes=0-4", "If-Range": other})
        assert (answer.status, answer.body) == (200, TEXT)


def test_nothing_printed(daemon: Daemon) -> None:
    """An ended run without output has an empty log of known size, without any part."""
    run = ended(daemon, [])
    answer = daemon.get(url(run))
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"", "0")
    assert daemon.get(url(run), {"Range": "bytes=0-"}).status == 416


def test_a_running_run(daemon: Daemon) -> None:
    """While it runs nobody knows the size, so everything there is comes, whatever part was asked for."""
    run = daemon.insert(running())
    log = daemon.log_of(run)
    log.write(b"one\ntwo\n")
    answer = daemon.get(url(run), {"Range": "bytes=0-1"})
    assert (answer.status, answer.body) == (200, b"one\ntwo\n")
    assert "ETag" not in answer.headers
    assert "Accept-Ranges" not in answer.headers
    log.finish()
    daemon.end(run.id)


def test_a_damaged_log(daemon: Daemon) -> None:
    """Its size is not told, and it ends where the damage begins."""
    run = ended(daemon, PIECES)
    path = log_path(daemon.boot.data_dir, run.task_name, run.id)
    with open(path, "r+b") as file:
        file.seek(4096 + 9 * BLOCK + 5000)
        file.write(b"\0" * 64)
    connection = daemon.connect(unix=True)
    connection.request("GET", url(run), headers={"Range": "bytes=0-1"})
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("Content-Length") is None
    with pytest.raises(http.client.IncompleteRead) as cut_off:
        response.read()
    assert TEXT.startswith(cut_off.value.partial)
    connection.close()


def test_a_layout_is_remembered(daemon: Daemon, long: Run) -> None:
    """A log is gone through once, and a part of it is read from the nearest mark on."""
    paths = ring_path(daemon.boot.runtime_dir, long.id), log_path(daemon.boot.data_dir, long.task_name, long.id)
    reader = LogReader(*paths)
    layouts = rawlog.Layouts(Files())
    streams = (STDOUT, STDERR)
    found = layouts.of(long.id, reader, reader.head(), streams)
    assert found is not None
    assert found.size == len(TEXT)
    assert layouts.of(long.id, reader, reader.head(), streams) is found
    begin = len(TEXT) - 100
    assert b"".join(rawlog.part(reader, streams, found, begin, begin + 50)) == TEXT[begin : begin + 50]
    reader.close()
