import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.ipc import messages, msgspec_messages
from supervisor.ipc.control_client import CommandEntry, ControlClient, RequestRefused, Unavailable
from supervisor.ipc.log_line import Log, printable, stamp
from supervisor.ipc.messages import Decoder, Message, ProtocolError, encode
from supervisor.scheduler.control.control_socket import (
    Answer,
    Arguments,
    ControlServer,
    Operations,
    RequestEntry,
    done,
    operation,
    refused,
)
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedure, Procedures, Waiter
from tests.support.waiting import until

WRITERS: list[Callable[[Message], bytes]] = [messages.encode, msgspec_messages.encode]
DEEP = (10**6).to_bytes(4) + b'{"a":' * (10**6 // 5)
READERS: list[Callable[[], Decoder]] = [Decoder, msgspec_messages.decoder]


@given(
    texts=st.lists(st.text(), max_size=5),
    cuts=st.lists(st.integers(1, 40), min_size=1),
    write=st.sampled_from(WRITERS),
    read=st.sampled_from(READERS),
)
def test_split_frames(
    texts: list[str], cuts: list[int], write: Callable[[Message], bytes], read: Callable[[], Decoder]
) -> None:
    """The same frames are decoded in the same order, however the bytes are split."""
    stream = b"".join(write({"op": text, "number": 2**63, "none": None}) for text in texts)
    decoder, position = read(), 0
    messages_found: list[dict[str, Any]] = []
    while position < len(stream):
        size = cuts[position % len(cuts)]
        messages_found += decoder.feed(stream[position : position + size])
        position += size
    assert messages_found == [{"op": text, "number": 2**63, "none": None} for text in texts]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("write", WRITERS)
def test_non_utf8_text(write: Callable[[Message], bytes], read: Callable[[], Decoder]) -> None:
    """Arguments and paths are bytes on Linux; a frame carries them as surrogates and back."""
    text = b"\xff/caf\xe9".decode("utf-8", "surrogateescape")
    assert next(read().feed(write({"op": text})))["op"] == text


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01{", b"\x00\x00\x00\x02[]", DEEP])
def test_invalid_frames(data: bytes, read: Callable[[], Decoder]) -> None:
    """A length beyond the limit, broken JSON and other values than objects are errors, and take no memory."""
    with pytest.raises(ProtocolError):
        list(read().feed(data))


def test_log_lines_cannot_be_forged() -> None:
    """A message stays one line without control characters, whatever its content."""
    assert printable("a\nb\x1b[31m\x9b\x7f") == "a\\x0ab\\x1b[31m\\x9b\\x7f"
    line = Log("x").line(1, "a\r\nb")
    assert line.count(b"\n") == 1
    assert line.endswith(b"INFO x: a\\x0d\\x0ab\n")
    assert stamp(1_767_225_600_123) == "2026-01-01T00:00:00.123Z"


class _Echo(Arguments):
    a: Any


class Server:
    """A control server with its own loop and thread."""

    def __init__(self, path: Path) -> None:
        self.calls: list[dict[str, Any]] = []
        self.held: list[Waiter] = []
        self.loop = Loop()
        self._ending = False
        self._late: list[dict[str, object]] = []
        self.server = ControlServer(self.loop, str(path), "token", Operations(Procedures(), self))
        self.loop.after(0, self._look)
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def _look(self) -> None:
        if self._ending:
            self.loop.end()
        while self._late:
            self.held[0].resume(self._late[0])
            del self._late[0]
        self.loop.after(5, self._look)

    @operation(_Echo)
    def echo(self, request: _Echo, _entry: RequestEntry) -> Answer:
        self.calls.append({"a": request.a})
        return done(a=request.a)

    @operation(Arguments)
    def no(self, _request: Arguments, _entry: RequestEntry) -> Answer:
        return refused(409, "not now", [{"location": "x", "message": "y"}])

    @operation(Arguments)
    def hold(self, _request: Arguments, _entry: RequestEntry) -> Procedure[Answer]:
        answer: Answer = yield self.held.append
        return answer

    def answer_held(self, answer: dict[str, object]) -> None:
        """Answer the held request from the loop, as operations do."""
        self._late.append(answer)
        until(lambda: not self._late, "the answer")

    def close(self) -> None:
        self._ending = True
        self.thread.join()
        self.server.close()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "control.sock")
    yield server
    server.close()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlClient]:
    monkeypatch.setattr("supervisor.ipc.control_client._DEADLINE_S", 600.0)
    client = ControlClient(str(tmp_path / "control.sock"), "token")
    yield client
    client.close()


