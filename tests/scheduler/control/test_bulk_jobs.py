"""Jobs on many rows, with a store and a reading thread that answer on the test's command."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from store.daemon_values import set_meta
from store.database import Database
from store.errors import DiskFull
from store.events import since
from store.runs import bulk as run_bulk
from store.runs.bulk import RunSelection, find_ended, mark_deleted
from store.runs.filter import RunFilter
from store.runs.run_pages import count_runs, list_runs
from store.runs.writes import get_run, insert_run
from supervisor.scheduler.control.bulk_jobs import BulkJobs, Job, last_job
from supervisor.scheduler.control.bulk_operations import BulkOperations
from supervisor.scheduler.control.rate_limit import TriggerLimit
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.database.retention import RetentionChecks
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.procedures import Procedure, Procedures, Wait
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.fake_clock import FakeClock
from tests.scheduler.loop.test_long_reads import append_result
from tests.store.making import make_run

CONFIG = '[tasks.t]\nrun = "true"\n[tasks.own]\nrun = "true"\napi_trigger = false\n[services.s]\nrun = "true"\n'
COMMAND = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
ALL = {"match_all": True, "filter": {}, "except_ids": "", "ids": "", "by": "somebody"}


class ImmediateReads:
    """A reading thread that answers at once."""

    def __init__(self, harness: Bench) -> None:
        self.harness = harness

    def result_of(self, read: Callable[[Any], Any]) -> Wait:
        return lambda waiter: waiter.resume(read(self.harness.store.database))


def _find_all(db: Database) -> list[str]:
    return find_ended(db, RunSelection(match_all=True))


class Jobs:
    """Bulk jobs on a bench with 20 ended runs in five slices."""

    def __init__(self, harness: Bench) -> None:
        self.harness = harness
        self.db = harness.store.database
        self.reading = cast(LongReads, ImmediateReads(harness))
        for _ in range(20):
            insert_run(self.db, make_run(task_name="t", status="ended", end_reason="failed"))
        self.results: list[Any] = []
        self.begin()

    def begin(self) -> None:
        """Start the bulk jobs as a new scheduler does."""
        self.bulk = BulkJobs(self.harness.core, self.reading, last_job(self.db))
        change = self.harness.committer.change()
        self.bulk.announce_unreported(change)
        self.harness.committer.commit(change)

    def delete(self, command: str = "c") -> None:
        self.start(command, "run.deleted")

    def start(self, command: str, event: str | None) -> None:
        """Start a job whose number of rows, or error, becomes a result."""
        job = Job(command=command, find=_find_all, work=mark_deleted, event=event)
        self.harness.core.procedures.start(self._carry_out(job), self.results.append)

    def _carry_out(self, job: Job) -> Procedure[None]:
        affected = yield from self.bulk.carry_out(job)
        self.results.append(affected)

    def slice(self) -> None:
        """Store one slice and give the loop a turn."""
        self.harness.store.work()
        self.harness.loop.round(0)

    def left(self) -> int:
        return count_runs(self.db, RunFilter())

    def die(self) -> None:
        """Replace the scheduler by a new one in the middle of a job."""
        self.harness.store.jobs.clear()
        self.harness.committer._in_store.clear()
        self.begin()
        self.harness.store.work_all()

    def untold(self) -> int:
        """Return the number of rows that a new scheduler would announce."""
        progress = last_job(self.db)
        return 0 if progress is None else progress["affected"] - progress["told"]

    def told(self) -> list[tuple[str, Any]]:
        return [(event.kind, event.body.get("affected")) for event in since(self.db, 0)]


@pytest.fixture
def jobs(bench: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setattr(run_bulk, "SLICE_ROWS", 4)
    return Jobs(bench(CONFIG))


def test_slices(jobs: Jobs) -> None:
    """The store gets one slice at a time, other changes precede the next slice, and one event ends the job."""
    jobs.delete()
    assert len(jobs.harness.store.jobs) == 1
    run = jobs.harness.trigger("t")
    assert len(jobs.harness.store.jobs) == 1
    jobs.slice()
    assert (jobs.left(), get_run(jobs.db, run.id)) == (16, None)
    jobs.slice()
    assert jobs.left() == 17
    assert get_run(jobs.db, run.id) is not None
    jobs.slice()
    assert jobs.left() == 13
    while jobs.harness.store.jobs:
        assert jobs.results == []
        jobs.slice()
    assert (jobs.left(), jobs.results) == (1, [20])
    assert [event for event in jobs.told() if event[0] == "run.deleted"] == [("run.deleted", 20)]
    assert not jobs.untold()


@pytest.mark.parametrize("event", [None, "run.deleted"])
def test_jobs_without_a_client_pause_for_checkpoints(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, event: str | None
) -> None:
    """A job without a client pauses between slices for a checkpoint, and a job with a client continues at once."""
    clock = FakeClock()
    monkeypatch.setattr(jobs.harness.loop, "_clock", clock)
    monkeypatch.setattr(jobs.db, "has_backlog", lambda: True)
    jobs.start("", event)
    jobs.slice()
    assert (jobs.left(), len(jobs.harness.store.jobs)) == (16, 0 if event is None else 1)
    clock.advance(0.05)
    jobs.harness.loop.round(0)
    jobs.harness.store.work()
    assert jobs.left() == 12


def test_one_job_at_a_time(jobs: Jobs) -> None:
    """A second job begins when the first is done, so it never sees half of it."""
    jobs.delete("a")
    jobs.delete("b")
    while jobs.harness.store.jobs:
        jobs.slice()
    assert sorted(jobs.results) == [0, 20]
    assert jobs.told() == [("run.deleted", 20)]


def test_failed_job(jobs: Jobs) -> None:
    """A store failure ends the job; finished slices are announced, and the next job begins."""
    jobs.delete()
    jobs.slice()
    error = DiskFull()
    jobs.harness.store.fail(error)
    assert jobs.results == [error]
    jobs.harness.store.work_all()
    assert jobs.told() == [("run.deleted", 4)]
    jobs.delete()
    while jobs.harness.store.jobs:
        jobs.slice()
    assert jobs.results == [error, 16]
    assert not jobs.untold()


def test_scheduler_death(jobs: Jobs) -> None:
    """The next scheduler announces the finished slices, and a repeated request counts all of them."""
    jobs.delete()
    jobs.slice()
    jobs.slice()
    jobs.die()
    assert jobs.told() == [("run.deleted", 8)]
    assert not jobs.untold()
    jobs.delete()
    while jobs.harness.store.jobs:
        jobs.slice()
    assert jobs.results == [20]
    assert jobs.told() == [("run.deleted", 8), ("run.deleted", 12)]


def test_several_scheduler_deaths(jobs: Jobs) -> None:
    """Slices of all earlier schedulers count, even if some schedulers did none."""
    for remaining in (12, 12, 8):
        jobs.delete()
        while jobs.left() > remaining:
            jobs.slice()
        jobs.die()
    jobs.delete()
    while jobs.harness.store.jobs:
        jobs.slice()
    assert jobs.results == [20]
    assert jobs.told() == [("run.deleted", 8), ("run.deleted", 4), ("run.deleted", 8)]


def test_unanswered_request(requests: "BulkRequests") -> None:
    """If a scheduler dies before it answers, only the repeated request gets the counts and the time."""
    jobs = requests.jobs
    answers: list[Any] = []
    requests.commands["bulk_delete"]({**ALL, "command": COMMAND}, answers.append)
    while jobs.left():
        jobs.harness.store.work()
        jobs.harness.loop.round(0)
    jobs.die()
    requests.renew()
    [[deleted_at]] = jobs.db.rows("SELECT DISTINCT deleted_at FROM deleted_runs")
    assert requests.ask("bulk_delete")["result"] == {"affected": 20, "deleted_at": deleted_at}
    assert requests.ask("bulk_delete", command=COMMAND[:-1] + "W")["result"]["affected"] == 0
    assert jobs.told() == [("run.deleted", 20)]


def test_shutdown(jobs: Jobs) -> None:
    """A shutdown does not wait for a job: no further slice begins."""
    jobs.delete()
    jobs.harness.daemon.ending = True
    jobs.slice()
    assert jobs.left() == 16
    jobs.harness.store.work_all()
    assert jobs.told() == [("run.deleted", 4)]
    assert "shutting down" in str(jobs.results[0])


def test_deletion_times_are_unique(requests: "BulkRequests") -> None:
    """Deletions in the same millisecond have different times, so each can be restored alone.

    A repeated, unfinished deletion continues at its own time under a new scheduler.
    """
    jobs = requests.jobs
    some = [run.id for run in list_runs(jobs.db, RunFilter(), limit=8, now_ms=0)[0]]
    first = requests.ask("bulk_delete", match_all=False, ids="".join(some))["result"]
    second_result = requests.ask("bulk_delete")["result"]
    assert (first["affected"], second_result["affected"]) == (8, 12)
    assert first["deleted_at"] != second_result["deleted_at"]
    assert requests.ask("bulk_restore", deleted_at=second_result["deleted_at"])["result"] == {"affected": 12}
    assert {get_run(jobs.db, run_id) for run_id in some} == {None}
    assert requests.ask("bulk_restore", deleted_at=second_result["deleted_at"] + 1)["result"] == {"affected": 0}
    set_meta(jobs.db, "bulk", {"command": COMMAND, "event": "run.deleted", "began": 5, "affected": 4})
    jobs.begin()
    requests.renew()
    assert requests.ask("bulk_delete")["result"] == {"affected": 12 + 4, "deleted_at": 5}


class BulkRequests:
    """Requests for bulk operations on a bench."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.deleted = 0
        self.first: list[str] = []
        """The first runs in the last answer."""
        self.renew()

    def renew(self) -> None:
        """Set up the operations as a new scheduler does."""
        jobs = self.jobs
        commands = BulkOperations(
            jobs.harness.core,
            jobs.harness.engine,
            jobs.harness.units,
            jobs.bulk,
            cast(RetentionChecks, SimpleNamespace(undo_window_ms=60_000, deleted=self.count)),
            TriggerLimit(time.monotonic, 0),
        )
        self.commands = operations_of(commands)

    def count(self) -> None:
        self.deleted += 1

    def ask(self, operation: str, **arguments: Any) -> Any:
        answers: list[Any] = []
        self.commands[operation]({**ALL, "command": COMMAND, **arguments}, answers.append)
        while not answers:
            self.jobs.harness.store.work_all()
            self.jobs.harness.loop.round(0)
        self.first = answers[0].get("result", {}).pop("first", [])
        return answers[0]


