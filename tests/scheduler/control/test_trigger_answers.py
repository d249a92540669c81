"""Answers to API workers that trigger a run."""

from collections.abc import Callable
from typing import Any

from store.runs.ids import new_ulid
from store.runs.writes import Run, get_run
from supervisor.ipc.messages import Decoder, encode
from supervisor.scheduler.control.run_operations import RunOperations
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of

Make = Callable[[str], Bench]


def trigger(harness: Bench, commands: RunOperations, run_id: str) -> dict[str, Any]:
    """Trigger a run and return the decoded result of the answer."""
    answers: list[dict[str, Any]] = []
    operations_of(commands)["trigger"](
        {"run": run_id, "task": "job", "triggered_by": "api", "by": "me"}, answers.append
    )
    harness.store.work_all()
    (answer,) = answers
    assert answer["ok"]
    (frame,) = Decoder().feed(encode(answer))
    result: dict[str, Any] = frame["result"]
    return result


def test_answer_has_the_row(bench: Make) -> None:
    """For starting and waiting runs the answer has the row exactly as stored, so no worker reads it again.

    The hash of the definition is left out, because an API server of an earlier release would reject the row.
    """
    harness = bench("[tasks.job]\nrun = 'true'\non_overlap = 'queue'\n")
    commands = RunOperations(harness.core, harness.engine, harness.units, {})
    for run_id in (new_ulid(), new_ulid()):
        answered = Run(**trigger(harness, commands, run_id)["row"])
        stored = get_run(harness.store.database, run_id)
        assert stored is not None
        assert stored.definition_hash is not None
        assert answered == stored._replace(definition_hash=None)


def test_answer_without_a_row(bench: Make) -> None:
    """The answer has no row for a refused run and for a repeated request."""
    harness = bench("[tasks.job]\nrun = 'true'\non_overlap = 'skip'\n")
    commands = RunOperations(harness.core, harness.engine, harness.units, {})
    first, second = new_ulid(), new_ulid()
    assert "row" in trigger(harness, commands, first)
    assert "row" not in trigger(harness, commands, first)
    assert "row" not in trigger(harness, commands, second)
    stored = get_run(harness.store.database, second)
    assert stored is not None
    assert stored.end_reason == "skipped"
