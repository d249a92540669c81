"""A scheduler starts after a short-lived predecessor, a changed file, damage, and steps of the clock."""

import fcntl
import json
import os
import signal
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from tests.e2e.upgrade.test_reload import edit, reload
from tests.support.daemon import Daemon, command_lines, gone, program
from tests.support.waiting import until


def test_startup_work_is_done_once(daemon: Daemon, tmp_path: Path) -> None:
    """The work of a start is done once, by the first scheduler that gets that far."""
    pids = tmp_path / "pids"
    daemon.write(
        f'[services.s]\nrun = "echo $$ >> \'{pids}\'; exec sleep 1000"\n[tasks.t]\nrun = "true"\nrun_on_start = true\n'
    )
    daemon.start()
    until(lambda: pids.exists() and pids.read_text().endswith("\n"), "the service")
    until(lambda: len(daemon.runs("t")) == 1, "the task")
    daemon.stop(signal.SIGKILL)
    leftover = psutil.Process(int(pids.read_text()))
    with (daemon.data / "scheduler.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate()
        daemon.launch()
        until(lambda: daemon.process and psutil.Process(daemon.pid).cmdline() == ["ringward", "supervisor"], "the root")
        first = daemon.helper("ringward scheduler")
        first.kill()
        until(lambda: daemon.helper("ringward scheduler").pid != first.pid, "the second scheduler")
    until(daemon.ready, "the daemon")
    until(lambda: len(pids.read_text().split()) == 2, "the next service")
    assert gone(leftover)
    until(lambda: len(daemon.runs("t")) == 2, "the task to run again")
    assert [run["triggeredBy"] for run in daemon.runs("t")] == ["startup"] * 2
    daemon.kill_helper("ringward scheduler")
    assert len(daemon.runs("t")) == 2
    assert len(pids.read_text().split()) == 2


@pytest.mark.lent
def test_damaged_ring_does_not_block_the_start(daemon: Daemon) -> None:
    """A ring that cannot be read is reported, and the daemon starts."""
    daemon.write(f"[tasks.t]\nrun = {program('obeys_term')}\n")
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    helpers = [helper for helper, line in command_lines(daemon.family()).items() if line.startswith("ringward")]
    daemon.stop(signal.SIGKILL)
    until(lambda: all(map(gone, helpers)), "its helpers to end")
    (daemon.runtime_dir() / f"{run_id}.ring").write_bytes(b"this is no ring" * 1000)
    daemon.start()
    assert daemon.run(run_id)["endReason"] == "crashed"
    until(lambda: "cannot save the end of its log" in daemon.own_output(), "a word about it")
    assert "Traceback" not in daemon.own_output()


def config_warnings(daemon: Daemon) -> str:
    return "\n".join(daemon.get("/api/daemon").json()["configWarnings"])


def test_warnings_about_the_loaded_configuration(daemon: Daemon) -> None:
    """The daemon and its successors report the warnings about the configuration until a reload without them."""
    task = "[tasks.backup]\nrun = 'true'\n"
    daemon.write(task, http='public = ["bakcup"]\n')
    daemon.start()
    assert 'no task or service named "bakcup"' in config_warnings(daemon)
    daemon.kill_helper("ringward scheduler")
    assert 'no task or service named "bakcup"' in config_warnings(daemon)
    assert 'named "bakcup"' in daemon.cli("status").stdout
    right, wrong = (daemon.config.read_text().replace("bakcup", name) for name in ("backup", "backpu"))
    for text, warning in ((right, ""), (wrong, 'no task or service named "backpu"')):
        daemon.config.write_text(text)
        assert daemon.cli("reload").returncode == 0
        assert warning in config_warnings(daemon)
        assert bool(warning) is bool(config_warnings(daemon))


@pytest.mark.lent
def test_warnings_of_validate(daemon: Daemon) -> None:
    """The daemon, its successors and a reload give the warnings that validate gives, and none needs attention."""
    few = "every = '1m'\nkeep_for = '90d'\n"
    daemon.write(f"[tasks.t]\nrun = ['/no/such']\n{few}[tasks.u]\nrun = 'true'\nworking_dir = '/no/dir'\n")

    def warned() -> list[str]:
        return [warning["message"] for warning in json.loads(daemon.cli("validate", "--json").stdout)["warnings"]]

    def shown() -> bool:
        texts = daemon.get("/api/daemon").json()["configWarnings"]
        messages = warned()
        return len(texts) == len(messages) and all(map(str.__contains__, texts, messages))

    daemon.start()
    assert len(warned()) == 3
    until(shown, "the warnings")
    daemon.kill_helper("ringward scheduler")
    until(shown, "the warnings of the next scheduler")
    status = daemon.cli("status")
    assert (status.returncode, "no such directory: /no/dir" in status.stdout) == (0, True), status.stdout
    edit(daemon, "[tasks.t]\nrun = ['/no/such']\n")
    reloaded = daemon.cli("reload", "--json")
    assert "no such program: /no/such" in reloaded.stdout
    assert shown()


@pytest.mark.lent
def test_file_is_loaded_without_a_copy(daemon: Daemon) -> None:
    """A scheduler without a copy of the loaded configuration reads the file: removed services stop, tasks continue.

    The log, readyz and status say so until the next reload.
    """
    text = f'run = {program("obeys_term")}\ngraceful_stop = "1h"\n'
    daemon.write(f"[services.gone]\n{text}[services.fewer]\n{text}instances = 3\n[tasks.t]\n{text}")
    daemon.start()
    until(lambda: all(daemon.task(name)["state"] == "running" for name in ("gone", "fewer")), "the services")
    task = daemon.trigger("t")
    until(lambda: daemon.texts(task), "the task")
    gone = daemon.runs("gone")[0]["id"]
    fewer = {run["instanceIndex"]: run["id"] for run in daemon.runs("fewer")}
    edit(daemon, f"[services.fewer]\n{text}")
    daemon.remove_config_copies()
    daemon.kill_helper("ringward scheduler")
    assert "no usable copy of the active configuration" in daemon.own_output()
    daemon.kill_helper("ringward scheduler")  # the next one has a copy, but no user has confirmed it
    assert daemon.get("/readyz").json()["status"] == "degraded"
    assert "run: ringward reload" in config_warnings(daemon)
    status = daemon.cli("status")
    assert (status.returncode, "no usable copy" in status.stdout) == (1, True)
    assert daemon.cli("reload").returncode == 0
    assert config_warnings(daemon) == ""
    assert daemon.get("/readyz").json()["status"] == "ok"
    assert daemon.ended(gone)["endReason"] == "stopped"
    assert [daemon.ended(fewer[index])["endReason"] for index in (1, 2)] == ["stopped", "stopped"]
    assert daemon.run(fewer[0])["status"] == daemon.run(task)["status"] == "running"
    assert daemon.request("POST", f"/api/runs/{task}/stop").status == 204
    assert daemon.ended(task)["exitCode"] == 5


@pytest.mark.lent
@pytest.mark.parametrize("text", ["", "broken]", '[tasks.other]\nrun = "true"\n'])
def test_invalid_file_during_a_restart(daemon: Daemon, text: str) -> None:
    """The active configuration survives the scheduler's death, whatever the file contains.

    If the copy is missing too, the scheduler starts only after the file is valid again. Services continue to run. Log,
    readyz and status report the reason.
    """
    daemon.write(f"[services.s]\nrun = {program('obeys_term')}\n[tasks.t]\nrun = 'true'\n")
    good = daemon.config.read_text()
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "running", "the service")
    (run,) = daemon.runs("s")
    daemon.config.write_text(text)
    daemon.kill_helper("ringward scheduler")
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    before = daemon.helper("ringward scheduler")
    daemon.remove_config_copies()
    before.kill()
    until(lambda: "no usable configuration" in daemon.get("/readyz").body.decode(), "the refusal")
    assert daemon.get("/readyz").status == 503
    assert "the file cannot be used" in daemon.get("/api/daemon").json()["databaseProblem"]
    status = daemon.cli("status", "--url", f"unix:{daemon.socket}")
    assert (status.returncode, "the file cannot be used" in status.stdout) == (1, True)
    assert "cannot start: " in daemon.own_output()
    daemon.config.write_text(good)
    until(daemon.ready, "the next scheduler")
    assert "databaseProblem" not in daemon.get("/api/daemon").json()
    assert [run["id"] for run in daemon.runs("s")] == [run["id"]]


