"""Killed helpers: runs continue, and every numbered line is kept."""

import os
import signal
import sqlite3
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

import psutil
import pytest

from tests.support.daemon import Daemon, command_lines, gone, program
from tests.support.host_features import require_cgroups
from tests.support.waiting import until


@pytest.mark.lent
def test_process_tree(daemon: Daemon) -> None:
    """The output of ps shows one supervisor with a scheduler and a gunicorn below it."""
    daemon.write("")
    daemon.start()
    assert " ".join(psutil.Process(daemon.pid).cmdline()) == "ringward supervisor"
    assert daemon.helper("ringward scheduler").ppid() == daemon.helper("ringward gunicorn").ppid() == daemon.pid


@pytest.mark.lent
def test_killed_scheduler(daemon: Daemon, tmp_path: Path) -> None:
    """Runs continue without a scheduler, and the next one stores their ends exactly."""
    side = tmp_path / "side"
    daemon.write(
        f"[tasks.long]\nrun = {program('numbered', 200, 0.005, side)}\n"
        '[tasks.short]\nrun = "sleep 0.05; exit 9"\n'
        f"[services.s]\nrun = {program('obeys_term')}\n"
    )
    daemon.start()
    services = until(lambda: [run for run in daemon.runs("s") if run["status"] == "running"], "the service")
    service = services[0]
    long, short = daemon.trigger("long"), daemon.trigger("short")
    until(lambda: daemon.texts(long), "its first line")
    daemon.kill_helper("ringward scheduler")
    assert (daemon.ended(short)["endReason"], daemon.ended(short)["exitCode"]) == ("failed", 9)
    assert daemon.ended(long)["endReason"] == "succeeded"
    assert daemon.texts(long) == [f"line {number}" for number in range(200)]
    assert side.read_text().split() == [str(number) for number in range(200)]
    assert [run["id"] for run in daemon.runs("s")] == [service["id"]]
    assert daemon.run(service["id"])["status"] == "running"


def replaced(daemon: Daemon, zygote: psutil.Process) -> bool:
    return daemon.helper("ringward spawner") != zygote


def test_killed_zygote(daemon: Daemon) -> None:
    """A killed zygote is replaced in the same cgroup and at the same priority, and starts succeed meanwhile."""
    require_cgroups()
    daemon.write('[tasks.t]\nrun = "echo hello"\n')
    daemon.start()
    for _ in range(3):
        zygote = daemon.helper("ringward spawner")
        for name in ("cgroup", "oom_score_adj"):
            assert Path(f"/proc/{zygote.pid}/{name}").read_text() == Path(f"/proc/{daemon.pid}/{name}").read_text()
        assert os.getsid(zygote.pid) == zygote.pid
        zygote.kill()
        runs = [daemon.trigger("t") for _ in range(3)]
        assert [daemon.ended(run)["endReason"] for run in runs] == ["succeeded"] * 3
        assert [daemon.texts(run) for run in runs] == [["hello"]] * 3
        until(partial(replaced, daemon, zygote), "another zygote")
    zygote = daemon.helper("ringward spawner")
    daemon.stop()
    assert gone(zygote)


@pytest.mark.lent
def test_schedule_survives_killed_schedulers(daemon: Daemon) -> None:
    """However often the scheduler is killed, each instant has exactly one run."""
    daemon.write(
        '[tasks.t]\nrun = "echo $RINGWARD_SCHEDULED_AT"\nevery = "1s"\n'
        "max_concurrent = 1000\ncatch_up = 1000\nkeep_runs = 1000\n"
    )
    daemon.start()
    for number in range(4):
        until(lambda number=number: len(daemon.runs("t")) > 2 * number, "more runs")  # type: ignore[misc]
        daemon.kill_helper("ringward scheduler")
    last = daemon.task("t")["nextRunAt"]
    until(lambda: daemon.task("t")["nextRunAt"] > last, "one more run")
    runs = [daemon.ended(run["id"]) for run in daemon.runs("t")]
    assert {run["endReason"] for run in runs} == {"succeeded"}
    times = sorted(datetime.fromisoformat(daemon.texts(run["id"])[0]) for run in runs)
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(seconds=1)}


