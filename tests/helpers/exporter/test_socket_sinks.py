"""The types ``syslog`` and ``journald``: against sockets, and a real rsyslog."""

import array
import contextlib
import os
import re
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from logring.layout import STDERR, SYSTEM
from supervisor.helpers.exporter.log_records import DAMAGED, DeliveryFailed, LogGap, Piece, Sink
from supervisor.helpers.exporter.socket_sinks import JournaldSink, SyslogSink
from tests.helpers.exporter.pieces import RUN, TS, job, piece
from tests.support.ports import free_port
from tests.support.waiting import until

Opened = Callable[[Any], Sink]
LINE = re.compile(
    rb"<(?P<pri>\d+)>1 (?P<time>\S+) (?P<host>\S+) (?P<app>\S+) (?P<proc>\S+) (?P<msgid>\S+)"
    rb' \[ringward@32473 instance="(?P<instance>\d+)" line="(?P<line>\d+)"(?P<more>[^\]]*)\] (?P<text>.*)',
    re.DOTALL,
)
PIECES = [
    piece(b"one\ntwo \xff \x07\n", 0),
    piece(b"oops", 3, stream=STDERR),
    piece(b"x" * 16384, 4, continued=True),
    Piece(RUN, LogGap(5, TS, 7, DAMAGED)),
]
LOCAL = time.strftime("%b %e %H:%M:%S", time.localtime(TS // 1000))
"""The time of the lines in the format of RFC 3164."""
TEXTS = [b"one", b"two \xff \x07", b"", b"oops", b"x" * 16384, b"7 lines missing: the log file is damaged"]


def parsed(message: bytes) -> dict[str, bytes]:
    match = LINE.fullmatch(message)
    assert match is not None, message
    return match.groupdict()


def check(messages: list[bytes]) -> None:
    """Check that the messages have the lines of `PIECES`, in order."""
    messages_found = [parsed(message) for message in messages]
    assert [parsed_message["text"] for parsed_message in messages_found] == TEXTS
    assert [int(parsed_message["line"]) for parsed_message in messages_found] == [0, 1, 2, 3, 4, 5]
    assert [int(parsed_message["pri"]) for parsed_message in messages_found] == [30, 30, 30, 27, 30, 29]
    assert [parsed_message["more"] for parsed_message in messages_found[4:]] == [b' continued="true"', b' skipped="7"']
    assert {
        (parsed_message["host"], parsed_message["app"], parsed_message["proc"], parsed_message["instance"])
        for parsed_message in messages_found
    } == {(b"db1", b"web", RUN.id.encode(), b"2")}
    assert messages_found[0]["time"] == b"2025-11-26T08:00:00.123Z"
    assert [parsed_message["msgid"] for parsed_message in messages_found[2:]] == [
        b"stdout",
        b"stderr",
        b"stdout",
        b"system",
    ]


def unframed(data: bytes) -> list[bytes]:
    """Return the messages of a stream with octet counting; an incomplete last one is left out."""
    frames = []
    while b" " in data:
        count, _, remaining = data.partition(b" ")
        if len(remaining) < int(count):
            break
        frames.append(remaining[: int(count)])
        data = remaining[int(count) :]
    return frames


class StreamServer:
    """A server that keeps the bytes of each connection."""

    def __init__(self, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        received: list[bytearray] = []
        connections: list[socket.socket] = []

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                data = bytearray()
                received.append(data)
                sock: socket.socket = self.request
                with contextlib.suppress(OSError):
                    if context is not None:
                        sock = context.wrap_socket(sock, server_side=True)
                    connections.append(sock)
                    while more := sock.recv(65536):
                        data.extend(more)
                sock.close()

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self.received, self.connections = received, connections
        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def messages(self) -> list[bytes]:
        """Return the complete messages of the last connection."""
        return unframed(bytes(self.received[-1])) if self.received else []

    def hang_up(self) -> None:
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Return a function that closes a sink after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda sink: stack.enter_context(contextlib.closing(sink))


@pytest.fixture
def server() -> Iterator[StreamServer]:
    new_server = StreamServer()
    yield new_server
    new_server.close()


def test_syslog_over_tcp(server: StreamServer, opened: Opened) -> None:
    """Over TCP each message is preceded by its length, and the connection stays open."""
    sink = opened(SyslogSink(job("syslog", address=f"tcp://127.0.0.1:{server.port}")))
    assert sink.deliver(PIECES[:2]) == 2
    assert sink.deliver(PIECES[2:]) == 2
    until(lambda: len(server.messages()) == 6, "the messages")
    check(server.messages())
    assert len(server.received) == 1


def test_closed_connection_is_replaced(server: StreamServer, opened: Opened) -> None:
    """A closed connection is noticed before the next message, which uses a new one."""
    sink = opened(SyslogSink(job("syslog", address=f"tcp://127.0.0.1:{server.port}")))
    sink.deliver([piece(b"a")])
    until(lambda: server.received and server.received[0], "the first message")
    server.hang_up()
    sink.deliver([piece(b"b")])
    until(lambda: len(server.received) == 2 and server.received[1], "another connection")
    assert [parsed(message)["text"] for message in server.messages()] == [b"b"]


@pytest.mark.parametrize("address", ["tcp://a..b:601", f"udp://{64 * 'a'}:514"])
def test_impossible_host_name(opened: Opened, address: str) -> None:
    """A host name that cannot be looked up fails the delivery, and does not end the exporter."""
    sink = opened(SyslogSink(job("syslog", address=address)))
    with pytest.raises(DeliveryFailed, match="the host name is not valid"):
        sink.deliver([piece(b"a")])


def test_server_is_down(opened: Opened) -> None:
    """Without a server the delivery fails with the address and the reason, and works once the server runs."""
    port = free_port()
    sink = opened(SyslogSink(job("syslog", address=f"tcp://127.0.0.1:{port}")))
    with pytest.raises(DeliveryFailed, match=rf"cannot send to tcp://127.0.0.1:{port}: Connection refused"):
        sink.deliver([piece(b"a")])
    server = StreamServer(port=port)
    try:
        assert sink.deliver([piece(b"a")]) == 1
    finally:
        server.close()


def test_syslog_over_tls(tmp_path: Path, opened: Opened) -> None:
    """Over TLS the certificate is checked against `tls_ca`."""
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    key, cert = tmp_path / "key", tmp_path / "cert"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*make, *names, "-keyout", key, "-out", cert, "-days", "2"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = StreamServer(context)
    try:
        address = f"tls://127.0.0.1:{server.port}"
        with pytest.raises(DeliveryFailed, match="certificate verify failed"):
            opened(SyslogSink(job("syslog", address=address))).deliver(PIECES)
        sink = opened(SyslogSink(job("syslog", address=address, tls_ca=str(cert))))
        assert sink.deliver(PIECES[:3]) == 3
        assert sink.deliver(PIECES[3:]) == 1
        until(lambda: len(server.messages()) == 6, "the messages")
        check(server.messages())
    finally:
        server.close()


def test_syslog_over_udp(opened: Opened) -> None:
    """Over UDP each message is a datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        sink = opened(SyslogSink(job("syslog", address=f"udp://127.0.0.1:{receiver.getsockname()[1]}")))
        assert sink.deliver(PIECES) == 4
        check([receiver.recv(65536) for _ in range(6)])


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_syslog_over_a_unix_socket(tmp_path: Path, kind: socket.SocketKind, opened: Opened) -> None:
    """A Unix socket gets datagrams, or a stream if that is its type."""
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, kind) as receiver:
        receiver.bind(path)
        receiver.settimeout(10)
        sink = opened(SyslogSink(job("syslog", address=f"unix:{path}", facility="local7", format="rfc5424")))
        if kind == socket.SOCK_STREAM:
            receiver.listen()
            assert sink.deliver(PIECES) == 4
            connection, _ = receiver.accept()
            data = b""
            while len(messages := unframed(data)) < 6:
                data += connection.recv(65536)
            connection.close()
        else:
            assert sink.deliver(PIECES) == 4
            messages = [receiver.recv(65536) for _ in range(6)]
        assert [parsed(message)["text"] for message in messages] == TEXTS
        assert parsed(messages[0])["pri"] == b"190"


@contextlib.contextmanager
def rsyslog(tmp_path: Path, inputs: str, fields: str) -> Iterator[Path]:
    """Run a real rsyslog that writes these fields of each message to a file, which is yielded."""
    program = shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if program is None:
        pytest.skip("rsyslogd is not installed (Debian: rsyslog)")
    output = tmp_path / "output"
    template = "|".join(f"%{field}%" for field in fields.split())
    (tmp_path / "rsyslog.conf").write_text(
        f'global(workDirectory="{tmp_path}" maxMessageSize="64k")\n{inputs}\n'
        f'template(name="all" type="string" string="{template}\\n")\n'
        f'action(type="omfile" file="{output}" template="all")\n'
    )
    command = [program, "-n", "-f", str(tmp_path / "rsyslog.conf"), "-i", str(tmp_path / "pid")]
    with (tmp_path / "errors").open("wb") as errors, subprocess.Popen(command, stderr=errors, stdout=errors) as process:
        try:
            yield output
        finally:
            process.terminate()


def deliver_once_it_listens(sink: Sink, output: Path, pieces: list[Piece], lines: int) -> None:
    def delivered() -> bool:
        with contextlib.suppress(DeliveryFailed):
            return sink.deliver(pieces) == len(pieces)
        return False

    until(delivered, "rsyslog to listen")
    until(lambda: output.exists() and output.read_text().count("\n") == lines, "the messages")


def test_rsyslog_parses_the_messages(tmp_path: Path, opened: Opened) -> None:
    """A real rsyslog finds time, host, program, run id and text of each message where RFC 5424 has them."""
    port = free_port()
    inputs = f'module(load="imtcp")\ninput(type="imtcp" address="127.0.0.1" port="{port}")'
    fields = "TIMESTAMP:::date-rfc3339 HOSTNAME APP-NAME PROCID MSGID syslogseverity-text STRUCTURED-DATA msg"
    with rsyslog(tmp_path, inputs, fields) as output:
        sink = opened(SyslogSink(job("syslog", address=f"tcp://127.0.0.1:{port}")))
        deliver_once_it_listens(sink, output, [piece(b"one\ntwo"), piece(b"oops", 2, stream=STDERR)], 3)
    common = f"2025-11-26T08:00:00.123Z|db1|web|{RUN.id}"
    fields = '[ringward@32473 instance="2" line="{}"]'
    assert output.read_text().splitlines() == [
        f"{common}|stdout|info|{fields.format(0)}|one",
        f"{common}|stdout|info|{fields.format(1)}|two",
        f"{common}|stderr|err|{fields.format(2)}|oops",
    ]


def test_local_rsyslog_parses_the_messages(tmp_path: Path, opened: Opened) -> None:
    """The imuxsock of a real rsyslog, which reads /dev/log, finds time, program, run id and text of each message."""
    path = tmp_path / "log"
    inputs = (
        'module(load="imuxsock" sysSock.use="off")\n'
        f'input(type="imuxsock" socket="{path}" ignoreTimestamp="off" useSysTimestamp="off")'
    )
    with rsyslog(
        tmp_path, inputs, "TIMESTAMP programname PROCID syslogfacility-text syslogseverity-text msg"
    ) as output:
        sink = opened(SyslogSink(job("syslog", address=f"unix:{path}", facility="local7")))
        lines = [
            piece(b"one\ntwo: [x] \xc3\xa9\n"),
            piece(b"oops", 3, stream=STDERR),
            Piece(RUN, LogGap(4, TS, 7, DAMAGED)),
        ]
        deliver_once_it_listens(sink, output, lines, 5)
    common = f"{LOCAL}|web|{RUN.id}|local7"
    assert output.read_text().splitlines() == [
        f"{common}|info| one",
        f"{common}|info| two: [x] é",
        f"{common}|info| ",
        f"{common}|err| oops",
        f"{common}|notice| 7 lines missing: the log file is damaged",
    ]


def test_local_format_on_a_stream(tmp_path: Path, opened: Opened) -> None:
    """On a Unix stream socket, a newline ends each message; a NUL, which would end one, is replaced."""
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as receiver:
        receiver.bind(path)
        receiver.listen()
        opened(SyslogSink(job("syslog", address=f"unix:{path}"))).deliver([piece(b"one\na\0b")])
        connection, _ = receiver.accept()
        with connection:
            head = f"<30>{LOCAL} web[{RUN.id}]: "
            assert connection.recv(65536).decode() == f"{head}one\n{head}a\N{REPLACEMENT CHARACTER}b\n"


def test_format_over_udp(opened: Opened) -> None:
    """A message in the format of RFC 3164 to another host has the name of this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        address = f"udp://127.0.0.1:{receiver.getsockname()[1]}"
        opened(SyslogSink(job("syslog", address=address, format="rfc3164"))).deliver([piece(b"one")])
        assert receiver.recv(65536).decode() == f"<30>{LOCAL} db1 web[{RUN.id}]: one"


def test_message_larger_than_a_datagram(tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that the socket does not accept whole is cut with a mark, and does not delay others."""

    class SmallSocket(socket.socket):
        def connect(self, address: Any) -> None:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            super().connect(address)

    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(10)
        sink = opened(SyslogSink(job("syslog", address=f"unix:{path}")))
        monkeypatch.setattr("supervisor.helpers.exporter.socket_sinks.socket.socket", SmallSocket)
        with ThreadPoolExecutor(1) as pool:
            received = pool.submit(lambda: [receiver.recv(65536).decode() for _ in range(2)])
            assert sink.deliver([piece(b"x" * 16_384 + b"\nafter")]) == 1
            cut, after = received.result()
    assert cut.endswith("xxx … [cut]")
    assert after.endswith(": after")


def fields_of(message: bytes) -> dict[str, bytes]:
    """Return the fields of a message of journald's native protocol."""
    fields_by_name = {}
    while message:
        line, _, message = message.partition(b"\n")
        name, separator, value = line.partition(b"=")
        if not separator:
            (size,) = struct.unpack("<Q", message[:8])
            value, message = message[8 : 8 + size], message[8 + size + 1 :]
        fields_by_name[name.decode()] = value
    return fields_by_name


@contextlib.contextmanager
def journal(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(10)
        yield path, receiver


def test_journald_fields(tmp_path: Path, opened: Opened) -> None:
    """Each line is a message with its fields; texts may have any bytes."""
    with journal(tmp_path) as (path, receiver):
        assert opened(JournaldSink(path)).deliver([*PIECES, piece(b"remark", 9, stream=SYSTEM)]) == 5
        messages_found = [fields_of(receiver.recv(1 << 20)) for _ in range(7)]
    assert [parsed_message["MESSAGE"] for parsed_message in messages_found] == [*TEXTS, b"remark"]
    assert [int(parsed_message["RINGWARD_LINE"]) for parsed_message in messages_found] == [0, 1, 2, 3, 4, 5, 9]
    assert [int(parsed_message["PRIORITY"]) for parsed_message in messages_found] == [6, 6, 6, 3, 6, 5, 5]
    assert messages_found[0] == {
        "PRIORITY": b"6",
        "SYSLOG_IDENTIFIER": b"web",
        "RINGWARD_TASK": b"web",
        "RINGWARD_RUN_ID": RUN.id.encode(),
        "RINGWARD_INSTANCE": b"2",
        "RINGWARD_STREAM": b"stdout",
        "RINGWARD_TIME": b"2025-11-26T08:00:00.123Z",
        "RINGWARD_LINE": b"0",
        "MESSAGE": b"one",
    }
    assert messages_found[4]["RINGWARD_CONTINUED"] == b"true"
    assert messages_found[5]["RINGWARD_SKIPPED"] == b"7"


def test_large_message_to_journald(tmp_path: Path, opened: Opened) -> None:
    """A message that does not fit into a datagram is sent as the descriptor of a sealed memfd."""
    text = b"y" * (4 << 20)
    with journal(tmp_path) as (path, receiver):
        assert opened(JournaldSink(path)).deliver([piece(text)]) == 1
        data, ancillary, _, _ = receiver.recvmsg(100, socket.CMSG_SPACE(4))
    assert data == b""
    ((_, _, descriptors),) = ancillary
    (fd,) = array.array("i", descriptors)
    with open(fd, "rb") as file:
        assert fields_of(os.pread(fd, 5 << 20, 0))["MESSAGE"] == text
        with pytest.raises(PermissionError):
            os.pwrite(file.fileno(), b"x", 0)


def test_without_journald(tmp_path: Path, opened: Opened) -> None:
    """Without the socket of journald the delivery fails, and works once the socket exists."""
    sink = opened(JournaldSink(str(tmp_path / "journal")))
    with pytest.raises(DeliveryFailed, match="No such file or directory"):
        sink.deliver([piece(b"a")])
    with journal(tmp_path):
        assert sink.deliver([piece(b"a")]) == 1


def test_slow_delivery_is_partial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: Opened) -> None:
    """A slow delivery returns the number of pieces sent so far, so that their positions are stored."""
    times = iter([0.0, 0.0, 1.0, 5.0, 9.0])
    with journal(tmp_path) as (path, _receiver):
        sink = opened(JournaldSink(path))
        monkeypatch.setattr("supervisor.helpers.exporter.socket_sinks.time.monotonic", lambda: next(times))
        assert sink.deliver([piece(b"a"), piece(b"b"), piece(b"c")]) == 2
