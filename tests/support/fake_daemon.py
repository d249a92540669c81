"""A fake API for tests: canned responses over a Unix socket."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@dataclass
class Request:
    """A client's request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Answer:
    """The response to a request."""

    status: int = 200
    body: bytes = b""
    type: str = "application/json"
    broken: bool = False
    """Whether to close the connection before the announced end of the body."""


Handler = Callable[[Request], Answer]


@dataclass
class FakeDaemon:
    """A server that answers by method and path; unknown paths get 404."""

    socket: Path
    handlers: dict[tuple[str, str], Handler] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def on(self, method: str, path: str, *answers: Any) -> None:
        """Give `answers` in turn and repeat the last one: an Answer, a callable, or an object to send as JSON."""
        remaining = list(answers)

        def handle(request: Request) -> Answer:
            answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if callable(answer):
                answer = answer(request)
            return answer if isinstance(answer, Answer) else as_json(answer)

        self.handlers[method, path] = handle

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        handler = self.handlers.get((request.method, request.path))
        return handler(request) if handler else problem(404, f"nothing is at {request.path}")

    def requests_to(self, path: str) -> list[Request]:
        """Return the requests for `path`."""
        return [request for request in self.requests if request.path == path]


def as_json(data: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(data).encode())


def problem(status: int, detail: str, errors: list[dict[str, str]] | None = None) -> Answer:
    return as_json({"title": "Problem", "status": status, "detail": detail, "errors": errors or []}, status)


def event(name: str, data: Any, id_: int | None = None) -> bytes:
    beginning = f"event: {name}\n" + (f"id: {id_}\n" if id_ is not None else "")
    return f"{beginning}data: {json.dumps(data)}\n\n".encode()


def line(n: int, text: str, stream: str = "stdout", **more: Any) -> dict[str, Any]:
    return {"n": n, "ts": 1_700_000_000_000 + n, "stream": stream, "text": text, **more}


def run(**more: Any) -> dict[str, Any]:
    """Return a run as the API sends it, with other values; None removes a field."""
    base = {
        "id": RUN,
        "taskName": "job",
        "status": "ended",
        "endReason": "succeeded",
        "exitCode": 0,
        "instanceIndex": 0,
        "retryAttempt": 0,
        "triggeredBy": "cron",
        "createdAt": "2026-11-21T03:00:00.000Z",
        "startedAt": "2026-11-21T03:00:00.000Z",
        "endedAt": "2026-11-21T03:00:01.500Z",
    }
    return {name: value for name, value in {**base, **more}.items() if value is not None}


def events(*parts: bytes, broken: bool = False) -> Answer:
    return Answer(200, b"retry: 1000\n" + b"".join(parts), "text/event-stream", broken)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, parts.path, dict(parse_qsl(parts.query)), dict(self.headers), body)
        answer = self.server.daemon.answer(request)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(answer.body) + 100 * answer.broken))
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.wfile.write(answer.body)
        except BrokenPipeError:  # the client has disconnected
            self.close_connection = True

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Suppress the log."""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    daemon: FakeDaemon


@contextmanager
def serving(path: Path) -> Iterator[FakeDaemon]:
    """Serve a fake daemon on the socket `path`."""
    daemon = FakeDaemon(path)
    with _Server(str(path), _Handler) as server:
        server.daemon = daemon
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield daemon
        finally:
            server.shutdown()
            thread.join()
