"""Listening sockets that the daemon holds for services."""

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.upgrade.test_upgrade import upgrade
from tests.support.daemon import Daemon, program
from tests.support.manager import Managed, Manager
from tests.support.ports import free_port
from tests.support.waiting import until

Address = str | tuple[str, int]
RESTART = "/api/tasks/web/restart"


def ask(address: Address) -> str:
    """Connect, and return the whole answer."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(60)
        client.connect(address)
        text = b""
        while part := client.recv(100):
            text += part
    return text.decode()


class Client(threading.Thread):
    """Asks again and again, and keeps all answers and all errors."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._ended = threading.Event()
        self.answers: list[str] = []
        self.errors: list[object] = []

    def run(self) -> None:
        while not self._ended.wait(0.002):
            try:
                self.answers.append(ask(self._address) or "nothing")
            except OSError as err:
                self.errors.append(err)

    def end(self) -> None:
        self._ended.set()
        self.join()


@contextlib.contextmanager
def clients(*addresses: Address) -> Iterator[list[Client]]:
    """Connect all the time; in the end, no connection was refused and each one got its answer."""
    threads = [Client(address) for address in addresses]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.end()
    for thread in threads:
        assert not thread.errors
        assert thread.answers
        assert "nothing" not in thread.answers


def refuses(address: Address) -> bool:
    try:
        ask(address)
    except ConnectionRefusedError:
        return True
    return False


def pid_of(daemon: Daemon) -> int | None:
    """Return the process of the service once it is running and ready for connections."""
    (instance,) = daemon.task("web")["instances"]
    if instance["state"] != "running" or not daemon.texts(instance["runId"]):
        return None
    return int(daemon.texts(instance["runId"])[0].split()[0])


def written(sockets: str, more: str = "healthy_after = '0s'") -> str:
    return f"[services.web]\nrun = {program('listens')}\n{more}\n[services.web.sockets]\n{sockets}\n"


def test_no_connection_is_refused(daemon: Daemon) -> None:
    """Restarts, crashes, a killed scheduler and an upgrade neither refuse nor lose a connection."""
    port, path = free_port(), f"{os.path.dirname(daemon.socket)}/app.sock"
    daemon.write(written(f'http = "tcp:127.0.0.1:{port}"\nadmin = {{ address = "unix:{path}", mode = "0640" }}'))
    daemon.start()
    pid = until(lambda: pid_of(daemon), "the service")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    with clients(("127.0.0.1", port), path) as (web, admin):
        for _ in range(5):
            assert daemon.request("POST", RESTART).status == 204
            before = pid
            pid = until(lambda before=before: (now := pid_of(daemon)) != before and now, "its restart")  # type: ignore[misc]
        psutil.Process(pid).kill()
        pid = until(lambda: (now := pid_of(daemon)) != pid and now, "its restart after a crash")
        daemon.kill_helper("ringward scheduler")
        assert pid_of(daemon) == pid
        assert upgrade(daemon)["state"] == "done"
        until(daemon.ready, "the next version")
        assert pid_of(daemon) == pid
        daemon.request("POST", RESTART)
        last = until(lambda: (now := pid_of(daemon)) != pid and now, "its restart after the upgrade")
        until(lambda: f"{last} http" in web.answers, "an answer of the last process")
    assert {answer.split()[1] for answer in web.answers} == {"http"}
    assert {answer.split()[1] for answer in admin.answers} == {"admin"}


def test_stopped_service_refuses(daemon: Daemon) -> None:
    """The socket is closed while the service is stopped or fatal, and bound again at its start."""
    port = free_port()
    address = ("127.0.0.1", port)
    daemon.write(written(f'http = "tcp:127.0.0.1:{port}"', "restart_attempts = 0\nhealthy_after = '1h'"))
    daemon.start()
    pid = until(lambda: pid_of(daemon), "the service")
    assert ask(address) == f"{pid} http"
    assert daemon.cli("stop", "web").returncode == 0
    until(lambda: refuses(address), "its socket to be closed")
    assert daemon.cli("start", "web").returncode == 0
    assert ask(address).endswith(" http")
    psutil.Process(until(lambda: pid_of(daemon), "the service")).kill()
    until(lambda: daemon.task("web")["state"] == "fatal", "fatal")
    until(lambda: refuses(address), "its socket to be closed")


def test_address_of_another_program(daemon: Daemon) -> None:
    """While another program listens on the address, the service is starting, and its detail names that program."""
    path = f"{os.path.dirname(daemon.socket)}/app.sock"
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        port = other.getsockname()[1]
        daemon.write(written(f'http = "tcp:127.0.0.1:{port}"'))
        daemon.start()
        us = psutil.Process()
        for text in (f"127.0.0.1:{port}", path):
            instance = until(
                lambda text=text: (  # type: ignore[misc]
                    (found := daemon.task("web")["instances"][0]).get("detail", "").find(text) > 0 and found
                ),
                "the detail",
            )
            assert instance["state"] == "starting"
            assert f"{us.name()} ({us.pid}) listens there" in instance["detail"]
            daemon.config.write_text(daemon.config.read_text().replace(f"tcp:127.0.0.1:{port}", f"unix:{path}"))
            assert daemon.cli("reload").returncode == 0
    until(lambda: pid_of(daemon), "the service")
    assert ask(path).endswith(" http")


