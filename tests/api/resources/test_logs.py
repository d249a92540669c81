"""Pages of a log, and its raw text."""

import os
from pathlib import Path
from typing import Any

import pytest

from api.schemas.wire_times import rfc3339
from logring.layout import STDERR, STDOUT
from logring.log_paths import log_path
from store.runs.writes import Run
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until


def running(daemon: Daemon, task: str = "log") -> Run:
    return daemon.insert(make_run(task=task, status="running", started_at=1))


def page(daemon: Daemon, run: Run, query: str = "") -> Any:
    answer = daemon.get(f"/api/runs/{run.id}/log{query}")
    assert answer.status == 200, answer.body
    body = answer.json
    assert body.pop("$schema").endswith("/schemas/LogPage.json")
    return body


def numbers(body: Any) -> list[int]:
    return [line["n"] for line in body["lines"]]


def test_page(daemon: Daemon) -> None:
    """A page has lines with number, time, stream and text, and says how much there is."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"out\n", STDOUT, 1000)
    log.write(b"err\n", STDERR, 2000)
    log.ring.system_line("note", 3000)
    assert page(daemon, run) == {
        "firstAvailable": 0,
        "totalLines": 3,
        "truncated": False,
        "finalized": False,
        "lines": [
            {"n": 0, "ts": 1000, "stream": "stdout", "text": "out"},
            {"n": 1, "ts": 2000, "stream": "stderr", "text": "err"},
            {"n": 2, "ts": 3000, "stream": "system", "text": "note"},
        ],
    }
    log.finish()
    assert page(daemon, run)["finalized"] is True
    assert numbers(page(daemon, run)) == [0, 1, 2]


@pytest.fixture(scope="module")
def long(shared: Daemon) -> Run:
    """5,000 lines, every tenth on stderr, partly still in the ring only."""
    run = running(shared)
    log = shared.log_of(run)
    for number in range(5000):
        log.write(b"line %d\n" % number, STDERR if number % 10 == 0 else STDOUT)
    return run


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", range(4000, 5000)),
        ("?from=0", range(1000)),
        ("?from=0&limit=10000", range(5000)),
        ("?from=4990", range(4990, 5000)),
        ("?from=-5", range(4995, 5000)),
        ("?from=-99999&limit=3", range(3)),
        ("?from=5000", range(0)),
        ("?from=99999", range(0)),
        ("?from=0&limit=3&stream=stderr", range(0, 30, 10)),
        ("?from=4980&stream=stderr", range(4980, 5000, 10)),
        ("?from=0&limit=10000&stream=stderr", range(0, 5000, 10)),
        ("?from=0&stream=system", range(0)),
    ],
)
def test_anchors(daemon: Daemon, long: Run, query: str, expected: range) -> None:
    """``from`` counts from the start or from the end, ``limit`` counts the returned lines, ``stream`` selects."""
    assert numbers(page(daemon, long, query)) == list(expected)


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "from=x", "stream=stdin", "at=5", "form=1"])
def test_invalid_parameters(daemon: Daemon, long: Run, query: str) -> None:
    """An invalid parameter gets 422."""
    assert daemon.get(f"/api/runs/{long.id}/log?{query}").status == 422


def test_page_from_a_time(daemon: Daemon) -> None:
    """`at` begins with the first line read then or later, in live and sealed logs, whatever `from` says."""
    run = running(daemon)
    log = daemon.log_of(run)
    for number in range(100):
        log.write(b"line %d\n" % number, STDERR if number % 2 else STDOUT, 1_700_000_000_000 + 250 * number)
    for state in ("live", "sealed"):
        if state == "sealed":
            log.finish()
        for at, first in (
            ("2023-11-14T22:13:20Z", 0),
            ("2023-11-14T22:13:30Z", 40),
            ("2023-11-14T23:13:30.0001%2B01:00", 41),
            ("1999-01-01T00:00:00Z", 0),
            ("2099-01-01T00:00:00Z", 100),
        ):
            assert numbers(page(daemon, run, f"?at={at}")) == list(range(first, 100))
        assert numbers(page(daemon, run, "?at=2023-11-14T22:13:30Z&limit=2&stream=stderr")) == [41, 43]
        assert numbers(page(daemon, run, "?at=2023-11-14T22:13:30Z&limit=1&from=0")) == [40]


def test_a_large_page_is_complete(daemon: Daemon) -> None:
    """However long the lines are, a page has as many as ``limit`` says, sent in parts."""
    run = running(daemon)
    log = daemon.log_of(run, file_blocks=1024)
    for number in range(300):
        log.write(b"%d " % number + b"x" * 15000 + b"\n")
    answer = daemon.get(f"/api/runs/{run.id}/log?from=0&limit=300")
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert numbers(answer.json) == list(range(300))


def test_details_have_the_last_output(daemon: Daemon) -> None:
    """The details of a running run say when it printed last, unless it has printed nothing."""
    run = running(daemon)
    log = daemon.log_of(run)
    assert "lastOutputAt" not in daemon.get(f"/api/runs/{run.id}/details").json
    log.write(b"first\nsecond\n")
    lines = daemon.get(f"/api/runs/{run.id}/log?from=0").json["lines"]
    assert daemon.get(f"/api/runs/{run.id}/details").json["lastOutputAt"] == rfc3339(lines[-1]["ts"])


def test_no_descriptor_leaks(daemon: Daemon) -> None:
    """HEAD, and a client that disconnects within a page, leave no descriptor open."""
    run = running(daemon)
    log = daemon.log_of(run, file_blocks=1024)
    for number in range(300):
        log.write(b"%d " % number + b"x" * 15000 + b"\n")
    (worker,) = daemon.workers()
    path = f"/api/runs/{run.id}/log?from=0&limit=300"
    assert "Content-Length" not in daemon.ask("HEAD", path).headers
    before = len(os.listdir(f"/proc/{worker}/fd"))
    for _ in range(20):
        assert daemon.ask("HEAD", path).status == 200
        connection = daemon.connect(unix=True)
        connection.request("GET", path)
        assert connection.getresponse().status == 200
        connection.close()
    until(lambda: len(os.listdir(f"/proc/{worker}/fd")) <= before, "the descriptors to be closed")


def test_odd_bytes(daemon: Daemon) -> None:
    """Invalid UTF-8 becomes U+FFFD; tabs, NULs and carriage returns are kept; raw returns every byte."""
    run = running(daemon)
    log = daemon.log_of(run)
    text = b"a\xff\xfeb\n\ttab\0nul\r\n\x1b[31mred\n"
    log.write(text)
    assert [line["text"] for line in page(daemon, run)["lines"]] == ["a��b", "\ttab\0nul\r", "\x1b[31mred"]
    log.finish()
    assert daemon.get(f"/api/runs/{run.id}/log/raw").body == text


def test_long_lines(daemon: Daemon) -> None:
    """A line over 16 KiB is split into marked parts; raw returns it whole."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"x" * 40000 + b"\n" + b"short\n")
    lines = page(daemon, run)["lines"]
    assert [line.get("continued") for line in lines] == [None, True, True, None]
    assert sum(len(line["text"]) for line in lines[:3]) == 40000
    assert daemon.get(f"/api/runs/{run.id}/log/raw").body == b"x" * 40000 + b"\nshort\n"


