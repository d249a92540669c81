"""Lists with many deleted runs: a deleted run counts nowhere, wherever it is in a list."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.database import Database, open_reader, open_writer
from store.runs.bulk import RunSelection, find_deleted, find_ended, find_expired, mark_deleted, purge, unmark_deleted
from store.runs.filter import RunFilter
from store.runs.phases import FAILURES
from store.runs.run_pages import Direction, Sort, SortField, count_runs, list_runs
from store.runs.summary import summarize
from store.runs.writes import Run, get_run, insert_run
from tests.store.databases import database
from tests.store.making import T0, counted, stored_counts
from tests.store.oracle import arranged, listed, matches
from tests.store.runs.test_run_pages import NOW, random_filter, random_run
from tests.support.paths import ROOT

FIELDS: tuple[SortField, ...] = get_args(SortField)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
RUNS = 500

# Whether a run is deleted, given its place in the order of creation and the run itself.
Deletion = Callable[[int, Run], bool]
DELETIONS: dict[str, Deletion] = {
    "oldest": lambda place, _: place < RUNS // 2,
    "newest": lambda place, _: place > RUNS // 3,
    "middle": lambda place, _: RUNS // 4 < place < RUNS - 20,
    "every other": lambda place, _: place % 2 == 0,
    "all but some": lambda place, _: place % 71 != 0,
    "all": lambda _place, _run: True,
    "one task": lambda _, run: run.task_name == "a",
    "one reason": lambda _, run: run.end_reason == "failed",
    "none": lambda _place, _run: False,
}


def made_runs() -> list[Run]:
    """Return runs in the order of creation; none is deleted yet, and some have not ended."""
    rnd = random.Random(11)
    made = (random_run(rnd)._replace(deleted_at=None) for _ in range(RUNS))
    return sorted(made, key=lambda run: run.created_at)


def delete(writer: Database, ids: list[str]) -> int:
    slices = find_ended(writer, RunSelection(ids=ids))
    return sum(mark_deleted(writer, rows, T0) for rows in slices)


class Remaining(NamedTuple):
    """The visible runs after a deletion of one kind."""

    kind: str
    runs: list[Run]
    visible: list[Run]
    reader: Database
    filters: int
    """The number of filters to try."""


# Both databases share everything but the SQL, so fewer cases suffice for PostgreSQL.
CASES = [
    *(("sqlite", kind, 6) for kind in DELETIONS),
    *(("postgresql", kind, 2) for kind in ("oldest", "every other", "one task", "all")),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda param: f"{param[0]}-{param[1]}")
def remaining(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remaining]:
    backend, kind, filters = request.param
    runs = made_runs()
    with database(request, backend, tmp_path_factory.mktemp("deleted")) as where, closing(open_writer(where)) as writer:
        with writer.transaction():
            for run in runs:
                insert_run(writer, run)
        chosen = DELETIONS[kind]
        gone = {run.id for place, run in enumerate(runs) if chosen(place, run) and run.status == "ended"}
        assert delete(writer, [*gone]) == len(gone)
        visible = [run for run in runs if run.id not in gone]
        with closing(open_reader(where, limit_s=None)) as reader:
            yield Remaining(kind, runs, visible, reader, filters)


@pytest.mark.parametrize("deep", [0, 5000])
def test_lists_with_deleted_runs(remaining: Remaining, monkeypatch: pytest.MonkeyPatch, deep: int) -> None:
    """Filtered and sorted pages at the beginning, middle and end of a list match a plain Python model."""
    monkeypatch.setattr("store.runs.run_pages._DEEP", deep)
    rnd = random.Random(f"{remaining.kind} {deep}")
    for _ in range(remaining.filters):
        run_filter = random_filter(rnd, remaining.runs)
        runs = [run for run in remaining.visible if matches(run, run_filter)]
        for field in FIELDS:
            direction = rnd.choice(DIRECTIONS)
            whole = arranged(runs, field, direction, NOW)
            limit = rnd.choice([1, 20, 1000])
            for offset in rnd.sample((0, rnd.randrange(len(whole) + 1), max(0, len(whole) - 5)), 2):
                page = list_runs(remaining.reader, run_filter, Sort(field, direction), limit, offset, now_ms=NOW)
                place = f"{run_filter} {field} {direction} {limit} {offset}"
                assert page == (whole[offset : offset + limit], len(whole)), place


@pytest.mark.parametrize("field", FIELDS)
def test_paging_over_deleted_runs(remaining: Remaining, field: SortField) -> None:
    """Consecutive pages have each visible run once, in order, whatever is deleted between them."""
    for direction in DIRECTIONS:
        seen: list[Run] = []
        for offset in range(0, RUNS, 83):
            seen += list_runs(remaining.reader, RunFilter(), Sort(field, direction), 83, offset, now_ms=NOW)[0]
        assert seen == arranged(remaining.visible, field, direction, NOW)


def test_totals_and_summary(remaining: Remaining) -> None:
    """Totals and the summary count only visible runs, and the last failure is a visible one."""
    rnd = random.Random(remaining.kind)
    for run_filter in (RunFilter(), *(random_filter(rnd, remaining.runs) for _ in range(3 * remaining.filters))):
        runs = [run for run in remaining.visible if matches(run, run_filter)]
        failures = [run for run in runs if run.end_reason in FAILURES]
        assert count_runs(remaining.reader, run_filter) == len(runs)
        assert summarize(remaining.reader, run_filter) == (
            len(runs),
            sum(run.end_reason == "succeeded" for run in runs),
            len(failures),
            sum(run.end_reason == "missed" for run in runs),
            max(failures, key=lambda run: (run.created_at, run.id), default=None),
        )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 2**32)),
        st.tuples(st.sampled_from(["delete", "restore"]), st.sampled_from(["a", "A", "backup", "job.7", None])),
        st.tuples(st.just("purge"), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_sequence_of_changes(writer: Database, steps: list[tuple[str, int | str | None]]) -> None:
    """After any deletions, restores and purges, lists and sums match the visible runs."""
    writer.execute("DELETE FROM runs")
    visible: dict[str, Run] = {}
    hidden: dict[str, Run] = {}
    for action, value in steps:
        if action == "insert":
            run = random_run(random.Random(value))._replace(deleted_at=None)
            insert_run(writer, run)
            visible[run.id] = run
            continue
        selector = RunSelection(match_all=True, filter=RunFilter(task_name=None if value is None else str(value)))
        if action == "delete":
            moved = [run for run in visible.values() if matches(run, selector.filter) and run.status == "ended"]
            assert sum(mark_deleted(writer, rows, T0) for rows in find_ended(writer, selector)) == len(moved)
            hidden |= {run.id: visible.pop(run.id) for run in moved}
        elif action == "restore":
            moved = [run for run in hidden.values() if matches(run, selector.filter)]
            slices = find_deleted(writer, selector, T0 - 1)
            assert sum(unmark_deleted(writer, rows, T0 - 1) for rows in slices) == len(moved)
            visible |= {run.id: hidden.pop(run.id) for run in moved}
        else:
            assert sum(purge(writer, rows) for rows in find_expired(writer, T0)) == len(hidden)
            hidden.clear()
    assert listed_all(writer) == listed([*visible.values()], RunFilter(), "created_at", "desc", NOW)
    assert all(
        get_run(writer, run_id, include_deleted=True) == run._replace(deleted_at=T0) for run_id, run in hidden.items()
    )
    assert stored_counts(writer) == counted(writer)


def listed_all(db: Database) -> list[Run]:
    return list_runs(db, RunFilter(), limit=10_000, now_ms=NOW)[0]


DELETER = """
import os, sys
from store.runs import bulk
from store.database import open_writer
from tests.store.making import T0, make_run
from store.runs.writes import insert_run

