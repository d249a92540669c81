"""Every refusal is a problem document: also what never reaches the application."""

import json
import os
import socket
from typing import Any

import pytest

from tests.api.harness import Answer, Daemon, make_run

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


@pytest.mark.parametrize("path", ["/nowhere", "/api", "/api/", "/api/runs/bulk/nothing/more", "/static/../app.py"])
def test_unknown_paths(daemon: Daemon, path: str) -> None:
    """404."""
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
    """405 with Allow, whatever the method."""
    answer = daemon.ask(method, path)
    assert answer.status == 405
    assert sorted(answer.headers["Allow"].split(", ")) == sorted(allow.split(", "))
    if method != "HEAD":
        assert_problem(answer, 405)


def test_unknown_method_at_unknown_path(daemon: Daemon) -> None:
    """404: there is nothing."""
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
        (b"{}", {}, 415),
        (b"password=x", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"[]", JSON, 422),
        (b"{}", JSON, 422),
        (b'{"password": 1}', JSON, 422),
        (b'{"password": "x", "user": "y"}', JSON, 422),
        (b'{"password": "' + b"x" * (1 << 20) + b'"}', JSON, 413),
    ],
)
def test_bodies(daemon: Daemon, body: bytes, headers: dict[str, str], status: int) -> None:
    """400 no JSON, 413 too large (and the answer arrives), 415 not JSON by its type, 422 not what is asked for."""
    assert_problem(daemon.ask("POST", LOGIN, body, headers), status)


def test_body_fields_are_all_named(daemon: Daemon) -> None:
    """One element for each field; a wrong password is never echoed."""
    body = assert_problem(daemon.ask("POST", LOGIN, b'{"password": 123456, "user": "y", "more": 1}', JSON), 422)
    assert {error["location"] for error in body["errors"]} == {"body.password", "body.user", "body.more"}
    assert "123456" not in json.dumps(body)


def test_schema_field_is_accepted(daemon: Daemon) -> None:
    """A body may carry ``$schema``, in any JSON media type."""
    headers = {"Content-Type": "application/merge-patch+json; charset=utf-8"}
    answer = daemon.ask("POST", LOGIN, b'{"$schema": "x", "password": "wrong password"}', headers)
    assert_problem(answer, 401)


def test_chunked_bodies_are_read(daemon: Daemon) -> None:
    """Without Content-Length as well."""

    def chunks() -> Any:
        yield b'{"params": '
        yield b'{"a": "b"}}'

    connection = daemon.connect(unix=True)
    connection.request("POST", "/api/tasks/job/run", chunks(), JSON, encode_chunked=True)
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert response.status == 422
    assert [error["location"] for error in body["errors"]] == ["body.params.a"]


def test_chunked_body_too_large(daemon: Daemon) -> None:
    """413 arrives although the client has not finished."""
    connection = daemon.connect(unix=True)
    connection.request("POST", LOGIN, (b"x" * 65536 for _ in range(200)), JSON, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["status"] == 413
    connection.close()


def test_broken_chunks(daemon: Daemon) -> None:
    """400: chunks that are none."""
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
        (b"GET / HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_gunicorn_refuses(daemon: Daemon, request_: bytes, status: int) -> None:
    """Requests that cannot be parsed are answered with a problem document, too, and it arrives."""
    found, headers, body = raw(daemon, request_)
    assert found == status
    assert headers["content-type"] == "application/problem+json"
    assert body["status"] == status
    assert body["instance"].startswith("urn:ulid:")


def test_script_name_from_outside_is_ignored(daemon: Daemon) -> None:
    """No peer can change where a request goes, not over the Unix socket either."""
    assert daemon.get("/healthz", {"SCRIPT_NAME": "/healthz"}).status == 200
    assert daemon.get("/healthz", {"Script-Name": "/healthz", "X-Forwarded-Proto": "https"}).status == 200


def test_schema_links_are_absolute_and_lead_somewhere(daemon: Daemon) -> None:
    """``$schema`` of an answer and of an error: scheme and Host of the request, and a JSON Schema is there."""
    for path in ("/healthz", "/nowhere", "/api/auth/status"):
        link = daemon.get(path, unix=False).json["$schema"]
        base = f"http://127.0.0.1:{daemon.port}"
        assert link.startswith(f"{base}/schemas/")
        schema = daemon.get(link.removeprefix(base), unix=False)
        assert schema.status == 200
        assert "$defs" in schema.json or "properties" in schema.json


def test_a_host_that_is_none_is_not_echoed(daemon: Daemon) -> None:
    """Over the Unix socket any Host is accepted, but not repeated."""
    link = daemon.get("/healthz", {"Host": '"><script>'}).json["$schema"]
    assert link == "http://localhost/schemas/Health.json"


def test_scheduler_away(own: Daemon) -> None:
    """503 with Retry-After for a command; reading goes on."""
    run = own.insert(make_run())
    own.scheduler.stop()
    try:
        answer = own.ask("POST", f"/api/runs/{run.id}/stop")
        assert_problem(answer, 503)
        assert int(answer.headers["Retry-After"]) > 0
        assert own.get(f"/api/runs/{run.id}").status == 200
        assert own.get("/readyz").status == 503
        assert own.get("/healthz").status == 200
    finally:
        own.scheduler.start()


def test_failures_of_our_own(own: Daemon) -> None:
    """500 says nothing about the inside; the log has the traceback under the same name."""
    own.scheduler.operations["login_attempt"] = lambda _args: {}  # not what was agreed
    answer = own.get("/api/runs", {"Authorization": "Basic OmE="}, unix=False)
    body = assert_problem(answer, 500)
    assert "Traceback" not in answer.body.decode()
    log = own.log.read_text()
    assert body["instance"] in log
    assert "Traceback" in log


def test_database_not_ready(own: Daemon) -> None:
    """503 while there is no database that can be read."""
    os.rename(own.boot.database, f"{own.boot.database}.away")
    try:
        answer = own.get("/api/runs")
        assert_problem(answer, 503)
        assert "Retry-After" in answer.headers
    finally:
        os.rename(f"{own.boot.database}.away", own.boot.database)
    assert own.get("/api/runs").status == 200


def test_headers_of_every_answer(daemon: Daemon) -> None:
    """nosniff, no-store, a policy for documents, no referrer to others; refusals of gunicorn included."""
    for path in ("/api/runs", "/nowhere", "/api/runs?limit=0"):
        headers = daemon.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "same-origin"
    _, headers_, _ = raw(daemon, b"nonsense\r\n\r\n")
    assert headers_["x-content-type-options"] == "nosniff"
    assert headers_["cache-control"] == "no-store"
