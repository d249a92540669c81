"""Probes of real servers, commands and rings."""

import asyncio
import contextlib
import errno
import os
import shlex
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from logring.layout import STDOUT, RingShape
from logring.log_paths import ring_path
from logring.ring.writer import RingWriter
from supervisor.helpers.watcher import network_probes
from supervisor.helpers.watcher.command_probe import beginning_of, end_of
from supervisor.helpers.watcher.output_lines import RingWatcher
from supervisor.helpers.watcher.watch import ProbeRunner
from supervisor.ipc.helper_messages import encode
from supervisor.ipc.messages import Decoder, receive
from supervisor.ipc.probe_request import ProbeAnswer, ProbeRequest, StartProbe, WatcherSetup
from tests.support.paths import PROGRAMS, TLS
from tests.support.ports import free_port
from tests.support.waiting import until

Message = dict[str, Any]


class InProcessWatcher:
    """A watcher without its process."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[ProbeAnswer] = asyncio.Queue()
        self.watch = ProbeRunner(self.words.put_nowait, RingWatcher("/nonexistent", ""))

    async def next(self) -> Message:
        answer = await asyncio.wait_for(self.words.get(), 30)
        return {"op": answer.op, **asdict(answer)}


def run_scene(scene: Callable[[InProcessWatcher], Awaitable[None]]) -> None:
    async def play() -> None:
        watcher = InProcessWatcher()
        try:
            await scene(watcher)
        finally:
            await watcher.watch.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("supervisor.helpers.watcher.command_probe._REAP_S", 60.0)
        asyncio.run(play())


def request(kind: str, target: str = "", **more: Any) -> ProbeRequest:
    settings: dict[str, Any] = {"every_ms": 20, "timeout_ms": 600_000, **more}
    return ProbeRequest(key="R/ready", kind=kind, target=target, **settings)


def command(*argv: str, **more: Any) -> ProbeRequest:
    return request("exec", argv=list(argv), env=dict(os.environ), **more)


class _Server(socketserver.ThreadingTCPServer):
    """A server with its own threads, because connections may be open when the event loop ends."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, answer: bytes) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client has gone
            for line in self.rfile:  # the whole request: closing with unread bytes would reset the connection
                if line == b"\r\n":
                    self.wfile.write(self.server.answer)
                    break


@contextlib.contextmanager
def answering(answer: bytes, context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[int]:
    """Answer every request on the port, which this yields, with these bytes."""
    with _Server(port, answer) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", None),
        (b"HTTP/1.0 302 Found\r\nLocation: /\r\n\r\n", None),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", None),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\n\r\n", "status 503"),
        (b"HTTP/1.1 100 Continue\r\n", "is not HTTP"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "status 503"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
        (b"SSH-2.0-OpenSSH\r\n", "is not HTTP"),
        (b"", "is not HTTP"),
        (b"x" * 100_000, ": "),
    ],
)
def test_http_status(answer: bytes, reason: str | None) -> None:
    """A status from 200 to 399 is success; any other result names the fault."""

    async def scene(watcher: InProcessWatcher) -> None:
        with answering(answer) as port:
            watcher.watch.start(request("http", f"http://127.0.0.1:{port}/healthz?x=1"))
            message = await watcher.next()
            assert message["op"] == ("passed" if reason is None else "failing")
            assert reason is None or reason in message["why"]

    run_scene(scene)


@pytest.mark.parametrize("kind", ["http", "tcp"])
def test_refused_then_accepted(kind: str) -> None:
    """The reason of a failure is reported once, followed by the success."""

    async def scene(watcher: InProcessWatcher) -> None:
        port = free_port()
        address = f"127.0.0.1:{port}"
        watcher.watch.start(request(kind, f"http://{address}/" if kind == "http" else address))
        message = await watcher.next()
        assert message["op"] == "failing"
        assert message["why"].endswith("Connection refused")

        with answering(b"HTTP/1.1 204 No Content\r\n\r\n", port=port):
            assert (await watcher.next())["op"] == "passed"

    run_scene(scene)


