"""The whole text of a log: its size, ranges, and conditional requests."""

import http.client
import os

import pytest

from api.read_threads import LogFileReads
from api.streams import raw_log
from logring.layout import STDERR, STDOUT, SYSTEM
from logring.log_paths import log_path, ring_path
from logring.reader import Extent, LogReader
from store.runs.writes import Run
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms

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
    """The size of an ended run's log is sent first; HEAD has the same headers without a body."""
    whole = daemon.get(url(long))
    assert (whole.status, whole.body) == (200, TEXT)
    assert whole.headers["Content-Length"] == str(len(TEXT))
    assert whole.headers["Accept-Ranges"] == "bytes"
    head = daemon.ask("HEAD", url(long), None, {"Range": "bytes=0-4"})
    assert (head.status, head.body) == (200, b"")
    for name in ("Content-Length", "ETag", "Accept-Ranges", "Content-Type"):
        assert head.headers[name] == whole.headers[name]
    again = daemon.get(url(long), {"If-None-Match": f'"other", {whole.headers["ETag"]}'})
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", whole.headers["ETag"])
    other = daemon.get(url(long, "?stream=system"))
    assert other.headers["ETag"] != whole.headers["ETag"]
    assert other.headers["Content-Length"] == str(len(other.body))


@pytest.mark.parametrize(
    ("wanted_range", "start", "end"),
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
def test_range(daemon: Daemon, long: Run, wanted_range: str, start: int, end: int) -> None:
    """A range has exactly the requested bytes, anywhere in the log."""
    answer = daemon.get(url(long), {"Range": f"bytes={wanted_range}"})
    assert answer.status == 206
    assert answer.body == TEXT[start:end]
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(TEXT)}"
    assert answer.headers["Content-Length"] == str(end - start)


@pytest.mark.parametrize("wanted_range", [f"{len(TEXT)}-", f"{len(TEXT) + 5}-{len(TEXT) + 9}", "-0", "9" * 500 + "-"])
def test_unsatisfiable_range(daemon: Daemon, long: Run, wanted_range: str) -> None:
    """An unsatisfiable range gets 416 with the size."""
    answer = daemon.get(url(long), {"Range": f"bytes={wanted_range}"})
    assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(TEXT)}")


@pytest.mark.parametrize("wanted_range", ["bytes=0-1,5-6", "lines=0-1", "bytes=-", "bytes=5-4", "bytes=x-1", "0-1"])
def test_ignored_ranges(daemon: Daemon, long: Run, wanted_range: str) -> None:
    """Invalid and multiple ranges are ignored, and everything is sent."""
    answer = daemon.get(url(long), {"Range": wanted_range})
    assert (answer.status, answer.body) == (200, TEXT)


def test_if_range(daemon: Daemon, long: Run) -> None:
    """If-Range returns a part only of the version that the client has."""
    tag = daemon.get(url(long), {"Range": "bytes=0-0"}).headers["ETag"]
    same = daemon.get(url(long), {"Range": "Bytes=0-4", "If-Range": tag})
    assert (same.status, same.body) == (206, TEXT[:5])
    for other in ('"other"', f"W/{tag}", "Sat, 21 Nov 2026 00:00:00 GMT"):
        answer = daemon.get(url(long), {"Range": "bytes=0-4", "If-Range": other})
        assert (answer.status, answer.body) == (200, TEXT)


def test_empty_log(daemon: Daemon) -> None:
    """An ended run without output has an empty log of known size, which has no ranges."""
    run = ended(daemon, [])
    answer = daemon.get(url(run))
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"", "0")
    assert daemon.get(url(run), {"Range": "bytes=0-"}).status == 416


def test_active_run(daemon: Daemon) -> None:
    """The size is unknown while the run is active, so all present text is sent and ranges are ignored."""
    run = daemon.insert(running())
    log = daemon.log_of(run)
    log.write(b"one\ntwo\n")
    answer = daemon.get(url(run), {"Range": "bytes=0-1"})
    assert (answer.status, answer.body) == (200, b"one\ntwo\n")
    assert "ETag" not in answer.headers
    assert "Accept-Ranges" not in answer.headers
    log.finish()
    daemon.end(run.id)


BLOCKS = 4096
"""Where the blocks of a log file begin."""


def damage(daemon: Daemon, run: Run, *places: int) -> None:
    """Overwrite some bytes of the log file of a run, counted from its first block on."""
    with open(log_path(daemon.settings.data_dir, run.task_name, run.id), "r+b") as file:
        for place in places:
            file.seek(BLOCKS + place)
            file.write(b"\xff" * 64)


