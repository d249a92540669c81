"""Headers that only a proxy may send, sent by other clients."""

import pytest

from tests.api.support.credentials import basic, login
from tests.api.support.harness import PASSWORD, Daemon
from tests.support.waiting import until

FORGED = {
    "SCRIPT_NAME": "/api",
    "Script-Name": "/api",
    "X-Script-Name": "/api",
    "X-Forwarded-Prefix": "/api",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Server": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Protocol": "ssl",
    "X-Forwarded-Ssl": "on",
    "X-Forwarded-Port": "443",
    "X-Original-URL": "/api/tokens",
    "X-Rewrite-URL": "/api/tokens",
    "X-HTTP-Method-Override": "DELETE",
    "PATH_INFO": "/api/tokens",
    "REMOTE_ADDR": "10.0.0.1",
    "REMOTE_USER": "root",
    "X-Real-IP": "10.0.0.1",
    "Forwarded": "for=10.0.0.1;proto=https;host=evil.example",
}


@pytest.mark.parametrize("name", FORGED)
def test_forwarding_headers_change_nothing(daemon: Daemon, name: str) -> None:
    """Forwarding headers of untrusted peers change neither the operation, nor the links, nor the client."""
    headers = {name: FORGED[name]}
    assert daemon.get("/api/runs", headers, unix=False).status == 401
    answer = daemon.get("/api/runs", headers | basic(PASSWORD), unix=False)
    assert answer.status == 200
    assert answer.json["$schema"] == f"http://127.0.0.1:{daemon.port}/schemas/Runs.json"
    assert "Secure" not in login(daemon, headers=headers).headers["Set-Cookie"].split("; ")


def test_client_address_cannot_be_forged(own: Daemon) -> None:
    """Guesses count for the real address of the peer, which is also in the audit, whatever the headers claim."""
    statuses = [
        own.get("/api/runs", {"X-Forwarded-For": f"10.0.0.{number}", **basic("wrong")}, unix=False).status
        for number in range(12)
    ]
    assert statuses == [401] * 10 + [429] * 2
    until(lambda: len(own.scheduler.audit) == 10, "the audit")
    assert {entry.address for entry in own.scheduler.audit} == {"127.0.0.1"}


def test_peers_outside_the_trusted_networks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With proxies configured, a local peer that is not one of them is trusted no more than without."""
    daemon = Daemon(tmp_path_factory.mktemp("other"), behind_proxy=["10.0.0.0/8"])
    try:
        for header in ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"):
            daemon.scheduler.failures.clear()
            headers = {header: FORGED.get(header, "10.0.0.1"), **basic("wrong")}
            assert daemon.get("/api/runs", headers, unix=False).status == 401
            assert daemon.scheduler.failures == {"127.0.0.1": 1}
            answer = daemon.get("/api/runs", headers | basic(PASSWORD), unix=False)
            assert answer.json["$schema"].startswith(f"http://127.0.0.1:{daemon.port}/")
    finally:
        daemon.close()


def test_script_name_of_the_environment(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SCRIPT_NAME in the server's environment changes nothing."""
    monkeypatch.setenv("SCRIPT_NAME", "/elsewhere")
    daemon = Daemon(tmp_path_factory.mktemp("environment"))
    try:
        assert daemon.get("/api/runs").status == 200
    finally:
        daemon.close()
