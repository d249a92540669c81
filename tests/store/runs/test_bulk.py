"""Operations on many runs at once."""

import json
import random
from dataclasses import replace

import apsw
import pytest

from store.database import Database
from store.runs import bulk as run_bulk
from store.runs.bulk import PurgedRun, Retention, RunSelection
from store.runs.deleted import list_deleted
from store.runs.filter import RunFilter
from store.runs.run_pages import Sort, count_runs, list_runs
from store.runs.writes import Run, get_run, insert_run, update_run
from tests.store.databases import on_sqlite
from tests.store.making import T0, counted, make_run, restore_run, stored_counts
from tests.store.oracle import matches

DAY = 86_400_000
MINUTE = 60_000
FILTERS = (
    RunFilter(),
    RunFilter(task_name="b"),
    RunFilter(reasons={"failed", "crashed"}),
    RunFilter(phases={"running"}, reasons={"failed"}),
    RunFilter(triggers={"api"}),
    RunFilter(created_after=T0 + 3 * DAY, created_before=T0 + 5 * DAY),
    RunFilter(exit_code_min=1, exit_code_max=3),
    RunFilter(retries_only=True),
    RunFilter(search="B"),
    RunFilter(search="7"),
    RunFilter(tasks="a*"),
    RunFilter(tasks="a*", task_name="b"),
    RunFilter(task_name="b", reasons={"failed"}, triggers={"cron"}, created_after=T0 + DAY),
)


@pytest.fixture
def many(writer: Database, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Runs of several tasks in every state, with slices so small that there are many."""
    monkeypatch.setattr(run_bulk, "SLICE_ROWS", 7)
    monkeypatch.setattr(run_bulk, "PURGE_ROWS", 7)
    rnd = random.Random(5)
    made = []
    for _ in range(200):
        end = rnd.choice(["succeeded", "failed", "crashed", "skipped", "missed", None])
        created = T0 + rnd.randrange(10 * DAY)
        run = make_run(
            task_name=rnd.choice(["a", "aa", "b", "c"]),
            status=rnd.choice(["pending", "running"]) if end is None else "ended",
            end_reason=end,
            exit_code=rnd.randrange(-2, 5) if end else -1,
            created_at=created,
            ended_at=created + rnd.randrange(3 * DAY) if end else None,
            retry_attempt=rnd.choice([0, 0, 1]),
            triggered_by=rnd.choice(["cron", "api"]),
        )
        made.append(run)
    with writer.transaction():
        for run in made:
            insert_run(writer, run)
    return made


def seen(run: Run, run_filter: RunFilter) -> bool:
    return matches(run, run_filter) and (
        run_filter.tasks is None or run.task_name.startswith(run_filter.tasks.rstrip("*"))
    )


def visible(db: Database) -> set[str]:
    return {run.id for run in list_runs(db, RunFilter(), limit=1000, now_ms=T0)[0]}


def check_counts(db: Database) -> None:
    """Check that the stored sums match a count."""
    assert stored_counts(db) == counted(db)


def test_delete_and_restore(writer: Database, many: list[Run]) -> None:
    """Exactly the matching ended runs are deleted, slice by slice, and restored; sums follow; others stay unchanged."""
    for run_filter in FILTERS:
        check_delete_and_restore(writer, many, run_filter)


def check_delete_and_restore(writer: Database, many: list[Run], run_filter: RunFilter) -> None:
    left_out = {run.id for run in many[::17]}
    selector = RunSelection(match_all=True, filter=run_filter, except_ids=left_out)
    chosen = {run.id for run in many if seen(run, run_filter) and run.id not in left_out and run.status == "ended"}
    slices = run_bulk.find_ended(writer, selector)
    assert [len(json.loads(rows)) for rows in slices[:-1]] == [7] * (len(slices) - 1)
    assert sum(run_bulk.mark_deleted(writer, rows, T0) for rows in slices) == len(chosen)
    assert visible(writer) == {run.id for run in many} - chosen
    listed, total = list_deleted(writer, run_filter, 1000, 0)
    assert ([run.id for run in listed], total) == (sorted(chosen, reverse=True), len(chosen))
    assert list_deleted(writer, run_filter, 3, 2) == (listed[2:5], total)
    check_counts(writer)
    assert sum(run_bulk.mark_deleted(writer, rows, T0 + 9) for rows in slices) == 0
    assert run_bulk.find_ended(writer, selector) == []
    assert run_bulk.find_deleted(writer, selector, T0) == []
    assert run_bulk.find_deleted(writer, selector, T0 - 1, T0 + 1) == []
    at_once = run_bulk.find_deleted(writer, selector, T0 - 1, T0)
    assert sum(run_bulk.unmark_deleted(writer, rows, T0 - 1, T0 + 1) for rows in at_once) == 0
    again = run_bulk.find_deleted(writer, selector, T0 - 1)
    assert sum(run_bulk.unmark_deleted(writer, rows, T0 - 1) for rows in again) == len(chosen)
    assert visible(writer) == {run.id for run in many}
    assert count_runs(writer, run_filter) == sum(seen(run, run_filter) for run in many)
    check_counts(writer)


@on_sqlite
def test_slice_changes_few_pages(writer: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting a run of each of 100 tasks of about the same time changes a few pages, not one for each task."""
    monkeypatch.setattr(run_bulk, "SLICE_ROWS", 100)
    with writer.transaction():
        for number in range(60 * 100):
            day, task = divmod(number, 100)
            made = {"task_name": f"task-{task:03}", "created_at": T0 + day * DAY, "ended_at": T0 + day * DAY + 1}
            insert_run(writer, make_run(status="ended", end_reason="succeeded", exit_code=0, **made))
    one_day = run_bulk.find_ended(writer, RunSelection(match_all=True))[30]
    pages_written(writer)
    assert run_bulk.mark_deleted(writer, one_day, T0 + 99 * DAY) == 100
    assert 1 <= pages_written(writer) <= 15


def pages_written(writer: Database) -> int:
    """Return the number of pages written since the last call."""
    with writer.lent() as connection:
        status: tuple[int, int] = connection._raw.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)  # type: ignore[attr-defined]
    return status[0]