@pytest.fixture
def requests(jobs: Jobs) -> BulkRequests:
    return BulkRequests(jobs)


def test_undo_window(requests: BulkRequests) -> None:
    """Runs that were deleted before the undo window are not restored, even if they are not purged yet."""
    assert requests.ask("bulk_delete")["result"]["affected"] == 20
    assert requests.first == [run_id for (run_id,) in requests.jobs.db.rows("SELECT id FROM runs ORDER BY seq LIMIT 3")]
    assert requests.deleted == 1
    requests.jobs.db.execute("UPDATE deleted_runs SET deleted_at = deleted_at - 60000 WHERE run <= 5")
    assert requests.ask("bulk_restore")["result"] == {"affected": 15}
    assert requests.ask("bulk_restore")["result"] == {"affected": 0}


def test_repeated_rerun(requests: BulkRequests) -> None:
    """A repeated command gives the same runs, and skips services, removed tasks and tasks with api_trigger = false."""
    for task in ("own", "s", "removed"):
        insert_run(requests.jobs.db, make_run(task_name=task, status="ended", end_reason="failed"))
    first = requests.ask("bulk_rerun", triggered_by="api")["result"]["triggered"]
    assert [rerun["task_name"] for rerun in first] == ["t"]
    assert requests.ask("bulk_rerun", triggered_by="api")["result"]["triggered"] == first
    assert requests.jobs.harness.root.take("spawn") == [first[0]["run_id"]]
    other = requests.ask("bulk_rerun", triggered_by="api", command="01ARZ3NDEKTSV4RRFFQ69G5FAW")["result"]["triggered"]
    assert other != first


