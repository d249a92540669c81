import pytest

from store.database import Database
from store.runs.bulk import find_expired, purge
from store.runs.writes import delete_run, insert_run, update_run
from store.tasks import (
    StoredInstance,
    TaskRecord,
    active_counts,
    all_tasks,
    drop_instances,
    forget_missing,
    get_task,
    instances,
    last_runs,
    set_instance,
    update_task,
    upsert_task,
)
from tests.store.making import T0, make_run


def test_upsert(writer: Database, reader: Database) -> None:
    """A new definition replaces the old one and keeps the remembered state."""
    upsert_task(writer, "a", "task", "{1}")
    assert get_task(reader, "a") == TaskRecord("a", "task", "{1}", True, False, False, None, None, None)
    assert update_task(writer, "a", paused=True, last_instant=T0, next_run_at=T0 + 5)
    run = make_run(status="ended", end_reason="failed")
    insert_run(writer, run)
    upsert_task(writer, "a", "service", "{2}")
    assert get_task(reader, "a") == TaskRecord("a", "service", "{2}", True, True, False, T0, T0 + 5, run.id)
    assert get_task(reader, "b") is None


def test_refused_updates(writer: Database) -> None:
    """Only remembered state can be changed, and only of an existing task."""
    upsert_task(writer, "a", "task", "{}")
    for bad in ({}, {"definition": ""}, {"configured": True}, {"nonsense": 1}):
        with pytest.raises(ValueError, match="cannot be changed"):
            update_task(writer, "a", **bad)
    assert not update_task(writer, "b", stopped=True)


def test_removed_task(writer: Database) -> None:
    """A task removed from the configuration leaves the list, keeps its row, and can return as if new."""
    for name in ("c", "B", "a"):
        upsert_task(writer, name, "task", "{}")
    update_task(writer, "a", last_instant=T0, next_run_at=T0 + 9, paused=True, fatal_since=T0)
    assert forget_missing(writer, ["B", "c", "new"]) == 1
    assert forget_missing(writer, {"B", "c"}) == 0
    assert [task.name for task in all_tasks(writer)] == ["B", "c"]
    assert [(task.name, task.configured) for task in all_tasks(writer, include_forgotten=True)] == [
        ("B", True),
        ("a", False),
        ("c", True),
    ]
    gone = get_task(writer, "a")
    assert gone is not None
    assert (gone.last_instant, gone.next_run_at) == (None, None)
    assert (gone.paused, gone.fatal_since) == (False, None)
    upsert_task(writer, "a", "task", "{}")
    assert len(all_tasks(writer)) == 3
    assert forget_missing(writer, []) == 3


def test_active_counts(writer: Database) -> None:
    """Pending and running runs are counted by task; ended ones are not."""
    for name, status in (("a", "pending"), ("a", "pending"), ("a", "running"), ("b", "running")):
        insert_run(writer, make_run(task_name=name, status=status))
    insert_run(writer, make_run(task_name="c", status="ended", end_reason="failed"))
    assert active_counts(writer) == {"a": (2, 1), "b": (0, 1)}


def test_last_runs(writer: Database) -> None:
    """The last run is the one stored last, whatever the clock said; if it is deleted, the visible run that ended last.

    This holds before and after its end, even if runs stored earlier end later.
    """
    for name in ("a", "b", "c"):
        upsert_task(writer, name, "task", "{}")
    runs = [make_run(created_at=T0 - n) for n in range(4)]
    for run in runs:
        insert_run(writer, run)
        assert last_runs(writer) == {"a": run}
    other = make_run(task_name="b")
    insert_run(writer, other)
    for place in (3, 0, 2, 1):
        update_run(writer, runs[place].id, status="ended", end_reason="failed")
        runs[place] = runs[place]._replace(status="ended", end_reason="failed")
        assert last_runs(writer) == {"a": runs[3], "b": other}
    delete_run(writer, runs[3].id, T0)
    assert last_runs(writer, "a") == {"a": runs[1]}
    for run in runs:
        delete_run(writer, run.id, T0)
    assert last_runs(writer) == {"b": other}


def test_last_run_after_a_purge(writer: Database) -> None:
    """A run stored before others does not become the last one when a later one is deleted or purged."""
    upsert_task(writer, "a", "task", "{}")
    upsert_task(writer, "b", "task", "{}")
    ended = {"status": "ended", "end_reason": "failed"}
    long, other, newest = (make_run(created_at=T0 + n, **(ended if n else {})) for n in range(3))
    alone = make_run(task_name="b", **ended)
    for run in (long, other, newest, alone):
        insert_run(writer, run)
    for run in (newest, alone):
        delete_run(writer, run.id, T0)
    assert last_runs(writer) == {"a": other}
    for part in find_expired(writer, T0):
        purge(writer, part)
    assert last_runs(writer) == {"a": other}
    update_run(writer, long.id, **ended)
    assert last_runs(writer) == {"a": other}
    assert [task.last_run_id for task in all_tasks(writer)] == [other.id, None]


def test_instances(writer: Database) -> None:
    """Instances are stored by service and index, replaced, listed in order, and dropped from a given index."""
    made = [StoredInstance("s", n, "running", f"r{n}", T0, 0) for n in (2, 0, 1)] + [
        StoredInstance("t", 0, "fatal", None, T0, 4)
    ]
    for instance in made:
        set_instance(writer, instance)
    changed = StoredInstance("s", 1, "backoff", None, T0 + 1, 2)
    set_instance(writer, changed)
    assert instances(writer) == [made[1], changed, made[0], made[3]]
    assert drop_instances(writer, "s", 1) == 2
    assert instances(writer, "s") == [made[1]]
    assert drop_instances(writer, "t") == 1
    assert instances(writer, "t") == []
