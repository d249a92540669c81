"""Triggers that carry a key."""

from collections.abc import Callable
from typing import Any

from store.errors import StoreError
from store.runs.ids import new_ulid
from store.runs.writes import RunFilter, count_runs
from supervisor.scheduler.control.operation import operations_of
from supervisor.scheduler.control.run_operations import RunOperations
from tests.scheduler.bench import Bench

JOB = "[tasks.job]\nrun = 'true'\nmax_concurrent = 100\n"
Make = Callable[[str], Bench]


class Asking:
    """Requests of API workers, and their answers."""

    def __init__(self, one: Bench) -> None:
        self._one = one
        self._commands = RunOperations(one.engine, one.units, {})
        self.answers: list[dict[str, Any]] = []

    def trigger(self, key: str | None, request: str = "request") -> str:
        run_id = new_ulid()
        arguments = {"run": run_id, "task": "job", "triggered_by": "api", "by": "me"}
        if key is not None:
            arguments |= {"key": key, "request": request}
        operations_of(self._commands)["trigger"](arguments, self.answers.append)
        return run_id

    def runs(self) -> list[str | None]:
        """The runs that the answers name; None: the asker's own."""
        self._one.store.work_all()
        assert all(answer["ok"] for answer in self.answers)
        return [answer["result"].get("run") for answer in self.answers]


def test_the_same_key_gives_the_same_run(bench: Make) -> None:
    """Also over a restart of the scheduler, since keys are stored with their runs; without a key each is new."""
    one = bench(JOB)
    first = Asking(one)
    run_id = first.trigger("k")
    first.trigger(None)
    assert first.runs() == [None, None]
    second = Asking(one)
    second.trigger("k")
    second.trigger("l")
    assert second.runs() == [run_id, None]
    assert count_runs(one.store.database, RunFilter()) == 3


def test_a_task_that_is_removed_meanwhile(bench: Make) -> None:
    """While the key of a trigger is looked up a reload removes the task: it does not run."""
    one = bench(JOB)
    asking = Asking(one)
    asking.trigger("k")
    one.units.pop("job").configured = False
    one.store.work_all()
    assert [answer["status"] for answer in asking.answers] == [404]
    assert count_runs(one.store.database, RunFilter()) == 0


def test_the_same_key_at_once(bench: Make) -> None:
    """Of requests that come together one makes the run; the others wait, and get it too."""
    one = bench(JOB)
    asking = Asking(one)
    run_id = asking.trigger("k")
    for _ in range(3):
        asking.trigger("k")
    assert asking.runs() == [None, run_id, run_id, run_id]
    assert count_runs(one.store.database, RunFilter()) == 1


def test_another_request_with_the_same_key(bench: Make) -> None:
    """422 that names the header, and no run."""
    one = bench(JOB)
    asking = Asking(one)
    asking.trigger("k")
    one.store.work_all()
    asking.trigger("k", "another request")
    one.store.work_all()
    answer = asking.answers[-1]
    assert (answer["ok"], answer["status"]) == (False, 422)
    assert answer["errors"][0]["location"] == "header.Idempotency-Key"
    assert count_runs(one.store.database, RunFilter()) == 1


def test_a_run_that_could_not_be_stored(bench: Make) -> None:
    """503, and the key is free: the next request with it makes the run."""
    one = bench(JOB)
    asking = Asking(one)
    asking.trigger("k")
    one.store.work()
    one.store.fail(StoreError("full"))
    assert (asking.answers[-1]["ok"], asking.answers[-1]["status"]) == (False, 503)
    asking.answers.clear()
    asking.trigger("k")
    assert asking.runs() == [None]


def test_a_key_that_cannot_be_looked_up(bench: Make) -> None:
    """503 for everybody who waits, one after another; nothing is made."""
    one = bench(JOB)
    asking = Asking(one)
    asking.trigger("k")
    asking.trigger("k")
    one.store.fail(StoreError("locked"))
    one.store.fail(StoreError("locked"))
    assert [answer["status"] for answer in asking.answers] == [503, 503]
    assert count_runs(one.store.database, RunFilter()) == 0
