"""Resource usage of runs, through the real daemon."""

import signal
from typing import Any

import pytest

from tests.support.daemon import Daemon, program
from tests.support.waiting import until

_MB = 1 << 20


def resources(daemon: Daemon, run_id: str) -> dict[str, Any]:
    answer = daemon.get(f"/api/runs/{run_id}/resources")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json()
    return body


def sampled(daemon: Daemon, run_id: str, count: int) -> dict[str, Any]:
    """Return the resources of a run once it has this many samples."""

    def look() -> dict[str, Any] | None:
        usage = resources(daemon, run_id)
        return usage if len(usage["samples"]) >= count else None

    return until(look, f"{count} samples")


def whole(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the complete samples: not during the start, nor if a process could not be read in time."""
    return [sample for sample in document["samples"] if sample["rssBytes"] > 64 * _MB and sample["processes"] == 4]


def test_all_processes_of_a_run_are_sampled(daemon: Daemon) -> None:
    """All processes of a run are sampled; neither a killed scheduler nor the end of the run loses a sample."""
    daemon.write(f'[tasks.t]\nrun = {program("burns")}\ngraceful_stop = "100ms"\n[tasks.short]\nrun = "true"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    short = daemon.ended(daemon.trigger("short"))["id"]

    until(lambda: whole(resources(daemon, run_id)), "a sample of all of it")
    first = resources(daemon, run_id)
    sample = whole(first)[0]
    assert sample["cpuPercent"] > 0
    assert first["maxRssBytes"] >= sample["rssBytes"]
    assert first["cpuUserMs"] > 0
    (live,) = daemon.get("/api/resources").json()["items"]
    assert (live["runId"], live["taskName"]) == (run_id, "t")
    assert live["samples"][:1] == first["samples"][:1]

    daemon.kill_helper("ringward scheduler")
    again = resources(daemon, run_id)
    assert again["samples"][:1] == first["samples"][:1]
    until(lambda: len(whole(resources(daemon, run_id))) > len(whole(again)), "another sample of all of it")
    second = resources(daemon, run_id)
    assert second["cpuUserMs"] > first["cpuUserMs"]

    daemon.request("POST", f"/api/runs/{run_id}/stop")
    daemon.ended(run_id)
    last = resources(daemon, run_id)
    assert last["samples"][: len(second["samples"])] == second["samples"]
    assert last["cpuUserMs"] >= second["cpuUserMs"]
    assert last["maxRssBytes"] >= second["maxRssBytes"]
    assert daemon.get("/api/resources").json()["items"] == []
    in_all = daemon.get("/api/tasks/t/resources").json()
    assert in_all["runs"] == 1
    assert all(in_all[name] == last[name] for name in ("cpuUserMs", "cpuSystemMs"))
    of_short = resources(daemon, short)
    assert (len(of_short["samples"]) <= 1, of_short["maxRssBytes"] > 0) == (True, True)


@pytest.mark.lent
def test_samples_survive_a_killed_supervisor(daemon: Daemon) -> None:
    """The samples of a run that crashed with the supervisor are kept."""
    daemon.write(f"[tasks.t]\nrun = {program('obeys_term')}\n")
    daemon.start()
    run_id = daemon.trigger("t")
    before = sampled(daemon, run_id, 1)
    daemon.stop(signal.SIGKILL)
    daemon.start()
    assert daemon.ended(run_id)["endReason"] == "crashed"
    usage = resources(daemon, run_id)
    assert usage["samples"][:1] == before["samples"][:1]
    assert usage["maxRssBytes"] >= before["maxRssBytes"] > 0
