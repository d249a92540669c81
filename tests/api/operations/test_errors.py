"""Every refusal is a problem document: also what never reaches the application."""

import contextlib
import errno
import json
import os
import queue
import signal
import socket
import struct
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.app import PathRoute
from api.errors import ApiError
from api.operation_table import OPERATIONS
from api.server.memory_watch import MemoryWatch
from api.streams.ring_follower import unreadable
from supervisor.ipc.messages import STARTING
from tests.api.support.client import DEADLINE_S, Answer
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run
from tests.api.support.streaming import unread
from tests.support.waiting import until

FIELDS = {"$schema", "type", "title", "status", "detail", "instance", "errors"}


def raw(daemon: Daemon, request: bytes) -> tuple[int, dict[str, str], Any]:
    """Send bytes, read to the end: status, headers in lower case, JSON."""
    with socket.create_connection(("127.0.0.1", daemon.port), 30) as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while part := sock.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body)


def test_no_memory_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that fails for lack of memory gets 503: it did nothing, and the client may repeat it."""

    def carry_out(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(PathRoute, "_carry_out", carry_out)
    application: Any = SimpleNamespace(context=SimpleNamespace(), memory=MemoryWatch(lambda: None))
    route: Any = PathRoute(application, [])
    request = SimpleNamespace(method="GET")
    for error in (lambda: route._run(OPERATIONS[0], request, None), unreadable_log):
        with pytest.raises(ApiError) as raised:
            error()
        assert (raised.value.status, "Retry-After" in raised.value.headers) == (503, True)


def unreadable_log() -> None:
    raise unreadable("R", OSError(errno.ENOMEM, "Cannot allocate memory"))


def assert_problem(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = answer.json
    assert set(body) == FIELDS
    assert body["status"] == status
    assert body["type"] == "about:blank"
    assert body["title"]
    assert body["detail"]
    assert body["instance"].startswith("urn:ulid:")
    return body


@pytest.mark.parametrize(
    "path", ["/nowhere", "/api", "/api/", "/api/runs/bulk/nothing/more", "/static/../app.py", "/api%2fruns"]
)
def test_unknown_paths(daemon: Daemon, path: str) -> None:
    """An unknown path gets 404."""
    assert_problem(daemon.get(path), 404)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/api/runs", "GET, HEAD, OPTIONS"),
        ("PUT", "/api/runs", "GET, HEAD, OPTIONS"),
        ("GET", "/api/tasks/job/run", "OPTIONS, POST"),
        ("HEAD", "/api/tasks/job/run", "OPTIONS, POST"),
        ("BREW", "/api/daemon", "GET, HEAD, OPTIONS"),
        ("DELETE", "/", "GET, HEAD, OPTIONS"),
    ],
)
def test_wrong_methods(daemon: Daemon, method: str, path: str, allow: str) -> None:
    """A wrong method gets 405 with Allow."""
    answer = daemon.ask(method, path)
    assert answer.status == 405
    assert sorted(answer.headers["Allow"].split(", ")) == sorted(allow.split(", "))
    if method != "HEAD":
        assert_problem(answer, 405)


def test_unknown_method_at_unknown_path(daemon: Daemon) -> None:
    """An unknown method at an unknown path gets 404."""
    assert_problem(daemon.ask("BREW", "/nowhere"), 404)


LOGIN = "/api/auth/login"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b"", JSON, 400),
        (b"\xff", JSON, 400),
        (b'{"password": NaN}', JSON, 400),
        (b'{"password": 1e400}', JSON, 422),
        (b"[" * 200_000 + b"]" * 200_000, JSON, 400),
        (b'{"more": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001, JSON, 400),
        (b"{}", {}, 415),
        (b"password=x", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {**JSON, "Content-Encoding": "gzip"}, 415),
        (b"{}", {**JSON, "Content-Encoding": "identity"}, 422),
        (b"[]", JSON, 422),
        (b"{}", JSON, 422),
        (b'{"password": 1}', JSON, 422),
        (b'{"password": "x", "user": "y"}', JSON, 422),
        (b'{"password": "' + b"x" * (1 << 20) + b'"}', JSON, 413),
    ],
)
def test_invalid_bodies(daemon: Daemon, body: bytes, headers: dict[str, str], status: int) -> None:
    """Invalid JSON gets 400, a body that is too large 413, another type 415, and invalid values 422."""
    assert_problem(daemon.ask("POST", LOGIN, body, headers), status)


def test_all_errors_are_listed_together(daemon: Daemon) -> None:
    """Errors in path, query and body are listed together; a body that is not JSON counts as one error."""
    target = "/api/tasks/a~b/run?wait=999&foo=1"
    for body, more in ((b'{"z": 1, "params": 5}', {"body.z", "body.params"}), (b"[]", {"body"}), (b"{", set())):
        errors = assert_problem(daemon.ask("POST", target, body, JSON), 422)["errors"]
        assert {error["location"] for error in errors} == {"path.taskName", "query.wait", "query.foo", *more}


def test_all_invalid_fields_are_named(daemon: Daemon) -> None:
    """Each invalid field is named in its own element; a wrong password is not repeated."""
    body = assert_problem(daemon.ask("POST", LOGIN, b'{"password": 123456, "user": "y", "more": 1}', JSON), 422)
    assert {error["location"] for error in body["errors"]} == {"body.password", "body.user", "body.more"}
    assert "123456" not in json.dumps(body)


def test_invalid_items_are_named(daemon: Daemon) -> None:
    """Each invalid item of a list is named by its position, with its own value."""
    body = json.dumps({"names": ["web", 1, "a b"]})
    errors = assert_problem(daemon.ask("POST", "/api/units/stop", body, JSON), 422)["errors"]
    pattern = r"Expected `str` matching regex '^[a-zA-Z0-9._:*?\[\]!^-]+$'"
    assert errors == [
        {"location": "body.names[1]", "message": "Expected `str`, got `int`", "value": 1},
        {"location": "body.names[2]", "message": pattern, "value": "a b"},
    ]


@pytest.mark.parametrize("value", ["x" * 900_000, ["web"] * 100_000, [["x"] * 100_000]])
def test_long_values_are_not_repeated(daemon: Daemon, value: object) -> None:
    """An error does not contain the whole of a long value."""
    body = json.dumps({"names": value})
    assert len(assert_problem(daemon.ask("POST", "/api/units/stop", body, JSON), 422)["errors"]) == 1
    assert len(daemon.ask("POST", "/api/units/stop", body, JSON).body) < 2000


def test_body_of_another_encoding(daemon: Daemon) -> None:
    """The message for a text that is not UTF-8 says so."""
    problem = assert_problem(daemon.ask("POST", "/api/units/stop", b'{"group": "\xff"}', JSON), 400)
    assert problem["detail"] == "The body is not UTF-8"


@pytest.mark.parametrize("body", [b'"secret phrase"', b'["secret phrase"]', b'{"pasword": "secret phrase"}'])
def test_login_errors_do_not_repeat_the_password(daemon: Daemon, body: bytes) -> None:
    """A password under a misspelt or empty name is not repeated either."""
    problem = assert_problem(daemon.ask("POST", LOGIN, body, JSON), 422)
    assert problem["errors"]
    assert "secret phrase" not in json.dumps(problem)


@pytest.mark.parametrize(
    ("path", "body", "location"),
    [
        (LOGIN, rb'{"password": "x", "pass\u0077ord": "y"}', "body.password"),
        (LOGIN, b'{"password": "a:b", "password": "a:b"}', None),
        ("/api/runs/bulk/stop", b'{"match_all": false, "ids": [], "match_all": true}', "body.match_all"),
        ("/api/runs/bulk/stop", b'{"filter": {"status": "failed", "status": "ended"}}', "body.filter.status"),
        ("/api/runs/bulk/stop", b'{"filter": {}, "filter": {"status": "ended"}, "filter": {}}', "body.filter"),
    ],
)
def test_repeated_fields(daemon: Daemon, path: str, body: bytes, location: str | None) -> None:
    """A field given twice gets 422 unless both values are equal, because a proxy may have checked the other one."""
    problem = assert_problem(daemon.ask("POST", path, body, JSON), 422 if location else 401)
    assert [error["location"] for error in problem["errors"]] == [location] * bool(location)


def test_many_errors_have_a_short_summary(daemon: Daemon) -> None:
    """Each error is an element of ``errors``, but the summary stays one sentence."""
    body = json.dumps({f"field{number}": 1 for number in range(1000)}).encode()
    problem = assert_problem(daemon.ask("POST", "/api/tasks/job/run", body, JSON), 422)
    assert len(problem["errors"]) == 1000
    assert len(problem["detail"]) < 1000


def test_schema_field_is_accepted(daemon: Daemon) -> None:
    """A body in any JSON media type may contain ``$schema``."""
    headers = {"Content-Type": "application/merge-patch+json; charset=utf-8"}
    answer = daemon.ask("POST", LOGIN, b'{"$schema": "urn:x", "password": "wrong password"}', headers)
    assert_problem(answer, 401)


@pytest.mark.parametrize("link", ["{}", "[]", "null", "5", '""', '"x"', '"//localhost/x"', '"http://a b"', '"a:%"'])
def test_schema_field_is_a_uri(daemon: Daemon, link: str) -> None:
    """``$schema`` of a body must be the documented URI."""
    problem = assert_problem(daemon.ask("POST", "/api/tasks/job/run", f'{{"$schema": {link}}}', JSON), 422)
    assert [error["location"] for error in problem["errors"]] == ["body.$schema"]


@pytest.mark.parametrize("number", ["1.5", "1e15", "-1e300"])
def test_noninteger_numbers(daemon: Daemon, number: str) -> None:
    """A fraction or a number that is too large is refused as an integer, in any notation."""
    body = f'{{"name": "x", "role": "viewer", "expiresInMs": {number}}}'
    problem = assert_problem(daemon.ask("POST", "/api/tokens", body, JSON), 422)
    assert [error["location"] for error in problem["errors"]] == ["body.expiresInMs"]


def test_chunked_bodies_are_read(daemon: Daemon) -> None:
    """A chunked body without Content-Length is read."""

    def chunks() -> Any:
        yield b'{"params": {}, '
        yield b'"paramz": {}}'

    connection = daemon.connect(unix=True)
    connection.request("POST", "/api/tasks/job/run", chunks(), JSON, encode_chunked=True)
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert response.status == 422
    assert [error["location"] for error in body["errors"]] == ["body.paramz"]


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_truncated_body(daemon: Daemon, body: bytes) -> None:
    """A body that ends before its Content-Length gets 400 and triggers nothing, even if its beginning is valid."""
    request = (
        b"POST /api/tasks/job/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Basic OmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==\r\nContent-Length: 50\r\n\r\n"
    )
    assert raw(daemon, request + body)[0] == 400
    assert not any(op == "trigger" for op, _ in daemon.scheduler.calls)


def test_reset_within_a_body(own: Daemon) -> None:
    """A connection reset within a body leaves no traceback in the log."""
    assert own.get("/healthz", unix=False).status == 200
    with socket.create_connection(("127.0.0.1", own.port)) as sock:
        sock.sendall(b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        (worker,) = own.workers()
        until(lambda: unread(own, sock) == 0, "the server to read what came")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert own.get("/healthz", unix=False).status == 200
    assert own.workers() == [worker]
    own.signal(signal.SIGTERM)
    own.wait()
    assert own.log.read_text() == ""


def test_chunked_body_too_large(daemon: Daemon) -> None:
    """413 arrives although the client has not finished its body."""
    connection = daemon.connect(unix=True)
    connection.request("POST", LOGIN, (b"x" * 65536 for _ in range(200)), JSON, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["status"] == 413
    connection.close()


def test_invalid_chunks(daemon: Daemon) -> None:
    """Invalid chunks get 400."""
    request = (
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    )
    assert raw(daemon, request)[0] == 400


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: magic\r\n\r\n", 501),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: %b\r\n" % (b"a" * 1000) * 90 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_unparsable_requests(daemon: Daemon, request_: bytes, status: int) -> None:
    """Unparsable requests are answered with a problem document, which arrives."""
    answer_status, headers, body = raw(daemon, request_)
    assert answer_status == status
    assert headers["content-type"] == "application/problem+json"
    assert body["status"] == status
    assert body["instance"].startswith("urn:ulid:")


@pytest.mark.parametrize(
    ("version", "connection", "answered"),
    [
        (b"1.1", b"Connection: TE, close", b"HTTP/1.1"),
        (b"1.1", b"Connection: keep-alive\r\nConnection: Close", b"HTTP/1.1"),
        (b"1.2", b"Connection: close", b"HTTP/1.1"),
        (b"1.0", b"X: close", b"HTTP/1.0"),
    ],
)
def test_connection_close(daemon: Daemon, version: bytes, connection: bytes, answered: bytes) -> None:
    """The connection is closed after the answer if ``close`` is among the Connection options of a supported version."""
    with socket.create_connection(("127.0.0.1", daemon.port), 30) as sock:
        sock.sendall(b"GET /healthz HTTP/%b\r\nHost: localhost\r\n%b\r\n\r\n" % (version, connection))
        data = b""
        while part := sock.recv(65536):
            data += part
    assert data.startswith(answered + b" 200 ")
    assert b"\r\nconnection: close\r\n" in data.lower()


@pytest.mark.parametrize("path", ["/api/runs", "/api/tasks/job/run", "/", "/healthz"])
def test_options(daemon: Daemon, path: str) -> None:
    """OPTIONS gets 204 with the same Allow as a 405."""
    answer = daemon.ask("OPTIONS", path, unix=False)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["Allow"] == daemon.ask("BREW", path, unix=False).headers["Allow"]
    assert "OPTIONS" in answer.headers["Allow"].split(", ")


def test_options_of_the_server(daemon: Daemon) -> None:
    """OPTIONS for the server as a whole gets 204; other methods need a path."""
    assert daemon.ask("OPTIONS", "*", unix=False).status == 204
    assert daemon.ask("GET", "*", unix=False).status == 400


def test_path_with_two_slashes(daemon: Daemon) -> None:
    """A path that begins with two slashes gets 404: a proxy that guards ``/api`` would not have recognised it."""
    assert_problem(daemon.get("//api/runs"), 404)


BODY_STAYS = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_unexpected_bodies(daemon: Daemon) -> None:
    """An unexpected body is skipped and the connection is kept; an endless one is not read, but gets its answer."""
    connection = daemon.connect()
    connection.request("POST", "/healthz", b"x" * 100_000)
    assert connection.getresponse().read()
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    with socket.create_connection(("127.0.0.1", daemon.port), 30) as sock:
        sock.sendall(BODY_STAYS + b"Content-Length: 99999999999\r\n\r\n" + b"x" * 1_000_000)
        assert sock.recv(4096).startswith(b"HTTP/1.1 405 ")
        with contextlib.suppress(ConnectionError):
            while sock.send(b"x" * 65536):
                pass


FLOODS = {
    "requests": (b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200),
    "body": (BODY_STAYS + b"Content-Length: 99999999999\r\n\r\n", b"x" * 1_000_000),
    "chunks": (CHUNKED, b"1\r\nx\r\n" * 4_000),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_busy_client_does_not_delay_others(daemon: Daemon, flood: str) -> None:
    """Requests without a pause, an endless body, or tiny chunks do not delay other clients."""
    opening, more = FLOODS[flood]
    over = threading.Event()
    turns = queue.SimpleQueue[None]()

    def send() -> None:
        while not over.is_set():
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", daemon.port)) as sock:
                threading.Thread(target=_swallow, args=(sock,), daemon=True).start()
                sock.sendall(opening)
                while not over.is_set():
                    sock.sendall(more)
                    turns.put(None)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(10):
            turns.get(timeout=DEADLINE_S)
            assert daemon.get("/healthz", unix=False).status == 200
    finally:
        over.set()
        sender.join()


def _swallow(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(1 << 20):
            pass


def test_script_name_from_outside_is_ignored(daemon: Daemon) -> None:
    """No peer can change where a request goes, not even on the Unix socket."""
    assert daemon.get("/healthz", {"SCRIPT_NAME": "/healthz"}).status == 200
    assert daemon.get("/healthz", {"Script-Name": "/healthz", "X-Forwarded-Proto": "https"}).status == 200


def test_schema_links_are_absolute_and_valid(daemon: Daemon) -> None:
    """``$schema`` of answers and errors has the scheme and Host of the request, and leads to a JSON Schema."""
    for path in ("/healthz", "/nowhere", "/api/auth/status"):
        link = daemon.get(path, unix=False).json["$schema"]
        base = f"http://127.0.0.1:{daemon.port}"
        assert link.startswith(f"{base}/schemas/")
        schema = daemon.get(link.removeprefix(base), unix=False)
        assert schema.status == 200
        assert "$defs" in schema.json or "properties" in schema.json


def test_invalid_host_on_the_unix_socket_is_not_echoed(daemon: Daemon) -> None:
    """The Unix socket accepts any Host, but does not repeat it."""
    link = daemon.get("/healthz", {"Host": '"><script>'}).json["$schema"]
    assert link == "http://localhost/schemas/Health.json"


@pytest.mark.parametrize(
    "request_", [b"GET /nowhere HTTP/1.1\r\nHost: evil.example\r\n", b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n"]
)
def test_a_foreign_host_is_not_echoed(daemon: Daemon, request_: bytes) -> None:
    """Links of a refusal, and of a probe with any Host, contain the address of the connection."""
    link = raw(daemon, request_ + b"\r\n")[2]["$schema"]
    assert link.startswith(f"http://127.0.0.1:{daemon.port}/schemas/")


@pytest.mark.parametrize(
    "target",
    [
        b"http://evil.example/api/runs",
        b"HTTP://evil.example",
        b"http://u@localhost/",
        b"ftp://evil.example/api/runs",
    ],
)
def test_absolute_form_determines_the_host(daemon: Daemon, target: bytes) -> None:
    """In a request with an absolute URL, the URL's host counts instead of the header."""
    assert raw(daemon, b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)[0] in (400, 421)
    response = raw(daemon, b"GET http://localhost:%d/nowhere HTTP/1.1\r\nHost: x\r\n\r\n" % daemon.port)
    assert response[0] == 404
    assert response[2]["$schema"].startswith(f"http://localhost:{daemon.port}/")


