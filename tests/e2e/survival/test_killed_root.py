"""The supervisor is killed, and the next one continues the active runs from the service manager's descriptor store."""

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.e2e.services.test_readiness import SAY, is_ready, on_flag
from tests.e2e.upgrade.test_upgrade import HALVES, lines_written, raw, shown, upgrade
from tests.support.daemon import gone, program, shell_program
from tests.support.manager import Managed, Manager
from tests.support.waiting import until


@pytest.fixture
def manager() -> Iterator[Manager]:
    new_manager = Manager()
    yield new_manager
    assert not new_manager.problems
    new_manager.close()


@pytest.fixture
def daemon(tmp_path: Path, manager: Manager) -> Iterator[Managed]:
    managed = Managed(tmp_path, manager)
    yield managed
    living = main_processes(managed)
    managed.clean()
    for pid in living.values():
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()


def main_processes(daemon: Managed) -> dict[str, int]:
    """Return the main processes of the daemon's active runs, by run."""
    identity = (daemon.data / "id").read_text().strip() if (daemon.data / "id").exists() else ""
    pid_by_run = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            environment = process.environ()
            if environment.get("RINGWARD_DAEMON") == identity and os.getsid(process.pid) == process.pid:
                pid_by_run[environment["RINGWARD_RUN_ID"]] = process.pid
    return pid_by_run


def stored(manager: Manager, *runs: str) -> None:
    until(lambda: all(manager.of(run) for run in runs), "the descriptors to be stored")


def test_runs_survive_a_killed_root(daemon: Managed, manager: Manager, tmp_path: Path) -> None:
    """No process restarts, every line printed meanwhile is kept once, and each exit status is exact.

    That includes a run that ends while no supervisor lives. In the end the descriptor store is empty.
    """
    go = tmp_path / "go"
    parts = partial(program, "in_parts", go, r"one\ntwo\n", r"three\n")
    daemon.write(
        f"[tasks.zero]\nrun = {parts(0)}\n[tasks.seven]\nrun = {parts(7)}\n"
        f"[tasks.killed]\nrun = {parts(0)}\n[tasks.alone]\nrun = {parts(9)}\n"
        f'[tasks.merged]\nrun = {parts(0)}\nstderr = "merge"\n'
        f"[services.s]\nrun = {program('obeys_term')}\n"
    )
    daemon.start()
    runs = {name: daemon.trigger(name) for name in ("zero", "seven", "killed", "alone", "merged")}
    service = daemon.runs("s")[0]["id"]
    for run in runs.values():
        until(partial(lambda run: len(daemon.lines(run)) == 2, run), "their first lines")
    until(lambda: daemon.task("s")["instances"][0]["state"] == "running", "the service")
    stored(manager, service, *runs.values())
    before = main_processes(daemon)
    daemon.kill()
    os.kill(before[runs["alone"]], signal.SIGTERM)
    until(lambda: runs["alone"] not in main_processes(daemon), "one to end")
    daemon.start()
    expected = {run: pid for run, pid in before.items() if run != runs["alone"]}
    assert main_processes(daemon) == expected
    assert [run["id"] for run in daemon.runs("s")] == [service]
    alone = daemon.ended(runs["alone"])
    assert (alone["endReason"], alone["exitCode"]) == ("failed", 128 + signal.SIGTERM)
    os.kill(before[runs["killed"]], signal.SIGKILL)
    assert daemon.ended(runs["killed"])["exitCode"] == 128 + signal.SIGKILL
    go.touch()
    for name, code, reason in (("zero", 0, "succeeded"), ("seven", 7, "failed"), ("merged", 0, "succeeded")):
        ended_run = daemon.ended(runs[name])
        assert (ended_run["exitCode"], ended_run["endReason"]) == (code, reason)
        assert daemon.texts(runs[name]) == ["one", "two", "three"]
        assert [line["n"] for line in daemon.lines(runs[name])] == list(range(4))
    for run in runs.values():
        until(partial(lambda run: not manager.of(run), run), "the descriptors to be removed")
        assert f"ringward-{run}" in manager.removed
    assert daemon.stop() == 0
    until(lambda: not manager.stored, "the store to be empty")
    assert daemon.stored_end(service)[0] == "daemon_stopped"


def test_runs_survive_a_failed_start(daemon: Managed, manager: Manager) -> None:
    """A failed start leaves runs alone whose descriptors the service manager stores; the next start takes them over."""
    daemon.write(f"[tasks.t]\nrun = {program('obeys_term')}\n")
    daemon.start()
    run = daemon.trigger("t")
    stored(manager, run)
    before = main_processes(daemon)
    daemon.kill()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        daemon.options = ["--listen", f"127.0.0.1:{other.getsockname()[1]}"]
        daemon.launch()
        assert daemon.process is not None
        assert daemon.process.wait(60) == 71
    daemon.options = []
    daemon.start()
    assert main_processes(daemon) == before
    assert daemon.run(run)["status"] == "running"


