"""Somebody removes the runtime directory, or something in it, under a daemon that works."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon import Daemon
from tests.waiting import until

pytestmark = pytest.mark.own

COUNTS = """\
[tasks.counts]
run = "echo first; while read line; do echo $line; done <{words}"
[tasks.short]
run = "echo short"
"""


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words"
    os.mkfifo(path)
    return path


def place_of(daemon: Daemon) -> Path:
    """Its runtime directory."""
    (place,) = (path for path in daemon.runtime_dirs() if path.is_dir())
    return place


def well(daemon: Daemon) -> bool:
    """The daemon is ready for commands."""
    try:
        return daemon.get("/readyz").status == 200
    except OSError:  # the API server begins anew
        return False


def begun_again(daemon: Daemon, count: int) -> bool:
    """The scheduler has become ready so many times."""
    return daemon.said().count("INFO scheduler: ready: ") == count


@pytest.mark.parametrize("what", ["the directory", "all in it"])
def test_the_directory(daemon: Daemon, words: Path, what: str) -> None:
    """Directory, sockets and rings are made again; a run goes on without the loss of a line, also over an upgrade."""
    daemon.write(COUNTS.format(words=words))
    daemon.start()
    place = place_of(daemon)
    with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
        run = daemon.trigger("counts")
        speaker.write("second\n")
        until(lambda: daemon.texts(run) == ["first", "second"], "the lines")
        if what == "the directory":
            shutil.rmtree(place)
        else:
            for path in place.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        speaker.write("third\n")
        until(lambda: begun_again(daemon, 2) and well(daemon), "the directory")
        assert f"{place}/{run}.ring" in map(str, place.iterdir())
        until(lambda: daemon.texts(run) == ["first", "second", "third"], "the line that came meanwhile")
        daemon.kill_helper("ringward scheduler")
        until(lambda: begun_again(daemon, 3) and well(daemon), "another scheduler")
        assert daemon.texts(daemon.ended(daemon.trigger("short"))["id"]) == ["short"]
        assert daemon.get("/metrics").status in (200, 401)
        assert daemon.cli("upgrade").returncode == 0
        speaker.write("fourth\n")
        until(lambda: "fourth" in daemon.texts(run), "a line after an upgrade")
    ended = daemon.ended(run)
    assert ended["endReason"] == "succeeded"
    assert daemon.texts(run) == ["first", "second", "third", "fourth"]
    assert "no line was lost" in " ".join(daemon.texts(run, "system"))
    assert daemon.stop() == 0
    assert not place.exists()


@pytest.mark.parametrize("name", ["ring", "root.bell", "control.sock", "lock", "begun", "audit"])
def test_one_of_its_files(daemon: Daemon, words: Path, name: str) -> None:
    """Each file is made again; what runs goes on."""
    daemon.write(COUNTS.format(words=words))
    daemon.start()
    place = place_of(daemon)
    with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
        run = daemon.trigger("counts")
        until(lambda: daemon.texts(run) == ["first"], "the first line")
        path = place / (f"{run}.ring" if name == "ring" else name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        until(lambda: begun_again(daemon, 2) and well(daemon) and path.exists(), "the file")
        speaker.write("second\n")
        until(lambda: daemon.texts(run) == ["first", "second"], "the next line")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert daemon.stop() == 0


def test_the_socket_of_the_api(daemon: Daemon) -> None:
    """It is made again, and the command line finds the daemon there."""
    daemon.write("")
    daemon.start()
    found: dict[str, Any] = daemon.get("/api/daemon").json()
    assert found["schedulerActive"]
    socket = Path(daemon.socket)
    socket.unlink()
    until(socket.is_socket, "the socket")
    until(lambda: daemon.cli("health").returncode == 0, "the answer")


def test_it_cannot_be_made_again(daemon: Daemon, words: Path) -> None:
    """Until then readyz answers 503; afterwards a log says what it lost, and a killed scheduler is back."""
    daemon.write(f'[tasks.late]\nrun = "while read line; do echo $line; done <{words}"\n')
    daemon.start()
    place = place_of(daemon)
    with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
        run = daemon.trigger("late")
        until(lambda: daemon.run(run)["status"] == "running", "the start")
        shutil.rmtree(place)
        place.touch()
        until(lambda: "cannot be made again" in daemon.said(), "the message")
        assert daemon.get("/readyz").status == 503
        assert daemon.get("/metrics").status == 200
        speaker.write("lost\n")
        daemon.helper("ringward scheduler").kill()
        place.unlink()
        until(lambda: daemon.said().count("INFO scheduler: ready: ") >= 2 and well(daemon), "the directory")
        speaker.write("kept\n")
        until(lambda: "kept" in daemon.texts(run), "a line")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert daemon.texts(run, "system")[0].startswith("1 line (5 bytes) dropped: there is no place for the log: ")