def test_commands_without_a_scheduler(own: Daemon) -> None:
    """Without a scheduler, commands get 503 with Retry-After, and reading works; a starting daemon says so."""
    run = own.insert(make_run())
    own.scheduler.stop()
    try:
        answer = own.ask("POST", f"/api/runs/{run.id}/stop")
        assert_problem(answer, 503)
        assert int(answer.headers["Retry-After"]) > 0
        assert own.get(f"/api/runs/{run.id}").status == 200
        assert assert_problem(own.get("/readyz"), 503)["detail"] == "Not ready: the scheduler does not answer"
        assert own.get("/healthz").status == 200
        Path(own.settings.starting).touch()
        assert assert_problem(own.ask("POST", f"/api/runs/{run.id}/stop"), 503)["detail"] == STARTING
        assert assert_problem(own.get("/readyz"), 503)["detail"] == "Not ready: the daemon is starting"
        assert own.get("/api/daemon").json["starting"] is True
        assert own.get(f"/api/runs/{run.id}").status == 200
    finally:
        own.scheduler.start()


def test_scheduler_that_ends_during_a_command(own: Daemon) -> None:
    """If the scheduler received the command, the answer does not promise that nothing was changed."""
    run = own.insert(make_run())

    def die(_arguments: dict[str, Any]) -> dict[str, Any]:
        own.scheduler.stop()
        return {}

    own.scheduler.operations["stop"] = die
    detail = assert_problem(own.ask("POST", f"/api/runs/{run.id}/stop"), 503)["detail"]
    own.scheduler.start()
    assert detail == "The scheduler did not answer; check what has changed before you repeat this"


