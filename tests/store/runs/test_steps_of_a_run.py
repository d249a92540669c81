"""The cost of a page in steps of SQLite's virtual machine: the same number on every machine."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import apsw
import pytest

from store.database import Database, open_reader, open_writer
from store.runs.deleted import list_deleted
from store.runs.filter import RunFilter
from store.runs.ids import new_ulid
from store.runs.phases import END_REASONS
from store.runs.run_pages import Direction, Sort, SortField, list_runs
from store.runs.writes import delete_run, insert_run
from store.tasks import ended_since
from tests.store.making import T0, make_run, restore_run

DAY = 86_400_000
RUNS = 20_000
APART_MS = 400_000
NOW = T0 + RUNS * APART_MS
FIELDS: tuple[SortField, ...] = ("created_at", "start_at", "duration")
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
REASONS = {"succeeded": 880, "failed": 80, "skipped": 20, "timeout": 10, "missed": 6, "start_failed": 3, "crashed": 1}
QUICK = {"job-000", "job-020"}
"""Tasks whose runs are all quicker than the runs of other tasks."""
NEVER_STARTED = {"skipped", "missed", "start_failed"}
TRIGGERS = {"cron": 900, "api": 90, "cloud": 9, "startup": 1}
MIDDLE = T0 + RUNS // 2 * APART_MS
FILTERS: dict[str, list[dict[str, Any]]] = {
    "status": [{"reasons": {reason}} for reason in sorted(END_REASONS)] + [{"phases": {"ended"}}],
    "task": [{"task": f"job-{number:03}"} for number in (0, 20, 99)],
    "trigger": [{"triggers": {trigger}} for trigger in TRIGGERS],
    "from": [{"created_after": T0 + RUNS // 20 * n * APART_MS} for n in (1, 10, 19)],
    "until": [{"created_before": T0 + RUNS // 20 * n * APART_MS} for n in (1, 10, 19)],
}


class Steps:
    """Counts the steps of queries on runs; queries on stored totals do not grow with the runs."""

    def __init__(self, database: Database, *, counts: bool = False) -> None:
        self.taken = 0
        self._counts = counts
        with database.lent() as connection:
            connection._raw.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)  # type: ignore[attr-defined]

    def _note(self, event: dict[str, Any]) -> None:
        if self._counts or not any(table in event["sql"] for table in ("run_counts", "run_ids")):
            self.taken += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database in which some reasons, triggers and tasks are frequent and others rare; some runs never started."""
    path = str(tmp_path_factory.mktemp("steps") / "ringward.db")
    writer = open_writer(path)
    rnd = random.Random(5)
    with writer.transaction():
        for number in range(RUNS):
            created = T0 + number * APART_MS
            (reason,) = rnd.choices([*REASONS], [*REASONS.values()])
            started = None if reason in NEVER_STARTED else created + rnd.randrange(100)
            name = f"job-{int(rnd.random() ** 2 * 100):03}"
            # Runs of the same task take about the same time.
            quick, length = name in QUICK, int(rnd.expovariate(1 / 30_000))
            run = make_run(
                id=new_ulid(created),
                task_name=name,
                status="ended",
                end_reason=reason,
                exit_code=0 if reason == "succeeded" else 1,
                triggered_by=rnd.choices([*TRIGGERS], [*TRIGGERS.values()])[0],
                created_at=created,
                started_at=started,
                ended_at=None if started is None else started + (rnd.randrange(1000) if quick else 1000 + length),
            )
            insert_run(writer, run)
    reader = open_reader(path, limit_s=None)
    yield reader
    reader.close()
    writer.close()


def expected() -> Iterator[dict[str, Any]]:
    """Yield the filters, and pairs of them, with which pages by time and duration must be fast."""
    yield {}
    for values in FILTERS.values():
        yield from values
    for first_filters, other in itertools.combinations(FILTERS.values(), 2):
        for first, second in itertools.product(first_filters, other):
            yield first | second


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("field", FIELDS)
def test_pages_do_not_scan_the_table(history: Database, field: SortField, direction: Direction) -> None:
    """A page reads few of the runs, however rare the selected ones are, and at either end of the list.

    A scan of all runs would take at least 3 steps for each, and a sort many more.
    """
    steps = Steps(history)
    dearest: tuple[int, dict[str, Any], int] = (0, {}, 0)
    for filters in expected():
        _, total = list_runs(history, RunFilter(**filters), Sort(field, direction), 0, now_ms=NOW)
        for offset in {0, max(0, total - 50)}:
            steps.taken = 0
            list_runs(history, RunFilter(**filters), Sort(field, direction), 50, offset, now_ms=NOW)
            dearest = max(dearest, (steps.taken, filters, offset), key=lambda measured: measured[0])
    assert dearest[0] < 2 * RUNS, dearest


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("field", ["status", "exit_code", "task_name"])
def test_deep_pages_of_groups(history: Database, field: SortField, direction: Direction) -> None:
    """A page of a sort with few distinct values reads few of the runs of a value, wherever it begins."""
    steps = Steps(history)
    for filters in ({}, {"triggers": {"cron"}}, {"created_after": MIDDLE}):
        _, total = list_runs(history, RunFilter(**filters), Sort(field, direction), 0, now_ms=NOW)
        for offset in (0, total // 3, total // 2, total - 60):
            steps.taken = 0
            list_runs(history, RunFilter(**filters), Sort(field, direction), 50, offset, now_ms=NOW)
            assert steps.taken < RUNS // 2, (filters, offset)


def test_runs_ended_since(history: Database) -> None:
    """A restarted scheduler reads the runs since the start of the daemon, not all runs."""
    steps = Steps(history)
    page_runs = ended_since(history, NOW - 100 * APART_MS)
    assert 20 < len(page_runs) <= 100
    assert steps.taken < RUNS


def test_deleting_one_run(tmp_path: Path) -> None:
    """A run is deleted and restored without reading the counts of all other runs."""
    writer = open_writer(str(tmp_path / "ringward.db"))
    made = [make_run(created_at=T0 + n * DAY, status="ended", end_reason="failed") for n in range(2000)]
    with writer.transaction():
        for run in made:
            insert_run(writer, run)
    steps = Steps(writer, counts=True)
    assert delete_run(writer, made[500].id, NOW)
    restore_run(writer, made[500].id)
    writer.close()
    assert 0 < steps.taken < len(made)


def test_listing_deleted_runs(tmp_path: Path) -> None:
    """Deleted runs outside the page are only counted, because nearly all runs can be deleted."""
    writer = open_writer(str(tmp_path / "ringward.db"))
    with writer.transaction():
        for number in range(2000):
            run = make_run(id=new_ulid(T0 + number), status="ended", end_reason="failed")
            insert_run(writer, run)
            assert delete_run(writer, run.id, NOW)
    for run_filter, most in ((RunFilter(), 5), (RunFilter(exit_code_max=0), 10)):
        steps = Steps(writer)
        page_runs, total = list_deleted(writer, run_filter, 50, 0)
        assert (len(page_runs), total) == (50, 2000)
        assert 0 < steps.taken < most * total
    writer.close()
