"""The merged log of the runs of tasks and services, live."""

import json
import os
import signal
from typing import Any
from urllib.parse import urlencode

import pytest

from api.schemas.wire_times import rfc3339
from logring.layout import STDERR, STDOUT, RingShape
from logring.log_paths import ring_path
from logring.ring.writer import RingWriter
from store.runs.writes import Run
from store.tasks import upsert_task
from tests.api.attacks.test_scope_escape import scoped
from tests.api.support.client import Event, Stream
from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import Log, make_run, now_ms
from tests.api.support.streaming import open_streams
from tests.support.waiting import until

Place = tuple[str, int, str]
"""Run, number and text of a line."""


class Reader:
    """A client of one stream of units: its lines, and the cursor to resume with."""

    def __init__(self, daemon: Daemon, query: dict[str, Any], cursor: str | None = None, task: str = "") -> None:
        target = f"/api/tasks/{task}/log/stream" if task else "/api/logs/stream"
        headers = {"Last-Event-ID": cursor} if cursor else {}
        self.stream: Stream = daemon.stream(f"{target}?{urlencode(query)}", headers)
        assert self.stream.status == 200, self.stream.response.read()
        self._events = self.stream.events()
        self.cursor = cursor
        self.runs: list[dict[str, Any]] = []
        self.found: list[Place] = []
        self.times: list[int] = []
        self.others: list[Event] = []

    def _take(self, event: Event) -> None:
        if event.id is not None:
            self.cursor = event.id
        if event.name == "run":
            assert event.data["r"] == len(self.runs)
            self.runs.append(event.data)
        elif event.name == "lines":
            for line in event.data:
                self.found.append((self.runs[line["r"]]["runId"], line["n"], line["text"]))
                self.times.append(line["ts"])
        else:
            self.others.append(event)

    def lines(self, count: int) -> list[Place]:
        """Read until there are so many lines, and return them."""
        while len(self.found) < count:
            self._take(next(self._events))
        return self.found

    def until(self, name: str, count: int = 1) -> Event:
        """Read until there are so many events of this name, and return the last of them."""
        while len(others := [other for other in self.others if other.name == name]) < count:
            self._take(next(self._events))
        return others[-1]

    def close(self) -> None:
        self.stream.close()


@pytest.fixture
def unit(daemon: Daemon, request: pytest.FixtureRequest) -> str:
    """A configured service of this test's own."""
    name = f"u-{request.node.name}"[:90].replace("[", "-").replace("]", "")
    configure(daemon, name)
    return name


def configure(daemon: Daemon, name: str, **definition: Any) -> None:
    with daemon.lock:
        upsert_task(daemon.db, name, "service", json.dumps(definition))


def start(daemon: Daemon, task: str, **columns: Any) -> tuple[Run, Log]:
    """Start a run, and announce it."""
    run = daemon.insert(make_run(task=task, status="running", **{"started_at": now_ms(), **columns}))
    daemon.announce("run.started", runId=run.id, taskName=task)
    return run, daemon.log_of(run)


def finish(daemon: Daemon, run: Run, log: Log, **columns: Any) -> None:
    log.finish()
    values = {
        "exit_code": 0,
        "started_at": run.started_at,
        "ended_at": now_ms(),
        "lines": log.ring.blocks.lines,
        **columns,
    }
    daemon.update(run.id, status="ended", end_reason="succeeded", **values)
    daemon.announce("run.ended", runId=run.id, taskName=run.task_name)


