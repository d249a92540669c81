"""The live stream of a run's log, and the daemon's."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from logring.layout import STDERR, STDOUT, RingShape
from logring.log_paths import log_path, ring_path
from logring.ring.writer import RingWriter
from store.runs.writes import Run
from tests.api.support.client import Event, Stream
from tests.api.support.harness import Daemon
from tests.api.support.records import Log, make_run, now_ms


def running(daemon: Daemon) -> Run:
    return daemon.insert(make_run(task="stream", status="running", started_at=1))


def path(run: Run, query: str = "") -> str:
    return f"/api/runs/{run.id}/log/stream{query}"


def events(daemon: Daemon, run: Run, query: str = "", **headers: str) -> list[Event]:
    """All events of a stream that ends by itself."""
    stream = daemon.stream(path(run, query), {name.replace("_", "-"): value for name, value in headers.items()})
    assert stream.status == 200
    all_events = list(stream.events())
    stream.close()
    return all_events


def brief(all_events: list[Event]) -> list[Any]:
    """Lines as ranges of numbers, other events as name and data."""
    short: list[Any] = []
    for event in all_events:
        if event.name == "line":
            number = event.data["n"]
            assert event.id == number
            if short and isinstance(short[-1], range) and short[-1].stop == number:
                short[-1] = range(short[-1].start, number + 1)
            else:
                short.append(range(number, number + 1))
        else:
            short.append((event.name, event.data))
    return short


def dropped(after: int, count: int) -> tuple[str, Any]:
    return "dropped", {"after": after, "count": count}


def done(final_line: int, status: str = "ended") -> tuple[str, Any]:
    return "done", {"finalLine": final_line, "status": status}


def finish(daemon: Daemon, run: Run, log: Log) -> None:
    log.finish()
    daemon.end(run.id, lines=log.ring.blocks.lines)


@pytest.fixture(scope="module")
def ended(shared: Daemon) -> Run:
    """An ended run with 20,000 lines."""
    run = running(shared)
    log = shared.log_of(run)
    log.write(b"".join(b"line %d\n" % number for number in range(20_000)))
    finish(shared, run, log)
    return run


@pytest.fixture(scope="module")
def wrapped(shared: Daemon) -> tuple[Run, int]:
    """An ended run whose oldest lines are gone, and the first that is there."""
    run = running(shared)
    log = shared.log_of(run, file_blocks=4, block_size=4096, blocks=2)
    for number in range(3000):
        log.write(b"line %d\n" % number)
    finish(shared, run, log)
    first = shared.get(f"/api/runs/{run.id}/log?from=0&limit=1").json["firstAvailable"]
    assert 0 < first < 2500
    return run, first


def test_headers(daemon: Daemon, ended: Run) -> None:
    """The type is text/event-stream, proxies neither store nor buffer it, and ``retry`` comes first."""
    stream = daemon.stream(path(ended, "?from=-1"))
    assert stream.response.headers["Content-Type"] == "text/event-stream"
    assert stream.response.headers["Cache-Control"] == "no-store"
    assert stream.response.headers["X-Accel-Buffering"] == "no"
    assert stream.response.readline() == b"retry: 1000\n"
    stream.close()
    head = daemon.ask("HEAD", path(ended))
    assert (head.status, head.body) == (200, b"")
    assert "Content-Length" not in head.headers


def in_lines(all_events: list[Event]) -> list[tuple[int, int, str, str]]:
    """Number, time, stream and text of each line that came, alone or in a batch."""
    lines: list[tuple[int, int, str, str]] = []
    for event in all_events:
        if event.name == "lines":
            texts = event.data["text"].split("\n")
            assert len(texts) == event.data["count"]
            assert event.id == event.data["n"] + len(texts) - 1
            lines += [
                (n, event.data["ts"], event.data["stream"], text) for n, text in enumerate(texts, event.data["n"])
            ]
        elif event.name == "line":
            lines.append((event.data["n"], event.data["ts"], event.data["stream"], event.data["text"]))
    return lines


@pytest.mark.parametrize("query", ["", "&from=0&replayLimit=50000", "&from=0&replayLimit=7", "&from=19995"])
def test_batches_have_the_same_lines(daemon: Daemon, ended: Run, query: str) -> None:
    """A stream with batch=true has the same lines, gaps and end in fewer events."""
    alone, together = events(daemon, ended, "?batch=false" + query), events(daemon, ended, "?batch=true" + query)
    assert in_lines(alone) == in_lines(together)
    assert [event for event in alone if event.name != "line"] == [event for event in together if event.name != "lines"]
    assert len(together) <= 5 or len(together) < len(alone) / 10


def test_batches_of_a_live_log(daemon: Daemon) -> None:
    """Lines of both streams arrive in order while the run prints; a part of a long line is its own event."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"a\nb\n")
    stream = daemon.stream(path(run, "?from=0&batch=true"))
    stream_events = stream.events()
    first = next(stream_events)
    assert (first.name, first.data["text"], first.data["count"]) == ("lines", "a\nb", 2)
    log.write(b"c\n", STDERR)
    log.write(b"d" * 20_000 + b"\n")
    log.finish()
    daemon.end(run.id, lines=log.ring.blocks.lines)
    later_events = list(stream_events)
    stream.close()
    assert [(n, name) for n, _, name, _ in in_lines(later_events)] == [(2, "stderr"), (3, "stdout"), (4, "stdout")]
    assert [event.name for event in later_events if event.name != "region"] == ["lines", "lines", "line", "done"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [range(19_000, 20_000), done(19_999)]),
        ("?from=0&replayLimit=50000", [range(20_000), done(19_999)]),
        ("?from=0", [range(5000), dropped(4999, 15_000), done(19_999)]),
        ("?from=0&replayLimit=1", [range(1), dropped(0, 19_999), done(19_999)]),
        ("?from=-20000&replayLimit=50000", [range(20_000), done(19_999)]),
        ("?from=-99999&replayLimit=2", [range(2), dropped(1, 19_998), done(19_999)]),
        ("?from=19999", [range(19_999, 20_000), done(19_999)]),
        ("?from=20000", [done(19_999)]),
        ("?from=99999", [done(19_999)]),
    ],
)
def test_replay(daemon: Daemon, ended: Run, query: str, expected: list[Any]) -> None:
    """A replay has at most replayLimit lines from the anchor, then the named gap, then ``done``."""
    assert brief(events(daemon, ended, query)) == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("-1", [range(5000), dropped(4999, 15_000), done(19_999)]),
        ("0", [range(1, 5001), dropped(5000, 14_999), done(19_999)]),
        ("19990", [range(19_991, 20_000), done(19_999)]),
        ("19999", [done(19_999)]),
        ("99999", [done(19_999)]),
        ("-2", [range(19_995, 20_000), done(19_999)]),
        ("x", [range(19_995, 20_000), done(19_999)]),
        ("1.5", [range(19_995, 20_000), done(19_999)]),
        ("99999999999999999999", [done(19_999)]),
        ("-99999999999999999999", [range(19_995, 20_000), done(19_999)]),
        pytest.param("0" * 5000 + "19990", [range(19_991, 20_000), done(19_999)], id="zeros"),
        pytest.param("-" + "0" * 5000, [range(1, 5001), dropped(5000, 14_999), done(19_999)], id="minus zeros"),
    ],
)
def test_last_event_id(daemon: Daemon, ended: Run, last: str, expected: list[Any]) -> None:
    """Last-Event-ID resumes after that line and precedes ``from``; values other than numbers above -2 are ignored."""
    assert brief(events(daemon, ended, "?from=-5", Last_Event_ID=last)) == expected


