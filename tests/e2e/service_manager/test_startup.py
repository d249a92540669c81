"""Start-up errors: one line names the cause, and exit statuses tell them apart."""

import contextlib
import fcntl
import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from store.recovery.copies import copy_path, suspect
from tests.support.daemon import RINGWARD, Daemon, gone
from tests.support.ports import free_port
from tests.support.waiting import until


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that was started with a permissive umask; tests do not change it."""
    daemon = Daemon(tmp_path_factory.mktemp("started"))
    daemon.write('[tasks.t]\nrun = "env"\n')
    before = os.umask(0)
    try:
        daemon.start()
    finally:
        os.umask(before)
    yield daemon
    daemon.clean()


def up(daemon: Daemon) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RINGWARD, "up", "--config", daemon.config, *daemon.options],
        capture_output=True,
        text=True,
        env=daemon.environment(),
        timeout=60,
    )


def test_invalid_configuration_lists_all_errors(daemon: Daemon) -> None:
    """All errors are listed at once, each with file, line, key and remedy, and the exit status is 78."""
    daemon.write('[tasks.t]\nrun = "true"\ntimeot = "5s"\n[tasks.u]\ncron = "61 * * * *"\n')
    outcome = up(daemon)
    assert outcome.returncode == 78
    for part in (f"{daemon.config}:9", "timeot", "timeout", f"{daemon.config}:11", "cron", "run"):
        assert part in outcome.stderr, outcome.stderr


def test_start_warns_of_missing_users_and_programs(daemon: Daemon) -> None:
    """The start warns of an unknown user, a missing directory and a missing program, each with its line."""
    text = '[tasks.t]\nrun = ["/no/such"]\nuser = "no-such-user"\n[tasks.u]\nrun = "true"\nworking_dir = "/no/dir"\n'
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        daemon.config.write_text(f'{text}[daemon]\ndata_dir = "data"\n[http]\nlisten = ["127.0.0.1:{port}"]\n')
        outcome = up(daemon)
    for line, message in (
        (2, "tasks.t.run: no such program: /no/such"),
        (3, "tasks.t.user: no such user: no-such-user"),
        (6, "tasks.u.working_dir: no such directory: /no/dir"),
    ):
        assert f"warning: {daemon.config}:{line}: {message}\n" in outcome.stderr, outcome.stderr


def test_port_in_use(daemon: Daemon) -> None:
    """A port in use gives a one-line cause with the program that listens and a remedy, and exit status 71."""
    daemon.write("")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        daemon.config.write_text(f'[daemon]\ndata_dir = "data"\n[http]\nlisten = ["127.0.0.1:{port}"]\n')
        outcome = up(daemon)
    assert outcome.returncode == 71
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    cause = f"cannot listen on 127.0.0.1:{port}: Address already in use: {name} ({os.getpid()}) listens there"
    assert outcome.stderr.startswith(f"ringward: {cause}; to take a free port, run: "), outcome.stderr
    assert outcome.stderr.endswith(" --listen 127.0.0.1:0\n"), outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_start_that_a_signal_ends(daemon: Daemon, number: signal.Signals) -> None:
    """A signal that ends a start leaves no runtime directory."""
    daemon.write("")
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "wb"):
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b" " * 4096)
        os.set_blocking(writing, True)
        before = signal.signal(number, signal.SIG_DFL)  # nohup(1) ignores SIGHUP, which programs inherit
        daemon.launch(stdout=writing)
        signal.signal(number, before)
        assert daemon.process is not None

        def runtime_dir() -> Path | None:
            """Return the runtime directory once the start waits for its output."""
            process = psutil.Process(daemon.pid)
            paths = [Path(file.path) for file in process.open_files()]
            locks = [path for path in paths if path.name == "lock" and path.parent != daemon.data]
            return locks[0].parent if locks and process.status() == psutil.STATUS_SLEEPING else None

        place = until(runtime_dir, "the start to wait")
        daemon.process.send_signal(number)
        assert daemon.process.wait(60) == -number
    assert not place.exists()


def test_failed_start_after_a_crash(daemon: Daemon) -> None:
    """A start ends the runs of a killed supervisor even if its port is in use, but not if the configuration is invalid.

    Leftovers that a task leaves running stay.
    """
    sleeps = 'run = "exec sleep 1000"\n'
    daemon.write(f'[tasks.t]\n{sleeps}[tasks.stays]\nleftovers = "leave"\n{sleeps}', daemon='cgroups = "off"')
    daemon.start()
    runs = [daemon.trigger(name) for name in ("t", "stays")]
    until(lambda: all(daemon.run(run)["status"] == "running" for run in runs), "the runs, as they are stored")
    until(lambda: len(daemon.children("sleep 1000")) == len(runs), "their processes")
    processes = {process.environ()["RINGWARD_RUN_ID"]: process for process in daemon.children("sleep 1000")}
    daemon.stop(signal.SIGKILL)
    try:
        valid = daemon.config.read_text()
        daemon.config.write_text(valid + "[tasks.invalid")
        assert up(daemon).returncode == 78
        assert all(process.is_running() for process in processes.values())
        daemon.config.write_text(valid)
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            daemon.options = ["--listen", f"127.0.0.1:{other.getsockname()[1]}"]
            outcome = up(daemon)
        daemon.options = []
        assert outcome.returncode == 71
        assert outcome.stderr.startswith(f"ringward: ended runs that a killed supervisor left: t ({runs[0]})\n")
        assert {run: gone(process) for run, process in processes.items()} == {runs[0]: True, runs[1]: False}
        daemon.start()
        assert daemon.run(runs[0])["endReason"] == "crashed"
    finally:
        for process in processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def test_second_daemon_names_the_first(started: Daemon) -> None:
    """A second daemon on the same data directory names the first one and exits with status 75."""
    outcome = up(started)
    assert outcome.returncode == 75
    assert str(started.pid) in outcome.stderr


def test_unusable_data_directory(daemon: Daemon, tmp_path: Path) -> None:
    """A data directory that cannot be created gives a one-line cause and exit status 73."""
    (tmp_path / "file").write_text("")
    daemon.config.write_text(f'[daemon]\ndata_dir = "file/data"\n[http]\nlisten = ["127.0.0.1:{free_port()}"]\n')
    daemon.config.chmod(0o600)
    outcome = up(daemon)
    assert outcome.returncode == 73
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert str(tmp_path / "file") in outcome.stderr


def test_private_files_under_any_umask(started: Daemon) -> None:
    """All files in the data directory are private, whatever the umask."""
    started.ended(started.trigger("t"))
    for path in (started.data, *started.data.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # some files come and go
            assert path.stat().st_mode & 0o077 == 0, path


def test_password_never_reaches_the_log(started: Daemon) -> None:
    """Neither the configured password nor the internal token appears in output, arguments or environments."""
    started.ended(started.trigger("t"))
    assert "correct horse" not in started.output.read_text()
    for helper in ("ringward scheduler", "ringward gunicorn"):
        process = started.helper(helper)
        assert "correct horse" not in " ".join(process.cmdline())
        assert "RINGWARD_PASSWORD" not in process.environ()


@pytest.mark.parametrize("where", ["/etc", "/proc"])
def test_no_access_without_a_password(started: Daemon, where: str) -> None:
    """Over TCP, only the public pages answer without credentials, and no path leads out of them."""
    line = next(line for line in started.config.read_text().splitlines() if line.startswith("listen"))
    port = int(line.split(":")[1].strip('"]'))
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(f"GET /../..{where}/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert b" 404 " in sock.makefile("rb").readline()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET /api/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b" 401 " in sock.makefile("rb").readline()


def test_damaged_database_stops_the_start(daemon: Daemon) -> None:
    """A file that is not a database is named and left unchanged, and the start exits with status 73."""
    daemon.write("")
    daemon.data.mkdir(mode=0o700)
    database = daemon.data / "ringward.db"
    database.write_text("these are notes and not a database\n" * 100)
    outcome = up(daemon)
    assert outcome.returncode == 73
    assert str(database) in outcome.stderr
    assert (
        "there is no copy); restore a backup, or begin an empty history with: ringward up --new-history"
        in outcome.stderr
    )
    assert database.read_text().startswith("these are notes")


def test_damaged_database_after_a_crash(daemon: Daemon) -> None:
    """A start that a damaged database prevents ends the runs of a killed supervisor, if it can read which they are."""
    daemon.write('[tasks.t]\nrun = "exec sleep 1000"\n')
    daemon.start()
    run = daemon.trigger("t")
    (process,) = until(lambda: daemon.children("sleep 1000"), "its process")
    until(lambda: daemon.run(run)["status"] == "running", "the run, as it is stored")
    daemon.stop(signal.SIGKILL)
    database = str(daemon.data / "ringward.db")
    with contextlib.closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page, size = db.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = 'audit'"
        ).fetchone()
    with open(database, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    Path(copy_path(database)).unlink(missing_ok=True)
    suspect(database)
    outcome = up(daemon)
    assert outcome.returncode == 73
    assert "there is no copy" in outcome.stderr
    assert gone(process)


def test_edit_during_the_start(daemon: Daemon) -> None:
    """The daemon runs the configuration that ``up`` checked. A file edited meanwhile is stale, even if invalid."""
    daemon.write('[tasks.t]\nrun = "echo checked"\n')
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"\n" * size)  # the pipe is full, so the banner waits
    daemon.launch(stdout=writer)
    os.close(writer)
    lock = daemon.data / "lock"
    until(lambda: lock.exists() and lock.read_text(), "the configuration to be checked")
    daemon.config.write_text("[tasks.invalid")
    with daemon.output.open("wb") as output, subprocess.Popen(["cat"], stdin=reader, stdout=output):
        os.close(reader)
        until(daemon.ready, "the daemon")
        assert daemon.texts(daemon.ended(daemon.trigger("t"))["id"]) == ["checked"]
        until(lambda: daemon.get("/api/daemon").json()["configStale"], "the edit to be noticed")
        assert daemon.get("/api/daemon").json()["configWarnings"] == []
        assert daemon.stop() == 0
    assert "no usable copy" not in daemon.output.read_text()


def test_starting_daemon(daemon: Daemon) -> None:
    """While the daemon starts, its answers say so and nothing needs attention."""
    daemon.write('[tasks.t]\nrun = "true"\n' + "".join(f'[tasks.t{n}]\nrun = "true"\n' for n in range(200)))
    daemon.data.mkdir(mode=0o700)
    with open(daemon.data / "scheduler.lock", "w") as lock:  # the scheduler waits for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        daemon.launch()
        scheduler = until(lambda: daemon.children("scheduler"), "the scheduler")[0]
        scheduler.suspend()
    try:
        assert daemon.get("/readyz").json()["detail"] == "Not ready: the daemon is starting"
        assert daemon.get("/api/daemon").json()["starting"] is True
        status = daemon.cli("status")
        assert (status.returncode, status.stdout) == (0, "The daemon is starting.\n")
    finally:
        scheduler.resume()
    until(daemon.ready, "the daemon")
    assert daemon.get("/api/daemon").json()["starting"] is False
