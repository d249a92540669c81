"""The examples: the configuration is valid, and each of its programs works as described."""

import gzip
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from supervisor.config.load import load
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

EXAMPLES = ROOT / "examples"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the examples that no other user can write to."""
    path = tmp_path / "examples"
    shutil.copytree(EXAMPLES, path, ignore=shutil.ignore_patterns("data", "__pycache__"))
    (path / "ringward.toml").chmod(0o644)
    return path


@contextmanager
def killed_on_failure(child: "subprocess.Popen[str]") -> Iterator[None]:
    """Kill the child of a failing test without waiting for it."""
    try:
        yield
    except BaseException:
        child.kill()
        raise


def script(place: Path, name: str, *args: str, code: int = 0) -> str:
    """Run a script of the examples; return its output."""
    command = [sys.executable, f"scripts/{name}.py", *args]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_configuration_uses_every_script(place: Path) -> None:
    """The configuration is valid, every script that it names exists, and every script is used."""
    config = load(str(place / "ringward.toml"))
    assert config.daemon.data_dir == str(place / "data")
    assert config.services["queue"].instances == 3
    used = {
        argument
        for command in [unit.run for unit in config.tasks.values()] + [unit.run for unit in config.services.values()]
        if isinstance(command, tuple)
        for argument in command
        if argument.startswith("scripts/")
    }
    assert used == {f"scripts/{path.name}" for path in (place / "scripts").glob("*.py")}
    assert {unit.working_dir for unit in config.tasks.values() if not unit.steps} == {str(place)}


def test_jobs_and_log_rotation(place: Path) -> None:
    """The worker does each job of the producer once, and the rotation keeps the requested number of logs."""
    data = place / "data/work"
    assert "5 jobs are waiting" in script(place, "producer", "data/work", "--jobs", "5")
    output = script(place, "queue_worker", "data/work", "--once")
    assert output.count(" done in ") == 5
    assert len(list((data / "done").iterdir())) == 5
    assert list((data / "spool").glob("*.json")) == []
    written = (data / "queue.log").read_text()
    assert written.count("\n") == 5
    assert "less than 1000000" in script(place, "rotate_log", "data/work/queue.log", "--min-size", "1000000")
    for _ in range(3):
        script(place, "rotate_log", "data/work/queue.log", "--keep", "2")
        (data / "queue.log").write_text("more\n")
    assert sorted(path.name for path in data.glob("queue.log.*.gz")) == ["queue.log.1.gz", "queue.log.2.gz"]
    shutil.rmtree(data)
    assert "does not exist yet" in script(place, "rotate_log", "data/work/queue.log")


def test_interrupted_rotation(place: Path) -> None:
    """The next rotation compresses an old file that an interrupted rotation left, and loses nothing."""
    data = place / "data/work"
    data.mkdir(parents=True)
    (data / "queue.log.old").write_text("old\n")
    (data / "queue.log").write_text("new\n")
    assert "interrupted rotation" in script(place, "rotate_log", "data/work/queue.log")
    assert gzip.decompress((data / "queue.log.1.gz").read_bytes()) == b"old\n"
    assert (data / "queue.log").read_text() == "new\n"


def test_stopped_and_killed_workers(place: Path) -> None:
    """A worker returns the claimed job of its killed predecessor, and stops cleanly on SIGTERM."""
    claimed = place / "data/work/claimed-7"
    claimed.mkdir(parents=True)
    (claimed / "job.json").write_text('{"seed": "x", "rounds": 10}')
    command = [sys.executable, "-u", "scripts/queue_worker.py", "data/work"]
    environ = {**os.environ, "RINGWARD_INSTANCE": "7"}
    with (
        subprocess.Popen(command, cwd=place, env=environ, stdout=subprocess.PIPE, text=True) as worker,
        killed_on_failure(worker),
    ):
        until((place / "data/work/done/job.json").exists, "the job to be done")
        worker.send_signal(signal.SIGTERM)
        until(lambda: worker.poll() is not None, "the worker to end")
        output = worker.communicate()[0]
    assert worker.returncode == 0
    assert "put back the unfinished job job.json" in output
    assert output.endswith("worker 7 stops\n")


def test_database_and_backup(place: Path) -> None:
    """Backups of the filled database can be opened; the newest are kept, and the oldest is removed."""
    script(place, "fill_database", "data/work/sample.db", "--rows", "3")
    assert "6 in total" in script(place, "fill_database", "data/work/sample.db", "--rows", "3")
    for _ in range(3):
        assert "integrity ok" in script(
            place, "backup_database", "data/work/sample.db", "data/work/backups", "--keep", "2"
        )
    copies = sorted((place / "data/work/backups").iterdir())
    assert len(copies) == 2
    with closing(sqlite3.connect(copies[-1])) as copy:
        assert copy.execute("select count(*) from measurement").fetchone() == (6,)
    assert "does not exist" in script(place, "backup_database", "nothing.db", "data/work/backups", code=1)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Write no log."""


@pytest.fixture
def web() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_http_check(place: Path, web: str) -> None:
    """The check distinguishes a good answer, an error, a slow answer and a missing listener."""
    assert "status 200" in script(place, "check_http", f"{web}/", "--within", "60")
    assert "status 500" in script(place, "check_http", f"{web}/error", code=2)
    assert "slower than" in script(place, "check_http", f"{web}/", "--within", "0", code=3)
    assert "no answer" in script(place, "check_http", f"http://127.0.0.1:{free_port()}/", code=1)


def test_interrupted_checksums(place: Path) -> None:
    """SIGTERM ends the script at once, with a message and the signal's exit code, and the previous manifest stays."""
    manifest = place / "data/work/sums.txt"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("0000  files/endless\n")
    (place / "files").mkdir()
    with open(place / "files/endless", "wb") as sparse:
        sparse.truncate(1 << 40)
    command = [sys.executable, "-u", "scripts/checksums.py", "data/work/sums.txt", "--directory", "files"]
    with (
        subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as child,
        killed_on_failure(child),
    ):
        assert child.stdout
        assert child.stdout.readline().startswith("reading")
        assert child.stdout.readline() == "\n"  # the carriage return before the bar
        child.send_signal(signal.SIGTERM)
        until(lambda: child.poll() is not None, "the script to end")
        output = child.communicate()[0]
    assert (child.returncode, "interrupted" in output) == (128 + signal.SIGTERM, True)
    assert manifest.read_text() == "0000  files/endless\n"
    assert list(manifest.parent.iterdir()) == [manifest]


def test_checksums(place: Path) -> None:
    """The script lists added, removed and changed files below a progress bar."""
    files = place / "files"
    files.mkdir()
    for name in ("a", "b"):
        (files / name).write_text(name)
    arguments = ("data/work/sums.txt", "--directory", "files")
    first = subprocess.run(
        [sys.executable, "scripts/checksums.py", *arguments], cwd=place, capture_output=True, check=True
    )
    assert first.stdout.count(b"\r") >= 2
    assert b"nothing to compare" in first.stdout
    (files / "a").write_text("changed")
    (files / "b").unlink()
    (files / "c").touch()
    output = script(place, "checksums", *arguments)
    for text in ("changed: a", "removed: b", "added: c", "2 files, compared with 2"):
        assert text in output


@pytest.mark.parametrize("name", ["clean-up", "disk-usage"])
def test_shell_commands(place: Path, name: str) -> None:
    """The shell commands work with the programs of every Linux system."""
    command = load(str(place / "ringward.toml")).tasks[name].run
    assert isinstance(command, str)
    text = command.replace("/usr", str(place))
    done = subprocess.run(["/bin/sh", "-e", "-c", text], cwd=place, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