@pytest.mark.lent
def test_runs_end_under_the_policy_of_their_start(daemon: Daemon, tmp_path: Path) -> None:
    """Runs are judged and retried by the definition at their start, whatever the file says now."""
    gate, early = tmp_path / "gate", tmp_path / "early"
    waits, waits_less = (f"until [ -e '{path}' ]; do sleep 0.01; done" for path in (gate, early))
    daemon.write(
        f'[tasks.codes]\nrun = "{waits}; exit 7"\nexit_codes = [7]\n'
        f'[tasks.gone]\nrun = "{waits}; exit 7"\nexit_codes = [7]\n'
        f'[tasks.ends]\nrun = "{waits_less}; exit 7"\nexit_codes = [7]\n'
        f'[tasks.tried]\nrun = "{waits}; exit 1"\nretry_attempts = 1\nretry_delay = "0s"\n'
        f"[tasks.says]\nrun = \"{waits}; echo it is broken\"\nfailure_output = 'broken'\n"
    )
    daemon.start()
    runs = {name: daemon.trigger(name) for name in ("codes", "gone", "ends", "tried", "says")}
    until(lambda: all(daemon.run(run)["status"] == "running" for run in runs.values()), "all to run")
    (ending,) = until(lambda: daemon.children(waits_less), "the process of one")
    edit(daemon, "".join(f'[tasks.{name}]\nrun = "true"\n' for name in ("codes", "ends", "tried", "says")))
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    early.touch()
    until(lambda: not ending.is_running(), "one to end unseen")
    daemon.remove_config_copies()
    scheduler.kill()
    daemon.replaced("ringward scheduler", scheduler.pid)
    gate.touch()
    reasons = {name: daemon.ended(run)["endReason"] for name, run in runs.items()}
    assert reasons == {**dict.fromkeys(("codes", "gone", "ends"), "succeeded"), "tried": "failed", "says": "failed"}
    again = until(lambda: daemon.runs("tried")[1:], "the second attempt")[0]
    assert (daemon.ended(again["id"])["endReason"], again["retryAttempt"]) == ("succeeded", 1)