def test_runs_start_and_end(daemon: Daemon, unit: str) -> None:
    """A stream shows the lines of present and of new runs, and the end of each."""
    first, log = start(daemon, unit, instance_index=3)
    log.write(b"a\nb\n")
    reader = Reader(daemon, {}, task=unit)
    assert reader.lines(2) == [(first.id, 0, "a"), (first.id, 1, "b")]
    assert reader.runs[0] == {
        "r": 0,
        "runId": first.id,
        "taskName": unit,
        "instanceIndex": 3,
        "attempt": 0,
        "startedAt": reader.runs[0]["startedAt"],
        "firstLine": 0,
    }
    log.write(b"c\n")
    finish(daemon, first, log, exit_code=4)
    end = reader.until("end")
    assert (end.data["r"], end.data["endReason"], end.data["exitCode"]) == (0, "succeeded", 4)
    second, log = start(daemon, unit)
    log.write(b"d\n")
    assert reader.lines(4)[2:] == [(first.id, 2, "c"), (second.id, 0, "d")]
    finish(daemon, second, log)
    assert reader.until("end", 2).data["r"] == 1
    reader.close()


def test_resumed_stream_repeats_and_misses_nothing(daemon: Daemon, unit: str) -> None:
    """Runs that continued, ended or were created meanwhile are each resumed at the cursor."""
    quiet, quiet_log = start(daemon, unit)
    quiet_log.write(b"q0\n")
    old, old_log = start(daemon, unit)
    old_log.write(b"o0\n")
    finish(daemon, old, old_log)
    goes_on, log = start(daemon, unit)
    log.write(b"g0\ng1\n")
    ends, ends_log = start(daemon, unit)
    ends_log.write(b"e0\n")
    reader = Reader(daemon, {"from": 0}, task=unit)
    before = reader.lines(5)
    reader.until("end")
    reader.close()
    log.write(b"g2\n")
    ends_log.write(b"e1\n")
    finish(daemon, ends, ends_log)
    short, short_log = start(daemon, unit)
    short_log.write(b"s0\n")
    finish(daemon, short, short_log)
    came, came_log = start(daemon, unit)
    came_log.write(b"c0\n")
    again = Reader(daemon, {"from": 0}, reader.cursor, unit)
    again.lines(4)
    again.until("end", 2)
    quiet_log.write(b"q1\n")
    again.lines(5)
    again.close()
    printed = ((quiet, "q", 2), (old, "o", 1), (goes_on, "g", 3), (ends, "e", 2), (short, "s", 1), (came, "c", 1))
    expected = [(run.id, n, f"{letter}{n}") for run, letter, count in printed for n in range(count)]
    assert sorted(before + again.found) == sorted(expected)
    starts = {run["runId"]: run["firstLine"] for run in again.runs}
    assert starts == {quiet.id: 1, goes_on.id: 2, ends.id: 1, short.id: 0, came.id: 0}
    last = Reader(daemon, {}, again.cursor, unit)
    came_log.write(b"c1\n")
    assert last.lines(1) == [(came.id, 1, "c1")]
    last.close()


def test_resume_after_any_event(daemon: Daemon, unit: str) -> None:
    """A stream can be resumed after any of its events."""
    logs = [start(daemon, unit, created_at=0) for _ in range(3)]
    for number in range(4):
        for index, (_, log) in enumerate(logs):
            log.write(b"%d-%d\n" % (index, number), STDOUT, 1000 * number + index)
    for run, log in logs[:2]:
        finish(daemon, run, log)
    whole = Reader(daemon, {"from": 0}, task=unit)
    whole.until("end", 2)
    expected = whole.lines(12)
    whole.close()
    cursor: str | None = None
    seen: list[Place] = []
    while len(seen) < 12:
        reader = Reader(daemon, {"from": 0}, cursor, unit)
        for event in reader._events:
            reader._take(event)
            if event.id is not None:
                break
        seen += reader.found
        cursor = reader.cursor
        reader.close()
    assert seen == expected