def test_socket_that_the_service_bound_itself(daemon: Daemon) -> None:
    """A reload that adds a socket stops the service first, and its answer names the gap; a removed one is closed."""
    port = free_port()
    address = ("127.0.0.1", port)
    before = f"run = {program('listens', port)}\n"
    daemon.write(f"[services.web]\n{before}")
    daemon.start()
    until(lambda: not refuses(address), "the service")
    after = written(f'http = "tcp:127.0.0.1:{port}"')
    daemon.config.write_text(daemon.config.read_text().replace(f"[services.web]\n{before}", after))
    reloaded = daemon.cli("reload")
    assert reloaded.returncode == 0
    assert f"tcp:127.0.0.1:{port} refuses connections once, until the daemon has bound it" in reloaded.stdout
    pid = until(lambda: pid_of(daemon), "the service")
    assert ask(address) == f"{pid} http"


def test_many_sockets(daemon: Daemon) -> None:
    """A service gets all its sockets from descriptor 3 on, in the order of the file, and no other descriptor."""
    folder = os.path.dirname(daemon.socket)
    names = [f"s{number}" for number in range(20, 0, -1)]
    addresses = [f'{name} = "unix:{folder}/{name}"' for name in names]
    more = 'umask = "027"\nlimits = { nofile = 512 }\n[services.web.env]\n"odd.name" = "1"\n'
    daemon.write(written("\n".join(addresses), more))
    daemon.start()
    pid = until(lambda: pid_of(daemon), "the service")
    (instance,) = daemon.task("web")["instances"]
    assert daemon.texts(instance["runId"])[0] == " ".join(map(str, (pid, *names, *range(3 + len(names)))))
    assert [ask(f"{folder}/{name}") for name in names] == [f"{pid} {name}" for name in names]


@pytest.fixture
def manager() -> Iterator[Manager]:
    new_manager = Manager()
    yield new_manager
    assert not new_manager.problems
    new_manager.close()


def test_killed_root_with_a_descriptor_store(tmp_path: Path, manager: Manager) -> None:
    """Sockets outlive a killed supervisor in the descriptor store, also while its service restarts."""
    daemon = Managed(tmp_path, manager)
    try:
        address = ("127.0.0.1", free_port())
        daemon.write(written(f'http = "tcp:127.0.0.1:{address[1]}"'))
        daemon.start()
        pid = until(lambda: pid_of(daemon), "the service")
        until(lambda: any(name.startswith("ringward-socket/web/http/") for name in manager.stored), "the socket")
        with clients(address):
            daemon.kill()
            daemon.start()
            assert pid_of(daemon) == pid
            assert daemon.request("POST", RESTART).status == 204
            until(lambda: (now := pid_of(daemon)) != pid and now, "its restart")
        daemon.stop()
        until(lambda: not manager.stored, "the store to be empty")
        assert refuses(address)
    finally:
        daemon.clean()


def test_killed_root_without_a_descriptor_store(daemon: Daemon) -> None:
    """Without a descriptor store, the next supervisor ends the orphans, and binds the sockets anew."""
    address = ("127.0.0.1", free_port())
    daemon.write(written(f'http = "tcp:127.0.0.1:{address[1]}"'))
    daemon.start()
    pid = until(lambda: pid_of(daemon), "the service")
    assert daemon.process is not None
    daemon.process.kill()
    daemon.process.wait(60)
    daemon.start()
    after = until(lambda: (now := pid_of(daemon)) != pid and now, "the service")
    assert ask(address) == f"{after} http"


def test_next_process_starts_before_the_present_one_stops(daemon: Daemon, tmp_path: Path) -> None:
    """With restart_order = "new_first", both processes serve until the next one is ready, also over a new scheduler."""
    broken, address = tmp_path / "broken", ("127.0.0.1", free_port())
    ready = f"restart_order = 'new_first'\nready = {{ exec = 'test ! -e {broken}', every = '50ms', timeout = '1h' }}"
    daemon.write(written(f'http = "tcp:127.0.0.1:{address[1]}"', ready))
    daemon.start()
    pid = until(lambda: pid_of(daemon), "the service")
    with clients(address) as (web,):
        assert daemon.cli("restart", "web").returncode == 0
        second = pid_of(daemon)
        assert second not in (pid, None)
        until(lambda: f"{second} http" in web.answers, "an answer of the next process")
        broken.touch()
        assert daemon.cli("restart", "web", "--no-wait").returncode == 0
        until(lambda: daemon.task("web")["active"]["running"] == 2, "both processes")
        daemon.kill_helper("ringward scheduler")
        assert pid_of(daemon) == second
        assert daemon.task("web")["active"]["running"] == 2
        broken.unlink()
        third = until(lambda: (now := pid_of(daemon)) != second and now, "the next process")
        until(lambda: daemon.task("web")["active"]["running"] == 1, "the end of the present process")
        assert psutil.pid_exists(third)
    assert [run["endReason"] for run in daemon.runs("web")[:2]] == ["stopped", "stopped"]


def test_next_process_that_does_not_become_ready(daemon: Daemon, tmp_path: Path) -> None:
    """The present process goes on, the command exits with 1 and says why, and a notification is raised."""
    broken = tmp_path / "broken"
    ready = f"restart_order = 'new_first'\nready = {{ exec = 'test ! -e {broken}', every = '50ms', timeout = '6s' }}"
    daemon.write(written(f'http = "tcp:127.0.0.1:{free_port()}"', ready))
    daemon.start()
    pid = until(lambda: pid_of(daemon), "the service")
    broken.touch()
    restarted = daemon.cli("restart", "web")
    assert restarted.returncode == 1
    assert "web did not restart: " in restarted.stderr
    assert "was not restarted: not ready within 6s" in restarted.stderr
    assert pid_of(daemon) == pid
    raised = daemon.get("/api/notifications").json()["items"]
    assert [each["kind"] for each in raised] == ["service.restart_failed"]