def test_internal_errors(own: Daemon) -> None:
    """A 500 reveals nothing internal; the log contains the traceback with the same id."""
    own.scheduler.operations["login_attempt"] = lambda _args: {}  # against the agreement
    answer = own.get("/api/runs", {"Authorization": "Basic OmE="}, unix=False)
    body = assert_problem(answer, 500)
    assert "Traceback" not in answer.body.decode()
    log = own.log.read_text()
    assert body["instance"] in log
    assert "Traceback" in log


def test_database_not_ready(own: Daemon) -> None:
    """While no database can be read, requests get 503."""
    os.rename(own.settings.database, f"{own.settings.database}.away")
    try:
        answer = own.get("/api/runs")
        assert_problem(answer, 503)
        assert "Retry-After" in answer.headers
        # Credentials cannot be looked up, so the answer is not 401.
        assert_problem(own.get("/api/auth/status", {"Authorization": f"Bearer rw_{'A' * 43}"}, unix=False), 503)
    finally:
        os.rename(f"{own.settings.database}.away", own.settings.database)
    assert own.get("/api/runs").status == 200


def test_headers_of_every_answer(daemon: Daemon) -> None:
    """Every answer, including gunicorn's refusals, has nosniff, no-store, a policy for documents, and no referrer."""
    for path in ("/api/runs", "/nowhere", "/api/runs?limit=0"):
        headers = daemon.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "same-origin"
    _, headers_, _ = raw(daemon, b"nonsense\r\n\r\n")
    assert headers_["x-content-type-options"] == "nosniff"
    assert headers_["cache-control"] == "no-store"
