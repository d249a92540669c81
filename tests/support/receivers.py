"""Receivers of notifications for tests: a real web server and a real mail server, on loopback."""

import contextlib
import email
import email.policy
import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from typing import Any

Respond = Callable[[int], tuple[int, dict[str, str]]]


class Web:
    """Requests that a web server received. `respond` maps the number of a request, from 0, to status and headers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        """Method, path and JSON body of each request; None: no body."""
        self.headers: list[dict[str, str]] = []
        """Headers of each request, by lower-case name."""
        self.respond: Respond = lambda _number: (200, {})
        self.lock = threading.Lock()
        self.hold = threading.Event()
        """While it is clear, requests are not answered."""
        self.hold.set()
        self.port = 0

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]

    @property
    def messages(self) -> list[Any]:
        return [body for _, _, body in self.requests if body is not None]


class Mail:
    """The messages that a mail server received."""

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.reply = "250 OK"
        """The answer to a message."""
        self.port = 0

    @property
    def texts(self) -> list[str]:
        return [str(message.get_body(("plain",)).get_content()) for message in self.messages]  # type: ignore[union-attr]


@contextlib.contextmanager
def web_server(port: int = 0) -> Iterator[Web]:
    """Run a web server that accepts everything."""
    web = Web()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            with web.lock:  # requests of several connections have a thread each
                number = len(web.requests)
                web.headers.append({name.lower(): value for name, value in self.headers.items()})
                web.requests.append((self.command, self.path, json.loads(text) if text else None))
            web.hold.wait()
            status, headers = web.respond(number)
            with contextlib.suppress(OSError):  # the client was killed
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_POST = do_PUT = do_GET  # noqa: N815 - the base class's names

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server, _served(server):
        web.port = server.server_address[1]
        yield web
        web.hold.set()


@contextlib.contextmanager
def mail_server() -> Iterator[Mail]:
    """Run a mail server (RFC 5321, no extensions) that accepts everything."""
    mail = Mail()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 ready")
            while line := self.rfile.readline():
                word = line.split()[0].upper() if line.strip() else b""
                if word == b"DATA":
                    self.say("354 go on")
                    mail.messages.append(self.message())
                    self.say(mail.reply)
                    continue
                if word == b"QUIT":
                    self.say("221 bye")
                    return
                self.say("250 OK")

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def message(self) -> EmailMessage:
            data = bytearray()
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                data += line.removeprefix(b".")
            message = email.message_from_bytes(bytes(data), policy=email.policy.default)
            assert isinstance(message, EmailMessage)
            return message

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server, _served(server):
        mail.port = server.server_address[1]
        yield mail


@contextlib.contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
