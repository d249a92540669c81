"""Tasks, through the real daemon."""

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.daemon import Daemon, program
from tests.support.host_features import SHORT_SLICES, slice_ns
from tests.support.waiting import until

pytestmark = pytest.mark.lent


def test_run_from_trigger_to_end(daemon: Daemon) -> None:
    """A triggered task runs, its output is kept line by line in order, and its exit status is reported."""
    daemon.write('[tasks.t]\nrun = "echo one; echo two >&2; echo three; exit 7"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert (run["endReason"], run["exitCode"], run["triggeredBy"]) == ("failed", 7, "api")
    lines = daemon.lines(run["id"])
    assert {(line["stream"], line["text"]) for line in lines} == {
        ("stdout", "one"),
        ("stderr", "two"),
        ("stdout", "three"),
    }
    assert [line["n"] for line in lines] == [0, 1, 2]
    assert daemon.get(f"/api/runs/{run['id']}/log/raw").body.count(b"\n") == 3


def test_environment_and_directory(daemon: Daemon, tmp_path: Path) -> None:
    """The command gets ``env``, ``working_dir`` and the run's markers, and none of the daemon's own variables."""
    daemon.write(f'[tasks.t]\nrun = "env; pwd"\nworking_dir = "{tmp_path}"\nenv = {{ GREETING = "hello world" }}\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    lines = daemon.texts(run["id"])
    assert "GREETING=hello world" in lines
    assert lines[-1] == str(tmp_path)
    assert f"RINGWARD_RUN_ID={run['id']}" in lines
    assert "RINGWARD_TRIGGER=api" in lines
    assert not [line for line in lines if line.startswith("RINGWARD_PASSWORD")]


@pytest.mark.parametrize("more", ["", "limits = { nofile = 256 }", 'working_dir = "/"'])
def test_variables_that_shells_drop_arrive(daemon: Daemon, tmp_path: Path, more: str) -> None:
    """A variable such as app.name reaches each of twelve runs that start at once."""
    (tmp_path / "variables").write_text("app.from-file=file\n")
    daemon.write(
        f'[tasks.t]\nrun = ["printenv", "app.name", "app.from-file"]\nmax_concurrent = 12\n{more}\n'
        f'env = {{ "app.name" = "shop" }}\nenv_file = "{tmp_path}/variables"\n'
    )
    daemon.start()
    for run in [daemon.trigger("t") for _ in range(12)]:
        assert daemon.ended(run)["endReason"] == "succeeded"
        assert daemon.texts(run) == ["shop", "file"]


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ('run = ["/no/such/command"]', "No such file"),
        ('run = "true"\nworking_dir = "/no/such/directory"', "cannot enter working_dir /no/such/directory"),
        ('run = "true"\nshell = "/no/such/shell"', "No such file"),
        ('run = ["/etc/passwd"]', "Permission denied"),
    ],
)
def test_command_that_cannot_start_names_the_cause(daemon: Daemon, definition: str, words: str) -> None:
    """A command that cannot start ends as start_failed, with exit code -1 and a system line with the cause."""
    daemon.write(f"[tasks.t]\n{definition}\n")
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert (run["endReason"], run["exitCode"]) == ("start_failed", -1)
    assert words in " ".join(daemon.texts(run["id"], "system"))


def test_timeout_ends_the_run(daemon: Daemon) -> None:
    """A run beyond its timeout gets SIGTERM, then SIGKILL, and ends as timeout; each attempt has the whole time."""
    daemon.write(
        "[tasks.t]\nrun = \"trap '' TERM; echo deaf; exec sleep 1000\"\n"
        'timeout = "300ms"\ngraceful_stop = "200ms"\n'
        'retry_attempts = 1\nretry_delay = "0s"\nretry_on = ["timeout"]\n'
    )
    daemon.start()

    def timed_out() -> dict[str, Any] | None:  # once it ignores the signal
        run = daemon.ended(daemon.trigger("t"))
        return run if daemon.texts(run["id"]) else None

    run = until(timed_out, "a time-out")
    assert (run["endReason"], run["exitCode"]) == ("timeout", 128 + signal.SIGKILL)
    (again,) = [task_run for task_run in daemon.runs("t") if task_run.get("retryOfRunId") == run["id"]]
    again = daemon.ended(again["id"])
    assert (again["endReason"], again["retryAttempt"]) == ("timeout", 1)
    assert "timed out" in daemon.texts(run["id"], "system")[0]


