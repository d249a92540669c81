"""Start-up errors: one line names the cause, and exit statuses tell them apart."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import RINGWARD, Daemon
from tests.support.ports import free_port


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
        [RINGWARD, "up", "--config", daemon.config],
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
    """A port in use gives a one-line cause and exit status 71."""
    daemon.write("")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        daemon.config.write_text(f'[daemon]\ndata_dir = "data"\n[http]\nlisten = ["127.0.0.1:{port}"]\n')
        outcome = up(daemon)
    assert outcome.returncode == 71
    assert outcome.stderr.startswith(f"ringward: cannot listen on 127.0.0.1:{port}: Address already in use: another")


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