def test_selection_by_ids(writer: Database, many: list[Run]) -> None:
    """Ids select their runs, whatever the filter says; unknown and repeated ids select nothing more."""
    ended = [run.id for run in many if run.status == "ended"][:20]
    active = [run.id for run in many if run.status != "ended"][:3]
    selector = RunSelection(ids=[*ended, *ended, *active, "0" * 26], filter=RunFilter(task_name="nobody"))
    slices = run_bulk.find_ended(writer, selector)
    assert sum(run_bulk.mark_deleted(writer, rows, T0) for rows in slices) == 20
    assert visible(writer) == {run.id for run in many} - {*ended}
    assert sorted(run_bulk.find_active(writer, selector)) == sorted(active)
    assert run_bulk.find_ended(writer, RunSelection()) == []
    check_counts(writer)


def test_ids_outside_a_token(writer: Database, many: list[Run]) -> None:
    """A token limited to some tasks selects no run of another task, deleted or not, not even by its id."""
    selector = RunSelection(ids=[run.id for run in many], filter=RunFilter(tasks="b"))
    for rows in run_bulk.find_ended(writer, selector):
        run_bulk.mark_deleted(writer, rows, T0)
    gone = {run.id for run in many} - visible(writer)
    assert gone == {run.id for run in many if run.task_name == "b" and run.status == "ended"}
    assert list(run_bulk.find_newest(writer, selector)) == ["b"]
    assert run_bulk.find_deleted(writer, RunSelection(match_all=True, filter=RunFilter(tasks="a")), 0) == []
    restored = run_bulk.find_deleted(writer, RunSelection(match_all=True, filter=RunFilter(tasks="b*")), 0)
    assert sum(run_bulk.unmark_deleted(writer, rows, 0) for rows in restored) == len(gone)