def test_run_without_output(daemon: Daemon) -> None:
    """The log is empty, both while the run is pending and after it has ended."""
    run = daemon.insert(make_run(task="log"))
    empty = {"firstAvailable": 0, "totalLines": 0, "truncated": False, "finalized": False, "lines": []}
    assert page(daemon, run) == empty
    daemon.end(run.id, "skipped", exit_code=-1)
    assert page(daemon, run) == {**empty, "finalized": True}
    assert daemon.get(f"/api/runs/{run.id}/log/raw").body == b""


def test_dropped_lines(daemon: Daemon) -> None:
    """If older lines were dropped, the page says where the log begins."""
    run = running(daemon)
    log = daemon.log_of(run, file_blocks=4, block_size=4096, blocks=2)
    for number in range(2000):
        log.write(b"line %d\n" % number)
    body = page(daemon, run, "?from=0&limit=10")
    assert body["truncated"] is True
    assert 0 < body["firstAvailable"] < 2000
    assert numbers(body) == list(range(body["firstAvailable"], body["firstAvailable"] + 10))
    log.finish()
    assert page(daemon, run, "?from=-1")["lines"][0]["text"] == "line 1999"


def test_missing_log(daemon: Daemon) -> None:
    """A missing log gets 200 without lines, and firstAvailable is totalLines."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"a\nb\n")
    log.finish()
    daemon.end(run.id, lines=2)
    os.unlink(log_path(daemon.settings.data_dir, run.task_name, run.id))
    assert page(daemon, run) == {
        "firstAvailable": 2,
        "totalLines": 2,
        "truncated": True,
        "finalized": True,
        "lines": [],
    }
    assert daemon.get(f"/api/runs/{run.id}/log/raw").body == b""


def test_raw(daemon: Daemon) -> None:
    """A raw log is a download of stdout and stderr in the order of arrival, or of one stream."""
    run = daemon.insert(make_run(task="a:b", status="running", started_at=1))
    log = daemon.log_of(run)
    log.write(b"one\n")
    log.write(b"two\n", STDERR)
    log.ring.system_line("note", 1)
    log.write(b"three, unfinished")
    log.finish()
    answer = daemon.get(f"/api/runs/{run.id}/log/raw")
    assert answer.body == b"one\ntwo\nthree, unfinished"
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="a_b-{run.id}.log"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for stream, text in (("stdout", b"one\nthree, unfinished"), ("stderr", b"two\n"), ("system", b"note\n")):
        assert daemon.get(f"/api/runs/{run.id}/log/raw?stream={stream}").body == text
    head = daemon.ask("HEAD", f"/api/runs/{run.id}/log/raw")
    assert (head.status, head.body) == (200, b"")
    assert "Content-Length" not in head.headers  # it would have to be that of a GET


def test_raw_of_a_large_log(daemon: Daemon) -> None:
    """A large raw log is complete to the byte."""
    run = running(daemon)
    log = daemon.log_of(run, file_blocks=1024)
    text = b"".join(b"%d\n" % number for number in range(300_000))
    for start in range(0, len(text), 50_000):
        log.write(text[start : start + 50_000])
    assert daemon.get(f"/api/runs/{run.id}/log/raw").body == text
    log.finish()
    assert daemon.get(f"/api/runs/{run.id}/log/raw").body == text


def damaged(daemon: Daemon) -> Run:
    run = running(daemon)
    log = daemon.log_of(run, block_size=4096)
    for number in range(1000):
        log.write(b"line %d\n" % number)
    log.finish()
    daemon.end(run.id, lines=1000)
    path = Path(log_path(daemon.settings.data_dir, run.task_name, run.id))
    data = bytearray(path.read_bytes())
    data[4096 + 4096 + 200] ^= 0xFF
    path.write_bytes(data)
    return run


def test_damaged_log(daemon: Daemon) -> None:
    """A damaged log is returned without the damaged lines."""
    run = damaged(daemon)
    shown_numbers = numbers(page(daemon, run, "?from=0&limit=1000"))
    assert 500 < len(shown_numbers) < 1000
    assert shown_numbers[0] == 0
    assert shown_numbers[-1] == 999
    stream = daemon.stream(f"/api/runs/{run.id}/log/stream?from=0")
    names = [event.name for event in stream.events()]
    stream.close()
    assert names.count("dropped") == 1
    assert names.count("line") == len(shown_numbers)
    assert names[-1] == "done"


def test_foreign_file(daemon: Daemon) -> None:
    """A file that is no log gets 500 with the reason for page, raw and stream; an active run's stream needs no file."""
    run = daemon.insert(
        make_run(task="log", status="ended", end_reason="failed", exit_code=1, started_at=1, ended_at=2)
    )
    path = Path(log_path(daemon.settings.data_dir, run.task_name, run.id))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"something else" * 1000)
    for kind in ("", "/raw", "/stream"):
        answer = daemon.get(f"/api/runs/{run.id}/log{kind}")
        assert answer.status == 500
        assert "neither a ring nor a log file" in answer.json["detail"]
        assert daemon.settings.data_dir not in answer.json["detail"]


def test_fifo_instead_of_a_log(daemon: Daemon) -> None:
    """Reading does not wait for a writer: it gets 500, and other logs are readable."""
    run = daemon.insert(
        make_run(task="log", status="ended", end_reason="failed", exit_code=1, started_at=1, ended_at=2)
    )
    path = Path(log_path(daemon.settings.data_dir, run.task_name, run.id))
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    for kind in ("", "/raw", "/stream", "/line/0/history"):
        answer = daemon.get(f"/api/runs/{run.id}/log{kind}")
        assert answer.status == 500
        assert answer.json["detail"] == "The log cannot be read: Illegal seek"