@pytest.mark.lent
def test_timeout_without_a_scheduler(daemon: Daemon) -> None:
    """The supervisor carries out stop steps and timeouts without a scheduler."""
    daemon.write('[tasks.t]\nrun = "exec sleep 1000"\ntimeout = "1s"\n')
    daemon.start()
    scheduler = daemon.helper("ringward scheduler")

    def left_alone() -> tuple[str, list[psutil.Process]] | None:  # it starts before the test knows about it
        run_id = daemon.trigger("t")
        until(lambda: daemon.run(run_id)["status"] != "pending", "its start")
        scheduler.suspend()
        children = daemon.children("sleep 1000")
        if children:
            return run_id, children
        scheduler.resume()
        daemon.ended(run_id)
        return None

    run_id, (child,) = until(left_alone, "a run that the scheduler does not see end")
    try:
        until(lambda: not child.is_running(), "the time-out to strike")
    finally:
        scheduler.kill()
    assert daemon.ended(run_id)["endReason"] == "timeout"


@pytest.mark.lent
def test_queue_and_retries_survive_a_killed_scheduler(daemon: Daemon) -> None:
    """Queued runs and pending retries run, in order, after the scheduler is back."""
    daemon.write(
        f'[tasks.q]\nrun = {program("obeys_term")}\n[tasks.r]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "2s"\n'
    )
    daemon.start()
    ids = [daemon.trigger("q") for _ in range(3)]
    until(lambda: daemon.texts(ids[0]), "the first to run")
    daemon.trigger("r")
    until(lambda: len(daemon.runs("r")) == 2, "the retry to wait")
    daemon.kill_helper("ringward scheduler")
    assert [run["status"] for run in daemon.runs("q")] == ["running", "pending", "pending"]
    for run_id in ids:
        until(partial(daemon.texts, run_id), "its turn")
        assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
        assert daemon.ended(run_id)["endReason"] == "stopped"
    assert daemon.ended(daemon.runs("r")[1]["id"])["endReason"] == "failed"


@pytest.mark.lent
def test_stream_resumes_after_a_killed_api(daemon: Daemon, tmp_path: Path) -> None:
    """By Last-Event-ID alone, a stream resumes after gunicorn was killed, with no line repeated or missing."""
    daemon.write(f"[tasks.t]\nrun = {program('numbered', 400, 0.005, tmp_path / 'side')}\n")
    daemon.start()
    run_id = daemon.trigger("t")
    seen: list[str] = []
    last: str | None = None
    kills = 0
    done = False
    while not done:
        stream = daemon.stream(f"/api/runs/{run_id}/log/stream?from=0", last)
        for event in stream:
            if event.kind == "line":
                seen.append(event.data["text"])
                last = event.id
            done = done or event.kind == "done"
            if kills < 2 and len(seen) >= 100 * (kills + 1):
                kills += 1
                daemon.kill_helper("ringward gunicorn")
        stream.close()
    assert seen == [f"line {number}" for number in range(400)]


@pytest.mark.parametrize("killed", [True, False])
def test_events_survive_another_scheduler(daemon: Daemon, killed: bool) -> None:
    """Open and resumed streams of events miss none if the scheduler is killed or replaced."""
    daemon.write('[tasks.t]\nrun = "true"\n')
    daemon.start()
    path = "/api/events/stream?types=run.created,run.started,run.ended"
    open_before = daemon.stream(path, "-1")
    first = daemon.trigger("t")
    daemon.ended(first)
    if killed:
        daemon.kill_helper("ringward scheduler")
    else:
        before = daemon.helper("ringward scheduler").pid
        daemon.config.write_text(f'{daemon.config.read_text()}[storage]\ndurability = "power"\n')
        assert daemon.request("POST", "/api/daemon/reload").status == 200
        daemon.replaced("ringward scheduler", before)
    second = daemon.trigger("t")
    daemon.ended(second)
    expected = [(run, kind) for run in (first, second) for kind in ("run.created", "run.started", "run.ended")]
    for stream in (open_before, daemon.stream(path, "-1")):
        assert [(event.data.get("runId"), event.kind) for event in islice(stream, len(expected))] == expected
        stream.close()


@pytest.mark.lent
def test_killed_worker_is_replaced(daemon: Daemon) -> None:
    """Gunicorn replaces a killed worker; the listening socket stays, so no client is refused."""
    daemon.write("")
    daemon.start()
    worker = daemon.helper("ringward gunicorn").children()[0]
    worker.send_signal(signal.SIGKILL)
    for _ in range(20):
        assert daemon.get("/healthz").status == 200