@pytest.mark.parametrize(("kind", "target"), [("tcp", "127.0.0.1:65536"), ("http", "http://127.0.0.1:65536/")])
def test_impossible_port(kind: str, target: str) -> None:
    """With `port = 6553{instance}` some instances have an impossible port: it is reported, and the probe retried."""

    async def scene(watcher: InProcessWatcher) -> None:
        watcher.watch.start(request(kind, target, times=3))
        message = await watcher.next()
        assert message["op"] == "failing"
        assert message["why"].endswith("Port out of range 0-65535")
        message = await watcher.next()
        assert message["op"] == "failed"
        assert message["why"].endswith("Port out of range 0-65535 (3 times in a row)")

    run_scene(scene)


def test_finished_probes_are_forgotten() -> None:
    """The watcher forgets a finished probe, as the scheduler does."""

    async def scene(watcher: InProcessWatcher) -> None:
        with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port:
            for number in range(3):
                watcher.watch.start(replace(request("http", f"http://127.0.0.1:{port}/"), key=f"{number}/ready"))
            for _ in range(3):
                assert (await watcher.next())["op"] == "passed"
            await asyncio.gather(*watcher.watch._tasks.values())
            assert watcher.watch._tasks == {}

    run_scene(scene)


def test_no_answer() -> None:
    """A server that accepts and never answers fails the probe at its time limit."""

    async def scene(watcher: InProcessWatcher) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            target = f"http://127.0.0.1:{server.getsockname()[1]}/"
            watcher.watch.start(request("http", target, timeout_ms=50))
            assert await watcher.next() == {
                "op": "failing",
                "key": "R/ready",
                "why": f"{target}: no answer within 50 ms",
            }

    run_scene(scene)


def test_command() -> None:
    """The exit status of a command decides; its last line, with secrets masked, is the reason."""

    async def scene(watcher: InProcessWatcher) -> None:
        script = 'echo first; echo "token $TOKEN is bad" >&2; exit 3'
        failing = command("/bin/sh", "-c", script, secrets=["TOKEN"])
        failing.env["TOKEN"] = "hunter2hunter2"
        watcher.watch.start(failing)
        assert (await watcher.next())["why"] == "/bin/sh exited with code 3: token *** is bad"
        watcher.watch.start(command("/bin/sh", "-c", "kill -9 $$"))
        assert (await watcher.next())["why"] == "/bin/sh killed by signal 9"
        watcher.watch.start(command("/nonexistent/program"))
        missing = "/nonexistent/program exited with code 127: /nonexistent/program: No such file or directory"
        assert (await watcher.next())["why"] == missing
        watcher.watch.start(command("true"))
        assert (await watcher.next())["op"] == "passed"

    run_scene(scene)


def test_hung_command_leaves_nothing(tmp_path: Path) -> None:
    """When a command times out or its probe is cancelled, all its processes are killed."""
    first, second = tmp_path / "first", tmp_path / "second"
    for journal in (first, second):
        journal.touch()

    async def scene(watcher: InProcessWatcher) -> None:
        argv = ["/bin/sh", "-c", "sleep 1000 & echo $! >> $0; echo $$ >> $0; wait"]
        watcher.watch.start(command(*argv, str(first), timeout_ms=300, every_ms=3_600_000))
        assert (await watcher.next())["why"] == "/bin/sh: no answer within 300 ms"
        watcher.watch.start(command(*argv, str(second)))
        await asyncio.to_thread(until, lambda: len(second.read_text().split()) == 2, "the second command")

    run_scene(scene)
    for pid in map(int, (first.read_text() + second.read_text()).split()):  # whatever the first one had started
        until(lambda: not alive(pid), f"the end of {pid}")  # noqa: B023 - called at once


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_liveness_counts_consecutive_failures(tmp_path: Path) -> None:
    """A success resets the count; the requested number of consecutive failures ends the probe."""
    flag = tmp_path / "flag"

    async def scene(watcher: InProcessWatcher) -> None:
        watcher.watch.start(command("test", "-e", str(flag), times=3))
        assert (await watcher.next())["op"] == "failing"
        flag.touch()
        words = [await watcher.next()]  # three failures may have come before the flag
        if words[-1]["op"] == "failed":
            watcher.watch.start(command("test", "-e", str(flag), times=3))
        flag.unlink()
        while words[-1]["op"] != "failed":
            words.append(await watcher.next())
        assert words[-1]["why"] == "test exited with code 1 (3 times in a row)"
        assert watcher.words.empty()

    run_scene(scene)