def test_stop_is_graceful(daemon: Daemon) -> None:
    """A stopped run can print its last line and keeps its exit code; its reason is stopped.

    Another stop is accepted.
    """
    daemon.write(f'[tasks.t]\nrun = {program("obeys_term")}\ngraceful_stop = "1h"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
    run = daemon.ended(run_id)
    assert (run["endReason"], run["exitCode"]) == ("stopped", 5)
    assert daemon.texts(run_id) == ["ready", "bye"]
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204


def test_stop_target_main(daemon: Daemon, tmp_path: Path) -> None:
    """With stop_target = "main", only the main process gets the signal; workers that it waits for finish their work."""
    worker = "trap 'echo worker got a signal' TERM; echo up; while [ ! -e done ]; do sleep 0.05; done; echo worker done"
    main = "trap 'touch done' TERM; sh -c \"$0\" & until wait; do :; done; wait; echo main done"
    daemon.write(
        f'[tasks.t]\nrun = ["sh", "-c", {json.dumps(main)}, {json.dumps(worker)}]\n'
        f'working_dir = "{tmp_path}"\nstop_target = "main"\ngraceful_stop = "1h"\n'
    )
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "the worker to be up")
    daemon.request("POST", f"/api/runs/{run_id}/stop")
    run = daemon.ended(run_id)
    assert (run["endReason"], run["exitCode"]) == ("stopped", 0)
    assert daemon.texts(run_id) == ["up", "worker done", "main done"]


