"""Shutdowns at inconvenient moments."""

import fcntl
import os
import shutil
import signal
import subprocess
from functools import partial

import psutil
import pytest

from tests.support.daemon import Daemon, gone, program
from tests.support.waiting import until

ONE_SECOND = 'shutdown_timeout = "1s"'
ONE_HOUR = 'shutdown_timeout = "1h"'


def test_sigquit_acts_like_a_second_sigterm(daemon: Daemon) -> None:
    """SIGQUIT alone stops the daemon, kills its runs at once, and loses no end of a run."""
    daemon.write(f'[services.s]\nrun = {program("ignores_term")}\ngraceful_stop = "1h"\n', daemon=ONE_HOUR)
    daemon.start()
    (run,) = until(lambda: daemon.runs("s"), "its run")
    until(lambda: daemon.texts(run["id"]), "its first line")
    (child,) = daemon.children("ignores_term")
    assert daemon.stop(signal.SIGQUIT) == 0
    assert not child.is_running()
    assert daemon.stored_end(run["id"]) == ("daemon_stopped", 128 + signal.SIGKILL)


@pytest.mark.parametrize("program_text", ["exec sleep 1000", "trap 'exit 143' TERM; sleep 1000 & wait"])
def test_signal_to_all_processes(daemon: Daemon, program_text: str) -> None:
    """Runs that get SIGTERM together with the supervisor, as from killall5, end as daemon_stopped."""
    daemon.write(f'[tasks.t]\nrun = "{program_text}"\n[services.s]\nrun = "{program_text}"\n', daemon=ONE_HOUR)
    daemon.start()
    runs = [daemon.trigger("t"), until(lambda: daemon.runs("s"), "the service")[0]["id"]]
    until(lambda: all(daemon.run(run)["status"] == "running" for run in runs), "both processes")
    until(lambda: len([one for one in daemon.family() if one.name() == "sleep"]) == 2, "both commands")
    with daemon.paused():
        commands = [process for process in daemon.family() if process.name() == "sleep"]
        for process in daemon.family():
            process.terminate()
        until(lambda: all(map(gone, commands)), "the ends of the runs")
    assert daemon.process is not None
    assert daemon.process.wait(60) == 0
    for run in runs:
        assert daemon.stored_end(run) == ("daemon_stopped", 128 + signal.SIGTERM)


def test_ignored_signals(daemon: Daemon) -> None:
    """Some signals end neither the daemon nor its start; the log names them, and runs have the default actions."""
    unheeded = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGXCPU, signal.SIGTTOU, signal.SIGRTMIN + 3}
    daemon.write('[tasks.t]\nrun = "grep SigIgn /proc/self/status; kill -s ALRM $$"\n')
    daemon.launch()
    until(
        lambda: _is_starting(daemon.pid) or "supervisor" in " ".join(psutil.Process(daemon.pid).cmdline()), "its start"
    )
    for number in unheeded:
        os.kill(daemon.pid, number)
    until(daemon.ready, "the daemon to be ready")
    until(lambda: "SIGALRM" in daemon.own_output(), "the line that names them")
    for number in unheeded:
        os.kill(daemon.pid, number)
    run = daemon.ended(daemon.trigger("t"))
    assert (run["endReason"], run["exitCode"]) == ("failed", 128 + signal.SIGALRM)
    (line,) = daemon.texts(run["id"])
    ignored = int(line.removeprefix("SigIgn:\t"), 16)
    assert not any(ignored >> number - 1 & 1 for number in signal.valid_signals())  # two more belong to the C library
    assert daemon.own_output().count(" ignored") == 1
    assert daemon.stop() == 0


def _is_starting(pid: int) -> bool:
    """Return whether the root blocks all signals except the ones that end a start.

    While it starts a process, it blocks all.
    """
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        (blocked,) = (int(line.split()[1], 16) for line in file if line.startswith("SigBlk:"))
    return bool(blocked & 1 << signal.SIGALRM - 1) and not blocked & 1 << signal.SIGTERM - 1


def test_shutdown_timeout_covers_leftovers(daemon: Daemon) -> None:
    """shutdown_timeout bounds the whole shutdown, including leftovers in the grace of a stop."""
    daemon.write(f'[tasks.t]\nrun = {program("leaves_child", "deaf")}\ngraceful_stop = "1h"\n', daemon=ONE_SECOND)
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "the child")
    assert daemon.stop() == 0
    assert daemon.stored_end(run_id)[0] == "daemon_stopped"