def test_readiness_by_a_line_of_output(tmp_path: Path) -> None:
    """A line of output counts, early or late, wherever it is in the log; a system line does not."""
    path = ring_path(str(tmp_path), "R")

    async def scene(watcher: InProcessWatcher) -> None:
        probe_request = request("log", "^listening on [0-9]+$", ring=path, file=str(tmp_path / "none.log"))
        watcher.watch.start(probe_request)
        await asyncio.sleep(0)
        writer = RingWriter.new(path, "01ARZ3NDEKTSV4RRFFQ69G5FAV", RingShape(8))
        writer.system_line("listening on 1", 1000)
        writer.append(STDOUT, b"not yet listening on 80\nlistening on ", 1000)
        assert watcher.words.empty()
        writer.append(STDOUT, b"80\n", 1001)
        assert (await watcher.next())["op"] == "passed"
        watcher.watch.start(probe_request)
        assert (await watcher.next())["op"] == "passed"
        writer.close()

    run_scene(scene)


def test_hung_probes_delay_no_others() -> None:
    """However many probes hang, other probes are made."""

    async def scene(watcher: InProcessWatcher) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=512) as deaf:
            target = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
            for number in range(200):
                watcher.watch.start(
                    ProbeRequest(key=f"{number}/live", kind="http", target=target, every_ms=1, timeout_ms=100)
                )
            with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port:
                watcher.watch.start(request("http", f"http://127.0.0.1:{port}/"))
                while (message := await watcher.next())["key"] != "R/ready":
                    assert message["op"] == "failing"
                assert message["op"] == "passed"

    run_scene(scene)