def test_order_of_history(daemon: Daemon, unit: str) -> None:
    """Lines of several runs are ordered by time, run id and number; lines of one run keep their order."""
    texts = []
    for index in range(5):
        run, log = start(daemon, unit, created_at=1000 + index, started_at=1000 + index)
        for n, at in enumerate((5000, 4000 + index, 6000, 6000)):
            log.write(b"%d\n" % n, STDOUT, at)
            texts.append((max(at, 5000), run.id, n))
        finish(daemon, run, log)
    reader = Reader(daemon, {"from": 0}, task=unit)
    assert [(run_id, n) for run_id, n, _ in reader.lines(20)] == [(run_id, n) for _, run_id, n in sorted(texts)]
    reader.close()


@pytest.mark.parametrize("count", [1, 7, 8, 25, 1000])
def test_last_lines_of_all_runs(daemon: Daemon, unit: str, count: int) -> None:
    """`from` counts the newest lines of all runs together."""
    all_lines = []
    for index in range(5):
        run, log = start(daemon, unit, created_at=index)
        for n in range(6):
            at = 10_000 + 100 * n + index
            log.write(b"%d\n" % n, STDOUT, at)
            all_lines.append((at, run.id, n))
        if index % 2:
            finish(daemon, run, log)
    expected = [(run_id, n) for _, run_id, n in sorted(all_lines)][-count:]
    reader = Reader(daemon, {"from": -count}, task=unit)
    assert [place[:2] for place in reader.lines(len(expected))] == expected
    reader.close()


def test_last_lines_of_a_crashed_run(daemon: Daemon, unit: str) -> None:
    """The newest lines include the lines of a crashed run, whose number was never stored."""
    run, log = start(daemon, unit)
    log.write(b"before the crash\n")
    log.finish()
    daemon.end(run.id, "crashed", exit_code=-2)
    reader = Reader(daemon, {"from": -10}, task=unit)
    assert [place[:2] for place in reader.lines(1)] == [(run.id, 0)]
    reader.close()


def test_since_and_until(daemon: Daemon, unit: str) -> None:
    """Lines before `since` and after `until` are not sent; a stream with `until` ends with ``done``."""
    for index in range(3):
        run, log = start(daemon, unit, created_at=0, started_at=0)
        for second in range(10):
            log.write(b"%d-%d\n" % (index, second), STDOUT, 1000 * second)
        if index:
            finish(daemon, run, log)
    query = {"since": "1970-01-01T00:00:03Z", "until": "1970-01-01T00:00:05Z"}
    reader = Reader(daemon, query, task=unit)
    assert reader.until("done").data == {"runs": 3}
    assert [text for _, _, text in reader.found] == [f"{index}-{second}" for second in (3, 4, 5) for index in range(3)]
    reader.close()
    last = Reader(daemon, {**query, "from": -2}, task=unit)
    last.until("done")
    assert [text for _, _, text in last.found] == ["1-5", "2-5"]
    last.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [({}, [0, 1, 2, 3]), ({"from": -3}, [1, 2, 3]), ({"from": -1}, [3]), ({"since": 30_000}, [0, 1, 2, 3])],
)
@pytest.mark.parametrize("started_ms", [3_600_000, -3_600_000])
def test_lines_after_the_clock_was_set_back(
    daemon: Daemon, unit: str, started_ms: int, query: dict[str, Any], expected: list[int]
) -> None:
    """A stream that ends with the present has the lines after the clock was set back, even of a run started before."""
    now = now_ms()
    run, log = start(daemon, unit, created_at=now + started_ms, started_at=now + started_ms)
    for number, at_ms in enumerate((3_600_000, 3_600_001, -2000, -1000)):
        log.write(b"%d\n" % number, STDOUT, now + at_ms)
    since = {"since": rfc3339(now - query["since"])} if "since" in query else {}
    reader = Reader(daemon, {**query, **since, "follow": "false"}, task=unit)
    reader.until("done")
    assert [int(text) for _, _, text in reader.found] == expected
    reader.close()
    finish(daemon, run, log)


