"""Runs that wait for jobs of other engines, with a watcher that the test controls."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from store.runs.writes import unfinished_runs
from supervisor.ipc.messages import Exited
from supervisor.ipc.probe_request import CommandAnswered, ProbeRequest, RequestFailed
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


class LauncherBench(Bench):
    """A bench with launchers."""

    def __init__(self, directory: Path, text: str = TASK) -> None:
        self.clock = FakeClock()
        super().__init__(directory, text, self.clock)

    def take_up(self, *, first: bool) -> None:
        super().take_up(first=first)
        self.jobs = LaunchedJobs(self.core, self.user_lookup, self.watcher, cast(RootConnection, self.root))
        self.engine.observers.append(self.jobs)
        self.engine.connect(self.controller, None, self.jobs)

    def another(self, *, exits: list[Exited] | None = None, running: dict[str, str | None] | None = None) -> None:
        """Start the next daemon or scheduler."""
        self.take_up(first=True)
        instances = {
            run: {"run": run, "started_at": 1, "cause": cause, "recipe": ""} for run, cause in (running or {}).items()
        }
        known_runs = KnownRuns(unfinished_runs(self.store.database), instances, exits or [], ending=False, first=True)
        change = self.committer.change()
        root = cast(RootConnection, self.root)
        TakeOver(self.core, self.engine, self.controller, root, self.units, self.jobs).reconcile(known_runs, change)
        self.committer.commit(change)
        self.turn()

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass, fire due timers and store all changes."""
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

    def request_of(self, run: LiveRun, purpose: str) -> ProbeRequest:
        return self.watcher.open[f"{run.id}/{purpose}"][0]

    def answers(self, run: LiveRun, purpose: str, text: str | None, reason: str | None = None) -> None:
        """Report the output of a command, or the reason of its failure."""
        _, on_answer = self.watcher.open.pop(f"{run.id}/{purpose}")
        key = f"{run.id}/{purpose}"
        on_answer(RequestFailed(key, str(reason)) if text is None else CommandAnswered(key, text))
        self.turn()

    def waits(self, run: LiveRun) -> bool:
        self.turn()
        return self.row(run).status != "ended"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[LauncherBench]:
    harness = LauncherBench(tmp_path)
    yield harness
    harness.close()


def test_job_name_from_the_probe(desk: LauncherBench) -> None:
    """The name of a job is the first word of its probe, which is repeated until there is one.

    The probe has the client's environment. Unprintable characters are removed, because some databases cannot store
    them.
    """
    run = desk.running()
    request = desk.request_of(run, "probe")
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


def test_success_ends_at_once(desk: LauncherBench) -> None:
    """A successful client ends its run at once, because the client has seen the job end."""
    run = desk.running()
    desk.exited(run.id)
    desk.turn()
    assert desk.row(run).end_reason == "succeeded"
    assert desk.watcher.open == {}
    assert not os.listdir(f"{desk.settings.data_dir}/launches")


@pytest.mark.parametrize(("status", "cause"), [(KILLED, None), (FAILED, None), (0, "stop"), (KILLED, "timeout")])
def test_end_waits_for_the_job(desk: LauncherBench, status: int, cause: str | None) -> None:
    """Any other end waits until the engine has no job, and no run follows before. A remaining job is stopped."""
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


def test_unresponsive_engine(desk: LauncherBench) -> None:
    """An engine that does not answer delays an end by half a minute and the grace of the job at most."""
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


def test_slow_job(tmp_path: Path) -> None:
    """After its client is gone, a job has its `graceful_stop` to end, and nothing runs beside it meanwhile."""
    desk = LauncherBench(tmp_path, TASK + 'graceful_stop = "10m"\n')
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
def test_stop_before_the_job_exists(desk: LauncherBench, ended_first: tuple[str, str]) -> None:
    """A job that the engine did not know at the stop is stopped as soon as it exists."""
    run = desk.running()
    desk.jobs.stop_job(run.id)
    for purpose in ended_first:
        desk.answers(run, purpose, "4711")
    assert list(desk.watcher.open) == [f"{run.id}/stop"]
    desk.answers(run, "stop", "")
    assert desk.watcher.open == {}


