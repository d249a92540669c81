"""Pages whose own name leads to this machine: the Host tells them from ours."""

from pathlib import Path

import pytest

from tests.api.support.credentials import basic
from tests.api.support.harness import PASSWORD, Daemon


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.2", "[::1]", "localhost.evil", "."]
)
def test_foreign_hosts(daemon: Daemon, host: str) -> None:
    """A Host that is not ours gets 421, with or without authentication; probes and the Unix socket are exempt."""
    assert daemon.get("/", {"Host": host}, unix=False).status == 421
    assert daemon.get("/api/runs", {"Host": host, **basic(PASSWORD)}, unix=False).status == 421
    assert daemon.get("/healthz", {"Host": host}, unix=False).status == 200
    assert daemon.get("/readyz", {"Host": host}, unix=False).status == 200
    assert daemon.get("/api/runs", {"Host": host, **basic(PASSWORD)}).status == 200


@pytest.mark.parametrize(
    "host", ["[localhost].evil.example", "[127.0.0.1]x", "localhost:x", "localhost:1:2", "u@localhost", "localhost/"]
)
def test_invalid_hosts(daemon: Daemon, host: str) -> None:
    """A text that only resembles one of our hosts gets 400."""
    assert daemon.get("/api/runs", {"Host": host, **basic(PASSWORD)}, unix=False).status == 400
    assert daemon.get("/healthz", {"Host": host}, unix=False).status == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:9999"])
def test_own_hosts(daemon: Daemon, host: str) -> None:
    """The bound address and localhost are accepted with any port, because a tunnel may end at another one."""
    assert daemon.get("/api/runs", {"Host": host, **basic(PASSWORD)}, unix=False).status == 200


@pytest.mark.parametrize(("host", "status"), [("localhost.", 200), ("LOCALHOST.:80", 200), ("localhost..", 421)])
def test_absolute_names(daemon: Daemon, host: str, status: int) -> None:
    """A Host may end with the dot of an absolute name, which browsers and curl send as the user wrote it."""
    answer = daemon.get("/api/runs", {"Host": host, **basic(PASSWORD)}, unix=False)
    assert answer.status == status
    if status == 200:
        assert answer.json["$schema"].startswith(f"http://{host}/")


def test_wildcard_address_is_not_a_host(tmp_path: Path) -> None:
    """A server on 0.0.0.0 is reached under the connection's own address, never under 0.0.0.0 itself."""
    daemon = Daemon(tmp_path, listen=[("0.0.0.0", 1), ("::", 1)], behind_proxy=["192.0.2.0/24"])
    try:
        for host, status in (("0.0.0.0", 421), ("[::]", 421), ("127.0.0.1", 200), ("localhost", 200)):
            assert daemon.get("/openapi.json", {"Host": host}, unix=False).status == status
    finally:
        daemon.close()
