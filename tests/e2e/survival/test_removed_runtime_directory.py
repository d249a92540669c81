"""The runtime directory, or a part of it, is removed while the daemon runs."""

import fcntl
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Stream
from tests.support.daemon import Daemon
from tests.support.waiting import until

SESSION = "/run/session"
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


def well(daemon: Daemon) -> bool:
    """Wait until the daemon accepts commands."""
    try:
        return daemon.get("/readyz").status == 200
    except OSError:  # the API server restarts
        return False


def begun_again(daemon: Daemon, count: int) -> bool:
    """Wait until the scheduler has become ready this many times."""
    return daemon.own_output().count("INFO scheduler: ready: ") == count


def remove(daemon: Daemon, place: Path, *, keep_directory: bool = False) -> None:
    """Remove the runtime directory, or all files in it, before the daemon recreates any of them."""
    until(lambda: not os.listdir(place / "audit"), "the audit to be stored")
    with daemon.paused():
        for path in place.iterdir() if keep_directory else (place,):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_removed_runtime_directory_is_recreated(daemon: Daemon, words: Path) -> None:
    """Directory, sockets and rings are recreated; a run loses no line, even across an upgrade."""
    daemon.write(COUNTS.format(words=words))
    daemon.start()
    place = daemon.runtime_dir()
    expected = ["first"]
    with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
        run = daemon.trigger("counts")

        def say(word: str) -> None:
            expected.append(word)
            speaker.write(f"{word}\n")

        for starts, removed in enumerate(("all in it", "the directory"), start=2):
            say(f"before {removed}")
            until(lambda: daemon.texts(run) == expected, "the lines")
            remove(daemon, place, keep_directory=removed == "all in it")
            say(f"after {removed}")
            until(lambda: begun_again(daemon, starts) and well(daemon), removed)  # noqa: B023
            assert f"{place}/{run}.ring" in map(str, place.iterdir())
            until(lambda: daemon.texts(run) == expected, "the line that came meanwhile")
        daemon.kill_helper("ringward scheduler")
        until(lambda: begun_again(daemon, 4) and well(daemon), "another scheduler")
        assert daemon.texts(daemon.ended(daemon.trigger("short"))["id"]) == ["short"]
        assert daemon.get("/metrics").status in (200, 401)
        assert daemon.cli("upgrade").returncode == 0
        say("after an upgrade")
        until(lambda: daemon.texts(run) == expected, "a line after an upgrade")
    ended = daemon.ended(run)
    assert ended["endReason"] == "succeeded"
    assert daemon.texts(run) == expected
    assert " ".join(daemon.texts(run, "system")).count("no line was lost") == 2
    assert daemon.stop() == 0
    assert not place.exists()


def test_removed_files_are_recreated(daemon: Daemon, words: Path) -> None:
    """Each removed file is recreated, and runs continue."""
    daemon.write(COUNTS.format(words=words))
    daemon.start()
    place = daemon.runtime_dir()
    for removed, name in enumerate(("ring", "root.bell", "control.sock", "lock", "begun", "audit"), start=1):
        with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
            run = daemon.trigger("counts")
            until(lambda: daemon.texts(run) == ["first"], "the first line")  # noqa: B023
            until(lambda: not os.listdir(place / "audit"), "the audit to be stored")
            path = place / (f"{run}.ring" if name == "ring" else name)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            until(lambda: begun_again(daemon, removed + 1) and well(daemon) and path.exists(), name)  # noqa: B023
            speaker.write("second\n")
            until(lambda: daemon.texts(run) == ["first", "second"], "the next line")  # noqa: B023
        assert daemon.ended(run)["endReason"] == "succeeded"
    assert daemon.stop() == 0


@pytest.mark.lent
def test_removed_events_ring_is_recreated(daemon: Daemon) -> None:
    """The events ring is recreated, and open and new streams of events continue."""
    daemon.write('[tasks.t]\nrun = "true"\n')
    daemon.start()
    ring = daemon.runtime_dir() / "events.ring"
    old = daemon.stream("/api/events/stream?types=run.ended")
    before = daemon.trigger("t")
    daemon.ended(before)
    ring.unlink()
    until(ring.exists, "the ring")
    new = daemon.stream("/api/events/stream?types=run.ended")
    after = daemon.trigger("t")
    assert ended_in(old, 2) == [before, after]
    assert ended_in(new, 1) == [after]
    old.close()
    new.close()


def ended_in(stream: Stream, count: int) -> list[str]:
    """Return the runs whose end the stream reports first."""
    return [event.data["runId"] for event in itertools.islice(stream, count)]


