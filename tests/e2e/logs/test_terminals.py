"""Runs under a pseudo-terminal, and runs with one pipe for both outputs."""

import signal
import sys

import psutil
import pytest

from tests.support.daemon import Daemon, program
from tests.support.waiting import until

pytestmark = pytest.mark.lent


def test_program_sees_a_terminal(daemon: Daemon) -> None:
    """Output and error are one terminal, and input is empty; colours, order and exit code are kept."""
    script = (
        "import os, sys\\n"
        "print(os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size(1), os.getsid(0) == os.tcgetpgrp(1))\\n"
        "for n in range(200): print(n, file=(sys.stdout, sys.stderr)[n % 2])\\n"
        "print('\\\\033[31mred\\\\033[0m')\\n"
        "sys.exit(3)"
    )
    daemon.write(f'[tasks.t]\nrun = ["{sys.executable}", "-I", "-c", "{script}"]\ntty = true\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert (run["endReason"], run["exitCode"]) == ("failed", 3)
    size = "os.terminal_size(columns=120, lines=40)"
    texts = [f"False True True {size} True", *map(str, range(200)), "\x1b[31mred\x1b[0m"]
    assert [(line["stream"], line["text"]) for line in daemon.lines(run["id"])] == [("stdout", text) for text in texts]
    raw = daemon.get(f"/api/runs/{run['id']}/log/raw").body
    assert raw == "".join(f"{text}\n" for text in texts).encode()


def test_last_output_is_complete(daemon: Daemon) -> None:
    """Output of a program's last moment is complete once the run has ended."""
    daemon.write('[tasks.t]\nrun = "seq 1 40000"\ntty = true\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert run["exitCode"] == 0
    raw = daemon.get(f"/api/runs/{run['id']}/log/raw").body
    assert raw == "".join(f"{n}\n" for n in range(1, 40001)).encode()
    assert len(raw) > 200_000


def test_redrawn_lines_keep_their_final_form(daemon: Daemon) -> None:
    """A redrawn line is kept in its final form: one row, or several rows with cursor movement."""
    draw = (
        r"printf 'start\n10%%\r\033[K100%%\n'; printf '\033[?25lone\ntwo\n\033[2A\033[2Kone: done\n\033[2Ktwo: done\n'"
    )
    daemon.write(f'[tasks.t]\nrun = """{draw}"""\ntty = true\n'.replace("\\", "\\\\"))
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert daemon.texts(run["id"]) == ["start", "100%", "one", "two", "one: done", "two: done"]
    bar = daemon.lines(run["id"])[1]
    assert bar["frameCount"] == 2
    history = daemon.get(f"/api/runs/{run['id']}/log/line/1/history").json()
    assert history["frames"] == [["10%"], ["100%"]]


def test_stop_under_a_terminal_is_graceful(daemon: Daemon) -> None:
    """A stopped run under a terminal can print a last line, as with pipes."""
    daemon.write(f'[tasks.t]\nrun = {program("obeys_term")}\ntty = true\ngraceful_stop = "1h"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
    run = daemon.ended(run_id)
    assert (run["endReason"], run["exitCode"]) == ("stopped", 5)
    assert daemon.texts(run_id) == ["ready", "bye"]


def test_stop_under_a_terminal_ends_in_sigkill(daemon: Daemon) -> None:
    """A run under a terminal that ignores SIGTERM is killed."""
    daemon.write(f'[tasks.t]\nrun = {program("ignores_term")}\ntty = true\ngraceful_stop = "200ms"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its first line")
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
    run = daemon.ended(run_id)
    assert (run["endReason"], run["exitCode"]) == ("stopped", 128 + signal.SIGKILL)


@pytest.mark.parametrize("deaf", [False, True], ids=["ends by SIGHUP", "ignores SIGHUP"])
def test_child_holding_the_terminal_is_killed(daemon: Daemon, deaf: bool) -> None:
    """A child that keeps the terminal open after the command has ended is killed at the end of the run."""
    ignore = "trap '' HUP; " if deaf else ""
    daemon.write(f'[tasks.t]\nrun = "{ignore}sleep 1000 & echo $!; seq 1 10000"\ntty = true\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert run["exitCode"] == 0
    child, *numbers = daemon.texts(run["id"], "stdout")
    assert numbers == [str(n) for n in range(1, 10001)]
    until(lambda: not psutil.pid_exists(int(child)), "it to be gone")


def test_service_under_a_terminal(daemon: Daemon) -> None:
    """Services can have a terminal too; their output arrives at once, not when a buffer is full."""
    script = "import time; print(1); print(2); time.sleep(1000)"
    daemon.write(f'[services.s]\nrun = ["{sys.executable}", "-I", "-c", "{script}"]\ntty = true\n')
    daemon.start()
    run_id = until(lambda: daemon.runs("s"), "its run")[0]["id"]
    until(lambda: daemon.texts(run_id) == ["1", "2"], "its lines")


def test_merged_outputs_keep_their_order(daemon: Daemon) -> None:
    """With one pipe for both outputs, lines keep the order of printing, as standard output."""
    script = "for n in $(seq 1 500); do echo out $n; echo err $n >&2; done"
    daemon.write(f'[tasks.t]\nrun = "{script}"\nstderr = "merge"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    texts = [f"{word} {n}" for n in range(1, 501) for word in ("out", "err")]
    assert [(line["stream"], line["text"]) for line in daemon.lines(run["id"])] == [("stdout", text) for text in texts]
