"""The live stream of a run's log."""

import json

import pytest

from tests.contract.daemon import Contract, events_of, on_one_database
from tests.contract.shapes import check_object
from tests.contract.tables import DONE

pytestmark = on_one_database


def path(run_id: str) -> str:
    return f"/api/runs/{run_id}/log/stream"


def test_envelope(daemon: Contract) -> None:
    """A stream is text/event-stream; each event has a name and data, with integer id and retry where they occur."""
    answer = daemon.get(path(daemon.printed))
    assert answer.headers.get_content_type() == "text/event-stream"
    events = events_of(answer.body)
    assert events[0]["retry"] == "1000"
    for event in events:
        assert {"event", "data"} <= set(event) <= {"event", "data", "id", "retry"}
        assert all(event[name].lstrip("-").isdigit() for name in ("id", "retry") if name in event)
        json.loads(event["data"])


def test_done(daemon: Contract) -> None:
    """The last event is ``done`` with the number of the last line and the reason."""
    *_, last = events_of(daemon.get(path(daemon.printed)).body)
    assert last["event"] == "done"
    data = json.loads(last["data"])
    check_object(data, DONE)
    assert data == {"finalLine": 5999, "status": "ended"}


@pytest.mark.parametrize("query", ["", "?from=0"])
def test_last_event_id(daemon: Contract, query: str) -> None:
    """The stream resumes after Last-Event-ID, whatever ``from`` says."""
    answer = daemon.request("GET", path(daemon.printed) + query, headers={"Last-Event-ID": "5989"})
    numbers = [int(event["id"]) for event in events_of(answer.body) if event.get("event") == "line"]
    assert numbers == list(range(5990, 6000))


def test_live(daemon: Contract) -> None:
    """History comes first, then new lines until the run ends."""
    run_id = daemon.trigger("lives")
    stream = daemon.stream(path(run_id))
    events = (event for event in stream if event.kind in ("line", "done"))
    first = next(events)
    assert (first.kind, first.id, first.data["text"]) == ("line", "0", "ready")
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
    line, done = list(events)
    assert (line.id, line.data["text"]) == ("1", "bye")
    assert (done.kind, done.data) == ("done", {"finalLine": 1, "status": "ended"})
    stream.close()
