"""Following a log across interruptions."""

import io
from pathlib import Path

import pytest

from supervisor.cli.client import Api, ErrorResponse, UnixEndpoint, Unreachable
from supervisor.cli.follow import ReconnectDelays, RunFollower
from supervisor.cli.terminal import LogPrinter
from tests.support.fake_daemon import Answer, FakeDaemon, Request, event, events, line, problem

RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
LOG = f"/api/runs/{RUN}/log"
STREAM = f"{LOG}/stream"
DONE = event("done", {"finalLine": 0, "status": "ended"}, 0)


class Following:
    """A follower whose clock advances by its pauses."""

    def __init__(self, socket: Path) -> None:
        self.out = io.BytesIO()
        self.messages: list[str] = []
        self.now_s = 0.0
        patience = ReconnectDelays(self.messages.append, lambda: self.now_s, self._pause)
        self.follower = RunFollower(Api(UnixEndpoint(str(socket))), RUN, LogPrinter(self.out), patience)

    def _pause(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds

    def lines(self) -> list[str]:
        self.follower.follow()
        return self.out.getvalue().decode().splitlines()


@pytest.fixture
def following(daemon: FakeDaemon) -> Following:
    return Following(daemon.socket)


def sent(*numbers: int) -> bytes:
    return b"".join(event("line", line(n, str(n)), n) for n in numbers)


def test_lines_are_printed_until_the_run_has_ended(daemon: FakeDaemon, following: Following) -> None:
    """All lines are printed from the first on, with as much history as the API gives; unknown events are ignored."""
    region = event("region", {"epoch": 1, "rows": [], "stream": "stdout"})
    daemon.on("GET", STREAM, events(sent(0, 1), region, event("rotated", {"firstAvailable": 1}), DONE))
    assert following.lines() == ["0", "1"]
    (request,) = daemon.requests_to(STREAM)
    assert request.query == {"from": "0", "replayLimit": "50000", "batch": "true"}
    assert "Last-Event-ID" not in request.headers


def test_daemon_without_batches(daemon: FakeDaemon, following: Following) -> None:
    """A daemon of a release that rejects ``batch`` is asked without it, even after an interruption."""

    def of_before(request: Request) -> Answer:
        if "batch" in request.query:
            return problem(
                422, "one error", [{"location": "query.batch", "message": "is not a parameter of this operation"}]
            )
        if "Last-Event-ID" in request.headers:
            return events(sent(2), DONE)
        return events(sent(0, 1))

    daemon.on("GET", STREAM, of_before)
    assert following.lines() == ["0", "1", "2"]
    assert following.messages == []
    assert ["batch" in request.query for request in daemon.requests_to(STREAM)] == [True, False, False]


def test_other_rejected_parameter(daemon: FakeDaemon, following: Following) -> None:
    """A request that the daemon rejects for another reason is not repeated."""
    daemon.on("GET", STREAM, problem(422, "one error", [{"location": "query.from", "message": "must be a number"}]))
    with pytest.raises(ErrorResponse, match="must be a number"):
        following.lines()
    assert len(daemon.requests_to(STREAM)) == 1


def batch(first: int, *texts: str) -> bytes:
    data = {"n": first, "count": len(texts), "ts": 0, "stream": "stdout", "text": "\n".join(texts)}
    return event("lines", data, first + len(texts) - 1)


def test_batches_are_printed_line_by_line(daemon: FakeDaemon, following: Following) -> None:
    """Lines that were printed before are not repeated, whether they arrived alone or in a batch."""
    first = events(batch(0, "a", "", "c"), sent(3))
    daemon.on("GET", STREAM, first, events(batch(2, "c", "3", "4"), batch(0, "a", ""), batch(5, "5"), DONE))
    assert following.lines() == ["a", "", "c", "3", "4", "5"]
    assert [request.headers.get("Last-Event-ID") for request in daemon.requests_to(STREAM)] == [None, "3"]


def test_many_omitted_lines(daemon: FakeDaemon, following: Following) -> None:
    """If a stream omits more lines than it can replay, the follower opens the next one after them, without a pause."""
    hole = event("dropped", {"after": 1, "count": 20_000})
    later = batch(2, *map(str, range(2, 20_002)))
    daemon.on("GET", STREAM, events(sent(0, 1), hole, sent(20_002), DONE), events(later, sent(20_002), DONE))
    assert following.lines() == [str(number) for number in range(20_003)]
    assert [request.headers.get("Last-Event-ID") for request in daemon.requests_to(STREAM)] == [None, "1"]
    assert following.now_s == 0


def test_many_removed_lines(daemon: FakeDaemon, following: Following) -> None:
    """Many lines that are missing at the start of a stream are reported as no longer kept, without another stream."""
    hole = event("dropped", {"after": -1, "count": 20_000})
    daemon.on("GET", STREAM, events(hole, sent(20_000), DONE))
    daemon.on("GET", LOG, Answer(body=_page([])))
    assert following.lines() == ["20000"]
    assert following.messages == ["20000 lines are no longer kept or unreadable"]
    assert (len(daemon.requests_to(STREAM)), len(daemon.requests_to(LOG))) == (1, 1)


def test_resumed_stream(daemon: FakeDaemon, following: Following) -> None:
    """A closed stream resumes without gap or repetition, even within an event or if lines are sent twice."""
    half = event("line", line(2, "2"), 2)[:10]
    daemon.on(
        "GET",
        STREAM,
        events(sent(0, 1)),
        events(half, broken=True),
        problem(503, "starting"),
        events(sent(1, 2, 3), DONE),
    )
    assert following.lines() == ["0", "1", "2", "3"]
    assert [request.headers.get("Last-Event-ID") for request in daemon.requests_to(STREAM)] == [None, "1", "1", "1"]
    assert following.messages == []


def test_stream_closes_before_the_first_line(daemon: FakeDaemon, following: Following) -> None:
    """A stream that closes before its first line is started again from the beginning."""
    daemon.on("GET", STREAM, events(), events(sent(0), DONE))
    assert following.lines() == ["0"]
    assert [request.query["from"] for request in daemon.requests_to(STREAM)] == ["0", "0"]


def test_omitted_lines_are_fetched(daemon: FakeDaemon, following: Following) -> None:
    """Omitted lines are fetched in pages; lines no longer kept are counted."""
    daemon.on("GET", STREAM, events(sent(0), event("dropped", {"after": 0, "count": 9}), sent(10), DONE))
    pages = {
        1: [line(n, str(n)) for n in (3, 4)],
        5: [line(n, str(n)) for n in (5, 6, 7)],
        8: [],
    }
    daemon.on("GET", LOG, lambda request: Answer(body=_page(pages[int(request.query["from"])])))
    assert following.lines() == ["0", "3", "4", "5", "6", "7", "10"]
    assert [(request.query["from"], request.query["limit"]) for request in daemon.requests_to(LOG)] == [
        ("1", "9"),
        ("5", "5"),
        ("8", "2"),
    ]
    assert following.messages == ["4 lines are no longer kept or unreadable"]


def _page(lines: list[dict[str, object]]) -> bytes:
    import json

    return json.dumps({"lines": lines, "firstAvailable": 0, "totalLines": 99}).encode()


def test_interrupted_fetch(daemon: FakeDaemon, following: Following) -> None:
    """If fetching omitted lines is interrupted, the next stream resumes before them, and no line is skipped."""
    hole = event("dropped", {"after": -1, "count": 2})
    daemon.on("GET", STREAM, events(hole, sent(2), DONE))
    whole = Answer(body=_page([line(0, "0"), line(1, "1")]))
    daemon.on("GET", LOG, Answer(200, b"{", broken=True), whole)
    assert following.lines() == ["0", "1", "2"]


def test_absence_is_reported_once(daemon: FakeDaemon, following: Following) -> None:
    """An absence of the daemon is reported after two seconds, and only once."""
    daemon.on("GET", STREAM, events(sent(0)), *[problem(503, "away")] * 8, events(sent(1), DONE))
    assert following.lines() == ["0", "1"]
    assert following.messages == ["retrying: away"]
    assert following.now_s >= 2


def test_quiet_log_is_no_absence(daemon: FakeDaemon, following: Following) -> None:
    """Only the daemon's silence counts as absence, not the silence of the run."""

    def quiet(_request: Request) -> Answer:
        following.now_s += 3600
        return events(sent(0))

    daemon.on("GET", STREAM, quiet, problem(503, "starting"), events(sent(1), DONE))
    assert following.lines() == ["0", "1"]
    assert following.messages == []


def test_absent_daemon(data: Path) -> None:
    """The follower gives up after a minute without an answer."""
    following = Following(data / "ringward.sock")
    with pytest.raises(Unreachable, match="gave up after a minute: no daemon answers"):
        following.lines()
    assert 60 <= following.now_s < 62


def test_streams_that_close_at_once(daemon: FakeDaemon, following: Following) -> None:
    """Empty streams do not count as answers, so the follower gives up."""
    daemon.on("GET", STREAM, events())
    with pytest.raises(Unreachable, match="closed the stream"):
        following.lines()
    assert len(daemon.requests) < 80


@pytest.mark.parametrize("status", [401, 404, 422])
def test_refusal_is_final(daemon: FakeDaemon, following: Following, status: int) -> None:
    """A refused request is not repeated."""
    daemon.on("GET", STREAM, problem(status, "no"))
    with pytest.raises(ErrorResponse):
        following.lines()
    assert len(daemon.requests) == 1
