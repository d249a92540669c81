"""The summary of runs."""

import random

import pytest

from store.database import Database
from store.runs.filter import RunFilter
from store.runs.phases import FAILURES
from store.runs.summary import summarize
from store.runs.writes import Run, delete_run, insert_run
from tests.store.making import T0, make_run
from tests.store.oracle import matches

HOUR = 3_600_000


@pytest.fixture
def many(writer: Database) -> list[Run]:
    rnd = random.Random(9)
    made = []
    for _ in range(300):
        reason = rnd.choice(["succeeded", "failed", "timeout", "crashed", "start_failed", "missed", "skipped", None])
        run = make_run(
            task_name=rnd.choice("abc"),
            status="ended" if reason else "running",
            end_reason=reason,
            created_at=T0 + rnd.randrange(200 * HOUR),
        )
        made.append(run)
    with writer.transaction():
        for run in made:
            insert_run(writer, run)
    return made


WANTED = (
    RunFilter(),
    RunFilter(task_name="b"),
    RunFilter(created_after=T0 + 77 * HOUR + 5),
    RunFilter(task_name="a", created_after=T0 + 190 * HOUR),
    RunFilter(tasks="[ab]"),
    RunFilter(task_name="nobody"),
    RunFilter(reasons={"succeeded", "timeout"}),
)


def test_summary(writer: Database, many: list[Run]) -> None:
    """The numbers match a count of the runs, and the last failure is the newest one, for any filter."""
    gone = next(run for run in many if run.status == "ended")
    assert delete_run(writer, gone.id, T0)
    remaining_runs = [run for run in many if run is not gone]
    for run_filter in WANTED:
        runs = [
            run
            for run in remaining_runs
            if matches(run, run_filter) and (not run_filter.tasks or run.task_name in "ab")
        ]
        failures = [run for run in runs if run.end_reason in FAILURES]
        assert summarize(writer, run_filter) == (
            len(runs),
            sum(run.end_reason == "succeeded" for run in runs),
            len(failures),
            sum(run.end_reason == "missed" for run in runs),
            max(failures, key=lambda run: (run.created_at, run.id), default=None),
        ), run_filter


def test_summary_without_runs(writer: Database) -> None:
    """Without runs, all numbers are 0 and there is no last failure."""
    assert summarize(writer, RunFilter()) == (0, 0, 0, 0, None)


def test_delete_run(writer: Database, many: list[Run]) -> None:
    """A run can be deleted only after it has ended, and only once."""
    ended = next(run for run in many if run.status == "ended")
    active = next(run for run in many if run.status != "ended")
    assert delete_run(writer, ended.id, T0)
    assert not delete_run(writer, ended.id, T0)
    assert not delete_run(writer, active.id, T0)
    assert not delete_run(writer, "0" * 26, T0)