@pytest.mark.lent
def test_clean_start_after_a_killed_supervisor(daemon: Daemon, tmp_path: Path) -> None:
    """After SIGKILL of the supervisor, its helpers exit. The next start marks runs as crashed and has their lines."""
    daemon.write(f"[tasks.t]\nrun = {program('numbered', 1_000_000, 0.01, tmp_path / 'side')}\n")
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: len(daemon.texts(run_id)) > 50, "some lines")
    seen = daemon.texts(run_id)
    helpers = psutil.Process(daemon.pid).children(recursive=True)
    daemon.stop(signal.SIGKILL)
    until(lambda: all(map(gone, helpers)), "everything to end")
    daemon.start()
    run = daemon.run(run_id)
    assert (run["status"], run["endReason"], run["exitCode"]) == ("ended", "crashed", -2)
    texts = daemon.texts(run_id)
    assert texts[: len(seen)] == seen
    assert texts == [f"line {number}" for number in range(len(texts))]
    assert run_id not in {run["id"] for run in daemon.runs("t") if run["status"] != "ended"}


def test_stale_helpers_are_ended_by_the_next_start(daemon: Daemon) -> None:
    """The next start ends helpers that hang or are suspended, because it needs their addresses, and logs that."""
    daemon.write('[tasks.t]\nrun = "echo hello"\n')
    daemon.start()
    titles = ["ringward gunicorn", "ringward gunicorn worker", "ringward scheduler"]

    def servers() -> list[psutil.Process] | None:  # a new process initially has the title of its parent
        lines = command_lines(psutil.Process(daemon.pid).children(recursive=True))
        found = [helper for helper, line in lines.items() if line in titles]
        return found if sorted(lines[helper] for helper in found) == titles else None

    stopped = until(servers, "one process of each title")
    for helper in stopped:
        helper.send_signal(signal.SIGSTOP)
    daemon.stop(signal.SIGKILL)
    assert not any(map(gone, stopped))
    daemon.start()
    assert all(map(gone, stopped))
    assert daemon.texts(daemon.ended(daemon.trigger("t"))["id"]) == ["hello"]
    said = next(line for line in daemon.own_output().splitlines() if "of a killed supervisor" in line)
    assert all(f"({helper.pid})" in said for helper in stopped)
    daemon.stop()
    assert [str(path) for place in daemon.runtime_dirs() for path in place.rglob("*")] == []


def test_stale_helpers_of_an_unfinished_start(daemon: Daemon) -> None:
    """The next start ends the helpers of a supervisor that was killed during its own start."""
    daemon.write("")
    daemon.launch()
    beginning = psutil.Process(daemon.pid)

    def executed() -> list[psutil.Process]:  # earlier, the starting process still waits for it
        own = " ".join(beginning.cmdline())
        return [child for child, line in command_lines(beginning.children()).items() if line != own]

    server = min(until(executed, "the server that starts first"), key=psutil.Process.create_time)
    server.send_signal(signal.SIGSTOP)
    until((daemon.data / "id").exists, "the identity by which the next start finds the notes")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    assert gone(server)
    assert f"({server.pid})" in daemon.own_output()


@pytest.mark.lent
@pytest.mark.parametrize("text", ["", "[tasks.t\n", '[tasks.u]\nrun = "true"\n'], ids=["empty", "broken", "edited"])
def test_restarted_scheduler_keeps_the_loaded_configuration(daemon: Daemon, text: str) -> None:
    """A scheduler that dies during an edit of the file does not load the edit; runs continue."""
    daemon.write('[tasks.t]\nrun = "echo hello"\n[services.s]\nrun = "exec sleep 1000"\n')
    daemon.start()
    service = until(lambda: [run for run in daemon.runs("s") if run["status"] == "running"], "the service")[0]["id"]
    daemon.config.write_text(text)
    daemon.kill_helper("ringward scheduler")
    run = daemon.ended(daemon.trigger("t"))
    assert daemon.texts(run["id"]) == ["hello"]
    assert daemon.run(service)["status"] == "running"
    until(lambda: daemon.get("/api/daemon").json()["configStale"], "the staleness to be seen")
    assert {task["name"] for task in daemon.get("/api/tasks").json()["items"]} >= {"s", "t"}