def test_newest_deletions_are_listed_first(writer: Database, many: list[Run]) -> None:
    """Deleted runs are listed from the newest deletion with its time; restored runs are not listed."""
    some = [run.id for run in many if run.status == "ended"][:3]
    for later, run_id in enumerate(some):
        for rows in run_bulk.find_ended(writer, RunSelection(ids=[run_id])):
            run_bulk.mark_deleted(writer, rows, T0 + later)
    restore_run(writer, some[1])
    listed, total = list_deleted(writer, RunFilter(), 10, 0)
    assert [(run.id, run.deleted_at) for run in listed] == [(some[2], T0 + 2), (some[0], T0)]
    assert total == 2
    late, total = list_deleted(writer, RunFilter(), 10, 0, T0)
    assert ([run.id for run in late], total) == ([some[2]], 1)


def test_runs_changed_since_the_read(writer: Database, many: list[Run]) -> None:
    """A slice changes only runs that still match."""
    run = next(run for run in many if run.status == "ended")
    (rows,) = run_bulk.find_ended(writer, RunSelection(ids=[run.id]))
    assert run_bulk.unmark_deleted(writer, rows, 0) == 0
    assert run_bulk.mark_deleted(writer, rows, T0) == 1
    assert run_bulk.unmark_deleted(writer, rows, T0) == 0
    restore_run(writer, run.id)
    writer.execute("UPDATE runs SET state = 110 WHERE id = ?", [run.id])
    assert (run_bulk.mark_deleted(writer, rows, T0), run_bulk.purge(writer, rows)) == (0, 0)
    check_counts(writer)


