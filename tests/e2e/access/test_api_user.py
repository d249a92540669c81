"""A daemon that runs as root, with API workers that run as a user who can read only the data of the API."""

import contextlib
import fcntl
import os
import shutil
import signal
import sqlite3
import ssl
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.host.unix_accounts import system_user
from tests.e2e.survival.test_removed_runtime_directory import remove
from tests.e2e.upgrade.test_upgrade import upgrade
from tests.support.daemon import Daemon
from tests.support.paths import ROOT, TLS
from tests.support.ports import free_port
from tests.support.users import NAME, UID, Apart, why_not
from tests.support.waiting import until

TASKS = """
[tasks.hello]
run = "echo one; echo two; echo three"

[tasks.secret]
run = "read -r _ < gate; echo end"
params = [{ name = "key", kind = "env", secret = true }]

[services.ticker]
run = "while echo tick; do read -r _ < gate; done"
"""
GROUP = 0o070
OTHERS = 0o007

Make = Callable[..., Apart]


@contextlib.contextmanager
def making() -> Iterator[Make]:
    """Yield a function that creates daemons in one directory that all users can enter, one at a time."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="ringward-users-") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        directory.chmod(0o755)
        os.mkfifo(directory / "gate")

        def making_apart(*, user: bool = True) -> Apart:
            daemon = Apart(directory, user=user)
            stack.callback(daemon.clean)
            daemon.write(TASKS.replace("gate", f"{directory}/gate"))
            return daemon

        yield making_apart


@pytest.fixture
def make() -> Iterator[Make]:
    with making() as made_one:
        yield made_one


@pytest.fixture(scope="module")
def shared() -> Iterator[Apart]:
    """A running daemon for tests that leave it as it was."""
    with making() as make:
        yield make().start()


def everything(daemon: Daemon) -> list[Path]:
    places = [daemon.data, *(place for place in daemon.runtime_dirs() if place.exists())]
    return [*places, *(path for place in places for path in place.rglob("*"))]


def permitted(access_flag: str, paths: list[Path]) -> set[str]:
    """Return the names of the paths that the workers' user may read (r) or write (w)."""
    script = f'for one; do if [ -{access_flag} "$one" ]; then echo "$one"; fi; done'
    command = ["sh", "-c", script, "sh", *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, user=UID, group=UID, extra_groups=[], check=True)
    return {Path(line).name for line in result.stdout.splitlines()}


def modes(daemon: Daemon) -> set[int]:
    """Return the permissions that users other than the owner have in the data directory."""
    return {stat.S_IMODE(path.stat().st_mode) & (GROUP | OTHERS) for path in [daemon.data, *daemon.data.rglob("*")]}


def test_only_workers_have_the_api_user(shared: Apart) -> None:
    """API workers have the ids of the user and none of root's; all other processes are root."""
    daemon = shared
    assert daemon.uids("ringward gunicorn") == {UID}
    assert daemon.uids("ringward supervisor") | daemon.uids("ringward scheduler") == {0}
    worker = daemon.helper("ringward gunicorn").children()[0].pid
    status = Path(f"/proc/{worker}/status").read_text()
    assert f"Groups:\t{UID} \n" in status
    assert f"Gid:\t{UID}\t{UID}\t{UID}\t{UID}\n" in status
    assert "CapEff:\t0000000000000000\n" in status
    assert "NoNewPrivs:\t1\n" in status