def test_full_log_disk_does_not_block_shutdown(daemon: Daemon) -> None:
    """The daemon stops even if logs cannot be written. The next daemon saves the lines in the ring."""
    daemon.write(f"[tasks.t]\nrun = {program('floods', 3_000_000)}\n", daemon=ONE_SECOND)
    daemon.start()
    (daemon.data / "logs").mkdir(mode=0o700)
    (daemon.data / "logs" / "t").write_text("in the way")
    run_id = daemon.trigger("t")
    until(lambda: "cannot write the log file" in daemon.output.read_text(), "the ring to be full")
    assert daemon.stop() == 0
    (daemon.data / "logs" / "t").unlink()
    daemon.start()
    assert daemon.run(run_id)["status"] == "ended"
    texts = daemon.texts(run_id)
    assert len(texts) > 1000
    # The program was killed within its last line.
    assert texts[:-1] == [f"{number:099d}" for number in range(len(texts) - 1)]


def test_supervisor_stops_runs_while_a_scheduler_starts(daemon: Daemon) -> None:
    """While a scheduler starts, the supervisor itself stops the runs."""
    daemon.write(f'[tasks.t]\nrun = {program("obeys_term")}\ngraceful_stop = "1h"\n', daemon='shutdown_timeout = "50s"')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    lock = os.open(daemon.data / "scheduler.lock", os.O_RDWR)
    before = daemon.helper("ringward scheduler")
    # The first waiter for the lock gets it when the scheduler is killed, not the next scheduler.
    waiting = subprocess.Popen(["flock", "--exclusive", str(lock)], pass_fds=[lock])
    until(lambda: psutil.Process(waiting.pid).name() == "flock" and _is_waiting(waiting.pid), "flock to wait")
    before.kill()
    assert waiting.wait(30) == 0
    until(lambda: daemon.helper("ringward scheduler").pid != before.pid, "the next scheduler")
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    until(lambda: daemon.texts(run_id) == ["ready", "bye"], "its last line")
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
    assert daemon.process.wait(60) == 0
    assert daemon.stored_end(run_id) == ("daemon_stopped", 5)


def _is_waiting(pid: int) -> bool:
    with open("/proc/locks", encoding="ascii") as file:
        return any("->" in line and f" {pid} " in line for line in file)


@pytest.mark.lent
def test_waiting_runs_survive_a_shutdown(daemon: Daemon) -> None:
    """Queued runs and pending retries run after the next start, in order.

    Stopped runs, and runs that the shutdown ended, are not retried.
    """
    daemon.write(
        f'[tasks.q]\nrun = {program("obeys_term")}\nretry_attempts = 5\nretry_delay = "0s"\n'
        '[tasks.r]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "3s"\n'
    )
    daemon.start()
    ids = [daemon.trigger("q") for _ in range(3)]
    until(lambda: daemon.texts(ids[0]), "the first to run")
    daemon.trigger("r")
    until(lambda: len(daemon.runs("r")) == 2, "the retry to wait")
    assert daemon.stop() == 0
    daemon.start()
    assert daemon.run(ids[0])["endReason"] == "daemon_stopped"
    for run_id in ids[1:]:
        until(partial(daemon.texts, run_id), "its turn")
        daemon.request("POST", f"/api/runs/{run_id}/stop")
        assert daemon.ended(run_id)["endReason"] == "stopped"
    assert [run["id"] for run in daemon.runs("q")] == ids
    assert daemon.ended(daemon.runs("r")[1]["id"])["endReason"] == "failed"


def test_suspended_process_is_continued_and_stopped(daemon: Daemon) -> None:
    """A process suspended by SIGSTOP is continued, so that it can react to its stop signal."""
    daemon.write(f'[tasks.t]\nrun = {program("obeys_term")}\ngraceful_stop = "1h"\n', daemon=ONE_HOUR)
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    (child,) = daemon.children("obeys_term")
    child.suspend()
    assert daemon.stop() == 0
    assert daemon.stored_end(run_id)[1] == 5


def test_second_sigterm_kills_runs(daemon: Daemon) -> None:
    """A second SIGTERM kills the remaining runs, however long their grace."""
    daemon.write(f'[tasks.t]\nrun = {program("ignores_term")}\ngraceful_stop = "1h"\n', daemon=ONE_HOUR)
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    until(lambda: "shutting down" in daemon.output.read_text(), "the shutdown")
    assert daemon.stop() == 0
    assert daemon.stored_end(run_id) == ("daemon_stopped", 137)


def test_shutdown_without_a_runtime_directory(daemon: Daemon) -> None:
    """A shutdown is clean even after the service manager of a user has removed the runtime directory."""
    daemon.write("")
    daemon.start()
    for directory in daemon.runtime_dirs():
        shutil.rmtree(directory, ignore_errors=True)
    assert daemon.stop() == 0