def test_done_can_be_resumed_from(daemon: Daemon, ended: Run) -> None:
    """``done`` has the id of the last line and a long ``retry``, so a client that reconnects gets ``done`` at once."""
    last = events(daemon, ended, "?from=-1")[-1]
    assert (last.name, last.id, last.retry) == ("done", 19_999, 3_600_000)


def test_gaps_are_named(daemon: Daemon, wrapped: tuple[Run, int]) -> None:
    """Missing lines are announced before the first present one, however the stream began."""
    run, first = wrapped
    later_ranges = [range(first, 3000), done(2999)]
    assert brief(events(daemon, run, "?from=0")) == [dropped(-1, first), *later_ranges]
    assert brief(events(daemon, run, "?from=-3000")) == [dropped(-1, first), *later_ranges]
    assert brief(events(daemon, run, Last_Event_ID="9")) == [dropped(9, first - 10), *later_ranges]
    assert brief(events(daemon, run, f"?from={first}")) == later_ranges


def test_missing_log(daemon: Daemon) -> None:
    """All lines of a missing log are named as dropped, followed by ``done`` with the number of the last one."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"a\nb\nc\n")
    finish(daemon, run, log)
    os.unlink(log_path(daemon.settings.data_dir, run.task_name, run.id))
    assert brief(events(daemon, run)) == [dropped(-1, 3), done(2)]


@pytest.mark.parametrize("query", ["from=x", "from=1.5", "replayLimit=0", "replayLimit=50001", "limit=5"])
def test_invalid_parameters(daemon: Daemon, ended: Run, query: str) -> None:
    """An invalid parameter gets 422."""
    assert daemon.get(path(ended, f"?{query}")).status == 422


@pytest.fixture(params=[False, True], ids=["bell", "poll"])
def ringing(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Daemon]:
    """With the doorbell, and with the slow poll alone."""
    daemon.bells.muted = request.param
    yield daemon
    daemon.bells.muted = False


def test_live(ringing: Daemon) -> None:
    """A stream of a pending run stays open, gets each line at once, and gets ``done`` after the row has ended."""
    run = ringing.insert(make_run(task="stream"))
    stream = ringing.stream(path(run))
    stream_events = stream.events()
    ringing.update(run.id, status="running", started_at=1)
    log = ringing.log_of(run)
    for number in range(20):
        log.write(b"line %d\n" % number, STDERR if number % 2 else STDOUT)
        event = next(stream_events)
        assert (event.id, event.data["text"]) == (number, f"line {number}")
        assert event.data["stream"] == ("stderr" if number % 2 else "stdout")
    log.write(b"last, unfinished")
    finish(ringing, run, log)
    later_events = [event for event in stream_events if event.name != "region"]
    assert [event.data.get("text") for event in later_events] == ["last, unfinished", None]
    assert (later_events[-1].name, later_events[-1].data) == done(20)
    stream.close()


def test_done_waits_for_the_row(daemon: Daemon) -> None:
    """A sealed log is not enough: ``done`` comes only when the row has ended."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"a\n")
    stream = daemon.stream(path(run))
    stream_events = stream.events()
    assert next(stream_events).id == 0
    log.finish()
    daemon.announce("run.updated", runId=run.id)
    stream.connection.sock.settimeout(0.6)
    with pytest.raises(TimeoutError):
        next(stream_events)
    stream.close()
    daemon.end(run.id, lines=1)
    assert brief(events(daemon, run)) == [range(1), done(0)]