def test_failed_slice_leaves_nothing(writer: Database, many: list[Run]) -> None:
    """A slice is stored as a whole or not at all, including sums; triggers work again after a failure."""
    slices = run_bulk.find_ended(writer, RunSelection(match_all=True))

    def fail() -> None:
        with writer.transaction():
            run_bulk.mark_deleted(writer, slices[0], T0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert len(visible(writer)) == len(many)
    check_counts(writer)
    insert_run(writer, make_run(status="ended", end_reason="failed"))
    check_counts(writer)


def test_active_runs(writer: Database, many: list[Run]) -> None:
    """Runs that have not begun are listed before running ones."""
    active = run_bulk.find_active(writer, RunSelection(match_all=True, filter=RunFilter(task_name="b")))
    statuses = [run.status for run_id in active for run in many if run.id == run_id]
    assert statuses == sorted(statuses)
    assert set(active) == {run.id for run in many if run.task_name == "b" and run.status != "ended"}


def test_newest_run_of_each_task(writer: Database, many: list[Run]) -> None:
    """Each task of the selected runs is listed once, in order, with the run that lists show first."""
    gone = [run.id for run in many[1::5] if run.status == "ended"]
    for rows in run_bulk.find_ended(writer, RunSelection(ids=gone)):
        run_bulk.mark_deleted(writer, rows, T0)
    for run_filter in FILTERS:
        check_newest(writer, many, gone, run_filter)


def check_newest(writer: Database, many: list[Run], gone: list[str], run_filter: RunFilter) -> None:
    left_out = {run.id for run in many[::5]}
    excess = sorted(
        (run for run in many if seen(run, run_filter) and run.id not in left_out | {*gone}),
        key=lambda run: (run.created_at, run.id),
    )
    newest = {run.task_name: run.id for run in excess}
    selected = RunSelection(match_all=True, filter=run_filter, except_ids=left_out)
    assert [*run_bulk.find_newest(writer, selected).items()] == sorted(newest.items())
    some = excess[:-1]
    by_id = RunSelection(ids=[*(run.id for run in some), *gone])
    assert run_bulk.find_newest(writer, by_id) == {run.task_name: run.id for run in some}


def test_purge(writer: Database, many: list[Run]) -> None:
    """Runs deleted long enough ago are purged, and their files are noted until they are removed."""
    selector = RunSelection(match_all=True, filter=RunFilter(task_name="b"))
    for rows in run_bulk.find_ended(writer, selector):
        run_bulk.mark_deleted(writer, rows, T0)
    assert run_bulk.first_deletion(writer, T0 - 1) == T0
    assert run_bulk.first_deletion(writer, T0) is None
    assert run_bulk.find_expired(writer, T0 - 1) == []
    gone = {run.id: run for run in many if run.task_name == "b" and run.status == "ended"}
    assert sum(run_bulk.purge(writer, rows) for rows in run_bulk.find_expired(writer, T0)) == len(gone)
    assert all(get_run(writer, run_id, include_deleted=True) is None for run_id in gone)
    noted = run_bulk.purged_runs(writer, 0, 1000)
    with_log = {run_id for run_id, run in gone.items() if run.end_reason not in ("skipped", "missed")}
    assert {run.run_id for run in noted} == with_log
    assert {run.task_name for run in noted} == {"b"}
    assert run_bulk.purged_runs(writer, noted[2].seq, 2) == noted[3:5]
    run_bulk.forget_purged(writer, noted[4].seq, [noted[1].seq])
    assert run_bulk.purged_runs(writer, 0, 1000) == [noted[1], *noted[5:]]
    assert isinstance(noted[0], PurgedRun)
    check_counts(writer)


REFUSED = ("queue_full", "skipped", "missed", "dst_skipped")


def kept_by_oracle(many: list[Run], rules: dict[str, Retention], others: Retention, now_ms: int) -> set[str]:
    """Return the ids of the runs that retention keeps of runs whose ends were stored in this order."""
    kept_ids = {run.id for run in many if run.status != "ended"}
    for name in {run.task_name for run in many}:
        rule = rules.get(name, others)
        newest = [run for run in reversed(many) if run.task_name == name and run.status == "ended"]
        ran = [run for run in newest if run.end_reason not in REFUSED][: rule.keep_runs]
        refused = [run for run in newest if run.end_reason in REFUSED][: rule.keep_refused]
        kept_ids |= {run.id for run in ran + refused if (run.ended_at or run.created_at) > now_ms - rule.keep_for_ms}
    return kept_ids


@pytest.mark.parametrize(
    ("rules", "others"),
    [
        ({"a": Retention(5, 100 * DAY, 2), "b": Retention(1000, 4 * DAY, 1000)}, Retention(20, 6 * DAY, 1)),
        ({"a": Retention(0, 100 * DAY, 1000), "b": Retention(1000, 0, 1000)}, Retention(1000, 100 * DAY, 0)),
        ({}, Retention(0, 0, 0)),
        ({}, Retention(1000, 100 * DAY, 1000)),
    ],
)
def test_retention(writer: Database, many: list[Run], rules: dict[str, Retention], others: Retention) -> None:
    """Each task keeps its newest runs by its rule; runs that never ran count separately; unfinished ones stay."""
    now_ms = T0 + 13 * DAY
    kept_runs = kept_by_oracle(many, rules, others, now_ms)
    slices = run_bulk.find_excess(writer, rules, others, now_ms)
    assert sum(run_bulk.purge(writer, rows) for rows in slices) == len(many) - len(kept_runs)
    assert visible(writer) == kept_runs
    assert run_bulk.find_excess(writer, rules, others, now_ms) == []
    check_counts(writer)


def test_retention_keeps_the_runs_that_ended_last(writer: Database) -> None:
    """The order of the ends decides, although the clock was set back and some runs took long."""
    runs = {
        "long": make_run(kind="service", status="running", started_at=T0),
        "early": make_run(kind="service", instance_index=1, status="running", started_at=T0 + DAY),
        "refused": make_run(status="ended", end_reason="skipped", created_at=T0 + DAY, ended_at=T0 + DAY),
        "refused after the step": make_run(status="ended", end_reason="missed", ended_at=T0),
        "ahead": make_run(status="ended", end_reason="failed", created_at=T0 + DAY, ended_at=T0 + DAY),
        "after the step": make_run(status="ended", end_reason="succeeded", created_at=T0 - DAY, ended_at=T0 - DAY),
    }
    for run in runs.values():
        insert_run(writer, run)
    for name, ended_at in (("early", T0 + DAY), ("long", T0)):
        update_run(writer, runs[name].id, status="ended", end_reason="failed", ended_at=ended_at)
    for rows in run_bulk.find_excess(writer, {}, Retention(1, 100 * DAY, 1), T0 + DAY):
        run_bulk.purge(writer, rows)
    assert visible(writer) == {runs[name].id for name in ("long", "refused after the step")}


def test_retention_ignores_deleted_runs(writer: Database, many: list[Run]) -> None:
    """Retention does not count deleted runs, and leaves them until their own window has passed."""
    newest = RunFilter(created_after=T0 + 7 * DAY)
    for rows in run_bulk.find_ended(writer, RunSelection(match_all=True, filter=newest)):
        run_bulk.mark_deleted(writer, rows, T0)
    deleted = list_deleted(writer, RunFilter(), 1000, 0)
    others = [run for run in many if run.id in visible(writer)]
    assert len(deleted[0]) + len(others) == len(many)
    for rule in (Retention(3, 100 * DAY, 1), Retention(0, 0, 0)):
        for rows in run_bulk.find_excess(writer, {}, rule, T0 + 13 * DAY):
            run_bulk.purge(writer, rows)
        assert visible(writer) == kept_by_oracle(others, {}, rule, T0 + 13 * DAY)
    assert list_deleted(writer, RunFilter(), 1000, 0) == deleted
    assert run_bulk.find_expired(writer, T0 - 1) == []
    assert sum(run_bulk.purge(writer, rows) for rows in run_bulk.find_expired(writer, T0)) == len(deleted[0])


@pytest.mark.parametrize(("path", "tasks"), [("sqlite", 9000), ("postgresql", 1100)], indirect=["path"])
def test_thousands_of_tasks(writer: Database, reader: Database, tasks: int) -> None:
    """With more tasks than a statement can name one by one, runs are found under any further condition."""
    names = ["other", *(f"job-{number:05}" for number in range(tasks))]
    with writer.transaction():
        for number, name in enumerate(names):
            run = make_run(task_name=name, status="ended", end_reason="failed", created_at=T0 + number * MINUTE)
            insert_run(writer, run)
    for filter_ in (RunFilter(search="JOB-"), RunFilter(tasks="job-*")):
        some = replace(filter_, created_after=T0 + 5 * MINUTE, created_before=T0 + (tasks - 5) * MINUTE)
        page_runs, total = list_runs(reader, some, Sort("task_name", "asc"), limit=2, now_ms=T0)
        assert ([run.task_name for run in page_runs], total) == (names[5:7], tasks - 9)
        slices = run_bulk.find_ended(reader, RunSelection(match_all=True, filter=some))
        assert sum(len(json.loads(rows)) for rows in slices) == tasks - 9


@pytest.mark.parametrize("name", ["\0", "\N{SYMBOL FOR NULL}", "%", "x" * 5000])
def test_impossible_names(writer: Database, many: list[Run], name: str) -> None:
    """Impossible task names match no run, whichever index is used."""
    selector = RunSelection(match_all=True, filter=RunFilter(task_name=name))
    assert run_bulk.find_newest(writer, selector) == {}
    assert run_bulk.find_ended(writer, selector) == run_bulk.find_active(writer, selector) == []
    assert len(many) == count_runs(writer, RunFilter())