def test_workers_serve_reads_and_commands(shared: Apart) -> None:
    """Workers serve logs, streams and, even during a write, the history; they carry out and audit commands."""
    daemon = shared
    run = daemon.trigger("hello")
    stream = daemon.stream(f"/api/runs/{run}/log/stream?from=0")
    assert [event.data["text"] for event in stream if "text" in event.data] == ["one", "two", "three"]
    stream.close()
    daemon.log_file(run)
    assert daemon.texts(run) == ["one", "two", "three"]
    assert daemon.get(f"/api/runs/{run}/log/raw").body == b"one\ntwo\nthree\n"
    (live,) = daemon.runs("ticker")
    until(lambda: daemon.texts(live["id"]) == ["tick"], "the line of the service")
    log = daemon.stream("/api/daemon/log/stream?from=0")
    assert "scheduler started" in next(event.data["text"] for event in log if "text" in event.data)
    log.close()
    assert daemon.ended(run)["endReason"] == "succeeded"
    until(lambda: "runTask" in {item["operation"] for item in daemon.get("/api/audit").json()["items"]}, "the audit")
    with contextlib.closing(sqlite3.connect(daemon.data / "ringward.db", isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        for path in ("/api/tasks", f"/api/runs/{run}", "/api/runs", "/api/audit", "/api/system", "/metrics"):
            assert daemon.get(path).status == 200, path
        database.execute("ROLLBACK")


def test_workers_are_confined(shared: Apart) -> None:
    """Workers can change files only in their own directory, and can read no secret."""
    daemon = shared
    before = len(daemon.get("/api/audit").json()["items"])
    answer = daemon.request("POST", "/api/tasks/secret/run", {"params": {"key": "open sesame"}})
    assert answer.status == 201
    daemon.log_file(daemon.trigger("hello"))
    until(lambda: len(daemon.get("/api/audit").json()["items"]) >= before + 2, "the audit")
    place = daemon.runtime_dir()
    until(lambda: not list(place.glob("audit/*")), "the worker to hear that it is stored")
    paths = everything(daemon)
    secret = set(daemon.holding("open sesame"))
    assert secret
    sockets = {path.name for path in paths if path.is_socket()}
    assert permitted("w", paths) == {"control.sock", "root.bell", "scheduler.bell", "audit"}
    assert permitted("w", paths) <= sockets | {"audit"}
    readable = permitted("r", paths)
    assert {"ringward.db", "ringward.db-wal", "ringward.db-shm", "daemon.ring", "events.ring"} <= readable
    others = {"config.last", "lock", "scheduler.lock", "reserve", "listening.json", "data", "logs"}
    assert not readable & (secret | others)


def test_api_user_is_not_trusted(make: Make) -> None:
    """A process of the API user is not trusted on the Unix socket, although it has the ids of the workers."""
    daemon = make()
    Path(daemon.socket).parent.chmod(0o755)
    daemon.write(TASKS, http=f'socket_group = "{NAME}"\n')
    daemon.start()
    script = (
        "import socket, sys; one = socket.socket(socket.AF_UNIX); one.connect(sys.argv[1]);"
        "one.sendall(b'GET /api/tasks HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n');"
        "print(one.makefile().readline())"
    )
    program = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    if program is None:
        pytest.skip("there is no Python that all users can execute")
    command = [program, "-c", script, daemon.socket]
    result = subprocess.run(command, capture_output=True, text=True, user=UID, group=UID, extra_groups=[], cwd="/")
    assert "401" in result.stdout, result.stderr
    assert daemon.get("/api/tasks").status == 200


def test_reads_without_a_scheduler(shared: Apart) -> None:
    """Every read is answered while the scheduler, the only writer of the database, is killed or stopped."""
    daemon = shared
    daemon.ended(daemon.trigger("hello"))
    over = threading.Event()
    statuses: list[int] = []

    def read() -> None:
        while not over.is_set():
            statuses.append(daemon.get("/api/runs?limit=5").status)

    reader = threading.Thread(target=read)
    reader.start()
    gunicorn = daemon.helper("ringward gunicorn").pid
    try:
        for _ in range(2):
            daemon.kill_helper("ringward scheduler")
            daemon.ended(daemon.trigger("hello"))
        assert upgrade(daemon)["state"] == "done"
        daemon.replaced("ringward gunicorn", gunicorn)
    finally:
        over.set()
        reader.join()
    assert set(statuses) == {200}
    assert "damage" not in daemon.own_output()
    assert daemon.uids("ringward gunicorn") == {UID}


def test_older_data_directory_changes_owner(make: Make) -> None:
    """Logs from before the user existed become readable; without the user, everything is private again."""
    daemon = make(user=False).start()
    (command,) = system_user("ringward", "/var/lib/ringward")
    remedy = f"user ringward does not exist; run: {' '.join(command)}\n"
    assert f"API workers run as root: {remedy}" in daemon.own_output()
    assert daemon.uids("ringward gunicorn") == {0}
    old = daemon.trigger("hello")
    daemon.log_file(old)
    daemon.stop()
    assert modes(daemon) == {0}

    daemon = make().start()
    assert daemon.texts(old) == ["one", "two", "three"]
    new = daemon.trigger("hello")
    daemon.log_file(new)
    daemon.stop()
    assert modes(daemon) == {0, 0o010, 0o040}

    daemon = make(user=False).start()
    assert daemon.texts(new) == ["one", "two", "three"]
    daemon.stop()
    assert modes(daemon) == {0}


def test_compressed_logs_stay_readable(make: Make) -> None:
    """Workers can read the logs that the janitor compressed."""
    daemon = make()
    daemon.config.write_text(f'{daemon.config.read_text()}\n[storage]\ncompress_after = "0s"\n')
    daemon.start()
    run = daemon.trigger("hello")
    path = daemon.log_file(run)
    daemon.ended(daemon.trigger("hello"))  # if it ran before the log was complete, it pauses for a minute
    until(lambda: not path.stat().st_mode & stat.S_IWUSR, "the janitor", 90)
    assert stat.S_IMODE(path.stat().st_mode) == 0o440
    assert daemon.texts(run) == ["one", "two", "three"]


def test_audit_entries_survive_killed_workers(shared: Apart) -> None:
    """Audit entries that a worker could not store are stored by the next one."""
    daemon = shared
    until(lambda: not os.listdir(daemon.runtime_dir() / "audit"), "earlier entries to be stored")
    before = daemon.get("/api/audit").json()["items"]
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    try:
        assert daemon.request("DELETE", "/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV?naming=nonsense").status == 422
        (spool,) = (path for place in daemon.runtime_dirs() if place.exists() for path in place.glob("audit/*"))
        assert spool.stat().st_uid == UID
        daemon.helper("ringward gunicorn").children()[0].send_signal(signal.SIGKILL)
    finally:
        scheduler.resume()
    until(lambda: daemon.get("/api/audit").json()["items"][1:] == before, "the entry")
    until(lambda: not spool.exists(), "the file to go")


def serves(daemon: Apart, schedulers: int) -> bool:
    """Return whether this many schedulers have started and the daemon is ready for commands."""
    try:
        ready = daemon.own_output().count("INFO scheduler: ready: ") == schedulers
        return ready and daemon.get("/readyz").status == 200
    except OSError:  # the API server restarts
        return False


def assert_served_from(place: Path, daemon: Apart, ticks: int) -> None:
    """Check that workers of the API user still serve the ring of a run, logs, streams and the audit."""
    assert daemon.uids("ringward gunicorn") == {UID}
    assert permitted("w", everything(daemon)) == {"control.sock", "root.bell", "scheduler.bell", "audit"}
    (live,) = daemon.runs("ticker")
    assert f"{live['id']}.ring" in permitted("r", everything(daemon))
    until(lambda: daemon.texts(live["id"]) == ["tick"] * ticks, "all lines of the service")
    before = len(daemon.get("/api/audit").json()["items"])
    run = daemon.trigger("hello")
    stream = daemon.stream(f"/api/runs/{run}/log/stream?from=0")
    assert [event.data["text"] for event in stream if "text" in event.data] == ["one", "two", "three"]
    stream.close()
    until(lambda: len(daemon.get("/api/audit").json()["items"]) >= before + 1, "the audit")
    assert (place / "audit").stat().st_uid == UID


def modes_of_names(place: Path) -> dict[str, int]:
    """Return the modes of a directory and its files by name."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place, *place.iterdir())}


def test_removed_runtime_directory_is_recreated_for_workers(make: Make) -> None:
    """The directory is recreated with the modes and owners that workers need, and no line is lost."""
    daemon = make().start()
    place = daemon.runtime_dir()
    modes_before = modes_of_names(place)
    with open(os.open(daemon.directory / "gate", os.O_RDWR), "w", buffering=1) as gate:
        until(lambda: daemon.texts(daemon.runs("ticker")[0]["id"]) == ["tick"], "the first line")
        for count, removed in enumerate(("all in it", "the directory"), start=2):
            remove(daemon, place, keep_directory=removed == "all in it")
            gate.write("\n")
            until(lambda: serves(daemon, count), removed)  # noqa: B023
            assert daemon.runtime_dir() == place
            after = modes_of_names(place)
            assert {name: after.get(name) for name in modes_before} == modes_before
            assert_served_from(place, daemon, count)
        daemon.kill_helper("ringward scheduler")
        gate.write("\n")
        assert_served_from(place, daemon, 4)
    assert daemon.stop() == 0
    assert not place.exists()


def test_moved_runtime_directory_serves_workers(make: Make) -> None:
    """A runtime directory that loses its shared memory moves to a place that workers reach, even after an upgrade."""
    daemon = make()
    daemon.mount("mount -t ramfs none /run && mkdir /run/ringward && mount -t tmpfs -o mode=711 none /run/ringward")
    daemon.start()
    assert not [path for path in daemon.runtime_dirs() if path.exists()]  # it is in mounts of its own
    with open(os.open(daemon.directory / "gate", os.O_RDWR), "w", buffering=1) as gate:
        until(lambda: daemon.texts(daemon.runs("ticker")[0]["id"]) == ["tick"], "the first line")
        subprocess.run(["nsenter", "--mount", "-t", str(daemon.pid), "umount", "-l", "/run/ringward"], check=True)
        gate.write("\n")
        until(lambda: serves(daemon, 2), "the move")
        place = daemon.runtime_dir()
        assert f"its files are now in {place}" in daemon.own_output()
        assert_served_from(place, daemon, 2)
        gunicorn = daemon.helper("ringward gunicorn").pid
        assert upgrade(daemon)["state"] == "done"
        daemon.replaced("ringward gunicorn", gunicorn)
        gate.write("\n")
        assert_served_from(place, daemon, 3)
    assert daemon.stop() == 0
    assert not place.exists()


def test_private_key_and_its_renewal(make: Make) -> None:
    """The server uses a private key that only root can read, and its replacement."""
    daemon = make()
    place = daemon.directory / "tls"
    place.mkdir(mode=0o700)

    def put(beginning: str) -> str:
        """Replace the pair of certificate and key; return the certificate."""
        for name in ("key", "cert"):
            shutil.copy(TLS / f"{beginning}{name}.pem", place / f"{name}.new")
            (place / f"{name}.new").chmod(0o600)
            (place / f"{name}.new").rename(place / f"{name}.pem")
        return (place / "cert.pem").read_text()

    first = put("")
    port = free_port()
    tls = f'tls_cert = "{place}/cert.pem"\ntls_key = "{place}/key.pem"\n'
    daemon.write(TASKS, http=tls)
    listen = next(line for line in daemon.config.read_text().split("\n") if line.startswith("listen"))
    daemon.config.write_text(daemon.config.read_text().replace(listen, f'listen = ["127.0.0.1:{port}"]'))
    daemon.start()
    assert daemon.uids("ringward gunicorn") == {UID}

    def served() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=60).strip()

    assert served() in first
    second = put("other_")
    assert first != second
    until(lambda: served() in second, "the new certificate")
    (place / "key.pem").unlink()
    daemon.kill_helper("ringward scheduler")
    assert served() in second
    until(lambda: "the certificate cannot be renewed" in daemon.own_output() or not served(), "the log to say so")


def refusal(daemon: Daemon) -> tuple[int, str]:
    """Return the exit status and output of a start that must fail."""
    daemon.launch()
    assert daemon.process is not None
    return daemon.process.wait(60), daemon.own_output()


def test_missing_api_user_is_refused(make: Make) -> None:
    """A start and ``validate`` refuse a configured user that does not exist, and name the place and the remedy."""
    daemon = make(user=False)
    daemon.write("", http='user = "no-such-user"\n')
    line = daemon.config.read_text().split("\n").index('user = "no-such-user"') + 1
    status, message = refusal(daemon)
    expected = f"{daemon.config}:{line}: http.user: no such user on this host: no-such-user"
    remedy = " ".join(system_user("no-such-user", "/var/lib/ringward")[0])
    assert (status, expected in message, f"run: {remedy}" in message) == (78, True, True), message
    tried = daemon.cli("validate")
    assert tried.returncode == 78
    assert expected in tried.stderr


def test_api_user_must_reach_the_data_directory(make: Make) -> None:
    """A configured user must reach the data directory; the default user is dropped with a warning."""
    daemon = make()
    closed = daemon.directory / "closed"
    closed.mkdir(mode=0o700)
    daemon.data = closed / "data"
    for http, ends in ((f'user = "{NAME}"\n', True), ("", False)):
        daemon.write(TASKS, http=http)
        daemon.config.write_text(daemon.config.read_text().replace('"data"', f'"{daemon.data}"'))
        expected = f"user {NAME} cannot enter or read {closed}, and API workers need it"
        if ends:
            status, message = refusal(daemon)
            assert (status, f"http.user: {expected}" in message) == (78, True), message
        else:
            daemon.start()
            assert f"API workers run as root: {expected}" in daemon.own_output()
            assert daemon.uids("ringward gunicorn") == {0}


def test_package_unreadable_for_workers(make: Make) -> None:
    """If only root can read a package, the daemon does not start workers that would die again and again."""
    daemon = make()
    daemon.bind(closed_copy(daemon.directory), ROOT / "api")
    daemon.write(TASKS, http=f'user = "{NAME}"\n')
    status, message = refusal(daemon)
    assert (status, f"user {NAME} cannot enter or read {ROOT}/api" in message) == (78, True), message


def closed_copy(directory: Path) -> Path:
    """Create a copy of the API's package as a careless umask would install it."""
    shut = directory / "api"
    shutil.copytree(ROOT / "api", shut, ignore=shutil.ignore_patterns("__pycache__"))
    shut.chmod(0o700)
    return shut


def test_changed_api_user_needs_a_restart(shared: Apart) -> None:
    """A reload with another API user is refused and changes nothing."""
    daemon = shared
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("[http]\n", '[http]\nuser = "daemon"\n'))
    answer = daemon.request("POST", "/api/daemon/reload")
    daemon.config.write_text(text)
    assert answer.status == 409
    (error,) = answer.json()["errors"]
    assert "http.user" in error["location"]
    assert "restart the daemon" in error["message"]


def test_data_directory_of_another_user_is_refused(make: Make) -> None:
    """Root refuses a data directory in which another user could place files; it takes over an empty one."""
    daemon = make()
    daemon.data.mkdir()
    os.chown(daemon.data, UID, UID)
    (daemon.data / "logs").symlink_to("/etc")
    status, message = refusal(daemon)
    assert status == 73
    assert f"{daemon.data} belongs to {NAME}" in message
    assert f"chown -R root: {daemon.data}" in message
    assert daemon.data.stat().st_uid == UID
    (daemon.data / "logs").unlink()
    daemon.start()
    assert (daemon.data.stat().st_uid, stat.S_IMODE(daemon.data.stat().st_mode)) == (0, 0o710)


def test_foreign_lock_does_not_hide_the_daemon(make: Make) -> None:
    """A user who can list the runtime directory can lock it, but the previous daemon is still found."""
    daemon = make().start()
    identity = (daemon.data / "id").read_text()
    place = daemon.runtime_dir()
    directory = os.open(place, os.O_RDONLY)  # as its user can do
    try:
        assert daemon.process is not None
        daemon.process.kill()
        daemon.process.wait()
        fcntl.flock(directory, fcntl.LOCK_EX)
        daemon.start()
    finally:
        os.close(directory)
    assert (daemon.data / "id").read_text() == identity


@pytest.mark.parametrize("name", ["data", "data/logs"])
def test_data_behind_a_symlink_is_readable(make: Make, name: str) -> None:
    """Workers can read a data directory, or logs, behind a link to another disk."""
    daemon = make()
    elsewhere = daemon.directory / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    link = daemon.directory / name
    link.parent.mkdir(mode=0o700, exist_ok=True)
    link.symlink_to(elsewhere)
    daemon.start()
    assert daemon.uids("ringward gunicorn") == {UID}
    run = daemon.trigger("hello")
    daemon.ended(run)
    daemon.log_file(run)
    assert daemon.texts(run) == ["one", "two", "three"]


def test_audit_spool_changes_owner(make: Make) -> None:
    """Only the new user can read the audit entries, whatever the old user did to the directory."""
    daemon = make().start()
    place = daemon.runtime_dir()
    audit = place / "audit"
    audit.chmod(0o777)
    (audit / "audit-x.entries").touch()
    os.chown(audit / "audit-x.entries", UID, UID)
    (audit / "audit-x.entries").chmod(0o666)
    (audit / "kept").mkdir()
    daemon.stop()
    daemon = make(user=False).start()
    assert stat.S_IMODE(audit.stat().st_mode) == 0o700
    assert audit.stat().st_uid == 0
    assert not permitted("w", list(audit.iterdir()))


def test_version_unreadable_for_workers_is_refused(make: Make) -> None:
    """An upgrade to a version that only root can read is refused; the running workers continue."""
    daemon = make().start()
    shut = closed_copy(daemon.directory)
    mounts = f"--mount=/proc/{daemon.helper('ringward gunicorn').pid}/ns/mnt"
    subprocess.run(["nsenter", mounts, "mount", "--bind", shut, ROOT / "api"], check=True)
    answer = upgrade(daemon)
    assert answer["state"] == "refused"
    assert "API workers" in answer["why"]
    assert daemon.get("/api/daemon").status == 200
    assert daemon.uids("ringward gunicorn") == {UID}