def test_span_after_the_clock_was_set_back(daemon: Daemon, unit: str) -> None:
    """Lines in a time span are sent although lines before them have times after it."""
    now = now_ms()
    run, log = start(daemon, unit, created_at=now - 40_000, started_at=now - 40_000)
    for number, at_ms in enumerate((-35_000, -20_000, 3_600_000, -10_000, -1000)):
        log.write(b"%d\n" % number, STDOUT, now + at_ms)
    query = {"since": rfc3339(now - 30_000), "until": rfc3339(now - 5000)}
    reader = Reader(daemon, query, task=unit)
    reader.until("done")
    assert [text for _, _, text in reader.found] == ["1", "3"]
    reader.close()
    finish(daemon, run, log)


def test_the_last_lines_before_a_time(daemon: Daemon, unit: str) -> None:
    """With `until`, `from` counts the lines up to then, whether their run still runs, ended later or had ended."""
    for index, second in enumerate((0, 10, 20, 30)):
        run, log = start(daemon, unit, created_at=1000 * second, started_at=1000 * second)
        for n in range(10):
            log.write(b"%d-%d\n" % (index, n), STDOUT, 1000 * (second + n))
        if index in (0, 2):
            finish(daemon, run, log, ended_at=1000 * (second + 9))
    for second, expected in ((15, ["1-3", "1-4", "1-5"]), (24, ["2-2", "2-3", "2-4"]), (11, ["0-9", "1-0", "1-1"])):
        reader = Reader(daemon, {"from": -3, "until": f"1970-01-01T00:00:{second:02}Z"}, task=unit)
        reader.until("done")
        assert [text for _, _, text in reader.found] == expected
        reader.close()


def test_stream_and_grep_filter_lines(daemon: Daemon, unit: str) -> None:
    """Filters apply to lines of history and to live lines, in any batches, with CRLF as well, as they are displayed."""
    run, log = start(daemon, unit)
    log.write(b"".join(b"out %d\n" % n for n in range(30)))
    log.write(b"error 7\r\nfine\n", STDERR)
    reader = Reader(daemon, {"from": 0, "grep": "^(out|error) [0-9]*7$"}, task=unit)
    assert [text for _, _, text in reader.lines(4)] == ["out 7", "out 17", "out 27", "error 7\r"]
    log.write(b"out 1\nout 47\n\x1b[1mout\x1b[m 57\n")
    assert reader.lines(6)[-2:] == [(run.id, 33, "out 47"), (run.id, 34, "\x1b[1mout\x1b[m 57")]
    reader.close()
    errors = Reader(daemon, {"from": 0, "stream": "stderr"}, task=unit)
    assert errors.lines(2) == [(run.id, 30, "error 7\r"), (run.id, 31, "fine")]
    errors.close()


def test_dropped_lines_are_a_gap(daemon: Daemon, unit: str) -> None:
    """If a log has dropped lines, the stream says which ones are missing."""
    run = daemon.insert(make_run(task=unit, status="running", started_at=now_ms()))
    log = daemon.log_of(run, file_blocks=4, block_size=4096, blocks=2)
    for number in range(3000):
        log.write(b"line %d\n" % number)
    reader = Reader(daemon, {"from": 0}, task=unit)
    gap = reader.until("gap").data
    assert (gap["r"], gap["after"]) == (0, -1)
    assert reader.lines(3000 - gap["count"])[0][1] == gap["count"]
    reader.close()


def test_several_units(daemon: Daemon, unit: str) -> None:
    """Names and globs are united, group and tag narrow them, and each unit has the same lines as alone."""
    names = [f"{unit}-{letter}" for letter in "abc"]
    configure(daemon, names[0], group=f"{unit}-g", tags=["x"])
    configure(daemon, names[1], group=f"{unit}-g")
    configure(daemon, names[2], tags=["x"])
    for name in names:
        _, log = start(daemon, name)
        log.write(name.encode() + b"\n")
    for query, expected in (
        ({"task": f"{unit}-[ab]"}, names[:2]),
        ({"task": f"{names[0]},{names[2]}"}, [names[0], names[2]]),
        ({"group": f"{unit}-g"}, names[:2]),
        ({"group": f"{unit}-g", "tag": "x"}, names[:1]),
        ({"task": f"{unit}-*", "tag": "x"}, [names[0], names[2]]),
    ):
        reader = Reader(daemon, {"from": 0, **query})
        assert sorted(text for _, _, text in reader.lines(len(expected))) == expected
        assert sorted(run["taskName"] for run in reader.runs) == expected
        reader.close()


