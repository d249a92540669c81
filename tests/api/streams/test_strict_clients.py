"""Streams as clients read them that take every empty line for the end of an event."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.api.support.harness import Daemon
from tests.api.support.records import make_run
from tests.api.support.starting import PATIENCE

httpx = pytest.importorskip("httpx")
httpx_sse = pytest.importorskip("httpx_sse")


class Lively(Daemon):
    """A server that sends a heartbeat every second."""

    constants: ClassVar = {**PATIENCE, "api.streams.sse_response": {"HEARTBEAT_S": 1.0}}


@pytest.fixture
def lively(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Lively(tmp_path)
    yield daemon
    daemon.close()


def test_no_empty_events(lively: Daemon) -> None:
    """On a quiet stream with heartbeats, a strict client sees only lines and the end."""
    run = lively.insert(make_run(task="stream", status="running", started_at=1))
    stream = lively.stream(f"/api/runs/{run.id}/log/stream")
    received = b"".join(stream.response.readline() for _ in range(2))
    assert received == b"retry: 1000\n:\n"
    log = lively.log_of(run)
    log.write(b"one\ntwo\n")
    log.finish()
    lively.end(run.id, lines=2)
    received += stream.response.read()
    stream.close()
    response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=received)
    events = list(httpx_sse.EventSource(response).iter_sse())
    assert [(event.event, event.id) for event in events] == [("line", "0"), ("line", "1"), ("done", "1")]
    assert [event.retry for event in events] == [1000, None, 3_600_000]


def test_schema_describes_one_event(daemon: Daemon) -> None:
    """The schema of a stream describes one event, because no reader has the whole stream at once."""
    described = daemon.get("/openapi.json", unix=False).json
    streams = [
        (path, answer["content"]["text/event-stream"]["schema"])
        for path, methods in described["paths"].items()
        for operation in methods.values()
        for answer in operation["responses"].values()
        if "text/event-stream" in answer.get("content", {})
    ]
    assert {path for path, _ in streams} >= {"/api/runs/{runId}/log/stream", "/api/events/stream"}
    for _, schema in streams:
        assert set(schema) == {"oneOf"}
