"""The server as a process: how it starts, ends and recovers."""

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from supervisor.ipc.child_process import RINGWARD
from supervisor.ipc.messages import PROTOCOL, encode
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run
from tests.api.support.starting import PATIENCE
from tests.api.support.streaming import connect, request, unread
from tests.support.waiting import until


def test_titles(daemon: Daemon) -> None:
    """``ps`` shows the role of each process, and nothing else of its command line."""
    (worker,) = until(daemon.workers, "a worker")
    shown = Path(f"/proc/{worker}/cmdline")
    until(lambda: shown.read_bytes() == b"ringward gunicorn worker\0", "the worker's title")
    assert Path(f"/proc/{daemon.pid}/cmdline").read_bytes() == b"ringward gunicorn\0"
    assert Path(f"/proc/{worker}/comm").read_text() == "ringward gunico\n"


def test_terminate(own: Daemon) -> None:
    """After SIGTERM, streams end without ``done``, idle connections close, and the exit is clean."""
    run = own.insert(make_run())
    stream = own.stream(f"/api/runs/{run.id}/log/stream")
    idle = own.connect()
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    own.signal(signal.SIGTERM)
    assert list(stream.events()) == []
    assert own.wait() == 0
    stream.close()
    idle.close()


def _pending(pid: int) -> set[int]:
    """Signals that a process has not taken (proc_pid_status(5))."""
    (mask,) = re.findall(r"^ShdPnd:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


def _signal_sent(pid: int, number: int) -> bool:
    """Whether a signal waits for a process, or has come too late for it."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return number in _pending(pid)
    return True


def test_hung_worker_is_killed_at_the_end(lenient: Daemon) -> None:
    """A worker that does not end in time, which a second signal shortens, is killed."""
    assert lenient.get("/healthz").status == 200
    (worker,) = lenient.workers()
    os.kill(worker, signal.SIGSTOP)
    # Of two signals that wait, the kernel would hand over SIGTERM first.
    until(lambda: psutil.Process(worker).status() == psutil.STATUS_STOPPED, "the worker to stop")
    lenient.signal(signal.SIGTERM)
    until(lambda: signal.SIGTERM in _pending(worker), "the worker to be told")
    lenient.signal(signal.SIGINT)
    until(lambda: _signal_sent(worker, signal.SIGQUIT), "the worker to be hurried")
    assert lenient.wait() == 0
    until(lambda: not os.path.exists(f"/proc/{worker}"), "the end of the worker")


def test_connections_wait_during_a_restart(own: Daemon) -> None:
    """The next server answers a request that was sent while none was running, on both sockets."""
    own.signal(signal.SIGTERM)
    own.wait()
    waiting = [own.connect(), own.connect(unix=True)]
    for connection in waiting:
        connection.request("GET", "/healthz")
    own.start()
    for connection in waiting:
        assert connection.getresponse().status == 200
        connection.close()
    assert os.path.exists(own.settings.http_socket)


def test_end_of_the_root(own: Daemon) -> None:
    """When the socket to the root closes, arbiter and workers end, and free the address."""
    own.get("/healthz")
    pids = own.workers()
    assert own.hello is not None
    own.hello.close()
    own.wait()
    until(lambda: not any(_alive(pid) for pid in pids), "the workers to end")


def _alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    return False


def test_killed_worker_is_replaced(own: Daemon) -> None:
    """A killed worker is replaced; its streams end without ``done``."""
    run = own.insert(make_run())
    stream = own.stream(f"/api/runs/{run.id}/log/stream")
    (worker,) = own.workers()
    os.kill(worker, signal.SIGKILL)
    with contextlib.suppress(ConnectionError, OSError):
        assert not any(event.name == "done" for event in stream.events())
    stream.close()
    assert own.get("/healthz").status == 200
    assert own.workers() != [worker]


def test_starting_worker_can_be_ended(own: Daemon) -> None:
    """A worker ends at any moment of its start, and another takes its place."""
    (worker,) = until(own.workers, "a worker")
    for number in (signal.SIGKILL, *[signal.SIGTERM] * 5):
        os.kill(worker, number)
        (worker,) = _successor(own, worker)
    assert own.get("/healthz").status == 200


def _successor(daemon: Daemon, worker: int) -> list[int]:
    return until(lambda: workers if (workers := daemon.workers()) != [worker] else [], "another worker")


def test_hung_worker_is_aborted(own: Daemon) -> None:
    """SIGABRT, which the arbiter sends to a hung worker, ends it at once with a traceback."""
    run = own.insert(make_run())
    stream = own.stream(f"/api/runs/{run.id}/log/stream")
    (worker,) = own.workers()
    os.kill(worker, signal.SIGABRT)
    until(lambda: own.workers() not in ([], [worker]), "another worker")
    stream.close()
    assert own.get("/healthz").status == 200
    assert "most recent call first" in own.log.read_text()


def test_a_worker_without_memory_for_its_threads_does_not_serve(own: Daemon) -> None:
    """It fails during its start, which ends the server, so that the root starts another one."""
    own.get("/healthz")
    (worker,) = own.workers()
    size_bytes = int(Path(f"/proc/{own.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(own.pid, resource.RLIMIT_AS, (size_bytes, resource.RLIM_INFINITY))
    os.kill(worker, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(own.wait()) == 3
    assert "Worker failed to boot" in own.log.read_text()


def test_two_workers(tmp_path: Path) -> None:
    """Both workers serve, and count wrong passwords together."""
    daemon = Daemon(tmp_path, workers=2)
    try:
        until(lambda: len(daemon.workers()) == 2, "two workers")
        assert all(daemon.get("/healthz").status == 200 for _ in range(20))
    finally:
        daemon.close()


def test_log_lines(own: Daemon) -> None:
    """The log is silent in normal operation; other lines have the daemon's form, with control characters escaped."""
    own.get("/healthz")
    own.get("/nowhere")
    assert own.log.read_text() == ""
    with socket.create_connection(("127.0.0.1", own.port)) as sock:
        sock.sendall(b"\x1b[31mBAD\r\n\r\n")
        while sock.recv(4096):
            pass
    (line,) = own.log.read_text().splitlines()
    assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING api: ", line)
    assert "\x1b" not in line


def test_invalid_requests_do_not_flood_the_log(own: Daemon) -> None:
    """Invalid requests are logged at most ten times a minute, and shortened."""
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", own.port)) as sock:
            sock.sendall(b"nonsense" * 500 + b"\r\n\r\n")
            while sock.recv(4096):
                pass
    lines = own.log.read_text().splitlines()
    assert len(lines) == 10
    assert all(len(line) < 600 for line in lines)


class Mindful(Daemon):
    """A server that keeps the scheduler's answers for long."""

    constants: ClassVar = {**PATIENCE, "api.worker_context": {**PATIENCE["api.worker_context"], "_KEEP_S": 300.0}}


@pytest.fixture
def mindful(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Mindful(tmp_path)
    yield daemon
    daemon.close()


def test_scheduler_is_asked_once(mindful: Daemon) -> None:
    """However many probes arrive at once, the scheduler is asked once, even if it is slow."""
    info = mindful.scheduler.operations["info"]
    release = threading.Event()

    def slow(args: dict[str, Any]) -> dict[str, Any]:
        release.wait()
        return info(args)

    mindful.scheduler.operations["info"] = slow
    mindful.get("/healthz")
    probes = [connect(mindful) for _ in range(20)]
    for probe in probes:
        probe.sendall(request("/readyz"))
    until(lambda: all(unread(mindful, probe) == 0 for probe in probes), "all to be heard")
    release.set()
    for probe in probes:
        assert probe.recv(65536).startswith(b"HTTP/1.1 200")
        probe.close()
    assert [op for op, _ in mindful.scheduler.calls].count("info") == 1


def test_reload(own: Daemon) -> None:
    """SIGHUP replaces the workers: streams end without ``done``, and new connections are served."""
    run = own.insert(make_run())
    stream = own.stream(f"/api/runs/{run.id}/log/stream")
    before = own.workers()
    own.signal(signal.SIGHUP)
    assert list(stream.events()) == []
    stream.close()
    assert own.get("/healthz", unix=False).status == 200
    until(lambda: own.workers() and not set(own.workers()) & set(before), "other workers")
    assert own.get("/healthz", unix=False).status == 200


def test_nothing_secret_in_arguments_or_environment(daemon: Daemon) -> None:
    """The password and the token arrive over the socket only."""
    for pid in (daemon.pid, *daemon.workers()):
        shown = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        assert daemon.settings.password.encode() not in shown
        assert daemon.settings.token.encode() not in shown


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (b"", b"sent no settings"),
        (encode({}), b"sent no settings"),
        (encode({"op": "hello", "protocol": PROTOCOL + 1}), f"uses protocol {PROTOCOL + 1}".encode()),
        (encode({"op": "hello", "protocol": PROTOCOL}), b"sent no listeners"),
    ],
)
def test_start_by_hand(hello: bytes, reason: bytes) -> None:
    """Started by hand, even in a removed directory, the server says why it does not run."""
    ours, theirs = socket.socketpair()
    somewhere = ["sh", "-c", 'cd "$(mktemp -d)" && rmdir "$PWD" && exec "$@"', "sh"]
    process = subprocess.Popen(
        [*somewhere, sys.executable, *RINGWARD, "api", "--fd", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
    )
    theirs.close()
    ours.sendall(hello)
    ours.close()
    _, text = process.communicate(timeout=60)
    assert process.returncode == 1
    assert reason in text