@pytest.mark.usefixtures("control")
def test_call(client: ControlClient) -> None:
    """A result is returned, and a refusal is raised with its HTTP status."""
    assert client.call("echo", a=1) == {"a": 1}
    with pytest.raises(RequestRefused) as refusal:
        client.call("no")
    assert (refusal.value.status, refusal.value.detail) == (409, "not now")
    assert refusal.value.errors == [{"location": "x", "message": "y"}]


def test_worker_of_another_version(control: Server, tmp_path: Path) -> None:
    """A request without an audit entry, as 0.1.0 sends it, is carried out, and unknown fields are ignored."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(tmp_path / "control.sock"))
        request = {"id": "x", "deadline": 1e12, "op": "echo", "args": {"a": 1, "new": 2}, "new": 3}
        sock.sendall(encode({"op": "hello", "token": "token", "new": 1}) + encode(request))
        assert messages.receive(sock, Decoder()) == {"id": "x", **done(a=1)}
    assert control.calls == [{"a": 1}]


@pytest.mark.usefixtures("control")
def test_entry_that_was_not_stored(client: ControlClient) -> None:
    """An audit entry counts as stored only if the answer says so; a scheduler of 0.1.0 never does."""
    entry = CommandEntry("key", [1, "who", "unix", "echo", "", 200, "", False])
    assert client.call("echo", entry, a=1) == {"a": 1}
    assert not entry.stored


def test_repeated_request(control: Server, client: ControlClient) -> None:
    """A request repeated with the same id gets the same answer without a second call."""
    request = {"id": "one", "deadline": time.monotonic() + 600, "op": "echo", "args": {"a": 1}}
    first, second = client._exchange(request), client._exchange(request)
    assert first == second
    assert len(control.calls) == 1


def test_request_repeated_while_in_progress(control: Server, client: ControlClient) -> None:
    """A request repeated while it is carried out gets the same answer."""
    with ThreadPoolExecutor(2) as pool:
        request = {"id": "one", "deadline": time.monotonic() + 600, "op": "hold", "args": {}}
        answers = [pool.submit(client._exchange, request) for _ in range(2)]
        until(lambda: sum(map(len, control.server._waiting.values())) == 2, "both to be taken")
        control.answer_held(done(a=1))
        assert [answer.result() for answer in answers] == [{"id": "one", **done(a=1)}] * 2
    assert len(control.held) == 1


def test_answer_cache_is_bounded(control: Server, client: ControlClient) -> None:
    """The server remembers the newest answers up to a megabyte, and drops older ones."""
    large = "x" * 100_000
    for number in range(50):
        request = {"id": f"{number}", "deadline": time.monotonic() + 600, "op": "echo", "args": {"a": large}}
        client._exchange(request)
    client._exchange(request)
    assert len(control.calls) == 50
    assert sum(len(str(answer)) for answer in control.server._answers.values()) <= 1 << 20


def test_late_request(control: Server, client: ControlClient) -> None:
    """A request whose client has stopped waiting is refused and not carried out."""
    answer = client._exchange({"id": "late", "deadline": time.monotonic() - 1, "op": "echo", "args": {}})
    assert answer is not None
    assert answer["status"] == 503
    assert control.calls == []


def test_no_scheduler(tmp_path: Path) -> None:
    """Without a scheduler a call raises Unavailable, so the command was certainly not carried out."""
    with pytest.raises(Unavailable):
        ControlClient(str(tmp_path / "nothing"), "token").call("echo")


def test_wrong_token(control: Server, tmp_path: Path) -> None:
    """A wrong token ends the connection without an answer."""
    client = ControlClient(str(tmp_path / "control.sock"), "wrong")
    assert client._exchange({"id": "x", "deadline": time.monotonic() + 600, "op": "echo", "args": {}}) is None
    assert control.calls == []


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "hello", "token": "token"},
        {"deadline": 1e12, "op": "echo", "args": {}},
        {"id": [], "deadline": 1e12, "op": "echo", "args": {}},
        {"id": "x", "deadline": "soon", "op": "echo", "args": {}},
        {"id": "x", "deadline": 1e12, "op": {}, "args": {}},
        {"id": "x", "deadline": 1e12, "op": "echo", "args": None},
        {"id": "x", "deadline": 1e12, "op": "echo", "args": {"by": "\ud800"}},
    ],
)
def test_invalid_requests_end_the_connection(
    control: Server, client: ControlClient, tmp_path: Path, request_: dict[str, Any]
) -> None:
    """The sender of an invalid request is disconnected, and other clients are not affected."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(tmp_path / "control.sock"))
        bodies = [json.dumps(message).encode() for message in ({"op": "hello", "token": "token"}, request_)]
        sock.sendall(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
        assert sock.recv(1) == b""
    assert control.calls == []
    assert client.call("echo", a=1) == {"a": 1}


def test_silent_connections(control: Server, client: ControlClient, tmp_path: Path) -> None:
    """Many connections without a message take only a few descriptors, and calls still work."""
    with contextlib.ExitStack() as stack:
        for number in range(200):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(str(tmp_path / "control.sock"))
            if number % 50 == 49:
                until(lambda: len(control.server._connections) <= 65, "the earlier connections to be closed")
        assert client.call("echo", a=1) == {"a": 1}


def test_server_shutdown(tmp_path: Path) -> None:
    """A server that ends closes its connections, so clients read the end, and no socket stays open."""
    before = sockets()
    server = Server(tmp_path / "control.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(tmp_path / "control.sock"))
        client.sendall(encode({"op": "hello", "token": "token"}))
        until(
            lambda: [connection for connection in list(server.server._connections) if connection.trusted],
            "its answers to be read",
        )
        server.close()
        client.settimeout(60)
        assert client.recv(1) == b""
    assert sockets() <= before


def sockets() -> set[str]:
    """Return the open sockets of this process."""
    targets = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed after the listing
            targets.add(os.readlink(f"/proc/self/fd/{name}"))
    return {target for target in targets if target.startswith("socket:")}


def test_client_gone_before_its_answers(control: Server, client: ControlClient, tmp_path: Path) -> None:
    """Answers to a client that is gone end only its own connection."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(tmp_path / "control.sock"))
        request = {"deadline": 1e12, "op": "echo", "args": {"a": "x" * 10_000}}
        requests = [encode({"id": str(number), **request}) for number in range(200)]
        sock.sendall(encode({"op": "hello", "token": "token"}) + b"".join(requests))
        until(lambda: len(control.calls) == 200, "the requests to be carried out")
    assert client.call("echo", a=1) == {"a": 1}


def test_client_gone_during_its_request(control: Server, client: ControlClient, tmp_path: Path) -> None:
    """An incomplete request is ignored and delays no other client."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(tmp_path / "control.sock"))
        request = encode({"id": "x", "deadline": 1e12, "op": "echo", "args": {"a": 1}})
        sock.sendall(encode({"op": "hello", "token": "token"}) + request[:-1])
        until(lambda: control.server._connections, "the connection to be taken")
    assert client.call("echo", a=2) == {"a": 2}
    assert control.calls == [{"a": 2}]


def test_connection_is_reused(control: Server, client: ControlClient) -> None:
    """A connection serves one call after another, even after a refused call."""
    assert client.call("echo", a=1) == {"a": 1}
    with pytest.raises(RequestRefused):
        client.call("no")
    assert client.call("echo", a=2) == {"a": 2}
    assert len(control.server._connections) == 1


def test_concurrent_calls(control: Server, client: ControlClient) -> None:
    """Concurrent calls get their own answers over separate connections, and few connections are kept afterwards."""

    def calls(number: int) -> list[Any]:
        return [client.call("echo", a=f"{number}.{step}")["a"] for step in range(10)]

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(calls, range(40)))
    assert answers == [[f"{number}.{step}" for step in range(10)] for number in range(40)]
    assert len(control.calls) == 400
    until(lambda: len(control.server._connections) <= 32, "the other connections to end")


def test_replaced_scheduler(client: ControlClient, tmp_path: Path) -> None:
    """After the scheduler was replaced, the next command reaches the new one exactly once."""
    predecessor = Server(tmp_path / "control.sock")
    client.call("echo", a=1)
    predecessor.close()
    successor = Server(tmp_path / "control.sock")
    try:
        assert client.call("echo", a=2) == {"a": 2}
        assert successor.calls == [{"a": 2}]
        assert len(successor.server._connections) == 1
    finally:
        successor.close()


def test_dead_scheduler(client: ControlClient, tmp_path: Path) -> None:
    """A command over a kept connection to a dead scheduler raises Unavailable: it was certainly not carried out."""
    server = Server(tmp_path / "control.sock")
    client.call("echo", a=1)
    server.close()
    with pytest.raises(Unavailable):
        client.call("echo", a=2)


def test_late_answer(control: Server, client: ControlClient) -> None:
    """A late answer is discarded, and no later call takes it as its own."""
    client.call("echo", a=1)
    with pytest.raises(TimeoutError):
        client._exchange({"id": "slow", "deadline": 1e12, "op": "hold", "args": {}}, 0.05)
    until(lambda: control.held, "the request")
    control.answer_held(done(a="late"))
    assert client.call("echo", a=2) == {"a": 2}


class ScriptedServer:
    """A server that sends the given answers, one for each request, and closes the connection after a bad one."""

    def __init__(self, path: Path, answers: list[Callable[[Any], bytes]]) -> None:
        self.ids: list[str] = []
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._answers:
            sock, _ = self._listener.accept()
            decoder, hanging_on = Decoder(), True
            with sock:
                while hanging_on and self._answers and (data := sock.recv(65536)):
                    for frame in decoder.feed(data):
                        if frame["op"] != "hello":
                            self.ids.append(frame["id"])
                            answer = self._answers.pop(0)(frame["id"])
                            sock.sendall(answer)
                            hanging_on = answer == _good(frame["id"])

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def _good(request: Any) -> bytes:
    return encode({"id": request, **done(a=1)})


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda _request: b"", id="none"),
        pytest.param(lambda request: _good(request)[:-1], id="half"),
        pytest.param(lambda _request: _good("other"), id="another's"),
        pytest.param(lambda request: _good(request) * 2, id="two"),
        pytest.param(lambda _request: b"\xff\xff\xff\xff", id="no frame"),
    ],
)
@pytest.mark.parametrize("kept_open", [False, True])
def test_broken_connection(
    tmp_path: Path, client: ControlClient, broken: Callable[[Any], bytes], kept_open: bool
) -> None:
    """A broken connection is dropped, and the same request is repeated over another one."""
    server = ScriptedServer(tmp_path / "control.sock", [*([_good] if kept_open else []), broken, _good])
    if kept_open:
        assert client.call("first") == {"a": 1}
        server.ids.clear()
    assert client.call("echo") == {"a": 1}
    server.close()
    assert len(server.ids) == 2
    assert server.ids[0] == server.ids[1]


def test_process_title() -> None:
    """The command line that other programs read is exactly the title."""
    code = """
from supervisor.host.osport import set_title
set_title("ringward test")
print(open("/proc/self/cmdline").read())
"""
    out = subprocess.run([sys.executable, "-I", "-c", code, "x" * 50], capture_output=True, text=True, check=True)
    assert out.stdout == "ringward test\0\n"