def test_requests_while_nothing_can_be_stored(requests: BulkRequests) -> None:
    """On a full disk a stop is answered once the runs are stopped, and the deletion of a waiting run is refused."""
    jobs_bench = requests.jobs.harness
    active, waiting, other = (jobs_bench.trigger("t") for _ in range(3))
    jobs_bench.store.work_all()
    jobs_bench.started(active.id)
    jobs_bench.store.fail(DiskFull())
    assert not jobs_bench.committer.storing
    operations = {
        **requests.commands,
        **operations_of(RunOperations(jobs_bench.core, jobs_bench.engine, jobs_bench.units, {})),
    }
    answers: list[Any] = []
    operations["run_delete"]({"run": waiting.id, "by": "me"}, answers.append)
    operations["stop"]({"run": waiting.id, "by": "me", "force": False}, answers.append)
    assert [answer.get("status") for answer in answers] == [503, None]
    assert [run_id in jobs_bench.engine.live for run_id in (active.id, waiting.id, other.id)] == [True, False, True]
    operations["bulk_stop"]({**ALL, "command": COMMAND}, answers.append)
    assert answers[-1]["result"]["affected"] == 2
    assert jobs_bench.root.take("stop") == [active.id]
    jobs_bench.committer._feed()  # a second later
    jobs_bench.store.work_all()
    stored = [get_run(requests.jobs.db, run_id) for run_id in (waiting.id, other.id)]
    assert [run and run.end_reason for run in stored] == ["stopped", "stopped"]


