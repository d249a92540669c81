import pytest

from store.database import Database
from store.errors import Conflict, InstantTaken, StoreError
from store.runs.filter import RunFilter
from store.runs.ids import new_ulid
from store.runs.phases import END_REASONS
from store.runs.run_pages import list_runs
from store.runs.writes import (
    Run,
    delete_run,
    get_run,
    has_runs,
    insert_run,
    merge_refused,
    newest_successes,
    runs_from,
    unfinished_runs,
    update_run,
)
from tests.store.making import T0, make_run, restore_run

FULL = make_run(
    task_name="über:all.of_it-1",
    status="ended",
    end_reason="failed",
    exit_code=137,
    instance_index=3,
    retry_attempt=2,
    retry_of_run_id="0" * 26,
    triggered_by="api",
    started_at=T0 + 5,
    ended_at=T0 + 905,
    execution_id="pod/x",
    params={"name": "wörld", "b": "", "secret": None},
    scheduled_at=T0 - 1,
    due_at=T0 + 1,
    signal=9,
    core_dumped=True,
    requested_by="admin",
    definition_hash="0" * 32,
    stopped_by="other",
    lines=2**40,
    user_us=1,
    system_us=2,
    max_rss_bytes=2**33,
    read_bytes=2**34,
    write_bytes=0,
    oom_kills=2,
    leftovers='["sleep (7)"]',
    failure_line=12,
    missed_count=3,
    cause="too_short",
    due_kind="retry",
)


@pytest.mark.parametrize("run", [make_run(), make_run(params={}), FULL])
def test_round_trip(reader: Database, writer: Database, run: Run) -> None:
    """A run is read as it was stored, with every field."""
    insert_run(writer, run)
    assert get_run(reader, run.id) == run
    assert get_run(reader, "0" * 26) is None


def test_update_of_fields(writer: Database) -> None:
    """A run can be updated field by field, and its duration follows its times."""
    run = make_run()
    insert_run(writer, run)
    assert update_run(writer, run.id, status="running", started_at=T0 + 10)
    assert update_run(writer, run.id, lines=5, params={"a": "b"})
    assert get_run(writer, run.id) == run._replace(status="running", started_at=T0 + 10, lines=5, params={"a": "b"})
    assert update_run(writer, run.id, status="ended", end_reason="succeeded", exit_code=0, ended_at=T0 + 30)
    stored = get_run(writer, run.id)
    assert stored is not None
    assert (stored.status, stored.end_reason, stored.exit_code) == ("ended", "succeeded", 0)
    for change, duration in (
        ({"lines": 9}, 20),
        ({"started_at": T0 + 5}, 25),
        ({"ended_at": T0 + 6}, 1),
        ({"ended_at": T0 + 7, "started_at": T0 + 4}, 3),
    ):
        update_run(writer, run.id, **change)
        assert writer.rows("SELECT duration FROM runs") == [(duration,)]
    assert not update_run(writer, "0" * 26, lines=1)


def test_end_before_the_start(writer: Database) -> None:
    """A run that ends after the clock was set back has no negative duration."""
    run = make_run()
    insert_run(writer, run)
    update_run(writer, run.id, status="running", started_at=T0 + 10)
    update_run(writer, run.id, status="ended", end_reason="crashed", exit_code=-2, ended_at=T0 - 3_600_000)
    assert writer.rows("SELECT ended_at, duration FROM runs") == [(T0 + 10, 0)]
    pending = make_run()
    insert_run(writer, pending)
    update_run(writer, pending.id, status="ended", end_reason="stopped", ended_at=T0 - 3_600_000)
    stored = get_run(writer, pending.id)
    assert stored is not None
    assert (stored.started_at, stored.ended_at) == (None, T0 - 3_600_000)


@pytest.mark.parametrize("reason", sorted(END_REASONS))
def test_end_reasons(writer: Database, reason: str) -> None:
    """Every end reason can be stored and read."""
    run = make_run(status="ended", end_reason=reason)
    insert_run(writer, run)
    assert get_run(writer, run.id) == run


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"nonsense": 1},
        {"id": "x"},
        {"task_name": "x"},
        {"created_at": 1},
        {"deleted_at": 1},
        {"state": 1},
        {"status": "ended"},
        {"end_reason": "failed"},
        {"status": "running", "end_reason": "failed"},
        {"status": "ended", "end_reason": "success"},
        {"status": "gone"},
    ],
)
def test_refused_changes(writer: Database, change: dict[str, object]) -> None:
    """Unknown and constant fields, and a status without its reason, are refused, and nothing changes."""
    run = make_run()
    insert_run(writer, run)
    with pytest.raises(ValueError, match=r"."):
        update_run(writer, run.id, **change)
    assert get_run(writer, run.id) == run


def test_duplicate_id(writer: Database) -> None:
    """A second run with the same id is refused."""
    run = make_run()
    insert_run(writer, run)
    with pytest.raises(Conflict) as caught:
        insert_run(writer, run._replace(task_name="b"))
    assert not isinstance(caught.value, InstantTaken)
    with pytest.raises(ValueError, match="ended"):
        insert_run(writer, make_run(status="ended"))


