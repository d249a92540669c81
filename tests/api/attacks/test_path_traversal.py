"""Paths that lead out of where they belong."""

import os
import socket
from pathlib import Path

import pytest

from tests.api.support.harness import Daemon
from tests.support.waiting import until

PATHS = (
    "/static/../app.py",
    "/static/%2e%2e/app.py",
    "/static/..%2fapp.py",
    "/static/%2e%2e%2f%2e%2e%2fsetup.cfg",
    "/static//etc/passwd",
    "/static/..\\app.py",
    "/static/js/main.js/../../app.py",
    "/static/js/main.js%00.css",
    "/../../../etc/passwd",
    "/schemas/../openapi.json",
    "/api/tasks/../runs",
    "/api/tasks/%2e%2e/runs",
    "/api/tasks/..%2f..%2fetc/runs",
    "/api/tasks/...../../runs",
    "/api/runs/../../../../etc/passwd/log/raw",
    "/api/runs/%2e%2e%2f%2e%2e%2fx/log/raw",
    "/api/tokens/..%2fx",
)


def status(daemon: Daemon, target: str) -> int:
    """The status of a request by an administrator, with the target sent unchanged."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(daemon.settings.http_socket)
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("latin-1"))
        data = b""
        while part := sock.recv(65536):
            data += part
    assert b"root:" not in data
    return int(data.split(b" ")[1])


@pytest.mark.parametrize("target", PATHS)
def test_paths_lead_nowhere_else(daemon: Daemon, target: str) -> None:
    """A path leads neither to a file nor to another operation: it is compared as it is, and names have patterns."""
    assert status(daemon, target) in (400, 404, 405, 422)


def test_task_named_like_a_directory(daemon: Daemon) -> None:
    """No name of a task opens a file outside of the data directory; a log's folder is never named by dots alone."""
    assert daemon.get("/healthz").status == 200
    until(lambda: not os.listdir(daemon.settings.audit_dir), "what tests before did to be stored")
    before = sorted(Path(daemon.settings.data_dir).parent.rglob("*"))
    for name in (".", "..", "...", ".hidden"):
        assert status(daemon, f"/api/tasks/{name}/log/search?q=x") == 404
    assert sorted(Path(daemon.settings.data_dir).parent.rglob("*")) == before