@pytest.mark.parametrize("query", ["task=nobody", "task=nob*", "group=nobody", "task=nobody,job"])
def test_empty_selection_is_not_found(daemon: Daemon, query: str) -> None:
    """A stream of a misspelt name is refused instead of waiting forever."""
    assert daemon.get(f"/api/logs/stream?{query}").status == 404


@pytest.mark.parametrize(
    ("query", "location"),
    [
        ("from=5", "query.from"),
        ("grep=(", "query.grep"),
        ("since=yesterday", "query.since"),
        ("stream=all", "query.stream"),
        ("task=a%20b", "query.task"),
    ],
)
def test_useless_parameters(daemon: Daemon, query: str, location: str) -> None:
    """Parameters without an effect are refused by name."""
    answer = daemon.get(f"/api/logs/stream?{query}")
    assert (answer.status, [error["location"] for error in answer.json["errors"]]) == (422, [location])


@pytest.mark.parametrize("cursor", ["17", "x", "A" * 7000])
def test_foreign_cursor_is_refused(daemon: Daemon, unit: str, cursor: str) -> None:
    """A cursor of something else would lose or repeat lines."""
    answer = daemon.get(f"/api/tasks/{unit}/log/stream", {"Last-Event-ID": cursor})
    assert (answer.status, answer.json["errors"][0]["location"]) == (422, "header.Last-Event-ID")


def test_too_many_running_runs(own: Daemon) -> None:
    """A stream of too many runs is refused with their number; a stream of 200 works."""
    configure(own, "many")
    for _ in range(200):
        own.insert(make_run(task="many", status="running", started_at=1))
    reader = Reader(own, {}, task="many")
    _, log = start(own, "many")
    answer = own.get("/api/tasks/many/log/stream")
    assert answer.status == 409
    assert answer.json["detail"].startswith("201 runs")
    assert list(reader.stream.events()) is not None  # the open stream ends, so that its client gets the same error
    reader.close()
    log.finish()


def test_killed_worker_loses_and_repeats_nothing(own: Daemon) -> None:
    """Clients that resume at the cursor get every line once, while several runs print."""
    configure(own, "w")
    logs = [start(own, "w") for _ in range(4)]
    seen: list[Place] = []
    cursor = None
    for round_ in range(4):
        reader = Reader(own, {"from": 0}, cursor, "w")
        for number in range(50):
            for _, log in logs:
                log.write(b"%d\n" % (50 * round_ + number))
        reader.lines(80)
        (worker,) = own.workers()
        os.kill(worker, signal.SIGKILL)
        for event in reader._events:  # up to where the connection breaks
            reader._take(event)
        seen += reader.found
        cursor = reader.cursor
        reader.close()
        until(lambda: own.workers() not in ([worker], []), "another worker")  # noqa: B023 - at once
    last = Reader(own, {"from": 0}, cursor, "w")
    seen += last.lines(4 * 200 - len(seen))
    last.close()
    assert sorted(seen) == sorted((run.id, n, str(n)) for run, _ in logs for n in range(200))


def test_slow_client_catches_up(daemon: Daemon, unit: str) -> None:
    """A client that pauses gets everything from the log files, in order and once."""
    logs = [start(daemon, unit) for _ in range(3)]
    reader = Reader(daemon, {"from": 0}, task=unit)
    for block in range(40):
        for _, log in logs:
            log.write(b"".join(b"%d %s\n" % (1000 * block + n, b"x" * 50) for n in range(1000)))
    lines = reader.lines(3 * 40_000)
    for run, _ in logs:
        assert [n for run_id, n, _ in lines if run_id == run.id] == list(range(40_000))
    reader.close()