def test_orphans_are_ended_after_a_clock_step(daemon: Daemon) -> None:
    """An orphan that seems older than its run, because the clock was set back, is still ended."""
    daemon.write('[services.s]\nrun = ["sleep", "1000"]\n', daemon='cgroups = "off"')
    daemon.start()
    run_id = until(lambda: [run for run in daemon.runs("s") if run["status"] == "running"], "the service")[0]["id"]
    (leftover,) = until(lambda: daemon.children("sleep 1000"), "its process")
    daemon.stop(signal.SIGKILL)
    assert leftover.is_running()
    with sqlite3.connect(daemon.data / "ringward.db") as db:
        later = "created_at = created_at + 3600000, started_at = started_at + 3600000"
        db.execute(f"UPDATE runs SET {later} WHERE id = ?", [run_id])
    db.close()
    daemon.start()
    assert gone(leftover)


@pytest.mark.lent
def test_orphans_are_ended_before_anything_starts(daemon: Daemon, tmp_path: Path) -> None:
    """A silent service outlives a killed supervisor but not the next start: nothing runs twice."""
    pids = tmp_path / "pids"
    daemon.write(f"[services.s]\nrun = \"echo $$ >> '{pids}'; exec sleep 1000\"\n")
    daemon.start()
    until(lambda: [run for run in daemon.runs("s") if run["status"] == "running"], "the service, as it is stored")
    until(lambda: pids.exists() and pids.read_text().endswith("\n"), "its process")
    daemon.stop(signal.SIGKILL)
    first = psutil.Process(int(pids.read_text()))
    assert first.is_running()
    daemon.start()
    second = until(lambda: pids.read_text().split()[1:], "the next service")
    assert gone(first)
    assert psutil.Process(int(second[0])).is_running()
    _, newest = daemon.runs("s")
    assert newest["triggeredBy"] == "startup"


@pytest.mark.lent
@pytest.mark.parametrize("goes_on", ["; exec sleep 1000", ""], ids=["running", "over"])
def test_started_run_is_not_started_again(daemon: Daemon, tmp_path: Path, goes_on: str) -> None:
    """A run that had started, but was stored only as pending, ends as crashed."""
    pids = tmp_path / "pids"
    daemon.write(f"[tasks.t]\nrun = \"echo $$ >> '{pids}'{goes_on}\"\n")
    daemon.start()
    scheduler = daemon.helper("ringward scheduler")
    os.kill(daemon.pid, signal.SIGSTOP)
    run = daemon.trigger("t")
    scheduler.suspend()  # if killed, its successor could store the end
    os.kill(daemon.pid, signal.SIGCONT)
    until(lambda: pids.exists() and pids.read_text(), "its process")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    assert daemon.ended(run)["endReason"] == "crashed"
    assert len(pids.read_text().split()) == 1


def test_unstored_end(daemon: Daemon, tmp_path: Path) -> None:
    """A shutdown that cannot store the end of a run exits with 1; the next start does not repeat the run."""
    pids = tmp_path / "pids"
    daemon.write(f"[tasks.t]\nrun = \"echo $$ >> '{pids}'\"\n", daemon='shutdown_timeout = "1s"\n')
    daemon.start()
    os.kill(daemon.pid, signal.SIGSTOP)
    run = daemon.trigger("t")
    daemon.helper("ringward scheduler").suspend()
    os.kill(daemon.pid, signal.SIGCONT)
    until(lambda: pids.exists() and pids.read_text(), "its process")
    assert daemon.stop() == 1
    daemon.start()
    assert daemon.ended(run)["endReason"] == "crashed"
    assert len(pids.read_text().split()) == 1


@pytest.mark.lent
def test_restarted_scheduler_remembers_services(daemon: Daemon) -> None:
    """Fatal and exited services keep their state, and running instances keep their state, run and age."""
    daemon.write(
        '[services.fatal]\nrun = "exit 1"\nrestart_attempts = 0\n'
        '[services.once]\nrun = "true"\nrestart = "never"\n'
        f'[services.s]\nrun = {program("obeys_term")}\nhealthy_after = "10ms"\n'
    )
    daemon.start()
    expected = {"fatal": "fatal", "once": "exited", "s": "running"}
    until(lambda: all(daemon.task(name)["state"] == state for name, state in expected.items()), "the services")
    until(lambda: daemon.task("s")["instances"][0].get("ready"), "the instance to have run for long enough")
    before = [daemon.task(name)["instances"] for name in expected]
    daemon.kill_helper("ringward scheduler")
    assert [daemon.task(name)["instances"] for name in expected] == before
    assert [len(daemon.runs(name)) for name in expected] == [1, 1, 1]