def test_run_without_output(ringing: Daemon) -> None:
    """A stream of a run without a ring stays open, then gets ``done`` with finalLine -1."""
    run = running(ringing)
    stream = ringing.stream(path(run))
    stream_events = stream.events()
    ringing.end(run.id)
    assert brief(list(stream_events)) == [done(-1)]
    stream.close()


def test_output_without_a_log(ringing: Daemon) -> None:
    """Lines that never reached a log are reported to all clients as dropped, because the row counts them."""
    run = running(ringing)
    stream = ringing.stream(path(run, "?from=0"))
    stream_events = stream.events()
    assert stream.response.readline() == b"retry: 1000\n"
    ringing.end(run.id, lines=20)
    assert brief(list(stream_events)) == [dropped(-1, 20), done(19)]
    stream.close()
    assert brief(events(ringing, run, "?from=0")) == [dropped(-1, 20), done(19)]


def test_run_deleted_during_a_stream(daemon: Daemon) -> None:
    """``done`` says that the run was deleted."""
    run = running(daemon)
    stream = daemon.stream(path(run))
    daemon.delete(run.id)
    daemon.announce("run.deleted", runId=run.id)
    assert brief(list(stream.events())) == [done(-1, "deleted")]
    stream.close()


def test_anchor_beyond_the_end_of_a_live_run(daemon: Daemon) -> None:
    """A stream from beyond the end has only new lines."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"0\n1\n")
    streams = [daemon.stream(path(run, "?from=500")), daemon.stream(path(run), {"Last-Event-ID": "500"})]
    streams_of_events = [stream.events() for stream in streams]
    log.write(b"2\n")
    assert [next(event_iterator).id for event_iterator in streams_of_events] == [2, 2]
    finish(daemon, run, log)
    for event_iterator, stream in zip(streams_of_events, streams, strict=True):
        assert brief(list(event_iterator)) == [done(2)]
        stream.close()


def test_stream_opened_before_the_first_line(daemon: Daemon) -> None:
    """A stream that was opened before the first line has all lines, however small the requested part."""
    run = running(daemon)
    tail, resumed = daemon.stream(path(run, "?from=-2")), daemon.stream(path(run), {"Last-Event-ID": "6"})
    log = daemon.log_of(run)
    log.write(b"".join(b"line %d\n" % number for number in range(10)))
    finish(daemon, run, log)
    assert brief([event for event in tail.events() if event.name == "line"]) == [range(10)]
    assert brief([event for event in resumed.events() if event.name == "line"]) == [range(7, 10)]
    tail.close()
    resumed.close()


def test_short_lived_ring(daemon: Daemon) -> None:
    """A stream has all lines even if the ring was created and removed before the row says so."""
    other = running(daemon)
    daemon.log_of(other).write(b"line\n")
    first = daemon.stream(path(other))
    assert first.take(1)[0].id == 0  # the worker is connected to the doorbell, which rings for all streams then
    run = running(daemon)
    before = daemon.stream(path(run, "?from=-2"))
    (worker,) = daemon.workers()
    os.kill(worker, signal.SIGSTOP)
    try:
        log = daemon.log_of(run)
        log.write(b"".join(b"line %d\n" % number for number in range(10)))
        log.finish()
    finally:
        os.kill(worker, signal.SIGCONT)
    assert brief(before.take(10)) == [range(10)]
    daemon.end(run.id, lines=10)
    assert brief(list(before.events())) == [done(9)]
    before.close()
    first.close()
    daemon.end(other.id, lines=1)


def test_replay_limit_of_a_live_run(daemon: Daemon) -> None:
    """The first replayLimit lines come first, then the gap up to the head at opening, then live lines."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"x\n" * 100)
    stream = daemon.stream(path(run, "?from=0&replayLimit=10"))
    stream_events = stream.events()
    opening = [next(stream_events) for _ in range(11)]
    log.write(b"y\n")
    finish(daemon, run, log)
    assert brief([*opening, *stream_events]) == [range(10), dropped(9, 90), range(100, 101), done(100)]
    stream.close()


