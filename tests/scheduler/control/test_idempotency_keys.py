"""Triggers with an idempotency key."""

from collections.abc import Callable
from typing import Any

from store.errors import StoreError
from store.runs.filter import RunFilter
from store.runs.ids import new_ulid
from store.runs.run_pages import count_runs
from supervisor.scheduler.control.run_operations import RunOperations
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of

JOB = "[tasks.job]\nrun = 'true'\nmax_concurrent = 100\n"
Make = Callable[[str], Bench]


class TriggerRequests:
    """Trigger requests of API workers and their answers."""

    def __init__(self, harness: Bench) -> None:
        self._one = harness
        self._commands = RunOperations(harness.core, harness.engine, harness.units, {})
        self.answers: list[dict[str, Any]] = []

    def trigger(self, key: str | None, request: str = "request") -> str:
        run_id = new_ulid()
        arguments = {"run": run_id, "task": "job", "triggered_by": "api", "by": "me"}
        if key is not None:
            arguments |= {"key": key, "request": request}
        operations_of(self._commands)["trigger"](arguments, self.answers.append)
        return run_id

    def runs(self) -> list[str | None]:
        """Return the runs named in the answers; None means the request's own run."""
        self._one.store.work_all()
        assert all(answer["ok"] for answer in self.answers)
        return [answer["result"].get("run") for answer in self.answers]


def test_repeated_key(bench: Make) -> None:
    """A repeated key gives the same run, even after a scheduler restart; without a key each run is new."""
    harness = bench(JOB)
    first = TriggerRequests(harness)
    run_id = first.trigger("k")
    first.trigger(None)
    assert first.runs() == [None, None]
    second = TriggerRequests(harness)
    second.trigger("k")
    second.trigger("l")
    assert second.runs() == [run_id, None]
    assert count_runs(harness.store.database, RunFilter()) == 3


def test_task_removed_during_the_lookup(bench: Make) -> None:
    """A task that a reload removes while a key is looked up does not run."""
    harness = bench(JOB)
    asking = TriggerRequests(harness)
    asking.trigger("k")
    harness.units.pop("job").configured = False
    harness.store.work_all()
    assert [answer["status"] for answer in asking.answers] == [404]
    assert count_runs(harness.store.database, RunFilter()) == 0


def test_concurrent_requests_with_one_key(bench: Make) -> None:
    """The first of several concurrent requests creates the run, and the others wait and get the same run."""
    harness = bench(JOB)
    asking = TriggerRequests(harness)
    run_id = asking.trigger("k")
    for _ in range(3):
        asking.trigger("k")
    assert asking.runs() == [None, run_id, run_id, run_id]
    assert count_runs(harness.store.database, RunFilter()) == 1


def test_key_of_another_request(bench: Make) -> None:
    """Another request with the same key gets 422 with the header's name, and no run."""
    harness = bench(JOB)
    asking = TriggerRequests(harness)
    asking.trigger("k")
    harness.store.work_all()
    asking.trigger("k", "another request")
    harness.store.work_all()
    answer = asking.answers[-1]
    assert (answer["ok"], answer["status"]) == (False, 422)
    assert answer["errors"][0]["location"] == "header.Idempotency-Key"
    assert count_runs(harness.store.database, RunFilter()) == 1


def test_failed_run_frees_the_key(bench: Make) -> None:
    """If the run cannot be stored, the request gets 503, and the next request with the key creates the run."""
    harness = bench(JOB)
    asking = TriggerRequests(harness)
    asking.trigger("k")
    harness.store.work()
    harness.store.fail(StoreError("full"))
    assert (asking.answers[-1]["ok"], asking.answers[-1]["status"]) == (False, 503)
    asking.answers.clear()
    asking.trigger("k")
    assert asking.runs() == [None]


def test_failed_lookup(bench: Make) -> None:
    """If a key cannot be looked up, all waiting requests get 503 and no run is created."""
    harness = bench(JOB)
    asking = TriggerRequests(harness)
    asking.trigger("k")
    asking.trigger("k")
    harness.store.fail(StoreError("locked"))
    harness.store.fail(StoreError("locked"))
    assert [answer["status"] for answer in asking.answers] == [503, 503]
    assert count_runs(harness.store.database, RunFilter()) == 0
