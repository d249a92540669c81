"""Conditions that are asked before a run starts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import notifications
from store.runs.ids import new_ulid
from store.runs.writes import Run, unfinished_runs
from supervisor.ipc.probe_request import CommandAnswered, ProbeRequest, RequestFailed
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.fake_clock import START_MS, FakeClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
AGAIN = 'only_if_retry = "5m"\nonly_if_for = "12m"'


class Asked(Bench):
    """A bench whose conditions a test answers."""

    def __init__(self, directory: Path, keys: str) -> None:
        self.clock = FakeClock()
        text = f'[slots.disk]\nsize = 1\n[tasks.t]\nrun = "true"\nuses = ["disk"]\nonly_if = "test -e /srv"\n{keys}\n'
        super().__init__(directory, f'{text}[tasks.other]\nrun = "true"\nuses = ["disk"]\n', self.clock)

    def scheduled(self, at: int | None) -> LiveRun:
        """Create a run for an instant."""
        unit = self.units["t"]
        assert unit.task is not None
        with self.committer.changing() as change:
            request = RunRequest(trigger="cron", run_id=new_ulid(change.now_ms), scheduled_at=at)
            run = self.engine.create_task_run(unit, unit.task, change, request)
        self.store.work_all()
        return run

    def requests(self) -> list[ProbeRequest]:
        return [request for request, _on_answer in self.watcher.open.values()]

    def says(self, run: LiveRun, status: int | None, why: str = "not there") -> None:
        """Answer the condition of a run; None: it could not be asked."""
        _request, on_answer = self.watcher.open.pop(f"{run.id}/only_if")
        key = f"{run.id}/only_if"
        answer = CommandAnswered(key, "") if status == 0 else RequestFailed(key, why, status)
        on_answer(answer)
        self.store.work_all()

    def pass_time(self, by_ms: int) -> None:
        self.clock.advance_ms(by_ms)
        self.loop.round(0)
        self.store.work_all()

    def started_runs(self) -> list[str]:
        return self.root.take("spawn")

    def active(self, name: str = "t") -> LiveRun:
        """Return a run of a task that has a process."""
        run = self.trigger(name)
        self.store.work_all()
        if name == "t":
            self.says(run, 0)
        self.started(run.id)
        self.store.work_all()
        self.root.sent.clear()
        return run


Make = Callable[..., Asked]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Asked] = []

    def make(keys: str = "") -> Asked:
        made.append(Asked(tmp_path, keys))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


def outcome(row: Run) -> tuple[str, str | None, str | None, str | None]:
    return row.status, row.end_reason, row.cause, row.stopped_by


def test_condition_is_met(make: Make) -> None:
    """The command has the environment, user and time limit of the task; the run starts once it exits with 0."""
    harness = make('env = { A = "x" }\nonly_if_timeout = "3s"\nworking_dir = "/"')
    run = harness.scheduled(START_MS)
    assert harness.root.sent == []
    (request,) = harness.requests()
    assert (request.kind, request.argv[-1], request.timeout_ms, request.cwd) == ("condition", "test -e /srv", 3000, "/")
    assert (request.env["A"], request.env["RINGWARD_RUN_ID"]) == ("x", run.id)
    harness.says(run, 0)
    assert harness.started_runs() == [run.id]


def test_places_are_reserved_while_asking(make: Make) -> None:
    """A run holds its slots while its condition is asked, and frees them if it says no."""
    harness = make()
    run, other = harness.scheduled(START_MS), harness.trigger("other")
    harness.store.work_all()
    assert harness.started_runs() == []
    harness.says(run, 1)
    assert harness.started_runs() == [other.id]
    assert outcome(harness.row(run)) == ("ended", "skipped", "condition", "only_if: not there")
    assert notifications.page(harness.store.database, 10) == []


def test_times_of_one_day_are_one_record(make: Make) -> None:
    """Scheduled times that a condition skipped on a local day are one record; manual runs have their own."""
    harness = make('timezone = "UTC"\nmax_concurrent = 5')
    day = START_MS - START_MS % (24 * HOUR_MS)
    times = [day, day + HOUR_MS, day + 23 * HOUR_MS, day + 24 * HOUR_MS]
    for at in times:
        harness.says(harness.scheduled(at), 1)
    manual = harness.trigger("t")
    harness.store.work_all()
    harness.says(manual, 1)
    rows = harness.store.database.rows("SELECT scheduled_at, missed_count, cause FROM runs ORDER BY created_at, id")
    assert rows == [(times[2], 3, "condition"), (times[3], None, "condition"), (None, None, "condition")]
    assert unfinished_runs(harness.store.database) == []


@pytest.mark.parametrize("status", [2, 127, None])
def test_condition_that_fails(make: Make, status: int | None) -> None:
    """With any other end of the command, the run is refused by the root, whose log has the reason."""
    harness = make()
    run = harness.scheduled(START_MS)
    harness.says(run, status, "/bin/sh exited with code 2: no disk")
    (message,) = harness.root.sent
    assert message["spawn"]["run"] == run.id
    assert message["spawn"]["refusal"] == "only_if: /bin/sh exited with code 2: no disk"


def test_asked_again(make: Make) -> None:
    """A run whose condition says no waits without places, is asked again at intervals, and ends after its time."""
    harness = make(AGAIN)
    run = harness.scheduled(START_MS)
    for _ in range(2):
        harness.says(run, 1)
        assert (harness.requests(), harness.row(run).due_kind) == ([], "condition")
        assert harness.row(run).due_at == START_MS + 12 * MINUTE_MS
        harness.trigger("other")
        harness.store.work_all()
        (other,) = harness.started_runs()
        harness.exited(other)
        harness.store.work_all()
        harness.pass_time(5 * MINUTE_MS - 1)
        assert harness.requests() == []
        harness.pass_time(1)
        assert len(harness.requests()) == 1
    harness.says(run, 1, "still not there")
    assert outcome(harness.row(run)) == ("ended", "skipped", "condition", "only_if: still not there")


def test_starts_when_it_is_met_later(make: Make) -> None:
    """A run starts once its condition says yes."""
    harness = make(AGAIN)
    run = harness.scheduled(START_MS)
    harness.says(run, 1)
    harness.pass_time(5 * MINUTE_MS)
    harness.says(run, 0)
    assert harness.started_runs() == [run.id]


@pytest.mark.parametrize("waits", [False, True], ids=("asking", "waiting"))
def test_restart(make: Make, waits: bool) -> None:
    """The next scheduler asks again at once, and not for longer than the first would have."""
    harness = make(AGAIN)
    run = harness.scheduled(START_MS)
    if waits:
        harness.says(run, 1)
    harness.watcher.open.clear()
    harness.clock.advance_ms(11 * MINUTE_MS)
    harness.restart()
    run = harness.engine.live[run.id]
    assert len(harness.requests()) == 1
    harness.says(run, 1)
    assert harness.row(run).status == ("ended" if waits else "pending")


def test_stop(make: Make) -> None:
    """A run can be stopped while its condition is asked and while it waits; the condition is not asked any more."""
    harness = make(AGAIN)
    asked = harness.scheduled(START_MS)
    harness.stop(asked)
    harness.store.work_all()
    assert harness.requests() == []
    waiting = harness.scheduled(START_MS + 1)
    harness.says(waiting, 1)
    harness.stop(waiting)
    harness.store.work_all()
    harness.pass_time(HOUR_MS)
    assert (harness.requests(), harness.started_runs()) == ([], [])
    assert [harness.row(run).end_reason for run in (asked, waiting)] == ["stopped", "stopped"]


def test_waiting_run_counts_as_waiting(make: Make) -> None:
    """A scheduled time passes if a run of the task already waits for its condition."""
    harness = make(AGAIN)
    harness.says(harness.scheduled(START_MS), 1)
    unit = harness.units["t"]
    assert unit.task is not None
    with harness.committer.changing() as change:
        request = RunRequest(trigger="cron", scheduled_at=START_MS + 1, coalesce=True)
        second = harness.engine.create_task_run(unit, unit.task, change, request)
    harness.store.work_all()
    assert harness.row(second).end_reason == "skipped"


def test_asked_before_an_older_run_is_stopped(make: Make) -> None:
    """With `terminate`, an older run goes on if the condition says no, or cannot be asked."""
    harness = make('on_overlap = "terminate"')
    older = harness.active()
    no, failed = harness.scheduled(START_MS), harness.scheduled(START_MS + 1)
    harness.says(no, 1)
    harness.says(failed, 2)
    assert harness.row(no).end_reason == "skipped"
    (message,) = harness.root.sent
    assert (message["spawn"]["run"], message["spawn"]["refusal"]) == (failed.id, "only_if: not there")
    harness.root.sent.clear()
    yes = harness.scheduled(START_MS + 2)
    assert harness.root.sent == []
    harness.says(yes, 0)
    assert harness.root.take("stop") == [older.id, failed.id]
    for ended in (older, failed):
        harness.exited(ended.id, cause="stop")
        harness.store.work_all()
    assert harness.started_runs() == [yes.id]


def test_restart_before_an_older_run_is_stopped(make: Make) -> None:
    """A scheduler that dies while it asks a run that would replace another one leaves both to the next scheduler."""
    harness = make(f'on_overlap = "terminate"\n{AGAIN}')
    first = harness.scheduled(START_MS)
    harness.scheduled(START_MS + 1)
    assert len(harness.requests()) == 2
    harness.watcher.open.clear()
    harness.restart()
    asked = [harness.engine.live[request.key.partition("/")[0]] for request in harness.requests()]
    assert (len(asked), asked[0].id) == (2, first.id)
    harness.says(asked[1], 1)
    harness.says(asked[0], 0)
    assert harness.started_runs() == [first.id]


def test_force(make: Make) -> None:
    """A forced run, and its retries, are not asked, not even after a restart."""
    harness = make("retry_attempts = 1\nmax_concurrent = 3")
    other = harness.active("other")
    commands = operations_of(RunOperations(harness.core, harness.engine, harness.units, {}))
    run_id, answers = new_ulid(), list[Any]()
    request = {"run": run_id, "task": "t", "triggered_by": "api", "by": "me", "force": True}
    commands["trigger"](request, answers.append)
    harness.store.work_all()
    assert harness.started_runs() == []
    with harness.committer.changing() as change:
        harness.engine.stop(other, change)
    harness.exited(other.id, cause="stop")
    harness.store.jobs.clear()
    harness.restart()
    for live in list(harness.engine.live.values()):
        if live.unit.name == "other":
            harness.exited(live.id)
            harness.store.work_all()
    assert harness.requests() == []
    assert run_id in harness.started_runs()
    harness.started(run_id)
    harness.exited(run_id, status=1 << 8)
    harness.store.work_all()
    (retry,) = harness.units["t"].waiting.values()
    harness.pass_time(HOUR_MS)
    assert harness.started_runs() == [retry.id]


def test_host_check(bench: Callable[[str], Bench]) -> None:
    """A condition without a command asks the watcher about the path and the load."""
    harness = bench('[tasks.t]\nrun = "true"\nonly_if = { path = "/srv/ready", load_below = 2 }\n')
    harness.trigger("t")
    harness.store.work_all()
    ((request, _on_answer),) = harness.watcher.open.values()
    assert (request.argv, request.target, request.load_below) == ([], "/srv/ready", 2.0)