@pytest.mark.lent
def test_removed_api_socket_is_recreated(daemon: Daemon) -> None:
    """The API socket is recreated, and the command line finds the daemon there."""
    daemon.write("")
    daemon.start()
    body: dict[str, Any] = daemon.get("/api/daemon").json()
    assert body["schedulerActive"]
    socket = Path(daemon.socket)
    socket.unlink()
    until(socket.is_socket, "the socket")
    until(lambda: daemon.cli("health").returncode == 0, "the answer")


def test_directory_cannot_be_recreated(daemon: Daemon, words: Path) -> None:
    """Until the directory exists, readyz answers 503.

    No line is lost, and afterwards a killed scheduler is replaced.
    """
    daemon.write(f'[tasks.late]\nrun = "while read line; do echo $line; done <{words}"\n')
    daemon.start()
    place = daemon.runtime_dir()
    with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
        run = daemon.trigger("late")
        until(lambda: daemon.run(run)["status"] == "running", "the start")
        others = [path for path in daemon.runtime_dirs() if os.access(path.parent.parent, os.W_OK) and path != place]
        until(lambda: not os.listdir(place / "audit"), "the audit to be stored")
        with daemon.paused():
            shutil.rmtree(place)
            for path in (*others, place):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                path.touch()
        until(lambda: "cannot be created again" in daemon.own_output(), "the message")
        assert daemon.get("/readyz").status == 503
        assert daemon.get("/metrics").status == 200
        speaker.write("meanwhile\n")
        daemon.helper("ringward scheduler").kill()
        place.unlink()
        until(lambda: daemon.own_output().count("INFO scheduler: ready: ") >= 2 and well(daemon), "the directory")
        for path in others:
            path.unlink()
        speaker.write("afterwards\n")
        until(lambda: "afterwards" in daemon.texts(run), "a line")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert daemon.texts(run) == ["meanwhile", "afterwards"]
    assert daemon.texts(run, "system") == []


class InSession(Daemon):
    """A daemon whose runtime directory is on its own tmpfs, as logind mounts it for a session."""

    apart = True
    """Commands get their own mount table, in which nothing else below /run is a tmpfs."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "XDG_RUNTIME_DIR": SESSION}

    def command(self) -> list[str]:
        script = f"mount -t ramfs none /run && mkdir {SESSION} && mount -t tmpfs -o mode=700 none {SESSION}"
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{script} && exec "$@"', "sh"]
        return [*(unshare if self.apart else []), *super().command()]


@pytest.fixture
def in_session(tmp_path: Path) -> Iterator[InSession]:
    daemon = InSession(tmp_path)
    yield daemon
    daemon.clean()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_lost_shared_memory_moves_the_directory(in_session: InSession, words: Path) -> None:
    """The directory moves to the next suitable place with all rings. Clients, an upgrade and a shutdown find it."""
    daemon = in_session
    daemon.write(COUNTS.format(words=words))
    daemon.start()
    daemon.apart = False
    assert not [path for path in daemon.runtime_dirs() if path.exists()]
    with open(os.open(words, os.O_RDWR), "w", buffering=1) as speaker:
        run = daemon.trigger("counts")
        speaker.write("1\n")
        until(lambda: daemon.texts(run) == ["first", "1"], "the lines")
        next_place = daemon.runtime_dirs()[1]
        next_place.mkdir(parents=True, mode=0o700)
        (next_place / "lock").touch()  # no process holds it
        os.kill(daemon.pid, signal.SIGSTOP)  # to observe the time before the move
        try:
            subprocess.run(["nsenter", "--mount", "-t", str(daemon.pid), "umount", "-l", SESSION], check=True)
            assert daemon.get("/readyz").status == 503
            speaker.write("2\n")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        until(lambda: begun_again(daemon, 2) and well(daemon), "the move")
        place = daemon.runtime_dir()
        assert f"its files are now in {place}" in daemon.own_output()
        assert (place / f"{run}.ring").exists()
        with (place / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        speaker.write("3\n")
        until(lambda: daemon.texts(run) == ["first", "1", "2", "3"], "the lines of before and after")
        daemon.kill_helper("ringward scheduler")
        until(lambda: begun_again(daemon, 3) and well(daemon), "another scheduler")
        assert daemon.texts(daemon.ended(daemon.trigger("short"))["id"]) == ["short"]
        upgraded = daemon.cli("upgrade")
        assert upgraded.returncode == 0, upgraded.stderr
        speaker.write("4\n")
        until(lambda: "4" in daemon.texts(run), "a line after an upgrade")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert daemon.texts(run) == ["first", "1", "2", "3", "4"]
    assert daemon.stop() == 0
    assert not [path for path in daemon.runtime_dirs() if path.exists()]