def test_unfinished_lines(daemon: Daemon) -> None:
    """The unfinished line of a stream is shown as a region without an id, and removed when it is finished."""
    run = running(daemon)
    log = daemon.log_of(run)
    log.write(b"prompt> ")
    stream = daemon.stream(path(run))
    stream_events = stream.events()
    event = next(stream_events)
    assert (event.name, event.id) == ("region", None)
    assert (event.data["rows"], event.data["stream"]) == (["prompt> "], "stdout")
    log.write(b"yes\n")
    after = [next(stream_events), next(stream_events)]
    assert {event.name for event in after} == {"line", "region"}
    assert next(event for event in after if event.name == "line").data["text"] == "prompt> yes"
    assert next(event for event in after if event.name == "region").data["rows"] == []
    stream.close()
    finish(daemon, run, log)


def test_two_hundred_streams_before_the_trigger(daemon: Daemon) -> None:
    """Streams that open at the moment of the trigger miss nothing, and all get ``done``."""
    run = daemon.insert(make_run(task="stream"))
    streams = [daemon.stream(path(run)) for _ in range(200)]
    log = daemon.log_of(run)
    for number in range(100):
        log.write(b"%d\n" % number)
    finish(daemon, run, log)
    for stream in streams:
        assert brief([event for event in stream.events() if event.name != "region"]) == [range(100), done(99)]
        stream.close()


def test_flood(daemon: Daemon) -> None:
    """With a writer much faster than the client, each line is sent in order or named as dropped, then ``done``."""
    run = running(daemon)
    log = daemon.log_of(run, file_blocks=1024, blocks=2)
    lines = 25_000
    streams = [daemon.stream(path(run)) for _ in range(2)]

    def write() -> None:
        for start in range(0, lines, 5000):
            log.write(b"".join(b"line %d\n" % number for number in range(start, start + 5000)))
        finish(daemon, run, log)

    writer = threading.Thread(target=write)
    writer.start()
    for stream in streams:
        assert brief([event for event in stream.events() if event.name != "region"]) == [range(lines), done(lines - 1)]
        stream.close()
    writer.join()