def test_stop(desk: LauncherBench) -> None:
    """The job is stopped when the root begins to stop the client. An error of the stop command is in the run's log."""
    run = desk.running()
    desk.answers(run, "probe", "4711")
    desk.jobs.stop_job(run.id)
    assert desk.request_of(run, "stop").argv == ["stop", run.id]
    desk.answers(run, "stop", None, "stop exited with code 1: no such job")
    (note,) = (frame for frame in desk.root.sent if frame["op"] == "note")
    assert note["text"] == "could not stop the job: stop exited with code 1: no such job"


def test_daemon_death(desk: LauncherBench) -> None:
    """A job of a dead daemon is probed by its stored launcher until the engine answers.

    The current configuration does not matter, and nothing runs beside the job.
    """
    run = desk.running()
    path = Path(desk.settings.config_path)
    path.write_text('[tasks.t]\nrun = "false"\n')
    desk.another()
    assert desk.waits(run)
    behind = desk.trigger("t")
    request = desk.request_of(run, "probe")
    assert (request.argv, request.env["PLACE"], request.secrets) == (["probe", run.id], "here", ["TOKEN"])
    for _ in range(10):
        desk.answers(run, "probe", None, "no route to host")
        desk.turn(100)
    assert desk.waits(run)
    assert behind.id not in desk.root.take("spawn")
    desk.answers(run, "probe", "4711")
    assert desk.request_of(run, "stop").argv == ["stop", run.id]
    desk.answers(run, "stop", "")
    desk.turn(5)
    desk.answers(run, "probe", "")
    assert desk.row(run).end_reason == "crashed"
    assert desk.root.take("spawn") == [behind.id]


def test_unconfirmed_start(desk: LauncherBench) -> None:
    """A run whose start was not confirmed starts when the engine has no job of it. Nothing runs beside that job."""
    run, behind = desk.trigger("t"), desk.trigger("t")
    desk.turn()
    assert desk.root.take("spawn") == [run.id]
    desk.another()
    assert desk.root.take("spawn") == []
    desk.answers(run, "probe", "")
    assert desk.root.take("spawn") == [run.id]
    assert (desk.row(run).status, desk.row(behind).status) == ("pending", "pending")


def test_copied_data_directory(desk: LauncherBench) -> None:
    """A daemon with a copied data directory leaves the jobs of the original alone."""
    run = desk.running()
    path = Path(desk.settings.data_dir, "launches", run.id)
    path.write_text(path.read_text().replace('"daemon": "D"', '"daemon": "E"'))
    desk.another()
    assert desk.row(run).end_reason == "crashed"
    assert desk.watcher.open == {}


def test_launcher_without_a_probe(tmp_path: Path) -> None:
    """Without a probe the job ends with its stop command; a failing stop command is retried for a while."""
    desk = LauncherBench(tmp_path, TASK.replace('probe = ["probe", "{run_id}"]\n', ""))
    for text in ("", None):
        run = desk.running()
        desk.another()
        desk.answers(run, "stop", text, None if text is not None else "no such job")
        assert desk.waits(run) == (text is None)
        desk.turn(40)
        assert desk.row(run).end_reason == "crashed"
    desk.close()


def test_forced_stop(desk: LauncherBench) -> None:
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


def test_new_scheduler(desk: LauncherBench) -> None:
    """A new scheduler continues an unfinished stop and knows the name of the job."""
    run = desk.running()
    desk.answers(run, "probe", "4711")
    desk.another(running={run.id: "stop"})
    assert desk.engine.live[run.id].execution_id == "4711"
    assert list(desk.watcher.open) == [f"{run.id}/stop"]


def test_unwritable_job_record(desk: LauncherBench) -> None:
    """If the record for stopping a job cannot be written, the job is not started and the run has the reason."""
    Path(desk.settings.data_dir, "launches").write_text("in the way")
    run = desk.trigger("t")
    desk.turn()
    (frame,) = (desk.root.request(frame) for frame in desk.root.sent if frame["op"] == "spawn")
    assert frame["run"] == run.id
    assert "cannot write the record of its job" in frame["refusal"]
