"""Two daemons that could be mistaken for each other."""

import shutil
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.daemon import Daemon, gone
from tests.support.waiting import until

SLEEPS = '[tasks.t]\nrun = "exec sleep 1000"\n'


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "other").mkdir()
    daemon = Daemon(tmp_path / "other")
    yield daemon
    daemon.clean()


def started(daemon: Daemon) -> tuple[str, psutil.Process]:
    """Return an active run and its process."""
    run = daemon.trigger("t")
    until(lambda: daemon.run(run)["status"] == "running", "the run")

    def sleeping() -> list[psutil.Process]:
        return daemon.children("sleep 1000")

    return run, until(sleeping, "its process")[0]


@pytest.mark.parametrize("cgroups", ["auto", "off"])
def test_copy_of_a_directory_in_use(daemon: Daemon, other: Daemon, cgroups: str) -> None:
    """The daemon of a copy leaves the processes of the original alone; their runs have crashed only in the copy."""
    for a_daemon in (daemon, other):
        a_daemon.write(SLEEPS, daemon=f'cgroups = "{cgroups}"')
    daemon.start()
    run, process = started(daemon)
    shutil.copytree(daemon.data, other.data)
    in_use = tomllib.loads(daemon.config.read_text())["http"]["listen"][0]
    assert other.cli("up", "--listen", in_use).returncode == 71
    other.start()
    assert other.run(run)["endReason"] == "crashed"
    assert process.is_running()
    assert daemon.run(run)["status"] == "running"
    theirs, their_process = started(other)
    assert other.stop() == 0
    assert gone(their_process)
    assert process.is_running()
    other.start()
    assert other.run(theirs)["endReason"] == "daemon_stopped"
    assert process.is_running()
    assert daemon.stop() == 0


def test_moved_data_directory(daemon: Daemon, other: Daemon) -> None:
    """A daemon stays the same in a moved data directory: orphans are ended, and history and logs remain."""
    daemon.write(SLEEPS + '[tasks.says]\nrun = "echo hello"\n')
    other.write(SLEEPS + '[tasks.says]\nrun = "echo hello"\n')
    daemon.start()
    ended_run = daemon.ended(daemon.trigger("says"))
    until(lambda: list(daemon.data.rglob(f"{ended_run['id']}.log")), "its log file")
    run, process = started(daemon)
    daemon.stop(signal.SIGKILL)
    daemon.data.rename(other.data)
    other.start()
    assert other.texts(ended_run["id"]) == ["hello"]
    assert other.run(run)["endReason"] == "crashed"
    assert gone(process)


@pytest.mark.parametrize("lost", ["moved", "id"])
def test_lost_data_directory(daemon: Daemon, lost: str) -> None:
    """A data directory that is moved, or loses its id, comes back: the next daemon ends the orphans of a killed one."""
    daemon.write(SLEEPS)
    daemon.start()
    _run, process = started(daemon)
    names = ("id", "run_token.key")
    before = {name: (daemon.data / name).read_text() for name in names}
    if lost == "moved":
        daemon.data.rename(daemon.data.with_name("elsewhere"))
    else:
        (daemon.data / "id").unlink()

    def restored() -> bool:
        return all((daemon.data / name).exists() for name in (*names, "lock", "ringward.db"))

    until(restored, "the files")
    assert {name: (daemon.data / name).read_text() for name in names} == before
    second = daemon.cli("up", "--config", str(daemon.config), "--data", str(daemon.data))
    assert (second.returncode, second.stderr) == (
        75,
        f"ringward: a daemon already runs on {daemon.data} (pid {daemon.pid})\n",
    )
    assert process.is_running()
    daemon.stop(signal.SIGKILL)
    daemon.start()
    assert gone(process)


def test_second_daemon_without_the_lock(daemon: Daemon) -> None:
    """A second daemon on a directory whose lock was removed does not take it for a copy, and changes nothing there."""
    daemon.write(SLEEPS)
    daemon.start()
    before = (daemon.data / "id").read_text()
    with daemon.paused():  # so that the lock is not restored meanwhile
        (daemon.data / "lock").unlink()
        second = daemon.cli("up", "--config", str(daemon.config), "--data", str(daemon.data))
    assert (second.returncode, second.stderr) == (
        75,
        f"ringward: a daemon already runs on {daemon.data} (pid {daemon.pid})\n",
    )
    assert (daemon.data / "id").read_text() == before
