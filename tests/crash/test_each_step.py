"""The scheduler is killed at each labelled step: nothing is lost, runs twice, or counts as crashed."""

import contextlib
import http.client
import random
from collections.abc import Iterable
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import pytest

from tests.crash import steps
from tests.crash.daemon import StepsDaemon, at_some_time
from tests.crash.harness import all_runs, numbered, numbered_quickly, numbered_then_silent
from tests.support.client import UnixConnection
from tests.support.daemon import Daemon
from tests.support.waiting import until

PLACES = 2


def configuration(sides: Path) -> str:
    return f"""
[slots.db]
size = {PLACES}
[tasks.quick]
{numbered_quickly(20, sides)}
max_concurrent = 2
uses = ["db"]
[tasks.whole]
{numbered_quickly(5, sides)}
uses = {{ db = {PLACES} }}
[tasks.failing]
{numbered_quickly(5, sides, "; exit 3")}
uses = ["db"]
retry_attempts = 1
retry_delay = "20ms"
[tasks.stopped]
{numbered_then_silent(sides)}
[tasks.superseded]
{numbered_then_silent(sides)}
on_overlap = "terminate"
[services.flaky]
{numbered_quickly(10, sides, "; exit 1")}
restart_delay = "1s"
restart_attempts = 10000
[services.steady]
{numbered(1_000_000, 0.01, sides)}
"""


def begin_load(daemon: Daemon) -> set[str]:
    """Trigger runs; return the accepted ones."""

    def trigger(task: str) -> str | None:
        with contextlib.suppress(OSError):
            answer = daemon.request("POST", f"/api/tasks/{task}/run")
            if answer.status == 201:
                run_id: str = answer.json()["id"]
                return run_id
        return None

    tasks = ("quick", "quick", "whole", "quick", "failing", "superseded", "superseded", "stopped", "stopped")
    return {until(lambda task=task: trigger(task), f"{task} to be taken") for task in tasks}  # type: ignore[misc]


def finish_load(daemon: Daemon) -> None:
    """Wait for runs that end by themselves, and stop the others."""
    for task in ("quick", "whole", "failing"):
        until(lambda task=task: all(run["status"] == "ended" for run in daemon.runs(task)), f"{task} to end")  # type: ignore[misc]
    for task in ("stopped", "superseded"):
        for run in daemon.runs(task):
            if run["status"] != "ended":
                until(lambda run=run: stopped(daemon, run["id"]), "a stop to be taken")  # type: ignore[misc]
                daemon.ended(run["id"])


def stopped(daemon: Daemon, run_id: str) -> bool:
    """Stop a run.

    A 409 means that it has ended, and that the response to an earlier stop was lost with the scheduler.
    """
    return daemon.request("POST", f"/api/runs/{run_id}/stop").status in (204, 409)


def most_places(runs: Iterable[dict[str, Any]]) -> int:
    """Return how many places of the slot were taken at once, according to the times of the runs.

    At the same millisecond, ends precede starts, so a run that started and ended in one counts by itself.
    """
    places = {"quick": 1, "failing": 1, "whole": PLACES}
    taken = [(places[run["taskName"]], run) for run in runs if run["taskName"] in places and "startedAt" in run]
    changes = [change for number, run in taken for change in ((run["startedAt"], number), (run["endedAt"], -number))]
    return max(*(number for number, _ in taken), *accumulate(number for _, number in sorted(changes)))


def all_is_well(daemon: StepsDaemon, accepted: set[str]) -> None:
    """Check that every accepted trigger ran once, within its slot, and that every line and every ending is stored."""
    assert daemon.verdict(accepted).differences == []
    assert most_places(all_runs(daemon).values()) == PLACES
    endings = {run["taskName"]: set[tuple[str, int]]() for run in all_runs(daemon).values()}
    for run in all_runs(daemon).values():
        if run["status"] == "ended" and run["exitCode"] >= 0:
            endings[run["taskName"]].add((run["endReason"], run["exitCode"]))
    assert endings["quick"] == endings["whole"] == {("succeeded", 0)}
    assert endings["failing"] == {("failed", 3)}
    assert endings["stopped"] | endings["superseded"] == {("stopped", 143)}


@at_some_time
def test_scheduler_dies_at_each_step(times: tuple[int, ...], daemon: StepsDaemon) -> None:
    """When a scheduler dies at any step, each trigger runs once, within its slot, and every line and end is kept."""
    daemon.write(configuration(daemon.sides))
    accepted = set()
    daemon.start()
    for label in steps.WORKING:
        daemon.plan(label, number=random.choice(times))
        accepted |= begin_load(daemon)
        finish_load(daemon)
        daemon.recovered()
    assert daemon.stop() == 0
    all_is_well(daemon, accepted)


@pytest.mark.parametrize("label", ["after spawn", "before started"])
def test_run_without_a_scheduler(label: str, daemon: StepsDaemon) -> None:
    """The start and the end of a run that no scheduler saw are both announced, in order."""
    daemon.write('[tasks.t]\nrun = "true"\n')
    daemon.start()
    daemon.plan(label)
    run_id = daemon.trigger("t")
    daemon.recovered()
    daemon.ended(run_id)
    stream = daemon.stream("/api/events/stream?types=run.created,run.started,run.ended", "-1")
    events = list(islice(stream, 3))
    stream.close()
    assert [(event.data["runId"], event.kind) for event in events] == [
        (run_id, kind) for kind in ("run.created", "run.started", "run.ended")
    ]
    assert events[1].data["startedAt"] == daemon.get(f"/api/runs/{run_id}").json()["startedAt"]


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_schedulers_die_during_the_start(first: bool, daemon: StepsDaemon) -> None:
    """When schedulers die one after another at the start of the daemon, or under load, everything continues."""
    daemon.write(configuration(daemon.sides))
    if first:
        daemon.plan(*steps.STARTING)
    daemon.start()
    accepted = begin_load(daemon)
    if not first:
        daemon.plan(*steps.STARTING)
        daemon.helper("ringward scheduler").kill()
    finish_load(daemon)
    daemon.recovered()
    assert daemon.stop() == 0
    all_is_well(daemon, accepted)


RECORDING = ("before storing", "stored", "before announcing", "announced", "before answering", "answered")
"""Steps between a trigger and its answer."""


@pytest.mark.parametrize("step", RECORDING)
def test_a_stored_effect_has_its_audit_entry(daemon: StepsDaemon, step: str) -> None:
    """If both die during a trigger, the audit names exactly the runs that are stored, each once."""
    daemon.write('[tasks.job]\nrun = "true"\n')
    daemon.start()
    first = daemon.trigger("job")
    daemon.ended(first)
    with contextlib.closing(UnixConnection(daemon.socket)) as connection:
        workers = daemon.helper("ringward gunicorn").children()
        daemon.plan(step)
        connection.request("POST", "/api/tasks/job/run")
        until(lambda: not (daemon.directory / "plan").exists(), "the death of the scheduler")
        for worker in workers:
            worker.kill()
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.getresponse()
    daemon.recovered()
    stored = {f"run {run['id']}" for run in daemon.runs("job")}
    until(lambda: not list((daemon.runtime_dir() / "audit").iterdir()), "the entries of the dead worker")
    items = daemon.get("/api/audit?limit=500").json()["items"]
    assert sorted(item["result"] for item in items if item["operation"] == "runTask") == sorted(stored)
