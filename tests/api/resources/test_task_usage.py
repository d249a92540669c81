"""What tasks and services took, as the API tells it."""

from typing import Any
from urllib.parse import urlencode

from api.schemas.wire_times import rfc3339
from store.runs import samples as run_samples
from store.runs.samples import Reading
from store.runs.usage_counts import HOUR_MS, SPAN_MS
from store.tasks import upsert_task
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms


def usage_of(daemon: Daemon, path: str, **query: int) -> dict[str, Any]:
    text = urlencode({name: rfc3339(at) for name, at in query.items()})
    answer = daemon.get(f"{path}?{text}")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    assert body.pop("$schema")
    return body


def test_windows(own: Daemon) -> None:
    """Ended and running runs count when they use resources; the answer names its window, by default a day."""
    now = now_ms()
    span = now // SPAN_MS * SPAN_MS
    with own.lock:
        for name, kind in (("job", "task"), ("web", "service"), ("idle", "task")):
            upsert_task(own.db, name, kind, "{}")
    for ended_at in (span, span - 1, span - 30 * HOUR_MS):
        run = own.insert(make_run(created_at=ended_at, started_at=ended_at, status="running"))
        own.end(run.id, ended_at=ended_at, user_us=2_500_000, system_us=1_999, max_rss_bytes=ended_at, read_bytes=5)
    run = own.insert(make_run(task="web", kind="service", status="running", started_at=now - 9000))
    with own.lock:
        run_samples.add_pass(own.db, 1, {run.id: Reading(now, 7000, 400, 99, 3, None, None)})
    latest = {"runs": 1, "cpuUserMs": 2500, "cpuSystemMs": 1, "maxRssBytes": span, "readBytes": 5}
    day = {"runs": 2, "cpuUserMs": 5000, "cpuSystemMs": 3, "maxRssBytes": span, "readBytes": 10}
    path = "/api/tasks/job/resources"
    usage = usage_of(own, path, **{"from": span})
    end = now_ms() // SPAN_MS * SPAN_MS + SPAN_MS  # of the next span, if that has begun
    assert usage == {"from": rfc3339(span), "to": usage["to"], **latest}
    assert rfc3339(span + SPAN_MS) <= usage["to"] <= rfc3339(end)
    usage = usage_of(own, path)
    assert usage == {"from": usage["from"], "to": usage["to"], **day}
    usage = usage_of(own, path, to=now - 3 * HOUR_MS, **{"from": now - 100 * HOUR_MS})
    assert (usage["runs"], usage["cpuUserMs"]) == (1, 2500)
    assert usage["from"].endswith(":00:00.000Z"), "whole hours, since finer samples have expired"
    usage = usage_of(own, path, to=span + 1, **{"from": span + 1})
    assert (usage["runs"], usage["from"]) == (0, usage["to"]), "a window of no time"
    web = {"runs": 0, "cpuUserMs": 7000, "cpuSystemMs": 400, "maxRssBytes": 99}
    usage = usage_of(own, "/api/resources/totals")
    durations = [item.pop("durationMs") for item in usage["items"]]
    assert durations[0] == 0, "no run of the service has ended"
    assert usage["items"] == [{"taskName": "web", **web}, {"taskName": "job", **day}]
    usage = usage_of(own, "/api/tasks/idle/resources")
    assert {name: value for name, value in usage.items() if name not in ("from", "to")} == {
        "runs": 0,
        "cpuUserMs": 0,
        "cpuSystemMs": 0,
    }


def test_distant_windows(daemon: Daemon) -> None:
    """Windows in the distant past and future are answered without usage."""
    for query in (
        "to=0001-01-01T00:00:00Z",
        "from=9999-12-31T23:59:59Z&to=9999-12-31T23:59:59.5Z",
        "from=9999-01-02T00:00:00Z&to=0001-01-01T00:00:00Z",
    ):
        answer = daemon.get(f"/api/resources/totals?{query}")
        assert (answer.status, answer.json["items"]) == (200, [])
    answer = daemon.get("/api/resources/totals?from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59Z")
    assert (answer.json["from"], answer.json["to"]) == ("1970-01-01T00:00:00.000Z", "9999-12-31T00:00:00.000Z")


def test_unknown_task(daemon: Daemon) -> None:
    """An unknown task gets 404."""
    assert daemon.get("/api/tasks/nobody/resources").status == 404
