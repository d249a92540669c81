"""Jobs of other engines: how runs wait for them, with a watcher that the test controls."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from store.runs.writes import unfinished_runs
from supervisor.ipc.messages import Exited
from supervisor.ipc.probe_request import ProbeRequest
from supervisor.scheduler.launchers.jobs import LaunchedJobs
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns
from supervisor.scheduler.startup_shutdown.take_over import TakeOver
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

TASK = """
[launchers.l]
start = ["client", "{command}"]
stop = ["stop", "{run_id}"]
probe = ["probe", "{run_id}"]
[tasks.t]
run = "true"
launcher = "l"
env = { PLACE = "here" }
secrets = { TOKEN = "abcdefgh" }
"""
KILLED = 9
FAILED = 1 << 8


class Desk(Bench):
    """A bench with launchers."""

    def __init__(self, directory: Path, text: str = TASK) -> None:
        self.clock = FakeClock()
        super().__init__(directory, text, self.clock)

    def take_up(self, *, first: bool) -> None:
        super().take_up(first=first)
        self.jobs = LaunchedJobs(self.loop, self.engine, self.watcher, cast(RootConnection, self.root), self.log)
        self.engine.observers.append(self.jobs)
        self.engine.connect(self.controller, None, self.jobs)

    def another(self, *, exits: list[Exited] | None = None, running: dict[str, str | None] | None = None) -> None:
        """The next daemon or scheduler has taken up its work."""
        self.take_up(first=True)
        instances = {
            run: {"run": run, "started_at": 1, "cause": cause, "recipe": ""} for run, cause in (running or {}).items()
        }
        known = KnownRuns(unfinished_runs(self.store.database), instances, exits or [], ending=False, first=True)
        change = self.committer.change()
        root = cast(RootConnection, self.root)
        TakeOver(self.engine, self.controller, root, self.units, self.log, self.jobs).reconcile(known, change)
        self.committer.commit(change)
        self.turn()

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass, and all that is due happen."""
        self.clock.advance(seconds)
        for _ in range(3):
            self.loop.round(0)
            self.store.work_all()

    def running(self) -> LiveRun:
        run = self.trigger("t")
        self.turn()
        self.started(run.id)
        self.turn()
        return run

    def asked(self, run: LiveRun, what: str) -> ProbeRequest:
        return self.watcher.open[f"{run.id}/{what}"][0]

    def answers(self, run: LiveRun, what: str, text: str | None, why: str | None = None) -> None:
        """The watcher reports the output of a command, or why it failed."""
        _, on_answer = self.watcher.open.pop(f"{run.id}/{what}")
        on_answer({"op": "failed", "why": why} if text is None else {"op": "answered", "text": text})
        self.turn()

    def waits(self, run: LiveRun) -> bool:
        self.turn()
        return self.row(run).status != "ended"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    one = Desk(tmp_path)
    yield one
    one.close()


def test_the_name_of_the_job_comes_from_the_probe(desk: Desk) -> None:
    """The first word of the probe, asked again until there is one, with all that the client has.

    Unprintable characters are left out: some databases cannot store them.
    """
    run = desk.running()
    request = desk.asked(run, "probe")
    assert (request.argv, request.kind) == (["probe", run.id], "ask")
    assert {"PLACE": "here", "TOKEN": "abcdefgh", "RINGWARD_RUN_ID": run.id}.items() <= request.env.items()
    assert request.secrets == ["TOKEN"]
    desk.answers(run, "probe", "")
    desk.turn(0.3)
    desk.answers(run, "probe", None, "no answer")
    desk.turn(0.6)
    desk.answers(run, "probe", " 47\x0011\x1b running\n4712\n")
    assert desk.row(run).execution_id == "4711"
    desk.turn(60)
    assert desk.watcher.open == {}


def test_a_success_waits_for_nothing(desk: Desk) -> None:
    """The client has seen the job end."""
    run = desk.running()
    desk.exited(run.id)
    desk.turn()
    assert desk.row(run).end_reason == "succeeded"
    assert desk.watcher.open == {}
    assert not os.listdir(f"{desk.boot.data_dir}/launches")


@pytest.mark.parametrize(("status", "cause"), [(KILLED, None), (FAILED, None), (0, "stop"), (KILLED, "timeout")])
def test_an_end_waits_for_the_job(desk: Desk, status: int, cause: str | None) -> None:
    """Any other end is the run's only when the engine has no job any more, and nothing follows it before.

    What there is, is ended.
    """
    run = desk.running()
    behind = desk.trigger("t")
    desk.exited(run.id, status=status, cause=cause)
    assert desk.waits(run)
    desk.answers(run, "probe", "4711")
    desk.answers(run, "stop", "")
    desk.turn(0.2)
    desk.answers(run, "probe", "4711")
    desk.answers(run, "stop", None, "not now")
    desk.turn(0.5)
    assert desk.waits(run)
    assert desk.row(behind).status == "pending"
    assert behind.id not in desk.root.take("spawn")
    desk.answers(run, "probe", "\n")
    assert not desk.waits(run)
    assert behind.id in desk.root.take("spawn")


def test_an_engine_that_does_not_answer_delays_an_end(desk: Desk) -> None:
    """An engine that does not answer delays an end by half a minute and the grace of the job, no longer."""
    run = desk.running()
    desk.exited(run.id, status=FAILED)
    for _ in range(3):
        desk.turn(5)
        desk.answers(run, "probe", None, "no route to host")
    desk.turn(19)
    assert desk.waits(run)
    desk.turn(2)
    assert desk.row(run).end_reason == "failed"
    assert desk.watcher.open == {}