def test_stop(requests: BulkRequests) -> None:
    """A bulk stop ends running and waiting runs, and does not count a run that is already stopping."""
    jobs_bench = requests.jobs.harness
    made = [jobs_bench.trigger("t") for _ in range(3)]
    jobs_bench.store.work_all()
    jobs_bench.started(made[0].id)
    jobs_bench.store.work_all()
    assert requests.ask("bulk_stop")["result"] == {"affected": 3}
    assert set(requests.first) == {run.id for run in made}
    assert jobs_bench.root.take("stop") == [made[0].id]
    assert [jobs_bench.row(run).status for run in made] == ["running", "ended", "ended"]
    assert requests.ask("bulk_stop")["result"] == {"affected": 0}
    assert jobs_bench.root.take("stop") == []


def test_delete_one_run(requests: BulkRequests) -> None:
    """Deleting a running run gets 409.

    A waiting run ends as stopped and is deleted, and a repetition changes nothing.
    """
    jobs_bench = requests.jobs.harness
    running, waiting = jobs_bench.trigger("t"), jobs_bench.trigger("t")
    jobs_bench.store.work_all()
    jobs_bench.started(running.id)
    jobs_bench.store.work_all()
    assert requests.ask("run_delete", run=running.id)["status"] == 409
    for _ in range(2):
        assert requests.ask("run_delete", run=waiting.id)["ok"]
    row = get_run(requests.jobs.db, waiting.id, include_deleted=True)
    assert row is not None
    assert (row.end_reason, row.stopped_by, row.deleted_at is not None) == ("stopped", "somebody", True)
    kinds_and_runs = [(event.kind, event.body["runId"]) for event in since(requests.jobs.db, 0)]
    assert kinds_and_runs[-2:] == [("run.ended", waiting.id), ("run.deleted", waiting.id)]


def test_progress_of_another_command(jobs: Jobs) -> None:
    """Progress that an earlier scheduler stored for another command does not count."""
    set_meta(jobs.db, "bulk", {"command": "other", "event": "run.deleted", "affected": 3})
    jobs.begin()
    jobs.harness.store.work_all()
    jobs.delete()
    while jobs.harness.store.jobs:
        jobs.slice()
    assert jobs.results == [20]


@pytest.fixture
def reading(bench: Callable[[str], Bench], tmp_path: Path) -> tuple[Bench, LongReads]:
    harness = bench(CONFIG)
    return harness, LongReads(harness.loop, str(tmp_path / "ringward.db"), lambda _damage: None)


def test_long_reads(reading: tuple[Bench, LongReads]) -> None:
    """Long reads are answered from the loop, in order, with their results or exceptions."""
    reading_bench, reader = reading
    answers: list[Any] = []
    for query in ("SELECT 1", "nonsense", "DELETE FROM runs"):
        Procedures().start(append_result(reader, query, answers), answers.append)
    while len(answers) < 3:
        reading_bench.loop.round(reading_bench.loop.now_s() + 1)
    assert answers[0] == [(1,)]
    assert [type(answer).__name__ for answer in answers[1:]] == ["StoreError", "ReadOnly"]