@pytest.mark.parametrize("cgroups", ["auto", "off"])
def test_stops_and_timeouts_survive_a_killed_root(daemon: Managed, manager: Manager, cgroups: str) -> None:
    """A stop takes its next step, a timeout is enforced, and all processes of a run end in every session."""
    daemon.write(
        f'[tasks.stopped]\nrun = {program("tells_signals", "SIGTERM")}\ngraceful_stop = "4s"\n'
        f'[tasks.late]\nrun = {program("deaf_tree")}\ntimeout = "5s"\ngraceful_stop = "10ms"\n'
        f"[tasks.left]\nrun = {program('leaves_child', 'deaf')}\n",
        daemon=f'cgroups = "{cgroups}"',
    )
    daemon.start()
    stopped, left_run = daemon.trigger("stopped"), daemon.trigger("left")
    until(lambda: daemon.lines(stopped) and daemon.lines(left_run), "both to run")
    stored(manager, stopped, left_run)

    def grown() -> tuple[str, list[psutil.Process]] | None:  # within its time
        run = daemon.trigger("late")
        until(lambda: whole(run) or daemon.run(run)["status"] == "ended", "the tree")
        with contextlib.suppress(psutil.NoSuchProcess):
            return (run, [psutil.Process(int(text)) for text in daemon.texts(run)]) if whole(run) else None
        return None

    def whole(run: str) -> bool:
        return len(daemon.texts(run)) == 9 and bool(manager.of(run))

    late, tree = until(grown, "a whole tree")
    daemon.request("POST", f"/api/runs/{stopped}/stop")
    until(lambda: daemon.texts(stopped) == ["ready", "SIGTERM"], "the stop to begin")
    daemon.kill()
    daemon.start()
    for run, reason in ((stopped, "stopped"), (late, "timeout")):
        assert (daemon.ended(run)["endReason"], daemon.ended(run)["exitCode"]) == (reason, 128 + signal.SIGKILL)
        assert daemon.texts(run, "system").count("did not exit in time: sending SIGKILL") == 1
    assert daemon.texts(stopped) == ["ready", "SIGTERM"]
    assert all(map(gone, tree))
    os.kill(main_processes(daemon)[left_run], signal.SIGTERM)
    assert daemon.ended(left_run)["exitCode"] == 0
    assert [
        text
        for text in daemon.texts(left_run, "system")
        if text.startswith("killed processes that outlived the main process")
    ]
    until(lambda: not manager.stored, "the store to be empty")


def test_partial_output_survives_a_killed_root(daemon: Managed, manager: Manager, tmp_path: Path) -> None:
    """Half a line, a progress bar and half a secret are joined with their other halves; readiness is received."""
    go = tmp_path / "go"
    (daemon.directory / "secret").write_text("correct-horse-battery")
    (daemon.directory / "secret").chmod(0o600)
    halves = {name: half for name, half in HALVES.items() if name != "terminal"}
    halves["twice"] = (
        r"correct-horse-battery\ncorrect-",
        r"horse-battery, correct-horse-battery\n",
        ["***", "***, ***"],
    )
    text = f"[services.s]\nrun = {on_flag(go, SAY.format(b'READY=1'))}\nready = {{ notify = true }}\n"
    for name, (first, second, _) in halves.items():
        text += f"[tasks.{name}]\nrun = {program('in_parts', go, first, second, 3)}\n"
        if name in ("secret", "twice"):
            text += 'secrets = { PASSWORD = "${file:secret}" }\n'
    daemon.write(text)
    daemon.start()
    runs = {name: daemon.trigger(name) for name in halves}
    for name, run in runs.items():
        until(
            partial(shown, daemon, run) if name != "twice" else lambda: daemon.texts(runs["twice"]), f"half of {name}"
        )
    stored(manager, *runs.values())
    until(lambda: daemon.runs("s")[0]["status"] == "running", "the service")
    stored(manager, daemon.runs("s")[0]["id"])
    daemon.kill()
    daemon.start()
    assert not is_ready(daemon)
    go.touch()
    until(lambda: is_ready(daemon), "the service to be ready")
    for name, run in runs.items():
        assert daemon.ended(run)["exitCode"] == 3
        assert [re.sub("\x1b\\[[0-9;]*m", "", text) for text in daemon.texts(run)] == halves[name][2], name
    assert "masked secrets: 3" in daemon.texts(runs["twice"], "system")


_KILLS = 4