def test_stop_target_main_kills_leftovers(daemon: Daemon) -> None:
    """With stop_target = "main", processes that outlive the grace are killed and named in the log."""
    script = "trap '' TERM; sleep 1000 & trap 'exit 7' TERM; echo $!; while :; do wait; done"
    daemon.write(f'[tasks.t]\nrun = ["sh", "-c", {json.dumps(script)}]\nstop_target = "main"\ngraceful_stop = "3s"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    child = int(until(lambda: daemon.texts(run_id), "the pid of the child")[0])
    daemon.request("POST", f"/api/runs/{run_id}/stop")
    assert daemon.ended(run_id)["exitCode"] == 7
    assert not psutil.pid_exists(child)
    assert f"killed processes that outlived the main process: sleep ({child})" in daemon.texts(run_id, "system")


def test_stdin_is_empty_open_or_a_file(daemon: Daemon, tmp_path: Path) -> None:
    """Standard input is empty, never ends, or is a file, as ``stdin`` says; a missing file is start_failed."""
    (tmp_path / "in.txt").write_text("first\nsecond\n")
    daemon.write(
        '[tasks.null]\nrun = "cat; echo end"\n'
        '[tasks.open]\nrun = "cat; echo end"\nstdin = "open"\n'
        f'[tasks.file]\nrun = ["cat"]\nstdin = "file:{tmp_path}/in.txt"\n'
        f'[tasks.missing]\nrun = ["cat"]\nstdin = "file:{tmp_path}/no.txt"\n'
    )
    daemon.start()
    waiting = daemon.trigger("open")
    assert daemon.texts(daemon.ended(daemon.trigger("null"))["id"]) == ["end"]
    assert daemon.texts(daemon.ended(daemon.trigger("file"))["id"]) == ["first", "second"]
    missing = daemon.ended(daemon.trigger("missing"))
    assert missing["endReason"] == "start_failed"
    assert "no.txt as standard input" in daemon.texts(missing["id"], "system")[0]
    until(lambda: daemon.run(waiting)["status"] == "running", "the first one to run")
    daemon.request("POST", f"/api/runs/{waiting}/stop")
    assert (daemon.ended(waiting)["endReason"], daemon.texts(waiting)) == ("stopped", [])


def test_force_kills_at_once(daemon: Daemon) -> None:
    """``force=true`` sends SIGKILL at once, even during a graceful stop."""
    daemon.write(f'[tasks.t]\nrun = {program("ignores_term")}\ngraceful_stop = "1h"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    daemon.request("POST", f"/api/runs/{run_id}/stop")
    daemon.request("POST", f"/api/runs/{run_id}/stop?force=true")
    assert daemon.ended(run_id)["exitCode"] == 128 + signal.SIGKILL


def test_child_outliving_the_main_process_is_killed(daemon: Daemon) -> None:
    """A child that keeps the pipes open is killed, and the log names it."""
    daemon.write(f"[tasks.t]\nrun = {program('leaves_child')}\n")
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert run["endReason"] == "succeeded"
    child = int(daemon.texts(run["id"])[0])
    until(lambda: not psutil.pid_exists(child), "the child to be gone")
    assert f"sleep ({child})" in daemon.texts(run["id"], "system")[0]


def test_retries_are_separate_runs(daemon: Daemon) -> None:
    """Each attempt is a run that points at the previous one; after the last attempt nothing more starts."""
    daemon.write('[tasks.t]\nrun = "exit 1"\nretry_attempts = 2\nretry_delay = "50ms"\n')
    daemon.start()
    first = daemon.trigger("t")
    runs = until(
        lambda: (retries := daemon.runs("t")) and len(retries) == 3 and retries[-1]["status"] == "ended" and retries,
        "three attempts",
    )
    assert [run["retryAttempt"] for run in runs] == [0, 1, 2]
    assert [run.get("retryOfRunId") for run in runs] == [None, first, runs[1]["id"]]
    assert daemon.task("t")["active"] == {"running": 0, "pending": 0}


def test_stopped_run_is_not_retried(daemon: Daemon) -> None:
    """A stopped run is not retried."""
    daemon.write(f'[tasks.t]\nrun = {program("obeys_term")}\nretry_attempts = 5\nretry_delay = "0s"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    daemon.request("POST", f"/api/runs/{run_id}/stop")
    daemon.ended(run_id)
    assert len(daemon.runs("t")) == 1


def created(daemon: Daemon, task: str) -> dict[str, Any]:
    """Return the run in the response to a trigger."""
    answer = daemon.request("POST", f"/api/tasks/{task}/run")
    assert answer.status == 201
    body: dict[str, Any] = answer.json()
    return body


def test_on_overlap_queue(daemon: Daemon) -> None:
    """Runs beyond max_concurrent wait in order; beyond queue_max, a run ends as queue_full."""
    daemon.write(f"[tasks.t]\nrun = {program('obeys_term')}\nqueue_max = 2\n")
    daemon.start()
    ids = [daemon.trigger("t") for _ in range(3)]
    until(lambda: daemon.run(ids[0])["status"] == "running", "the first to run")
    refused = created(daemon, "t")
    assert (refused["status"], refused["end_reason"], refused["exit_code"]) == ("ended", "queue_full", -1)
    ids.append(refused["id"])
    assert [daemon.run(run_id)["status"] for run_id in ids] == ["running", "pending", "pending", "ended"]
    assert daemon.run(ids[3])["endReason"] == "queue_full"
    assert daemon.request("POST", f"/api/runs/{ids[1]}/stop").status == 204
    waiting = daemon.run(ids[1])
    assert (waiting["status"], waiting["endReason"], waiting["exitCode"]) == ("ended", "stopped", -1)
    daemon.request("POST", f"/api/runs/{ids[0]}/stop")
    until(lambda: daemon.texts(ids[2]), "the third to run")


def test_on_overlap_skip(daemon: Daemon) -> None:
    """``on_overlap = "skip"`` records the skipped run, and the trigger returns that run."""
    daemon.write(f'[tasks.t]\nrun = {program("obeys_term")}\non_overlap = "skip"\n')
    daemon.start()
    daemon.trigger("t")
    skipped = created(daemon, "t")
    assert (skipped["status"], skipped["end_reason"], skipped["exit_code"]) == ("ended", "skipped", -1)
    assert daemon.run(skipped["id"])["endReason"] == "skipped"


def test_on_overlap_terminate(daemon: Daemon) -> None:
    """``on_overlap = "terminate"`` stops the running run and starts the new one."""
    daemon.write(f'[tasks.t]\nrun = {program("obeys_term")}\non_overlap = "terminate"\n')
    daemon.start()
    first = daemon.trigger("t")
    until(lambda: daemon.texts(first), "the first to run")
    second = daemon.trigger("t")
    assert daemon.ended(first)["endReason"] == "stopped"
    until(lambda: daemon.texts(second), "the second to run")


def test_output_is_kept_byte_for_byte(daemon: Daemon) -> None:
    """NULs, tabs, invalid UTF-8, CRLF and a missing last newline are returned as they were printed."""
    daemon.write("[tasks.t]\nrun = 'printf \"a\\tb\\000c\\377\\r\\nlast\"'\n")
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert daemon.get(f"/api/runs/{run['id']}/log/raw").body == b"a\tb\0c\xff\r\nlast"


def test_flood_is_complete(daemon: Daemon) -> None:
    """Every line of 20 MB, printed as fast as possible, is kept in order, with its number."""
    daemon.write(f"[tasks.t]\nrun = {program('floods', 20_000_000)}\n")
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    raw = daemon.get(f"/api/runs/{run['id']}/log/raw").body
    assert raw == b"".join(b"%099d\n" % number for number in range(200_000))
    page = daemon.get(f"/api/runs/{run['id']}/log?from=199999&limit=10").json()
    assert [line["n"] for line in page["lines"]] == [199_999]
    assert page["totalLines"] == 200_000


def test_drop_old_keeps_the_newest_lines(daemon: Daemon) -> None:
    """A log beyond log_max_size loses its oldest lines, keeps the numbers, and shows where it begins."""
    daemon.write(f'[tasks.t]\nrun = {program("floods", 2_000_000)}\nlog_max_size = "512kb"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    daemon.log_file(run["id"])  # until it is complete, a page also has lines of the ring
    page = daemon.get(f"/api/runs/{run['id']}/log?from=0&limit=10").json()
    assert page["totalLines"] == 20_000
    assert page["truncated"]
    first = page["firstAvailable"]
    assert 14_000 < first < 20_000
    assert [(line["n"], int(line["text"])) for line in page["lines"]] == [(first + i, first + i) for i in range(10)]


@pytest.mark.own
def test_run_on_start(daemon: Daemon) -> None:
    """run_on_start runs a task at each start of the daemon, "boot" at the first start after each boot of the host.

    Their trigger is startup.
    """
    daemon.write('[tasks.t]\nrun = "true"\nrun_on_start = "boot"\n[tasks.each]\nrun = "true"\nrun_on_start = true\n')
    daemon.start()
    for name in ("t", "each"):
        assert until(lambda name=name: daemon.runs(name), "the run")[0]["triggeredBy"] == "startup"  # type: ignore[misc]
    daemon.stop()
    daemon.start()
    until(lambda: len(daemon.runs("each")) == 2, "the second run of the other task")
    assert len(daemon.runs("t")) == 1
    daemon.stop()
    with sqlite3.connect(daemon.data / "ringward.db") as db:
        db.execute("UPDATE tasks SET last_boot = 'the boot before' WHERE name = 't'")
    db.close()
    daemon.start()
    until(lambda: len(daemon.runs("t")) == 2, "the run after the next boot")


def test_refused_triggers(daemon: Daemon) -> None:
    """Triggers of unknown tasks, services and tasks with api_trigger = false are refused with 404, 409 and 403."""
    daemon.write('[tasks.shut]\nrun = "true"\napi_trigger = false\n[services.s]\nrun = "sleep 100"\n')
    daemon.start()
    for name, status in (("nothing", 404), ("shut", 403), ("s", 409)):
        answer = daemon.request("POST", f"/api/tasks/{name}/run")
        assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")


def test_flood_on_both_streams_is_complete(daemon: Daemon) -> None:
    """A flood on both streams leaves the daemon up, and each stream complete and in order."""
    flood = "seq 1 400000"
    daemon.write(f'[tasks.t]\nrun = "{flood} & {flood} >&2; wait"\nlog_max_size = "1gb"\nmax_concurrent = 3\n')
    daemon.start()
    expected = b"".join(b"%d\n" % number for number in range(1, 400_001))
    ids = [daemon.trigger("t") for _ in range(3)]
    for run_id in ids:
        assert daemon.ended(run_id)["endReason"] == "succeeded"
        assert daemon.run(run_id)["exitCode"] == 0
        page = daemon.get(f"/api/runs/{run_id}/log?from=-1").json()
        assert page["totalLines"] == 800_000
        assert len(daemon.get(f"/api/runs/{run_id}/log/raw").body) == 2 * len(expected)


@pytest.mark.skipif(not SHORT_SLICES, reason="the kernel has no short slices, or does not show them")
def test_daemon_has_shorter_time_slices_than_runs(daemon: Daemon) -> None:
    """Processes that read pipes or send lines have shorter time slices than those they wake, and than runs."""
    daemon.write('[tasks.show]\nrun = "cat /proc/self/sched"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("show"))
    usual_ns = slice_ns("\n".join(daemon.texts(run["id"])))
    helpers = psutil.Process(daemon.pid).children(recursive=True)
    (worker,) = [helper.pid for helper in helpers if " ".join(helper.cmdline()) == "ringward gunicorn worker"]
    for pid in (daemon.pid, worker):
        threads = Path(f"/proc/{pid}/task").glob("*/sched")
        shortest, *others = sorted(slice_ns(thread.read_text()) for thread in threads)
        assert shortest < min(*others, usual_ns)
