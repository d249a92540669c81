"""The type ``otlp``, against a server that decodes requests."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logring.layout import STDERR
from supervisor.helpers.exporter.log_records import DAMAGED, DeliveryFailed, EndedRun, LinesRejected, LogGap, Piece
from tests.helpers.exporter.pieces import RUN, TS, job, piece
from tests.store.making import make_run
from tests.support.ports import free_port

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs ringward[otlp]")

if TYPE_CHECKING:
    from supervisor.helpers.exporter.otlp_sink import OtlpSink
    from tests.helpers.exporter.otlp import Collector

Opened = Callable[..., "OtlpSink"]
RETRY = RUN._replace(id="01K0000000000000000000000B", root=RUN.id)


@pytest.fixture
def collector() -> Iterator["Collector"]:
    from tests.helpers.exporter.otlp import Collector

    new_collector = Collector()
    yield new_collector
    new_collector.close()


@pytest.fixture
def opened(collector: "Collector", monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Return a function that makes a sink, closed after the test; with a short time limit, it repeats no request."""
    from supervisor.helpers.exporter import otlp_sink

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-from=environment")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "from=environment")
    with contextlib.ExitStack() as stack:

        def make(timeout_s: float = 10.0, **keys: Any) -> "OtlpSink":
            monkeypatch.setattr(otlp_sink, "TIMEOUT_S", timeout_s)
            sink = otlp_sink.OtlpSink(job("otlp", **{"url": collector.url, **keys}))
            return stack.enter_context(contextlib.closing(sink))

        yield make


def test_lines_are_records_of_their_spans(collector: "Collector", opened: Opened) -> None:
    """A line is a record with its time, severity, position and the ids of its run's span."""
    pieces = [
        piece(b"one\ntwo \xff", 0),
        piece(b"oops", 2, stream=STDERR),
        piece(b"more", 3, continued=True),
        Piece(RUN, LogGap(4, TS, 7, DAMAGED)),
    ]
    assert opened().deliver(pieces) == 4
    assert [log.text for log in collector.logs][:4] == ["one", "two \ufffd", "oops", "more"]
    first, _, error, continued, gap = collector.logs
    assert first.resource == {"service.name": "web", "service.instance.id": "2", "host.name": "db1"}
    assert first.attributes == {"log.iostream": "stdout", "ringward.run_id": RUN.id, "ringward.line": 0}
    assert first.message.time_unix_nano == TS * 1_000_000
    assert [severity_record.message.severity_number for severity_record in (first, error, gap)] == [9, 17, 10]
    assert continued.attributes["ringward.continued"] is True
    assert (gap.attributes["ringward.skipped"], gap.attributes["ringward.line"]) == (7, 4)
    assert first.message.trace_id.hex() == "0198000000000000000000000000000a"
    assert first.message.span_id.hex() == "000000000000000a"


def test_headers_of_the_environment_are_sent(collector: "Collector", opened: Opened) -> None:
    """The headers of the SDK's environment variable are sent with each request, besides the token."""
    secret = Path(__file__)
    opened(token_file=str(secret), tenant="team-a").deliver([piece(b"a")])
    headers = collector.requests[0][1]
    assert headers["authorization"] == f"Bearer {secret.read_text().splitlines()[0]}"
    assert (headers["x-from"], headers["x-scope-orgid"]) == ("environment", "team-a")
    assert "from" not in collector.logs[0].resource


def test_run_is_a_span(collector: "Collector", opened: Opened) -> None:
    """A run is a span with its times and its end; the parent of a retry is the first attempt."""
    ended = {"status": "ended", "created_at": TS - 9, "started_at": TS, "ended_at": TS + 5}
    failed = make_run(**ended, end_reason="failed", exit_code=3)
    good = make_run(**ended, end_reason="succeeded", exit_code=0, retry_attempt=1)
    stopped = make_run(**ended, end_reason="stopped", exit_code=143)
    rows = (EndedRun(RUN, failed), EndedRun(RETRY, good), EndedRun(RUN, stopped))
    assert opened().deliver_ends(list(rows)) == 3
    first, retry, last = collector.spans
    assert (first.message.name, first.resource["service.name"]) == ("web", "web")
    assert first.message.start_time_unix_nano == TS * 1_000_000
    assert first.message.end_time_unix_nano == (TS + 5) * 1_000_000
    assert (first.message.status.code, first.message.status.message) == (2, "failed")
    assert [span.message.status.code for span in (retry, last)] == [1, 0]
    assert first.attributes["process.exit.code"] == 3
    assert (first.attributes["ringward.end_reason"], retry.attributes["ringward.attempt"]) == ("failed", 1)
    assert retry.message.trace_id == first.message.trace_id
    assert (first.message.parent_span_id, retry.message.parent_span_id) == (b"", first.message.span_id)