def test_rotation_during_a_stream(daemon: Daemon) -> None:
    """Lines that are removed while a stream is behind are counted, and the rest is sent before ``done``."""
    run = running(daemon)
    log = daemon.log_of(run, file_blocks=4, block_size=4096, blocks=2)
    stream = daemon.stream(path(run))
    lines = 20_000
    for start in range(0, lines, 100):
        log.write(b"".join(b"line %d\n" % number for number in range(start, start + 100)))
    finish(daemon, run, log)
    expected = 0
    first: list[int] = []
    for event in stream.events():
        if event.name == "line":
            assert event.id == expected
            expected += 1
        elif event.name == "dropped":
            assert event.data["after"] == expected - 1
            expected += event.data["count"]
        elif event.name == "rotated":
            first.append(event.data["firstAvailable"])
    assert expected == lines
    assert first == sorted(set(first))
    assert first[-1] == daemon.get(f"/api/runs/{run.id}/log?limit=1").json["firstAvailable"]
    stream.close()


@pytest.mark.parametrize("url", ["/api/daemon/log/stream", "/api/events/stream", "/api/notifications/stream"])
def test_proxies_must_not_buffer(daemon: Daemon, url: str) -> None:
    """Headers tell proxies to forward each event at once and not to store the stream."""
    stream = daemon.stream(url)
    assert stream.response.headers["Content-Type"] == "text/event-stream"
    assert stream.response.headers["Cache-Control"] == "no-store"
    assert stream.response.headers["X-Accel-Buffering"] == "no"
    stream.close()


def test_keepalive_after_a_stream(daemon: Daemon, ended: Run) -> None:
    """A finished stream leaves the connection usable."""
    connection = daemon.connect(unix=True)
    stream = Stream(connection, path(ended, "?from=-1"), {})
    assert brief(list(stream.events())) == [range(19_999, 20_000), done(19_999)]
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()


def test_resumed_daemon_log_before_a_bell(own: Daemon) -> None:
    """A resumed stream begins after the client's last line, even if the bell for that line has not arrived yet."""
    ring = RingWriter.new(ring_path(own.settings.runtime_dir, "daemon"), "daemon", RingShape(0))
    ring.append(STDOUT, b"0\n", now_ms())
    first = own.stream("/api/daemon/log/stream")
    assert [event.id for event in first.take(1)] == [0]
    own.bells.muted = True
    ring.append(STDOUT, b"1\n2\n3\n", now_ms())
    resumed = own.stream("/api/daemon/log/stream", {"Last-Event-ID": "3"})
    assert resumed.response.readline() == b"retry: 1000\n"
    ring.append(STDOUT, b"4\n", now_ms())
    assert [event.id for event in resumed.take(1)] == [4]
    assert [event.id for event in first.take(4)] == [1, 2, 3, 4]
    first.close()
    resumed.close()
    ring.close()


def test_daemon_log(daemon: Daemon) -> None:
    """The stream of the daemon's log has the last 100 lines, then live lines, and no end."""
    ring = RingWriter.new(ring_path(daemon.settings.runtime_dir, "daemon"), "daemon", RingShape(0))
    stream = daemon.stream("/api/daemon/log/stream")
    stream_events = stream.events()
    ring.append(STDOUT, b"".join(b"%d\n" % number for number in range(250)), now_ms())
    daemon.bells.ring("daemon")
    assert brief([next(stream_events) for _ in range(250)]) == [range(250)]
    stream.close()
    later = daemon.stream("/api/daemon/log/stream")
    assert brief(later.take(100)) == [range(150, 250)]
    later.close()
    resumed = daemon.stream("/api/daemon/log/stream", {"Last-Event-ID": "240"})
    assert brief(resumed.take(9)) == [range(241, 250)]
    resumed.close()
    limited = daemon.stream("/api/daemon/log/stream?from=0&replayLimit=3")
    stream_events = limited.events()
    opening = [next(stream_events) for _ in range(4)]
    ring.append(STDOUT, b"later\n", now_ms())
    daemon.bells.ring("daemon")
    assert brief([*opening, next(stream_events)]) == [range(3), dropped(2, 247), range(250, 251)]
    limited.close()
    ring.close()