def cut_off(daemon: Daemon, run: Run, wanted_range: str = "") -> tuple[http.client.HTTPResponse, bytes]:
    """An answer that breaks off, and what came of it."""
    connection = daemon.connect(unix=True)
    connection.request("GET", url(run), headers={"Range": f"bytes={wanted_range}"} if wanted_range else {})
    response = connection.getresponse()
    with pytest.raises(http.client.IncompleteRead) as broken:
        response.read()
    connection.close()
    return response, broken.value.partial


def sizes(daemon: Daemon, run: Run) -> list[int]:
    """How many bytes of the text each block has."""
    reader = LogReader(None, log_path(daemon.settings.data_dir, run.task_name, run.id))
    extents = [extent for extent in reader.extents() if isinstance(extent, Extent)]
    reader.close()
    return [extent.size for extent in extents]


def test_damaged_block(daemon: Daemon) -> None:
    """Everything before the block is sent, then the connection closes; the part after it can be requested."""
    run = ended(daemon, PIECES)
    each = sizes(daemon, run)
    damage(daemon, run, 2 * BLOCK + 5000)
    start, end = sum(each[:2]), sum(each[:3])
    response, came = cut_off(daemon, run)
    assert (response.status, response.getheader("Content-Length")) == (200, str(len(TEXT)))
    assert came == TEXT[:start]
    assert daemon.ask("HEAD", url(run)).headers["Content-Length"] == str(len(TEXT))
    for wanted_range, expected in ((f"{end}-", TEXT[end:]), (f"{start - 100}-{start - 1}", TEXT[start - 100 : start])):
        answer = daemon.get(url(run), {"Range": f"bytes={wanted_range}"})
        assert (answer.status, answer.body) == (206, expected)
    response, came = cut_off(daemon, run, f"{start - 5}-{end + 5}")
    assert (response.status, came) == (206, TEXT[start - 5 : start])
    broken = daemon.get(url(run), {"Range": f"bytes={start + 3}-"})
    assert (broken.status, broken.media_type) == (500, "application/problem+json")
    assert "block 2 is damaged" in broken.json["detail"]
    assert "/" not in broken.json["detail"]  # paths of files are not shown
    assert not {"Content-Range", "ETag", "Accept-Ranges"} & set(broken.headers)
    assert f"the log of {run.id} was sent incompletely" in daemon.log.read_text()


def test_damaged_header(daemon: Daemon) -> None:
    """The size is unknown; the part before the damage is sent, then the connection closes."""
    run = ended(daemon, PIECES)
    start = sum(sizes(daemon, run)[:1])
    damage(daemon, run, BLOCK + 8)
    response, came = cut_off(daemon, run, "0-1")
    assert (response.status, response.getheader("Content-Length")) == (200, None)
    assert came == TEXT[:start]


@pytest.mark.parametrize("place", [8, 5000])
def test_damaged_first_block(daemon: Daemon, place: int) -> None:
    """The answer reports the damage, because nothing was sent before."""
    run = ended(daemon, PIECES)
    damage(daemon, run, place)
    answer = daemon.get(url(run))
    assert (answer.status, answer.media_type) == (500, "application/problem+json")
    assert "block 0 is damaged" in answer.json["detail"]


def test_truncated_log(daemon: Daemon) -> None:
    """The remaining part is sent, then the connection closes."""
    run = ended(daemon, PIECES)
    whole = sum(sizes(daemon, run)[:3])
    os.truncate(log_path(daemon.settings.data_dir, run.task_name, run.id), BLOCKS + 3 * BLOCK + 1000)
    response, came = cut_off(daemon, run)
    assert (response.status, came) == (200, TEXT[:whole])


def test_layout_is_cached(daemon: Daemon, long: Run) -> None:
    """A log is scanned once; a range is then read from the nearest mark."""
    paths = ring_path(daemon.settings.runtime_dir, long.id), log_path(daemon.settings.data_dir, long.task_name, long.id)
    reader = LogReader(*paths)
    layouts = raw_log.Layouts(LogFileReads())
    streams = (STDOUT, STDERR)
    layout = layouts.of(long.id, reader, reader.head(), streams)
    assert layout is not None
    assert layout.size == len(TEXT)
    assert layouts.of(long.id, reader, reader.head(), streams) is layout
    start = len(TEXT) - 100
    assert b"".join(raw_log.part(reader, streams, layout, start, start + 50)) == TEXT[start : start + 50]
    reader.close()
