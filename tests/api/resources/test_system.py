"""The host, now and as it was."""

import os
from types import SimpleNamespace

import pytest
from msgspec import UNSET

from api.errors import ApiError
from api.host_info import host_facts
from api.host_info.host_facts import Rates, System
from api.schemas.wire_times import rfc3339
from store import metrics
from store.metrics import FINE_MS, MetricSample
from tests.api.support.harness import Daemon
from tests.api.support.records import now_ms

MINUTE_MS = 60_000


def fill(daemon: Daemon, start: int, count: int) -> None:
    with daemon.lock, daemon.db.transaction():
        for number in range(count):
            metrics.add(daemon.db, MetricSample(start + number * FINE_MS, cpu=float(number), memory_used=7))


def test_now(daemon: Daemon) -> None:
    """The host's facts are true, and the daemon's own processes have their usage."""
    body = daemon.get("/api/system").json
    assert body["hostname"] == os.uname().nodename
    assert (body["kernel"], body["arch"]) == (os.uname().release, os.uname().machine)
    assert body["cpu"]["cores"] == len(body["cpu"]["perCore"]) == os.cpu_count()
    assert 0 <= body["cpu"]["percent"] <= 100
    assert 0 < body["memory"]["usedBytes"] < body["memory"]["totalBytes"]
    assert len(body["cpu"]["load"]) == 3
    names = [process["name"] for process in body["processes"]]
    assert names.count("gunicorn") == names.count("worker") == 1
    by_name = {process["name"]: process for process in body["processes"]}
    assert by_name["gunicorn"]["pid"] == daemon.pid
    assert by_name["worker"]["pid"] == daemon.workers()[0]
    for process in body["processes"]:
        assert process["rssBytes"] >= process["pssBytes"] > 0
    for network in body["network"]:
        assert network["receivedBytesPerSecond"] >= 0
        assert network["sentBytesPerSecond"] >= 0
    assert all(("readBytesPerSecond" in disk) == ("writtenBytesPerSecond" in disk) for disk in body["disks"])


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates cover the time since the last sample; new processes have none, and no rate is negative."""
    clock = iter((0.0, 10.0, 12.0))
    monkeypatch.setattr(host_facts, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    rates = Rates()
    rates.update({"sda": (1000, 50), "sdb": (500, 500)})
    assert rates.of("sda") == (UNSET, UNSET)
    rates.update({"sda": (1300, 50), "sdb": (0, 501), "sdc": (9, 9)})
    assert [rates.of(name) for name in ("sda", "sdb", "sdc")] == [(150.0, 0.0), (0.0, 0.5), (UNSET, UNSET)]


def test_hung_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request waits for a hung file system longer than one check may take, however many wait."""
    monkeypatch.setattr(host_facts, "_PATIENCE_S", 0.05)
    system = System()
    with system._asking, pytest.raises(ApiError, match="a file system does not respond"):  # another request comes
        system(1, None)


def test_without_a_scheduler(own: Daemon) -> None:
    """The facts of the host are available without a scheduler."""
    own.scheduler.stop()
    try:
        body = own.get("/api/system").json
    finally:
        own.scheduler.start()
    assert "scheduler" not in {process["name"] for process in body["processes"]}


def test_last_hour(own: Daemon) -> None:
    """By default, the last hour comes as samples of five seconds, oldest first."""
    start = now_ms() // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
    fill(own, start, 24)
    body = own.get("/api/system/metrics").json
    assert body["step"] == 5
    assert [item["t"] for item in body["items"]] == [rfc3339(start + number * FINE_MS) for number in range(24)]
    assert body["items"][3] == {"t": rfc3339(start + 3 * FINE_MS), "cpuPercent": 3.0, "memoryUsedBytes": 7}


def test_span_and_step(own: Daemon) -> None:
    """From and to limit the span, and a step gives means; samples older than a day are by the minute."""
    start = now_ms() // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
    fill(own, start, 30)
    span = f"from={rfc3339(start)}&to={rfc3339(start + MINUTE_MS)}"
    assert len(own.get(f"/api/system/metrics?{span}").json["items"]) == 12
    body = own.get(f"/api/system/metrics?{span}&step=30").json
    assert (body["step"], [item["cpuPercent"] for item in body["items"]]) == (30, [2.5, 8.5])
    body = own.get(f"/api/system/metrics?from={rfc3339(start - 2 * 86_400_000)}&to={rfc3339(now_ms())}").json
    assert body["step"] == 120
    assert [item["cpuPercent"] for item in body["items"]][:1]
    body = own.get("/api/system/metrics?step=60").json
    assert [item["cpuPercent"] for item in body["items"]] == [5.5, 17.5]


@pytest.mark.parametrize(
    ("query", "location"),
    [
        ("from=x", "query.from"),
        ("step=0", "query.step"),
        ("end=1", "query.end"),
    ],
)
def test_invalid_parameters(daemon: Daemon, query: str, location: str) -> None:
    """An invalid parameter gets 422 that names it."""
    answer = daemon.get(f"/api/system/metrics?{query}")
    assert (answer.status, answer.json["errors"][0]["location"]) == (422, location)


@pytest.mark.parametrize("end", ["2026-01-01T00:00:00Z", "2025-01-01T00:00:00Z"])
def test_empty_span(daemon: Daemon, end: str) -> None:
    """An empty span has no samples."""
    assert daemon.get(f"/api/system/metrics?from=2026-01-01T00:00:00Z&to={end}").json["items"] == []


def test_sample_event(own: Daemon) -> None:
    """Event streams that request it get each new sample live, without an id."""
    wanting = own.stream("/api/events/stream?types=system")
    other = own.stream("/api/events/stream?types=run.ended")
    fill(own, now_ms(), 1)
    (event,) = wanting.take(1)
    own.announce("run.ended")
    assert [sample_event.name for sample_event in other.take(1)] == ["run.ended"]
    wanting.close()
    other.close()
    assert (event.name, event.id, event.data["cpuPercent"]) == ("system", None, 0.0)


def test_sample_event_after_a_backward_clock_step(own: Daemon) -> None:
    """Samples after a backward step of the clock are sent too."""
    stream = own.stream("/api/events/stream?types=system")
    fill(own, now_ms() + 86_400_000, 1)
    (before,) = stream.take(1)
    fill(own, now_ms(), 1)
    (after,) = stream.take(1)
    stream.close()
    assert after.data["t"] < before.data["t"]