def test_a_job_that_takes_its_time(tmp_path: Path) -> None:
    """When the client is gone, the job has its `graceful_stop` to end, and nothing runs beside it meanwhile."""
    desk = Desk(tmp_path, TASK + 'graceful_stop = "10m"\n')
    run = desk.running()
    behind = desk.trigger("t")
    desk.exited(run.id, status=FAILED)
    desk.answers(run, "probe", "4711")
    desk.turn(590)
    assert desk.waits(run)
    assert behind.id not in desk.root.take("spawn")
    desk.answers(run, "stop", "")
    desk.turn(1)
    desk.answers(run, "probe", "")
    assert behind.id in desk.root.take("spawn")
    desk.close()


@pytest.mark.parametrize("ended_first", [("stop", "probe"), ("probe", "stop")])
def test_a_stop_that_is_too_early(desk: Desk, ended_first: tuple[str, str]) -> None:
    """The engine did not know of the job yet: it is stopped as soon as there is one."""
    run = desk.running()
    desk.jobs.stopping(run.id)
    for what in ended_first:
        desk.answers(run, what, "4711")
    assert list(desk.watcher.open) == [f"{run.id}/stop"]
    desk.answers(run, "stop", "")
    assert desk.watcher.open == {}


def test_stopping(desk: Desk) -> None:
    """The job is stopped when the root begins to end the client; if that fails, the log of the run says so."""
    run = desk.running()
    desk.answers(run, "probe", "4711")
    desk.jobs.stopping(run.id)
    assert desk.asked(run, "stop").argv == ["stop", run.id]
    desk.answers(run, "stop", None, "stop exited with code 1: no such job")
    (note,) = (frame for frame in desk.root.sent if frame["op"] == "note")
    assert note["text"] == "could not stop the job: stop exited with code 1: no such job"


def test_a_dead_supervisor(desk: Desk) -> None:
    """Jobs that it left are looked up by their stored launcher, under any configuration, until the engine answers."""
    run = desk.running()
    path = Path(desk.boot.config_path)
    path.write_text('[tasks.t]\nrun = "false"\n')
    desk.another()
    assert desk.waits(run)
    behind = desk.trigger("t")
    request = desk.asked(run, "probe")
    assert (request.argv, request.env["PLACE"], request.secrets) == (["probe", run.id], "here", ["TOKEN"])
    for _ in range(10):
        desk.answers(run, "probe", None, "no route to host")
        desk.turn(100)
    assert desk.waits(run)
    assert behind.id not in desk.root.take("spawn")
    desk.answers(run, "probe", "4711")
    assert desk.asked(run, "stop").argv == ["stop", run.id]
    desk.answers(run, "stop", "")
    desk.turn(5)
    desk.answers(run, "probe", "")
    assert desk.row(run).end_reason == "crashed"
    assert desk.root.take("spawn") == [behind.id]


def test_one_that_perhaps_never_started(desk: Desk) -> None:
    """The supervisor died before it could say whether it had started it: it starts when there is no job of it.

    Nothing runs beside that job.
    """
    run, behind = desk.trigger("t"), desk.trigger("t")
    desk.turn()
    assert desk.root.take("spawn") == [run.id]
    desk.another()
    assert desk.root.take("spawn") == []
    desk.answers(run, "probe", "")
    assert desk.root.take("spawn") == [run.id]
    assert (desk.row(run).status, desk.row(behind).status) == ("pending", "pending")


def test_a_copy_of_the_data_directory(desk: Desk) -> None:
    """Leaves the jobs of the original alone: there their runs go on."""
    run = desk.running()
    path = Path(desk.boot.data_dir, "launches", run.id)
    path.write_text(path.read_text().replace('"daemon": "D"', '"daemon": "E"'))
    desk.another()
    assert desk.row(run).end_reason == "crashed"
    assert desk.watcher.open == {}


def test_a_launcher_without_a_probe(tmp_path: Path) -> None:
    """Without a probe the job ends with its stop command; a failing stop command is retried for a while."""
    desk = Desk(tmp_path, TASK.replace('probe = ["probe", "{run_id}"]\n', ""))
    for text in ("", None):
        run = desk.running()
        desk.another()
        desk.answers(run, "stop", text, None if text is not None else "no such job")
        assert desk.waits(run) == (text is None)
        desk.turn(40)
        assert desk.row(run).end_reason == "crashed"
    desk.close()


def test_giving_up(desk: Desk) -> None:
    """A forced stop ends a run whose engine never answers."""
    run = desk.running()
    desk.another()
    adopted = desk.engine.live[run.id]
    assert desk.jobs.lost == {run.id}
    change = desk.committer.change()
    desk.engine.stop(adopted, change, force=True)
    desk.committer.commit(change)
    desk.turn()
    assert desk.row(run).end_reason == "crashed"
    assert (desk.jobs.lost, desk.watcher.open) == (set(), {})


def test_another_scheduler(desk: Desk) -> None:
    """A new scheduler continues a stop that is under way, and knows the name of the job."""
    run = desk.running()
    desk.answers(run, "probe", "4711")
    desk.another(running={run.id: "stop"})
    assert desk.engine.live[run.id].execution_id == "4711"
    assert list(desk.watcher.open) == [f"{run.id}/stop"]


def test_a_job_that_nobody_could_end_is_not_started(desk: Desk) -> None:
    """Where it cannot be written down how to end it, the run says why."""
    Path(desk.boot.data_dir, "launches").write_text("in the way")
    run = desk.trigger("t")
    desk.turn()
    (frame,) = (frame["spawn"] for frame in desk.root.sent if frame["op"] == "spawn")
    assert frame["run"] == run.id
    assert "cannot write the record of its job" in frame["refusal"]
