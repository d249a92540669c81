import pytest

from store.database import Database
from store.errors import Conflict
from store.runs import daily_outcomes
from store.runs import writes as runs
from store.runs.daily_outcomes import DAY_MS, KEPT_DAYS, LASTED_MS, WAITED_MS, Day, Total
from store.tasks import upsert_task
from tests.store.making import T0, make_run, restore_run

TODAY = T0 // DAY_MS


def end(db: Database, reason: str = "succeeded", *, at: int = T0, ran_ms: int | None = 100, task: str = "a") -> str:
    run = make_run(task_name=task)
    runs.insert_run(db, run)
    times = {} if ran_ms is None else {"started_at": at - ran_ms}
    runs.update_run(db, run.id, status="ended", end_reason=reason, ended_at=at, **times)
    return run.id


def test_outcomes_of_a_day(writer: Database, reader: Database) -> None:
    """Ends are counted by day and reason, with the sum and the maximum of the durations."""
    for ran_ms in (100, 300, 200):
        end(writer, ran_ms=ran_ms)
    end(writer, "failed", ran_ms=None)
    end(writer, at=T0 - DAY_MS)
    end(writer, task="b")
    assert daily_outcomes.days(reader, "a", TODAY - 5) == [
        Day(TODAY - 1, "succeeded", 1, 1, 100, 100),
        Day(TODAY, "failed", 1, 0, 0, None),
        Day(TODAY, "succeeded", 3, 3, 600, 300),
    ]
    assert [day.day for day in daily_outcomes.days(reader, "a", TODAY)] == [TODAY, TODAY]


def test_runs_created_as_ended(writer: Database, reader: Database) -> None:
    """Runs that are created as ended are counted once."""
    runs.insert_run(writer, make_run(status="ended", end_reason="skipped", ended_at=T0))
    assert daily_outcomes.days(reader, "a", 0) == [Day(TODAY, "skipped", 1, 0, 0, None)]


def test_changes_after_the_end(writer: Database, reader: Database) -> None:
    """A change to an ended run counts nothing twice; neither its deletion nor its purge reduces the counts."""
    run_id = end(writer)
    before = daily_outcomes.days(reader, "a", 0)
    assert runs.delete_run(writer, run_id, T0 + 1)
    restore_run(writer, run_id)
    runs.update_run(writer, run_id, lines=5)
    writer.execute("DELETE FROM runs")
    assert daily_outcomes.days(reader, "a", 0) == before == [Day(TODAY, "succeeded", 1, 1, 100, 100)]


def test_rolled_back_end(writer: Database, reader: Database) -> None:
    """An end that is not stored is not counted."""
    run = make_run()
    runs.insert_run(writer, run)

    def end_and_fail() -> None:
        with writer.transaction():
            runs.update_run(writer, run.id, status="ended", end_reason="failed", ended_at=T0)
            runs.insert_run(writer, run)

    with pytest.raises(Conflict):
        end_and_fail()
    assert daily_outcomes.days(reader, "a", 0) == []


def test_durations_of_all_units(writer: Database, reader: Database) -> None:
    """The durations of several days are added up for each configured unit."""
    for name in ("a", "idle"):
        upsert_task(writer, name, "task", "{}")
    for days_ago in (0, 1, 2, 3):
        end(writer, at=T0 - days_ago * DAY_MS)
        end(writer, "failed", at=T0 - days_ago * DAY_MS, ran_ms=50)
    end(writer, task="gone")
    assert daily_outcomes.durations(reader, TODAY - 2, TODAY - 1) == {"a": 300}


def test_totals_of_configured_tasks(writer: Database, reader: Database) -> None:
    """Totals cover configured tasks, never expire, and include the time of the last end."""
    upsert_task(writer, "a", "task", "{}")
    end(writer, at=T0)
    end(writer, at=T0 - 500 * DAY_MS)
    end(writer, task="gone")
    daily_outcomes.prune(writer, T0)
    at_once = (2,) * len(WAITED_MS)
    assert daily_outcomes.totals(reader) == [Total("a", "succeeded", 2, 2, 200, T0, 0, (2,) * len(LASTED_MS), at_once)]


def test_durations_and_delays(writer: Database, reader: Database) -> None:
    """Durations and delays are counted within inclusive bounds; a delay is measured from when the run was due."""
    upsert_task(writer, "a", "task", "{}")
    ran = [0, 100, 101, 86_400_000, 86_400_001]
    due = [{}, {"scheduled_at": T0 - 100}, {"scheduled_at": T0 - 101}, {"due_at": T0 - 3_600_000, "scheduled_at": 1}]
    due.append({"scheduled_at": T0 + 5, "created_at": T0 + 6})
    for ran_ms, columns in zip(ran, due, strict=True):
        run = make_run(**columns)
        runs.insert_run(writer, run)
        times = {"started_at": T0, "ended_at": T0 + ran_ms}
        runs.update_run(writer, run.id, status="ended", end_reason="failed", **times)
    end(writer, "failed", ran_ms=None)
    (total,) = daily_outcomes.totals(reader)
    assert (total.n, total.timed, total.waited) == (6, 5, 100 + 101 + 3_600_000)
    assert total.lasted == (2, 3, 3, 3, 3, 3, 3, 3, 4)
    assert total.waited_within == (3, 4, 4, 4, 4, 5)


def test_totals_of_removed_tasks(writer: Database, reader: Database) -> None:
    """Totals of removed tasks are kept as long as days are, so old names do not accumulate."""
    upsert_task(writer, "rare", "task", "{}")
    for age in (KEPT_DAYS - 1, KEPT_DAYS + 1):
        end(writer, at=T0 - age * DAY_MS, task=f"gone-{age}")
        end(writer, at=T0 - age * DAY_MS, task="rare")
    daily_outcomes.prune(writer, T0)
    names = reader.rows("SELECT task_name, n FROM task_totals ORDER BY task_name")
    assert names == [(f"gone-{KEPT_DAYS - 1}", 1), ("rare", 2)]


def test_old_days_are_pruned(writer: Database, reader: Database) -> None:
    """Days are pruned when they have outlived their runs by a year."""
    for age in (0, KEPT_DAYS - 1, KEPT_DAYS, KEPT_DAYS + 1):
        end(writer, at=T0 - age * DAY_MS)
    assert daily_outcomes.prune(writer, T0) == 1
    assert [TODAY - day.day for day in daily_outcomes.days(reader, "a", 0)] == [KEPT_DAYS, KEPT_DAYS - 1, 0]