@pytest.mark.parametrize("kind", ["http", "tcp"])
def test_unresolvable_host_names(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """However many names hang, others are looked up, and the watcher does not wait for them at its end."""
    really, answered = socket.getaddrinfo, threading.Event()

    def getaddrinfo(host: str, *arguments: Any, **more: Any) -> Any:
        if more.get("flags"):  # no name is looked up
            return really(host, *arguments, **more)
        if host.startswith("far"):
            answered.wait()
        return really("127.0.0.1", *arguments, **more)

    def target(host: str, port: int) -> str:
        return f"http://{host}:{port}/" if kind == "http" else f"{host}:{port}"

    async def scene(watcher: InProcessWatcher) -> None:
        with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port:
            for number in range(100):
                far = target(f"far{number % 50}", port)
                watcher.watch.start(
                    ProbeRequest(key=f"{number}/live", kind=kind, target=far, every_ms=1, timeout_ms=100)
                )
            watcher.watch.start(request(kind, target("near", port)))
            while (message := await watcher.next())["key"] != "R/ready":
                assert (message["op"], "no answer within" in message["why"]) == ("failing", True)
            assert message["op"] == "passed"

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    try:
        run_scene(scene)
    finally:
        answered.set()


PATIENT = """
import sys
from supervisor.helpers.watcher import command_probe
from supervisor.helpers.watcher.__main__ import main
command_probe._REAP_S = 60.0
sys.exit(main())
"""


class WatcherProcess:
    """A watcher process, and the scheduler's end of its socket."""

    def __init__(self) -> None:
        self.sock, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-I", "-c", PATIENT, "--fd", str(theirs.fileno())]
            self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        self._decoder = Decoder()
        self.sock.sendall(encode(WatcherSetup("/nonexistent", "")))

    def watch(self, probe_request: ProbeRequest) -> None:
        self.sock.sendall(encode(StartProbe(probe_request)))

    def next(self) -> Message:
        message = receive(self.sock, self._decoder)
        assert message is not None
        return message

    def end(self) -> int:
        self.sock.close()
        return self.process.wait(60)


@pytest.fixture
def real() -> Iterator[WatcherProcess]:
    process = WatcherProcess()
    yield process
    assert process.end() == 0


def daemonises(*arguments: object) -> list[str]:
    return [sys.executable, "-I", str(PROGRAMS / "daemonises.py"), *map(str, arguments)]


@pytest.mark.parametrize("bare", [[], ["bare"]])
def test_leftover_processes_of_a_command(real: WatcherProcess, tmp_path: Path, bare: list[str]) -> None:
    """Daemons that a command leaves are killed and reaped; daemons of a running command are not."""
    journal, running = tmp_path / "pid", tmp_path / "running"
    daemon = shlex.join(daemonises(running))
    going_on = command("/bin/sh", "-c", f"{daemon}; sleep 1000")
    real.watch(replace(going_on, key="other/ready"))
    until(running.exists, "the daemon of another command")
    real.watch(command(*daemonises(journal, *bare)))
    assert real.next() == {"op": "passed", "key": "R/ready"}
    until(lambda: not psutil.pid_exists(int(journal.read_text())), "the end of the leftover process")
    assert alive(int(running.read_text()))
    real.end()
    until(lambda: not alive(int(running.read_text())), "the end of the other one")


def test_command_of_another_user(real: WatcherProcess, tmp_path: Path) -> None:
    """User, groups, umask and directory are as requested; a directory that cannot be entered is reported."""
    if os.geteuid() != 0:
        pytest.skip("only root can change its user")
    probe_of = command(
        "/bin/sh", "-c", "echo $(id -u) $(id -G) $(umask) $(pwd); exit 1", uid=12, gid=34, groups=[34, 56]
    )
    real.watch(replace(probe_of, umask=0o027, cwd="/usr"))
    assert real.next()["why"].endswith(": 12 34 56 0027 /usr")
    tmp_path.chmod(0o700)
    real.watch(replace(probe_of, cwd=str(tmp_path)))
    assert str(tmp_path) in real.next()["why"]


@pytest.mark.parametrize("more", [{}, {"cwd": "/usr"}, {"uid": 12, "gid": 34}])
def test_command_gets_odd_variables(real: WatcherProcess, more: dict[str, Any]) -> None:
    """Names such as app.name reach the command of a probe; a program that cannot be executed is reported."""
    if "uid" in more and os.geteuid() != 0:
        pytest.skip("only root can change its user")
    odd = {"app.name": "shop", "IFS": "x"}
    for name, value in odd.items():
        probe_of = command("/usr/bin/printenv", name, "none")
        real.watch(replace(probe_of, env=probe_of.env | odd, chosen=list(odd), **more))
        assert real.next()["why"] == f"/usr/bin/printenv exited with code 1: {value}"
    missing = command("/no/such/command")
    real.watch(replace(missing, env=missing.env | odd, **more))
    assert real.next()["why"] == "/no/such/command exited with code 127: /no/such/command: No such file or directory"


def test_command_has_default_signals(real: WatcherProcess) -> None:
    """A command does not ignore the signals that the watcher ignores."""
    real.watch(command("/bin/sh", "-c", "kill -INT $$; exit 7"))
    assert real.next()["why"] == "/bin/sh killed by signal 2"


def test_output_flood_is_not_kept(real: WatcherProcess) -> None:
    """A command that prints endlessly runs until its time limit, uses no memory, and delays no other probe."""
    watcher = psutil.Process(real.process.pid)
    real.watch(replace(command("yes", timeout_ms=3_600_000), key="flood/live", times=1))
    until(lambda: "yes" in {child.name() for child in watcher.children(recursive=True)}, "the command to run")
    real.watch(command("/bin/sh", "-c", "head -c 50000000 /dev/zero; echo; echo last; exit 1"))
    message = real.next()
    assert message["key"] == "R/ready"
    assert message["why"].endswith(": last")
    real.watch(replace(command("yes", timeout_ms=50), key="short/live", times=1))
    reason = "yes: no answer within 50 ms"
    assert real.next() == {"op": "failed", "key": "short/live", "why": reason, "status": None}
    assert "yes" in {child.name() for child in watcher.children(recursive=True)}
    assert watcher.memory_info().rss < 100 << 20


def test_https() -> None:
    """The certificate is not verified, because a service that is probed by its address may have any."""

    async def scene(watcher: InProcessWatcher) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
        with answering(b"HTTP/1.1 200 OK\r\n\r\n", context) as port:
            watcher.watch.start(request("http", f"https://127.0.0.1:{port}/"))
            assert (await watcher.next())["op"] == "passed"
            watcher.watch.start(request("http", f"http://127.0.0.1:{port}/"))
            assert (await watcher.next())["op"] == "failing"

    run_scene(scene)


def test_failing_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says why TLS fails. A number of OpenSSL is not taken for one of the kernel."""
    newest = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    newest.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    newest.minimum_version = ssl.TLSVersion.TLSv1_3
    older = network_probes._unchecked()
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    monkeypatch.setattr(network_probes, "_unchecked", lambda: older)

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def scene(watcher: InProcessWatcher) -> None:
        async def failure(port: int) -> str:
            watcher.watch.start(request("http", f"https://127.0.0.1:{port}/"))
            return str((await watcher.next())["why"]).partition("/: ")[2]

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            reason = await failure(server.sockets[0].getsockname()[1])
            assert reason == "the server does not use TLS; use a URL that begins with http://"
        with answering(b"", newest) as port:
            assert await failure(port) == "TLS failed: TLSV1_ALERT_PROTOCOL_VERSION"

    run_scene(scene)


def test_watcher_ends_with_the_scheduler(real: WatcherProcess, tmp_path: Path) -> None:
    """When the socket closes, the process ends, as do the commands that it runs."""
    journal = tmp_path / "pid"
    script = f"echo $$ > {journal}.new; mv {journal}.new {journal}; sleep 1000"
    real.watch(command("/bin/sh", "-c", script))
    until(journal.exists, "the command")
    assert real.end() == 0
    pid = int(journal.read_text())
    until(lambda: not alive(pid), "the end of the command")


def test_output_of_a_query_command() -> None:
    """The standard output of a command is reported once, or the reason of its failure, with secrets masked."""

    async def scene(watcher: InProcessWatcher) -> None:
        env = {**os.environ, "TOKEN": "abcdefgh"}
        script = 'echo "noise $TOKEN" >&2; echo "4711 $TOKEN"; exit $1'
        for code in ("0", "3"):
            argv = ["/bin/sh", "-c", script, "sh", code]
            watcher.watch.start(request("ask", argv=argv, env=env, secrets=["TOKEN"]))
            message = await watcher.next()
            if code == "0":
                assert message == {"op": "answered", "key": "R/ready", "text": "4711 ***\n"}
            else:
                reason = "/bin/sh exited with code 3: noise ***"
                assert message == {"op": "failed", "key": "R/ready", "why": reason, "status": None}
        watcher.watch.start(request("ask", argv=["sleep", "60"], env=env, timeout_ms=50))
        assert (await watcher.next())["why"] == "sleep: timed out after 50 ms"
        await asyncio.gather(*watcher.watch._tasks.values())
        assert watcher.watch._tasks == {}

    run_scene(scene)


def test_condition() -> None:
    """A condition is answered with its exit code and the last line of its output, with secrets masked."""

    async def scene(watcher: InProcessWatcher) -> None:
        env = {**os.environ, "TOKEN": "abcdefgh"}
        expected: dict[str, dict[str, object]] = {
            "0": {"op": "answered", "text": ""},
            "1": {"op": "failed", "why": "no *** here", "status": 1},
            "3": {"op": "failed", "why": "/bin/sh exited with code 3: no *** here", "status": None},
        }
        for code, answer in expected.items():
            argv = ["/bin/sh", "-c", 'echo first; echo "no $TOKEN here" >&2; exit $1', "sh", code]
            watcher.watch.start(request("condition", argv=argv, env=env, secrets=["TOKEN"]))
            assert await watcher.next() == {"key": "R/ready", **answer}
        watcher.watch.start(request("condition", argv=["false"], env=env))
        assert (await watcher.next())["why"] == "false exited with code 1"

    run_scene(scene)


def test_condition_without_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path must exist, and the load must be below a number; only what cannot be looked at is a failure."""
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 1.0, 1.0))
    (tmp_path / "there").write_text("")
    cases: list[tuple[str, float | None, dict[str, object]]] = [
        ("there", 2.5, {"op": "answered", "text": ""}),
        ("", 2.5, {"op": "answered", "text": ""}),
        ("gone", 2.5, {"op": "failed", "why": f"there is no {tmp_path}/gone", "status": 1}),
        ("there/in", None, {"op": "failed", "why": f"there is no {tmp_path}/there/in", "status": 1}),
        ("there", 2.0, {"op": "failed", "why": "the load is 2.00, not below 2", "status": 1}),
        ("x" * 300, None, {"op": "failed", "why": f"{tmp_path}/{'x' * 300}: File name too long", "status": None}),
    ]

    async def scene(watcher: InProcessWatcher) -> None:
        for name, load, answer in cases:
            target = f"{tmp_path}/{name}" if name else ""
            watcher.watch.start(request("condition", target=target, load_below=load))
            assert await watcher.next() == {"key": "R/ready", **answer}

    run_scene(scene)