def test_new_scheduler_makes_no_gap(own: Daemon) -> None:
    """A run that began while the events ring was replaced is found in the database."""
    configure(own, "w")
    first, log = start(own, "w")
    log.write(b"a\n")
    reader = Reader(own, {}, task="w")
    reader.lines(1)
    unannounced = own.insert(make_run(task="w", status="running", started_at=now_ms()))
    own.log_of(unannounced).write(b"b\n")
    own.events.close()
    path = ring_path(own.settings.runtime_dir, "events")
    os.unlink(path)
    own.events = RingWriter.new(path, "events", RingShape(0), first_line=100)
    own.event_count = 100
    own.announce("config.reloaded")
    assert reader.lines(2) == [(first.id, 0, "a"), (unannounced.id, 0, "b")]
    reader.close()


def test_reload_adds_units(daemon: Daemon, unit: str) -> None:
    """A stream of a group follows units that join it."""
    group = f"{unit}-g"
    configure(daemon, f"{unit}-1", group=group)
    reader = Reader(daemon, {"group": group})
    _, log = start(daemon, f"{unit}-1")
    log.write(b"one\n")
    reader.lines(1)
    configure(daemon, f"{unit}-2", group=group)
    daemon.announce("config.reloaded")
    _, log = start(daemon, f"{unit}-2")
    log.write(b"two\n")
    assert [text for _, _, text in reader.lines(2)] == ["one", "two"]
    reader.close()


def test_token_sees_its_units_only(daemon: Daemon, unit: str) -> None:
    """Other units are neither found nor followed, by name, glob or group."""
    mine, other = f"streamed-{unit}"[:90], f"other-{unit}"[:90]
    for name in (mine, other):
        configure(daemon, name, group=f"g-{unit}")
        _, log = start(daemon, name)
        log.write(name.encode() + b"\n")
    headers = scoped(daemon, "viewer", "streamed-*")
    for query in (f"task={other}", "task=other-*", f"task={mine},{other}"):
        assert daemon.get(f"/api/logs/stream?{query}", headers, unix=False).status == 404
    assert daemon.get(f"/api/tasks/{other}/log/stream", headers, unix=False).status == 404
    for query in ("from=0", f"from=0&group=g-{unit}"):
        stream = daemon.stream(f"/api/logs/stream?{query}", headers, unix=False)
        names = set()
        for event in stream.events():
            if event.name == "run":
                assert event.data["taskName"].startswith("streamed-")
                names.add(event.data["taskName"])
            if event.name == "lines" and any(line["text"] == mine for line in event.data):
                break
        assert mine in names
        stream.close()


def test_disconnect_releases_rings(own: Daemon) -> None:
    """A client that disconnects releases all rings that it followed."""
    configure(own, "w")
    logs = [start(own, "w") for _ in range(20)]
    (worker,) = until(own.workers, "a worker")
    open_counts = []
    for number in range(4):
        reader = Reader(own, {"from": 0}, task="w")
        for _, log in logs:
            log.write(b"x\n")
        reader.lines(20 * (number + 1))
        reader.close()
        until(lambda: open_streams(own) == 0, "the stream to end")
        open_counts.append(len(os.listdir(f"/proc/{worker}/fd")))
    assert open_counts[-1] <= open_counts[0] + 2, open_counts


def test_head_has_no_body(daemon: Daemon, unit: str) -> None:
    """HEAD answers as GET does, without the stream."""
    credentials = basic(PASSWORD)
    answer = daemon.ask("HEAD", f"/api/tasks/{unit}/log/stream", headers=credentials)
    assert (answer.status, answer.body) == (200, b"")