@pytest.mark.parametrize("status", [301, 401, 404, 429, 500, 503])
def test_temporary_refusal(collector: "Collector", opened: Opened, status: int) -> None:
    """While a collector cannot accept lines, the delivery fails with status and Retry-After, and succeeds later."""
    sink = opened()
    collector.status = {"/v1/logs": status, "/v1/traces": status}
    with pytest.raises(DeliveryFailed, match=f"/v1/logs answered with status {status}: not now$") as failed:
        sink.deliver([piece(b"a")])
    assert failed.value.retry_after_ms == 3_600_000
    with pytest.raises(DeliveryFailed, match=f"/v1/traces answered with status {status}: not now$"):
        sink.deliver_ends([EndedRun(RUN, make_run(status="ended", end_reason="failed"))])
    collector.status = {}
    assert sink.deliver([piece(b"a")]) == 1
    assert [log.text for log in collector.logs] == ["a"]


@pytest.mark.parametrize("status", [400, 422])
def test_permanent_refusal(collector: "Collector", opened: Opened, status: int) -> None:
    """Lines that a collector will never accept are rejected and do not delay others."""
    collector.status = {"/v1/logs": status}
    with pytest.raises(LinesRejected, match="not now") as rejected:
        opened().deliver([piece(b"a", 0), piece(b"b", 1)])
    assert (rejected.value.delivered, rejected.value.end, rejected.value.lines) == (0, 2, None)


def test_requests_that_a_collector_finds_too_large(collector: "Collector", opened: Opened) -> None:
    """What a collector refuses for its size is sent in halves; a line that is too large alone is cut with a mark."""
    collector.most_bytes = 6000
    sink = opened()
    assert sink.deliver([piece(b"\n".join(b"%d" % number for number in range(100))), piece(b"y" * 10_000, 100)]) == 2
    *lines, cut = [log.text for log in collector.logs]
    assert lines == [str(number) for number in range(100)]
    assert cut == "y" * 5000 + " … [cut]"
    ends = [EndedRun(RUN, make_run(status="ended", end_reason="failed"))] * 100
    assert 0 < sink.deliver_ends(ends) < 100


def test_partial_success(collector: "Collector", opened: Opened) -> None:
    """Records that a collector dropped from an accepted request are counted, with its reason."""
    collector.rejects = 2
    with pytest.raises(LinesRejected, match="rejected 2 records: too old") as rejected:
        opened().deliver([piece(b"a\nb\nc", 0)])
    assert (rejected.value.end, rejected.value.lines) == (1, 2)


def test_without_a_server(opened: Opened, tmp_path: Path) -> None:
    """Without a server or a secret, the delivery fails with the reason and no part of the secret."""
    url = f"http://127.0.0.1:{free_port()}"
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("sesame\n")
    bad.write_text("ses\tame\n")
    for file, reason in (
        (good, f"cannot send to {url}/v1/logs: Connection refused"),
        (tmp_path / "none", f"{tmp_path}/none: No such file or directory"),
        (bad, f"{tmp_path}/bad has no secret in its first line"),
    ):
        with pytest.raises(DeliveryFailed, match=reason) as caught:
            opened(timeout_s=0.7, url=url, token_file=str(file)).deliver([piece(b"a")])
        assert "ses" not in str(caught.value).replace(str(tmp_path), "")


def test_large_deliveries_are_several_requests(collector: "Collector", opened: Opened) -> None:
    """A request has at most a megabyte, even of short lines, and all lines keep their order."""
    pieces = [piece(b"\n".join([b"%d" % number] * 2000), 2000 * number) for number in range(5)]
    sink = opened(spans=False)
    delivered = 0
    while delivered < len(pieces):
        delivered += sink.deliver(pieces[delivered:])
    assert [log.text for log in collector.logs] == [str(number) for number in range(5) for _ in range(2000)]
    sizes = [int(headers["content-length"]) for _, headers in collector.requests]
    assert max(sizes) <= 1 << 20
    assert len(sizes) == 3
    assert collector.logs[0].message.trace_id == b""
