"""Resource use of runs in the API."""

from typing import Any

from api.schemas.wire_times import rfc3339
from store.runs import samples as run_samples
from store.runs.samples import STEP_MS, Reading
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

T0 = 1_780_000_000_000


def readings(count: int, first: int = 1) -> list[Reading]:
    """Half a core in user mode, some memory; the process in pass 2 has a child."""
    return [
        Reading(T0 + number * STEP_MS, number * 2500, number * 100, number * 1000, 1 + (number == 2), 7 * number, None)
        for number in range(first, first + count)
    ]


def settle(daemon: Daemon, run_id: str, new_readings: list[Reading]) -> None:
    with daemon.lock, daemon.db.transaction():
        run_samples.store_readings(daemon.db, 0, {run_id: new_readings})


def resources(daemon: Daemon, run_id: str) -> dict[str, Any]:
    answer = daemon.get(f"/api/runs/{run_id}/resources")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    assert body.pop("$schema").endswith("/schemas/Resources.json")
    return body


def test_ended_run(daemon: Daemon) -> None:
    """Totals are the kernel's, or the samples' where those are greater; samples have percentages of a core."""
    run = daemon.insert(make_run(task="took"))
    settle(daemon, run.id, readings(3))
    sums: dict[str, Any] = {
        "user_us": 9_000_999,
        "system_us": 1000,
        "max_rss_bytes": 2000,
        "read_bytes": 3,
        "write_bytes": 4,
    }
    daemon.end(run.id, started_at=T0, **sums)
    assert resources(daemon, run.id) == {
        "cpuUserMs": 9000,
        "cpuSystemMs": 300,
        "maxRssBytes": 3000,
        "readBytes": 21,
        "writeBytes": 4,
        "samples": [
            {"t": rfc3339(T0 + number * STEP_MS), "cpuPercent": 52.0, "rssBytes": number * 1000, "processes": processes}
            for number, processes in ((1, 1), (2, 2), (3, 1))
        ],
    }


def test_short_run(daemon: Daemon) -> None:
    """A run that was never sampled has totals only."""
    run = daemon.insert(make_run(task="took"))
    daemon.end(run.id, user_us=4000, system_us=0, max_rss_bytes=12288)
    assert resources(daemon, run.id) == {"cpuUserMs": 4, "cpuSystemMs": 0, "maxRssBytes": 12288, "samples": []}


def test_run_without_a_process(daemon: Daemon) -> None:
    """A run that waits, was skipped or could not be started has no usage."""
    waiting = daemon.insert(make_run(task="took"))
    skipped = daemon.insert(make_run(task="took", status="ended", end_reason="skipped", ended_at=T0))
    broken = daemon.insert(make_run(task="took", status="ended", end_reason="start_failed", ended_at=T0, user_us=0))
    for run in (waiting, skipped, broken):
        assert resources(daemon, run.id) == {"samples": []}


def test_running_run(daemon: Daemon) -> None:
    """Samples appear as they are taken; before the first one, nothing is known."""
    run = daemon.insert(make_run(task="took", status="running", started_at=T0))
    assert resources(daemon, run.id) == {"samples": []}
    settle(daemon, run.id, readings(2))
    with daemon.lock:
        for number, pass_readings in enumerate(readings(2, first=3), 1):
            run_samples.add_pass(daemon.db, number, {run.id: pass_readings, "0" * 26: pass_readings})
    usage = resources(daemon, run.id)
    assert [usage[name] for name in ("cpuUserMs", "cpuSystemMs", "maxRssBytes", "readBytes")] == [10000, 400, 4000, 28]
    assert [sample["rssBytes"] for sample in usage["samples"]] == [1000, 2000, 3000, 4000]
    daemon.end(run.id)


def test_backward_clock_step(daemon: Daemon) -> None:
    """A sample that is not later than the previous one has no percentage."""
    run = daemon.insert(make_run(task="took", status="running", started_at=T0))
    settle(daemon, run.id, [*readings(2), *readings(1)])
    daemon.end(run.id, started_at=T0)
    assert ["cpuPercent" in sample for sample in resources(daemon, run.id)["samples"]] == [True, True, False]


def test_all_running_runs(own: Daemon) -> None:
    """Each running run is listed once, oldest first, with the requested number of newest samples."""
    ids = []
    for index in range(2):
        run = make_run(task="web", kind="service", status="running", started_at=T0, instance_index=index)
        ids.append(own.insert(run._replace(created_at=T0 + index)).id)
    own.insert(make_run(task="web"))
    own.end(own.insert(make_run(task="web")).id)
    settle(own, ids[0], readings(3))
    items = own.get("/api/resources").json["items"]
    assert [(item["runId"], item["taskName"], item["instanceIndex"]) for item in items] == [
        (ids[0], "web", 0),
        (ids[1], "web", 1),
    ]
    assert (items[0]["cpuUserMs"], len(items[0]["samples"])) == (7500, 3)
    assert (items[1].keys() & {"cpuUserMs", "maxRssBytes"}, items[1]["samples"]) == (set(), [])
    for most, expected in ((2, [2000, 3000]), (0, []), (9, [1000, 2000, 3000])):
        (newest, _other) = own.get(f"/api/resources?samples={most}").json["items"]
        assert [sample["rssBytes"] for sample in newest["samples"]] == expected
        assert all(sample["cpuPercent"] == 52.0 for sample in newest["samples"])
    assert own.get("/api/resources?samples=-1").status == 422