def test_query_command_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query without free descriptors for its answer leaves none open."""
    pair = os.pipe2(os.O_CLOEXEC)
    pipes = [pair]

    def pipe2(_flags: int) -> tuple[int, int]:
        if not pipes:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pipes.pop()

    async def scene(watcher: InProcessWatcher) -> None:
        monkeypatch.setattr("supervisor.helpers.watcher.command_probe.os.pipe2", pipe2)
        watcher.watch.start(request("ask", argv=["true"]))
        message = await watcher.next()
        assert (message["op"], "Too many open files" in message["why"]) == ("failed", True)

    run_scene(scene)
    for fd in pair:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


@pytest.mark.parametrize("kind", ["exec", "ask"])
def test_command_cannot_be_tracked(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Without a pidfd, a command is killed and reaped, and its attempt fails with the reason."""
    pids = []

    def pidfd_open(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scene(watcher: InProcessWatcher) -> None:
        monkeypatch.setattr("supervisor.helpers.watcher.command_probe.os.pidfd_open", pidfd_open)
        watcher.watch.start(request(kind, argv=["sleep", "1000"], env=dict(os.environ), every_ms=3_600_000))
        message = await watcher.next()
        assert message["why"] == "sleep was killed, because it could not be tracked: Too many open files"
        assert message["op"] == ("failed" if kind == "ask" else "failing")

    before = set(os.listdir("/proc/self/fd"))
    run_scene(scene)
    assert set(os.listdir("/proc/self/fd")) <= before
    assert [psutil.pid_exists(pid) for pid in pids] == [False]


SECRET = "hunter2-hunter2"
CUT = 4096


@pytest.mark.parametrize("shown", range(1, len(SECRET)))
def test_secret_at_the_cut_of_long_output(shown: int) -> None:
    """Where the output of a command is cut, no part of a secret or of its mask appears."""

    async def scene(watcher: InProcessWatcher) -> None:
        env = {**os.environ, "TOKEN": SECRET}
        script = f'fill() {{ printf "%${{1}}s" | tr " " x; }}; fill {CUT - shown}; printf "$TOKEN"; fill {CUT - shown}'
        argv = ["/bin/sh", "-c", f"{{ {script}; }} >&2; {script}; exit $CODE", "sh"]
        for code in ("0", "1"):
            watcher.watch.start(request("ask", argv=argv, env={**env, "CODE": code}, secrets=["TOKEN"]))
            message = await watcher.next()
            text = message.get("text") or message["why"].rpartition(" ")[2]
            assert set(text.replace("***", "")) == {"x"}, text

    run_scene(scene)


@pytest.mark.parametrize(
    ("text", "beginning", "end"),
    [
        ("abcdef", "abcde", "bcdef"),
        ("abc", "abc", "abc"),
        ("abc***", "abc", "bc***"),
        ("***abc", "***ab", "abc"),
        ("a***b***c", "a***b", "b***c"),
        ("******", "***", "***"),
        ("", "", ""),
    ],
)
def test_cut_does_not_split_a_mask(text: str, beginning: str, end: str) -> None:
    """A mask at the cut is left out completely."""
    assert (beginning_of(text, 5), end_of(text, 5)) == (beginning, end)