@pytest.mark.lent
def test_service_removed_and_added_again(daemon: Daemon) -> None:
    """A service that is removed and added while its processes stop never runs twice, and starts."""
    text = "[services.{}]\nrun = " + program("ignores_term") + '\ngraceful_stop = "1h"\nrestart_delay = "1h"\n'
    names = ("before", "after")
    both = "".join(map(text.format, names))
    daemon.write(both)
    daemon.start()

    def living() -> dict[str, int]:
        children = (child for child in daemon.children("ignores_term") if not gone(child))
        tasks_and_pids = [(child.environ().get("RINGWARD_TASK"), child.pid) for child in children]
        assert len(dict(tasks_and_pids)) == len(tasks_and_pids)
        return {name: pid for name, pid in tasks_and_pids if name is not None}

    for name in names:
        until(lambda name=name: [run for run in daemon.runs(name) if daemon.texts(run["id"])], f"{name} to run")  # type: ignore[misc]
    first = living()
    assert first.keys() == {*names}
    reload(daemon, "")
    reload(daemon, text.format("before"))
    daemon.kill_helper("ringward scheduler")
    reload(daemon, both)
    assert living() == first
    assert [daemon.task(name)["state"] for name in names] == ["stopping", "stopping"]
    assert [len(daemon.runs(name)) for name in names] == [1, 1]
    for pid in first.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: [daemon.task(name)["state"] for name in names] == ["running", "running"], "both to come up")
    assert [[run.get("endReason") for run in daemon.runs(name)] for name in names] == [["stopped", None]] * 2
    until(lambda: living().keys() == {*names}, "their processes")
    assert not {*first.values()} & {*living().values()}


def test_task_with_a_queued_run_becomes_a_service(daemon: Daemon) -> None:
    """A queued run of a task that became a service ends at once with the reason."""
    daemon.write(f"[tasks.x]\nrun = {program('obeys_term')}\n")
    daemon.start()
    first, second = daemon.trigger("x"), daemon.trigger("x")
    until(lambda: daemon.texts(first), "the first to run")
    assert daemon.stop() == 0
    daemon.write(f"[services.x]\nrun = {program('obeys_term')}\n")
    daemon.start()
    run = daemon.ended(second)
    assert (run["endReason"], run["exitCode"]) == ("stopped", -1)


@pytest.mark.lent
def test_service_that_dies_without_a_scheduler_restarts(daemon: Daemon) -> None:
    """A healthy service that dies while no scheduler runs restarts as if its end had been seen."""
    daemon.write(
        '[services.s]\nrun = "echo $$; exec sleep 1000"\nrestart_attempts = 0\nrestart_delay = "0s"\n'
        'healthy_after = "100ms"\n'
    )
    daemon.start()
    first = until(lambda: [run for run in daemon.runs("s") if daemon.texts(run["id"])], "the service")[0]["id"]
    scheduler = daemon.helper("ringward scheduler")
    started = until(lambda: daemon.run(first).get("startedAt"), "its start")
    until(lambda: time.time() > datetime.fromisoformat(started).timestamp() + 0.2, "its health")
    scheduler.suspend()
    os.kill(int(daemon.texts(first)[0]), signal.SIGKILL)
    scheduler.kill()
    until(lambda: len(daemon.runs("s")) == 2, "the next run")
    until(lambda: daemon.task("s")["state"] == "running", "the service to run")
    assert daemon.task("s")["instances"][0]["failures"] == 0


@pytest.mark.lent
def test_schedule_continues_after_a_clock_was_ahead(daemon: Daemon) -> None:
    """A clock that was once a year ahead does not silence a schedule for a year."""
    daemon.write('[tasks.t]\nrun = "true"\ncron = "* * * * *"\n')
    daemon.start()
    daemon.stop()
    with sqlite3.connect(daemon.data / "ringward.db") as db:
        ahead_ms = time.time_ns() // 1_000_000 + 366 * 24 * 3600 * 1000
        assert db.execute("UPDATE tasks SET last_instant = ? WHERE name = 't'", [ahead_ms]).rowcount == 1
    db.close()
    daemon.start()

    def within_a_minute() -> bool:  # the next instant, which may pass during the request
        following = datetime.fromisoformat(daemon.task("t")["nextRunAt"])
        return 0 < (following - datetime.now(UTC)).total_seconds() <= 60

    until(within_a_minute, "the next instant")