def test_unique_instants(writer: Database) -> None:
    """A scheduled instant of a task runs once, even if its run was deleted; retries and services are exempt."""
    first = make_run(scheduled_at=T0)
    insert_run(writer, first)
    with pytest.raises(InstantTaken, match=f"a at {T0}"):
        insert_run(writer, make_run(scheduled_at=T0))
    update_run(writer, first.id, status="ended", end_reason="failed")
    assert delete_run(writer, first.id, T0)
    with pytest.raises(InstantTaken):
        insert_run(writer, make_run(scheduled_at=T0))
    for free in (
        make_run(scheduled_at=T0, retry_attempt=1, retry_of_run_id=first.id),
        make_run(scheduled_at=T0, retry_attempt=1),
        make_run(scheduled_at=T0 + 1),
        make_run(scheduled_at=T0, task_name="b"),
        make_run(),
        make_run(),
        make_run(scheduled_at=T0, kind="service"),
        make_run(scheduled_at=T0, kind="service"),
    ):
        insert_run(writer, free)


def test_deleted_run(writer: Database) -> None:
    """A deleted run is found only if deleted runs are requested."""
    run = make_run(status="ended", end_reason="failed")
    insert_run(writer, run)
    assert has_runs(writer, "a")
    assert delete_run(writer, run.id, T0 + 1)
    assert get_run(writer, run.id) is None
    assert get_run(writer, run.id, include_deleted=True) == run._replace(deleted_at=T0 + 1)
    assert not has_runs(writer, "a")
    restore_run(writer, run.id)
    assert get_run(writer, run.id) == run
    assert has_runs(writer, "a")
    with pytest.raises(ValueError, match="deleted"):
        insert_run(writer, make_run(status="ended", end_reason="failed", deleted_at=T0))


def test_unfinished_runs(writer: Database) -> None:
    """Exactly the runs that have not ended are listed, oldest first."""
    runs = [
        make_run(created_at=T0 + 3, status="running", started_at=T0),
        make_run(created_at=T0 + 1),
        make_run(created_at=T0, status="ended", end_reason="failed"),
        make_run(created_at=T0 + 2, kind="service", status="running"),
    ]
    for run in runs:
        insert_run(writer, run)
    assert unfinished_runs(writer) == [runs[1], runs[3], runs[0]]


def test_derived_duration_is_checked(writer: Database) -> None:
    """The stored duration cannot contradict the times, because the table itself refuses it."""
    run = make_run(status="running", started_at=T0)
    insert_run(writer, run)
    with pytest.raises(StoreError):
        writer.execute("UPDATE runs SET ended_at = started_at + 5")


def test_runs_from_a_position(writer: Database) -> None:
    """A task's visible runs are listed from a position, newest first, ties by id; the run there may be deleted."""
    ids = sorted(new_ulid() for _ in range(6))
    for run_id, created_at in zip(ids, (T0, T0, T0 + 1, T0 + 1, T0 + 1, T0 + 2), strict=True):
        ended = {} if run_id in ids[1::3] else {"status": "ended", "end_reason": "failed"}
        insert_run(writer, make_run(id=run_id, created_at=created_at, **ended))
    insert_run(writer, make_run(task_name="b"))

    def ids_before(created_at: int, run_id: str, limit: int = 9) -> list[str]:
        return [run.id for run in runs_from(writer, "a", created_at, run_id, limit)]

    assert ids_before(2**63 - 1, "~") == ids[::-1]
    assert ids_before(2**63 - 1, "~", 2) == [ids[5], ids[4]]
    assert ids_before(T0 + 1, ids[3]) == ids[3::-1]
    assert delete_run(writer, ids[3], T0)
    assert ids_before(T0 + 1, ids[3]) == ids[2::-1]
    assert ids_before(T0 - 1, "~") == []


def test_newest_successes(writer: Database) -> None:
    """The newest successful instant is found for exactly the tasks that have unfinished runs."""
    for name, status, reason, at in (
        ("a", "ended", "succeeded", T0),
        ("a", "ended", "succeeded", T0 + 1),
        ("a", "ended", "failed", T0 + 2),
        ("a", "pending", None, None),
        ("b", "ended", "succeeded", T0),
        ("c", "ended", "succeeded", None),
        ("c", "running", None, T0),
    ):
        insert_run(writer, make_run(task_name=name, status=status, end_reason=reason, scheduled_at=at))
    assert newest_successes(writer) == {"a": T0 + 1}


def test_pending_run_becomes_part_of_a_record(writer: Database) -> None:
    """A skipped run replaces its own row by more instants in the record of the same task, cause and period."""
    period = (T0, T0 + 100)
    runs = [make_run(scheduled_at=T0 + at) for at in (1, 99, 100)]
    for run in runs:
        insert_run(writer, run)
    rows = [run._replace(status="ended", end_reason="skipped", cause="condition", ended_at=T0) for run in runs]
    assert not merge_refused(writer, rows[0], *period)
    update_run(writer, runs[0].id, status="ended", end_reason="skipped", cause="condition", ended_at=T0)
    assert merge_refused(writer, rows[1], *period)
    assert not update_run(writer, runs[1].id, status="ended", end_reason="skipped", ended_at=T0)
    assert not merge_refused(writer, rows[2], T0 + 100, T0 + 200)
    record = get_run(writer, runs[0].id)
    assert record is not None
    assert (record.scheduled_at, record.missed_count) == (T0 + 99, 2)
    assert [run.id for run in unfinished_runs(writer)] == [runs[2].id]
    shown, total = list_runs(writer, RunFilter(), limit=10, now_ms=T0)
    assert ([run.id for run in shown], total) == ([runs[2].id, runs[0].id], 2)
