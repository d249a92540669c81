"""The stream of application events."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from logring.layout import RingShape
from logring.log_paths import ring_path
from logring.ring.writer import RingWriter
from tests.api.support.client import Stream
from tests.api.support.harness import Daemon

PATH = "/api/events/stream"


@contextlib.contextmanager
def opened(daemon: Daemon, query: str = "", **headers: str) -> Iterator[Stream]:
    stream = daemon.stream(PATH + query, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        # Retry is sent after the stream has subscribed.
        assert stream.response.readline() == b"retry: 1000\n"
        yield stream
    finally:
        stream.close()


def test_start_without_last_event_id(daemon: Daemon) -> None:
    """Without Last-Event-ID, a stream has only new events; the name is the kind, the id the line's number."""
    daemon.announce("run.created", runId="before")
    with opened(daemon) as stream:
        daemon.announce("run.started", runId="after")
        (event,) = stream.take(1)
    assert (event.name, event.id) == ("run.started", daemon.event_count - 1)
    assert event.data == {"seq": daemon.event_count, "kind": "run.started", "runId": "after"}


def test_resume(daemon: Daemon) -> None:
    """A stream with Last-Event-ID has every later event."""
    for number in range(5):
        daemon.announce("run.created", runId=str(number))
    with opened(daemon, Last_Event_ID=str(daemon.event_count - 4)) as stream:
        assert [event.data["runId"] for event in stream.take(3)] == ["2", "3", "4"]


def test_types(daemon: Daemon) -> None:
    """A stream has only the requested kinds of events."""
    with opened(daemon, "?types=run.ended,%20service.state") as stream:
        for kind in ("run.created", "run.ended", "run.started", "service.state"):
            daemon.announce(kind)
        assert [event.name for event in stream.take(2)] == ["run.ended", "service.state"]


def test_unknown_types(daemon: Daemon) -> None:
    """An unknown type is refused, and the answer lists the known ones, as the API document does."""
    answer = daemon.get("/api/events/stream?types=run.ended,run.finished,Ping")
    assert answer.status == 422
    (error,) = answer.json["errors"]
    assert error["location"] == "query.types"
    problem, names = error["message"].removesuffix(")").split(" (use ")
    assert problem == "unknown words run.finished, Ping"
    document = daemon.get("/openapi.json").json
    (parameter,) = document["paths"]["/api/events/stream"]["get"]["parameters"][:1]
    assert (parameter["name"], parameter["style"], parameter["explode"]) == ("types", "form", False)
    assert names.split(", ") == parameter["schema"]["items"]["enum"]
    assert {"run.ended", "system", "ping", "notification.created"} < set(names.split(", "))


@pytest.mark.parametrize("last", ["99999999", "-5", "x"])
def test_unknown_last_event_id(daemon: Daemon, last: str) -> None:
    """A stream with an unknown Last-Event-ID has only new events."""
    daemon.announce("run.created")
    with opened(daemon, Last_Event_ID=last) as stream:
        daemon.announce("run.ended")
        assert [event.name for event in stream.take(1)] == ["run.ended"]


def test_events_before_their_bell(daemon: Daemon) -> None:
    """A stream begins at the end of the ring, not at the last bell, so no event is sent twice."""
    daemon.announce("run.created")
    with opened(daemon) as first:
        daemon.announce("run.started")
        assert len(first.take(1)) == 1
        daemon.bells.muted = True
        try:
            for number in range(3):
                daemon.announce("run.created", runId=str(number))
            with opened(daemon, Last_Event_ID=str(daemon.event_count - 1)) as resumed, opened(daemon) as second:
                daemon.announce("run.ended")
                for stream in (resumed, second):
                    assert [event.id for event in stream.take(1)] == [daemon.event_count - 1]
            assert [event.name for event in first.take(4)] == ["run.created"] * 3 + ["run.ended"]
        finally:
            daemon.bells.muted = False


def test_new_scheduler(own: Daemon) -> None:
    """A new scheduler creates a new ring with continued numbers, and streams follow it and get missed events."""
    for _ in range(3):
        own.announce("run.created")
    with opened(own) as stream:
        own.events.close()
        os.unlink(ring_path(own.settings.runtime_dir, "events"))
        own.events = RingWriter.new(ring_path(own.settings.runtime_dir, "events"), "events", RingShape(0), first_line=3)
        own.announce("run.ended")
        assert [(event.name, event.id) for event in stream.take(1)] == [("run.ended", 3)]
    with opened(own, Last_Event_ID="0") as stream:
        first, second = stream.take(2)
    assert (first.name, first.data) == ("dropped", {"after": 0, "count": 2})
    assert (second.name, second.id) == ("run.ended", 3)


def test_stream_before_the_first_event(own: Daemon) -> None:
    """A stream that was opened before the first event, and so before the ring, gets the event."""
    with opened(own) as stream:
        own.announce("run.created")
        assert [(event.name, event.id) for event in stream.take(1)] == [("run.created", 0)]
