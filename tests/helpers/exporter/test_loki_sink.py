"""The type ``loki``, against a server that checks requests as the push API documents them."""

import contextlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logring.block import Batch
from logring.layout import STDERR
from supervisor.helpers.exporter.log_records import (
    DAMAGED,
    DeliveryFailed,
    LinesRejected,
    LogGap,
    Piece,
    in_small_pieces,
)
from supervisor.helpers.exporter.loki_sink import LokiSink
from tests.helpers.exporter.loki import Loki
from tests.helpers.exporter.pieces import RUN, TS, job, piece
from tests.support.ports import free_port
from tests.support.waiting import until

Opened = Callable[..., LokiSink]


@pytest.fixture
def loki() -> Iterator[Loki]:
    new_loki = Loki()
    yield new_loki
    new_loki.close()


@pytest.fixture
def opened(loki: Loki) -> Iterator[Opened]:
    """Return a function that makes a sink, which is closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(**keys: str) -> LokiSink:
            return stack.enter_context(contextlib.closing(LokiSink(job("loki", **{"url": loki.url, **keys}))))

        yield make


def test_lines_arrive_with_their_labels(loki: Loki, opened: Opened) -> None:
    """Lines are entries of a stream by task, instance and stream; run and number are metadata."""
    pieces = [
        piece(b"one\ntwo \xff\none", 0),
        piece(b"oops", 3, stream=STDERR),
        piece(b"more", 4, continued=True),
        Piece(RUN, LogGap(5, TS, 7, DAMAGED)),
    ]
    assert opened().deliver(pieces) == 4
    labels = {"job": "ringward", "host": "db1", "task": "web", "instance": "2"}
    assert {frozenset(entry) for entry in loki.entries} == {
        frozenset({**labels, "stream": stream}.items()) for stream in ("stdout", "stderr", "system")
    }
    assert loki.lines() == ["one", "two \ufffd", "one", "more"]
    metadata = {int(entry["line"]): entry for entries in loki.entries.values() for entry in entries.values()}
    assert metadata[0] == {"runId": RUN.id, "line": "0"}
    assert metadata[4] == {"runId": RUN.id, "line": "4", "continued": "true"}
    assert metadata[5] == {"runId": RUN.id, "line": "5", "skipped": "7"}


def test_repeated_delivery_leaves_one_entry(loki: Loki, opened: Opened) -> None:
    """Loki keeps a repeated line once, but all equal lines of a millisecond."""
    lines = piece(b"\n".join([b"same"] * 50))
    sink = opened()
    assert sink.deliver([lines]) == sink.deliver([lines]) == 1
    assert loki.lines() == ["same"] * 50


def test_large_deliveries_are_several_requests(loki: Loki, opened: Opened) -> None:
    """A request has at most a megabyte, and all lines keep their order."""
    pieces = [piece(b"%06d" % number + b"x" * 300_000, number) for number in range(10)]
    sink = opened()
    delivered = 0
    while delivered < 10:
        delivered += sink.deliver(pieces[delivered:])
    assert [line[:6] for line in loki.lines()] == [f"{number:06d}" for number in range(10)]
    assert len(loki.requests) == 4
    assert all(int(request["content-length"]) <= 1 << 20 for request in loki.requests)


@pytest.mark.parametrize("text", [b"x", b"\x01", b"\xff", b"\\", "é".encode()])
def test_size_of_requests_with_short_lines(loki: Loki, opened: Opened, text: bytes) -> None:
    """A request has at most a megabyte as it is sent, however many short lines there are and whatever they contain."""
    lines = piece(b"\n".join([text * 20] * 30_000))
    assert isinstance(lines.content, Batch)
    pieces = [Piece(RUN, batch) for batch in in_small_pieces(lines.content)]
    sink = opened()
    delivered = 0
    while delivered < len(pieces):
        delivered += sink.deliver(pieces[delivered:])
    sizes = [int(request["content-length"]) for request in loki.requests]
    assert max(sizes) <= 1 << 20
    assert sum(sizes) / len(sizes) > 400_000
    assert len(loki.lines()) == 30_000


@pytest.mark.parametrize(
    "too_large",
    [
        (413, b"request body too large"),
        (500, b"rpc error: code = ResourceExhausted desc = grpc: received message larger than max (9 vs. 8)"),
        (400, b"Max entry size '262144' bytes exceeded for stream"),
    ],
)
def test_requests_that_loki_finds_too_large(loki: Loki, opened: Opened, too_large: tuple[int, bytes]) -> None:
    """What Loki refuses for its size is sent in halves, with each line once and in order."""
    loki.most_bytes, loki.too_large = 20_000, too_large
    pieces = [piece(b"\n".join(b"%04d" % number for number in range(at, at + 500)), at) for at in range(0, 2000, 500)]
    assert opened().deliver(pieces) == 4
    assert loki.lines() == [f"{number:04d}" for number in range(2000)]
    assert all(len(entries) == 2000 for entries in loki.entries.values())


def test_line_that_loki_finds_too_large(loki: Loki, opened: Opened) -> None:
    """A line that is too large alone is cut with a mark, and does not delay others."""
    loki.most_line_bytes = 5000
    text = "é".encode() * 8000
    assert opened().deliver([piece(b"before\n" + text + b"\nafter", 0)]) == 1
    before, cut, after = loki.lines()
    assert (before, after) == ("before", "after")
    assert cut == "é" * 2002 + " … [cut]"


def test_short_line_that_loki_finds_too_large(loki: Loki, opened: Opened) -> None:
    """Short lines that Loki refuses for their size are rejected, and those around them arrive."""
    loki.most_line_bytes = 100
    with pytest.raises(LinesRejected, match="too large") as rejected:
        opened().deliver([piece(b"a\n" + b"x" * 500 + b"\nb\nc", 0)])
    assert (rejected.value.delivered, rejected.value.end, rejected.value.lines) == (0, 1, 1)
    assert loki.lines() == ["a", "b", "c"]


def test_retry_after(loki: Loki, opened: Opened) -> None:
    """A refused delivery has the time that Loki asks to wait."""
    loki.status, loki.retry_after = 429, "120"
    with pytest.raises(DeliveryFailed) as failed:
        opened().deliver([piece(b"a")])
    assert failed.value.retry_after_ms == 120_000


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503, 301])
def test_temporary_refusal(loki: Loki, opened: Opened, status: int) -> None:
    """While Loki cannot accept lines, the delivery fails with the status, and succeeds afterwards."""
    sink = opened()
    sink.deliver([piece(b"a", 0)])
    loki.status = status
    with pytest.raises(DeliveryFailed, match=f"answered with status {status}: entry for stream has timestamp too old$"):
        sink.deliver([piece(b"b", 1)])
    loki.status = 204
    assert sink.deliver([piece(b"b", 1)]) == 1
    assert loki.lines() == ["a", "b"]


@pytest.mark.parametrize("status", [400, 422])
def test_permanent_refusal(loki: Loki, opened: Opened, status: int) -> None:
    """Lines that Loki will never accept are rejected and do not delay others."""
    loki.status = status
    with pytest.raises(LinesRejected, match="too old") as rejected:
        opened().deliver([piece(b"a", 0), piece(b"b", 1)])
    assert (rejected.value.delivered, rejected.value.end) == (0, 2)


def test_closed_connection_is_replaced(loki: Loki, opened: Opened) -> None:
    """A connection that the server closed while it was idle is replaced without a failure."""
    sink = opened()
    sink.deliver([piece(b"a", 0)])
    loki.server.RequestHandlerClass.protocol_version = "HTTP/1.0"  # type: ignore[attr-defined]
    sink.deliver([piece(b"b", 1)])
    assert sink.deliver([piece(b"c", 2)]) == 1
    assert loki.lines() == ["a", "b", "c"]


def test_without_a_server(opened: Opened) -> None:
    """Without a server the delivery fails with the address and the reason."""
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(DeliveryFailed, match=f"cannot send to {url}: Connection refused"):
        opened(url=url).deliver([piece(b"a")])


def test_secrets_come_from_files(loki: Loki, opened: Opened, tmp_path: Path) -> None:
    """The token or the password is read again for each request; errors name the file, never its content."""
    secret = tmp_path / "secret"
    sink = opened(token_file=str(secret), tenant="team-a")
    with pytest.raises(DeliveryFailed, match=f"{secret}: No such file or directory"):
        sink.deliver([piece(b"a")])
    for token in ("first", "second"):
        secret.write_text(f"{token}\n")
        sink.deliver([piece(b"a")])
        assert loki.requests[-1]["authorization"] == f"Bearer {token}"
        assert loki.requests[-1]["x-scope-orgid"] == "team-a"
    secret.write_text("in\x01jected")
    with pytest.raises(DeliveryFailed, match="has no secret in its first line") as failed:
        sink.deliver([piece(b"a")])
    assert "jected" not in str(failed.value)
    secret.write_text("pass word")
    opened(username="me", password_file=str(secret)).deliver([piece(b"a")])
    assert loki.requests[-1]["authorization"] == "Basic " + b64encode(b"me:pass word").decode()
    until(lambda: loki.lines() == ["a"], "the line")
