"""Bodies that are made to cost memory, time or the stack."""

import contextlib
import json
import socket

import pytest

from tests.api.support.credentials import JSON, basic
from tests.api.support.harness import PASSWORD, Daemon
from tests.support.waiting import until

DEEP = 200_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * DEEP, 400),
        (b"[" * DEEP + b"]" * DEEP, 400),
        (b'{"a":' * (DEEP // 2) + b"1" + b"}" * (DEEP // 2), 400),
        (b'{"password": ' + b"[" * DEEP + b"]" * DEEP + b"}", 400),
        (b'{"password": "' + b"x" * (1 << 20) + b'"}', 413),
        (b'{"password": ' + b"9" * 500_000 + b"}", 422),
        (b'{"password": 1e999999999}', 422),
        (b'{"password": "\\ud800"}', 422),
        (b'{"password": "\xff"}', 400),
        (b'{"password": NaN}', 400),
        (b"\xef\xbb\xbf{}", 400),
        (b'{"password": "wrong", "password": "wrong too"}', 422),
    ],
)
def test_harmful_bodies(daemon: Daemon, body: bytes, status: int) -> None:
    """Harmful bodies are refused with a small answer, and the same worker serves the next request."""
    workers = until(daemon.workers, "the workers")
    answer = daemon.ask("POST", "/api/auth/login", body, JSON)
    assert answer.status == status or (status == 400 and answer.status == 422)
    assert len(answer.body) < 10_000
    assert daemon.get("/healthz").status == 200
    assert daemon.workers() == workers


@pytest.mark.parametrize(
    ("params", "status"),
    [
        (b"[" * DEEP + b"]" * DEEP, 400),
        (b'{"a": ' * 1000 + b'"x"' + b"}" * 1000, 400),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}', 413),
        (b'{"a": "\\ud800"}', 422),
        (b'{"a": "\xff"}', 400),
        (b'{"a": {"$ref": "#"}}', 422),
        (b"{" + b",".join(b'"%d":""' % n for n in range(100_000)) + b"}", 413),
        (b"{" + b",".join(b'"%d":""' % n for n in range(50_000)) + b"}", 422),
    ],
    ids=("deep", "nested", "large", "surrogate", "bytes", "reference", "more", "many"),
)
def test_harmful_parameters(daemon: Daemon, params: bytes, status: int) -> None:
    """Harmful parameters are refused with a small answer, before the scheduler sees them."""
    answer = daemon.ask("POST", "/api/tasks/job/run", b'{"params": ' + params + b"}", JSON)
    assert answer.status == status or (status == 400 and answer.status == 422)
    assert len(answer.body) < 10_000
    assert daemon.scheduler.calls == []


def test_deep_values_in_a_large_body(daemon: Daemon) -> None:
    """A thread reads large bodies; values nested too deeply for the encoder of the answer do no harm there."""
    for depth in range(900, 1001):
        body = b'{"x": ' + b"[" * depth + b"]" * depth + b"}" + b" " * (128 << 10)
        assert daemon.ask_raw("POST", "/api/runs/bulk/stop", JSON, body).status in (400, 422)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"ids": [' + b"[]," * 2000 + b"[]]}", 400),
        (b'{"ids": [' + b"[]," * (4 << 20) + b"[]]}", 400),
        (b'{"x": "\\"", "ids": [' + b'{"a":1},' * 50_000 + b"{}]}", 400),
        (b'{"ids": "' + b'[{\\"' * 50_000 + b'"}', 422),
        (b'{"x": [' + b'"[",' * 50_000 + b'"{"]}', 422),
    ],
    ids=("some", "millions", "objects", "a string", "strings"),
)
def test_very_many_lists(daemon: Daemon, body: bytes, status: int) -> None:
    """Millions of nested lists are refused, because they would block the worker; brackets in strings are not."""
    assert daemon.ask("POST", "/api/runs/bulk/stop", body, JSON).status == status


def test_very_many_fields(daemon: Daemon) -> None:
    """Of ten thousand unknown fields, the short answer names only some."""
    body = json.dumps({f"f{number}": 1 for number in range(50_000)})
    answer = daemon.ask("POST", "/api/auth/login", body, JSON)
    assert answer.status == 422
    assert len(answer.json["detail"]) < 1000


def test_very_many_parameters(daemon: Daemon) -> None:
    """Too many parameters, headers or cookies are refused without reading all of them."""
    assert daemon.get("/api/runs?" + "&".join(f"a{n}=1" for n in range(500))).status == 422
    assert daemon.get("/api/runs?limit=" + "9" * 7000).status == 422
    assert daemon.get("/nowhere", {f"X-{n}": "1" for n in range(150)}).status == 431
    assert daemon.get("/nowhere", {"X": "1" * 10_000}).status == 431
    assert daemon.get("/" + "x" * 10_000).status == 414


def test_large_bodies_of_many_unauthenticated_clients(daemon: Daemon) -> None:
    """Together, they take no more memory than a few do; authenticated clients and small requests are still served."""
    large = b'{"password": "' + b"x" * 1_000_000 + b'"}'
    head = (
        b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    )

    def status() -> int:
        return daemon.ask("POST", "/api/auth/login", large, JSON).status

    with contextlib.ExitStack() as stack:

        def has_no_room() -> bool:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port)))
            client.sendall(head % len(large) + large[:-1])
            return status() == 503  # else the request found room that the client did not

        until(has_no_room, "the room to be taken")
        assert daemon.ask("POST", "/api/auth/login", b'{"password": "wrong"}', JSON).status == 401
        credentials = {**JSON, **basic(PASSWORD)}
        assert daemon.ask("POST", "/api/tasks/job/run", b" " * 1_000_000 + b"{}", credentials).status == 201
    until(lambda: status() == 401, "room again")