db = open_writer(sys.argv[1])
with db.transaction():
    for n in range(120):
        at = T0 + n * 5 * 10**6
        insert_run(db, make_run(created_at=at, task_name=f"t{n % 7}", status="ended", end_reason="failed"))
bulk.SLICE_ROWS = 10
everything = bulk.RunSelection(match_all=True)
while True:
    for rows in bulk.find_ended(db, everything):
        os.write(1, b"-%d\\n" % bulk.mark_deleted(db, rows, T0))
    for rows in bulk.find_deleted(db, everything, 0):
        os.write(1, b"+%d\\n" % bulk.unmark_deleted(db, rows, 0))
"""


@pytest.mark.parametrize("lines", [1, 7, 12, 18])
def test_killed_between_slices(path: str, lines: int) -> None:
    """After a kill -9, whole slices are deleted or restored, including all acknowledged ones; sums are exact."""
    acknowledged: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-c", DELETER, path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                acknowledged.append(int(line))
            if len(acknowledged) == lines:
                process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    writer = open_writer(path)
    ((gone,),) = writer.rows("SELECT count(*) FROM deleted_runs")
    # One more slice may be stored than was acknowledged.
    assert min(abs(gone + sum(acknowledged) - more) for more in (-10, 0, 10)) == 0
    assert stored_counts(writer) == counted(writer)
    reader = open_reader(path, limit_s=None)
    assert count_runs(reader, RunFilter()) == len(listed_all(reader)) == 120 - gone
    reader.close()
    writer.close()