def test_repeated_kills_lose_only_output_in_transit(daemon: Managed, manager: Manager, tmp_path: Path) -> None:
    """Kills during the recovery and under full output lose only what the killed root held in memory.

    The read that is lost may begin or end within a line, which is then cut. All later lines are kept, in order, without
    a gap.
    """
    go, side = tmp_path / "go", tmp_path / "flood"
    # If it is killed, its last line may be lost in between.
    flood = f"{shell_program('numbered')} 200000 0 {side}; until test -e {go}; do sleep 0.05; done; "
    flood += f"echo 200000 >>{side}; echo line 200000"
    daemon.write(
        f"[tasks.steady]\nrun = {program('numbered', 1_000_000, 0.005, tmp_path / 'steady')}\n"
        f"[tasks.flood]\nrun = {json.dumps(flood)}\n"
        f"[services.s]\nrun = {program('obeys_term')}\n"
    )
    daemon.start()
    steady, flood = daemon.trigger("steady"), daemon.trigger("flood")
    until(lambda: daemon.task("s")["instances"][0]["state"] == "running", "the service")
    service = daemon.runs("s")[0]["id"]
    until(lambda: raw(daemon, steady) and raw(daemon, flood), "their first lines")
    stored(manager, steady, flood, service)
    before = main_processes(daemon)
    for stage in ("ringward scheduler", "ringward gunicorn", ""):
        daemon.kill()
        daemon.launch()
        daemon.helper(stage or "ringward scheduler")
    until(daemon.ready, "the daemon to be ready")
    daemon.kill()  # the fourth time
    daemon.start()
    assert upgrade(daemon)["state"] == "done"
    go.touch()
    assert daemon.ended(flood)["exitCode"] == 0
    assert {run: pid for run, pid in before.items() if run != flood} == main_processes(daemon)
    assert [run["id"] for run in daemon.runs("s")] == [service]
    daemon.request("POST", f"/api/runs/{steady}/stop")
    assert (daemon.ended(steady)["endReason"], daemon.ended(steady)["exitCode"]) == ("stopped", 128 + signal.SIGTERM)
    for name, run in (("steady", steady), ("flood", flood)):
        raw_lines, printed = raw(daemon, run), lines_written(tmp_path / name)
        printed_lines = set(printed)
        whole = [line for line in raw_lines if line in printed_lines]
        assert len(raw_lines) - len(whole) <= _KILLS, "more lines are cut than there were kills"
        numbers = [int(line.removeprefix("line ")) for line in whole]
        assert numbers == sorted(set(numbers))
        lost = len(printed) - len(whole)
        assert lost * len("line 100000\n") <= 5 * (256 + 64) * 1024, lost
    assert raw(daemon, flood)[-1] == "line 200000"
    assert daemon.stop() == 0
    until(lambda: not manager.stored, "the store to be empty")


def test_unstored_end_survives_a_killed_root(daemon: Managed, manager: Manager, tmp_path: Path) -> None:
    """A run that ended while the scheduler was busy has its exact end and whole log, although the supervisor died."""
    go = tmp_path / "go"
    daemon.write(f"[tasks.t]\nrun = {program('in_parts', go, 'one', 'two', 7)}\n")
    daemon.start()
    run = daemon.trigger("t")
    until(partial(shown, daemon, run), "its first half")
    stored(manager, run)
    process = psutil.Process(main_processes(daemon)[run])
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    go.touch()
    until(lambda: not process.is_running(), "its end")
    daemon.kill()
    scheduler.kill()
    assert manager.of(run)
    daemon.start()
    assert (daemon.ended(run)["exitCode"], daemon.ended(run)["endReason"]) == (7, "failed")
    assert daemon.texts(run) == ["onetwo"]
    until(lambda: not manager.stored, "the store to be empty")


def test_unknown_and_incomplete_runs(daemon: Managed, manager: Manager) -> None:
    """A run that is missing in the database is stopped; a run without one of its descriptors ends as crashed."""
    daemon.write(f"[tasks.t]\nrun = {program('obeys_term')}\nmax_concurrent = 2\n")
    daemon.start()
    unknown, partly = daemon.trigger("t"), daemon.trigger("t")
    until(lambda: daemon.lines(unknown) and daemon.lines(partly), "both to run")
    stored(manager, unknown, partly)
    processes = [psutil.Process(main_processes(daemon)[run]) for run in (unknown, partly)]
    daemon.kill()
    with manager.lock:
        os.close(manager.stored[f"ringward-{partly}"].pop(1))  # its pidfd
    with contextlib.closing(sqlite3.connect(daemon.data / "ringward.db")) as database:
        database.execute("DELETE FROM runs WHERE id = ?", (unknown,))
        database.commit()
    daemon.start()
    assert (daemon.run(partly)["endReason"], daemon.run(partly)["exitCode"]) == ("crashed", -2)
    until(lambda: not manager.stored, "both to be removed from the store")
    for process in processes:
        until(partial(gone, process), "both to end")
    for text in ("which is not in the database", "cannot continue"):
        until(lambda text=text: text in daemon.output.read_text(), "a word about it")  # type: ignore[misc]
