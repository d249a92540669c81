"""Misbehaving programs: whatever they do, none of their processes remains, with cgroups and without."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor.host.cgroups import Cgroups
from tests.support.daemon import Daemon, program
from tests.support.host_features import require_cgroups
from tests.support.waiting import until

pytestmark = pytest.mark.lent

SHORT_GRACE = 'graceful_stop = "200ms"'


@pytest.fixture(scope="module", params=["auto", "off"])
def cgroups(request: pytest.FixtureRequest) -> str:
    """Both ways to find the processes of a run."""
    mode: str = request.param
    if mode == "auto":
        require_cgroups()
    return mode


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """A file for the pid of an escaping process, which is killed after the test if it lives."""
    path = tmp_path / "pid"
    yield path
    if path.exists() and alive(pid_in(path)):
        os.kill(pid_in(path), signal.SIGKILL)


def alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def zombies(daemon: Daemon) -> list[int]:
    """Return the daemon's children that wait to be reaped."""
    zombie_pids = []
    for child in psutil.Process(daemon.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # reaped since they were listed
            if child.status() == psutil.STATUS_ZOMBIE:
                zombie_pids.append(child.pid)
    return zombie_pids


def pid_in(path: Path) -> int:
    return int(path.read_text())


def start(daemon: Daemon, cgroups: str, text: str) -> str:
    """Start a daemon with a single task t and trigger it; return the run's id."""
    daemon.write(f"[tasks.t]\n{text}\n", daemon=f'cgroups = "{cgroups}"')
    daemon.start()
    return daemon.trigger("t")


def stop(daemon: Daemon, run_id: str, query: str = "") -> None:
    assert daemon.request("POST", f"/api/runs/{run_id}/stop{query}").status == 204


def words(pids: Path) -> str:
    """Return the shell words that start the escaping process."""
    return " ".join(f"'{word}'" for word in json.loads(program("daemonises", pids)))


def system_lines(daemon: Daemon, run_id: str) -> str:
    return "\n".join(daemon.texts(run_id, "system"))


def test_daemonised_process_is_killed_and_named(daemon: Daemon, cgroups: str, pids: Path) -> None:
    """A process that left session, group, parent and pipes ends with its run, and the log names it."""
    run_id = start(daemon, cgroups, f"run = {program('daemonises', pids)}")
    assert daemon.ended(run_id)["endReason"] == "succeeded"
    assert not alive(pid_in(pids))
    assert f"killed processes that outlived the main process: sleep ({pid_in(pids)})" in system_lines(daemon, run_id)
    assert daemon.get(f"/api/runs/{run_id}/ending").json()["killedLeftovers"] == [f"sleep ({pid_in(pids)})"]


def test_usage_of_an_ended_run_is_complete(daemon: Daemon, cgroups: str) -> None:
    """The usage of an ended run has its CPU time, its memory, and the bytes that were written to the disk."""
    command = "for i in $(seq 200000); do :; done; dd if=/dev/zero of=block bs=1M count=2 conv=fsync 2>&1"
    run_id = start(daemon, cgroups, f"run = '{command}'\nworking_dir = '.'")
    daemon.ended(run_id)
    body = daemon.get(f"/api/runs/{run_id}/resources").json()
    assert body["cpuUserMs"] > 0
    assert body["maxRssBytes"] > 1 << 20
    assert body["writeBytes"] >= 2 << 20
    assert body["readBytes"] >= 0


def test_emptied_environment_does_not_hide_a_process(daemon: Daemon, cgroups: str, pids: Path) -> None:
    """A process is found even after it has removed every mark of its run, without cgroups if there is no other run."""
    run_id = start(daemon, cgroups, f"run = {program('daemonises', pids, 'bare')}")
    daemon.ended(run_id)
    assert not alive(pid_in(pids))
    assert f"sleep ({pid_in(pids)})" in system_lines(daemon, run_id)


def daemon_lines(daemon: Daemon, run_id: str) -> list[str]:
    """Return the lines of the daemon's log about an ended run."""
    return [line.split(f"{run_id}: ", 1)[1] for line in daemon.own_output().splitlines() if f" t {run_id}: " in line]


@pytest.mark.parametrize("tty", ["", "tty = true\n"])
def test_kept_leftover_writes_to_the_daemons_log(daemon: Daemon, cgroups: str, tmp_path: Path, tty: str) -> None:
    """A kept leftover writes to the daemon's log after its run and an upgrade, and is listed as long as it lives."""
    words, begun = tmp_path / "words", tmp_path / "begun"
    os.mkfifo(words)
    with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
        text = f"(trap '' HUP; echo before; : >{begun}; while read line; do echo $line secret-value; done <{words}) & "
        text += f"until [ -e {begun} ]; do sleep 0.01; done"
        settings = f'leftovers = "leave"\n{tty}secrets = {{ S = "secret-value" }}'
        run_id = start(daemon, cgroups, f'{settings}\nrun = "{text}"')
        assert daemon.ended(run_id)["endReason"] == "succeeded"
        assert daemon.texts(run_id) == ["before"]
        total = daemon.get(f"/api/runs/{run_id}/log").json()["totalLines"]
        (leftover,) = until(lambda: daemon.get("/api/daemon").json()["leftRunning"], "the list")
        assert (leftover["runId"], leftover["taskName"], len(leftover["processes"])) == (run_id, "t", 1)
        speaker.write("one\n")
        until(lambda: "one ***" in daemon_lines(daemon, run_id), "the first line")
        assert daemon.cli("upgrade").returncode == 0
        until(lambda: daemon.get("/api/daemon").json()["leftRunning"] == [leftover], "the same list")
        assert leftover["processes"][0] in daemon.cli("status").stdout
        speaker.write("two\n")
        until(lambda: "two ***" in daemon_lines(daemon, run_id), "another line")
    until(lambda: daemon.get("/api/daemon").json()["leftRunning"] == [], "the end of the list")
    assert daemon.get(f"/api/runs/{run_id}/log").json()["totalLines"] == total


def test_tree_ignoring_sigterm_is_stopped(daemon: Daemon, cgroups: str) -> None:
    """Children and grandchildren that ignore SIGTERM, in several sessions, all end with a stop."""
    run_id = start(daemon, cgroups, f"{SHORT_GRACE}\nrun = {program('deaf_tree')}")
    until(lambda: len(daemon.texts(run_id)) == 9, "all of them")
    tree = [int(text) for text in daemon.texts(run_id)]
    stop(daemon, run_id)
    assert daemon.ended(run_id)["endReason"] == "stopped"
    assert not [pid for pid in tree if alive(pid)]


def test_endlessly_forking_process_is_stopped(daemon: Daemon, cgroups: str, pids: Path) -> None:
    """A process that forks all the time cannot escape a stop."""
    run_id = start(daemon, cgroups, f"{SHORT_GRACE}\nrun = {program('forks_on', pids, 20_000)}")
    until(pids.exists, "the first generation")
    until(lambda: daemon.texts(run_id), "the main process")
    stop(daemon, run_id)
    assert daemon.ended(run_id)["endReason"] == "stopped"
    assert not alive(pid_in(pids))


def test_closed_output_does_not_end_a_run(daemon: Daemon, cgroups: str, pids: Path) -> None:
    """A run whose output is closed continues until its main process ends."""
    run_id = start(daemon, cgroups, f'graceful_stop = "1h"\nrun = {program("closes_output", pids)}')
    until(pids.exists, "its output to be closed")
    until(lambda: daemon.run(run_id)["status"] == "running", "it to be known that it runs")
    stop(daemon, run_id)
    run = daemon.ended(run_id)
    assert (run["endReason"], run["exitCode"]) == ("stopped", 7)


def test_self_stopped_process_is_continued(daemon: Daemon, cgroups: str) -> None:
    """A process that stopped itself is continued, so that it can react to its stop signal."""
    run_id = start(daemon, cgroups, f'graceful_stop = "1h"\nrun = {program("stops_itself")}')
    (process,) = until(lambda: daemon.children("stops_itself"), "its process")
    until(lambda: process.status() == psutil.STATUS_STOPPED, "it to stop itself")
    stop(daemon, run_id)
    assert daemon.ended(run_id)["exitCode"] == 5


def test_traced_child_is_killed(daemon: Daemon, cgroups: str, pids: Path) -> None:
    """A child that its tracer stopped and left behind is killed."""
    run_id = start(daemon, cgroups, f"{SHORT_GRACE}\nrun = {program('traced', pids)}")
    until(lambda: daemon.texts(run_id), "the child")
    stop(daemon, run_id)
    assert daemon.ended(run_id)["endReason"] == "stopped"
    assert not alive(pid_in(pids))


def test_process_without_its_first_thread_is_killed(daemon: Daemon, cgroups: str, pids: Path) -> None:
    """A process whose first thread has ended looks like a zombie but lives, and is killed."""
    run_id = start(daemon, cgroups, f"{SHORT_GRACE}\nrun = {program('loses_its_leader', pids)}")
    until(lambda: daemon.texts(run_id), "its first thread to end")
    pid = pid_in(pids)
    stop(daemon, run_id)
    assert daemon.ended(run_id)["endReason"] == "stopped"
    until(lambda: not Path(f"/proc/{pid}").exists(), "it to be reaped")


def test_zombies_are_reaped_and_not_leftovers(daemon: Daemon, cgroups: str) -> None:
    """Children that their parent does not wait for are reaped and are not leftovers."""
    run_id = start(daemon, cgroups, f"run = {program('makes_zombies')}")
    until(lambda: daemon.texts(run_id), "the zombies")
    stop(daemon, run_id)
    daemon.ended(run_id)
    until(lambda: not zombies(daemon), "the zombies to be reaped")
    assert "outlived" not in system_lines(daemon, run_id)


def test_removed_working_directory_is_harmless(daemon: Daemon, cgroups: str) -> None:
    """A process in a removed directory continues and executes another program."""
    script = 'cd "$(mktemp -d)" && rmdir "$PWD" && exec sh -c "echo still here; exit 3"'
    run_id = start(daemon, cgroups, f"run = {json.dumps(['sh', '-c', script])}")
    assert daemon.ended(run_id)["exitCode"] == 3
    assert daemon.texts(run_id) == ["still here"]


def test_missing_interpreter(daemon: Daemon, cgroups: str, tmp_path: Path) -> None:
    """A script whose interpreter does not exist was never started, and its log says why."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    run = daemon.ended(start(daemon, cgroups, f'run = ["{script}"]'))
    assert (run["endReason"], run["exitCode"]) == ("start_failed", -1)
    assert "no such interpreter (first line)" in system_lines(daemon, run["id"])


def test_environment_beyond_the_kernel_limit(daemon: Daemon, cgroups: str) -> None:
    """A run whose environment the kernel refuses was never started, and its log says why."""
    variables = "\n".join(f'V{number} = "{"x" * 100_000}"' for number in range(30))
    run = daemon.ended(start(daemon, cgroups, f'run = "true"\n[tasks.t.env]\n{variables}'))
    assert (run["endReason"], run["exitCode"]) == ("start_failed", -1)
    assert "could not start: Argument list too long" in system_lines(daemon, run["id"])


def test_stop_signals_in_sequence(daemon: Daemon, cgroups: str) -> None:
    """Each signal of the list has its time; then SIGKILL follows."""
    steps = '[["SIGINT", "50ms"], ["HUP", "50ms"], ["SIGTERM", "50ms"]]'
    run = program("tells_signals", "SIGINT", "SIGHUP", "SIGTERM")
    daemon.write(f"[tasks.t]\nstop_signal = {steps}\nrun = {run}\n", daemon=f'cgroups = "{cgroups}"')
    daemon.start()

    def told_all() -> bool:  # unless it got no CPU time between two of them
        run_id = daemon.trigger("t")
        until(lambda: daemon.texts(run_id), "its line")
        stop(daemon, run_id)
        run_ended = daemon.ended(run_id)
        assert (run_ended["endReason"], run_ended["exitCode"]) == ("stopped", 128 + signal.SIGKILL)
        return daemon.texts(run_id) == ["ready", "SIGINT", "SIGHUP", "SIGTERM"]

    until(told_all, "a run that tells of each signal")


def test_only_force_hurries_a_stop(daemon: Daemon, cgroups: str) -> None:
    """A repeated stop sends no further signal; a forced stop kills at once."""
    run = program("tells_signals", "SIGTERM")
    run_id = start(daemon, cgroups, f'graceful_stop = "1h"\nrun = {run}')
    until(lambda: daemon.texts(run_id), "its line")
    stop(daemon, run_id)
    until(lambda: len(daemon.texts(run_id)) == 2, "the signal")
    stop(daemon, run_id)
    stop(daemon, run_id, "?force=true")
    assert daemon.ended(run_id)["exitCode"] == 128 + signal.SIGKILL
    assert daemon.texts(run_id) == ["ready", "SIGTERM"]


@pytest.mark.own
def test_shutdown_ends_all_but_kept_processes(daemon: Daemon, cgroups: str, pids: Path, tmp_path: Path) -> None:
    """No process that a run started outlives the daemon.

    With leftovers = "leave" a process outlives its run and the daemon, and the log names it.
    """
    other = tmp_path / "other"
    daemon.write(
        f'[tasks.leaves]\nleftovers = "leave"\nrun = {program("daemonises", pids)}\n'
        f'[tasks.ends]\nrun = "{words(other)}; exec sleep 1000"\n',
        daemon=f'cgroups = "{cgroups}"',
    )
    daemon.start()
    run_id = daemon.trigger("leaves")
    assert daemon.ended(run_id)["endReason"] == "succeeded"
    assert f"left running: sleep ({pid_in(pids)})" in system_lines(daemon, run_id)
    daemon.trigger("ends")
    until(other.exists, "what gets away")
    assert daemon.stop() == 0
    assert alive(pid_in(pids))
    assert not alive(pid_in(other))


@pytest.mark.own
def test_orphans_of_a_killed_supervisor_are_ended(daemon: Daemon, cgroups: str, tmp_path: Path) -> None:
    """Orphans, even daemonised ones, are ended before anything new starts, and their cgroup is removed.

    The next start does not end a kept leftover, even if its run had not ended and its task is gone.
    """
    tables = {}
    for name, settings in (("stays", 'leftovers = "leave"'), ("goes", 'leftovers = "leave"'), ("ends", "")):
        main, escaped = tmp_path / f"{name}.main", tmp_path / name
        tables[name] = f"""[tasks.{name}]
{settings}
run = "echo $$ >'{main}'; {words(escaped)}; exec sleep 1000"
"""
    daemon.write("".join(tables.values()), daemon=f'cgroups = "{cgroups}"')
    daemon.start()
    runs = {name: daemon.trigger(name) for name in tables}
    until(lambda: all((tmp_path / name).exists() for name in tables), "the daemons of their own")
    daemon.stop(signal.SIGKILL)
    pids = {name: pid_in(tmp_path / name) for name in tables}
    try:
        assert all(map(alive, pids.values()))
        daemon.write(tables["stays"] + tables["ends"], daemon=f'cgroups = "{cgroups}"')
        daemon.start()
        assert {name: alive(pid) for name, pid in pids.items()} == {"stays": True, "goes": True, "ends": False}
        assert daemon.run(runs["ends"])["endReason"] == "crashed"
        place = Cgroups.find()
        assert place is None or not os.path.exists(f"{place.directory}/{runs['ends']}")
    finally:
        for pid in (*pids.values(), *(pid_in(tmp_path / f"{name}.main") for name in tables)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
