"""Which daemon this is."""

import os

import pytest

from supervisor.version import VERSION
from tests.api.support.credentials import basic, bearer, make_token
from tests.api.support.harness import PASSWORD, Daemon


def test_identity(daemon: Daemon) -> None:
    """TCP and the Unix socket give the same identity, with the pid of the daemon."""
    body = daemon.get("/api/daemon/identity").json
    del body["$schema"]
    again = daemon.get("/api/daemon/identity", basic(PASSWORD), unix=False).json
    assert body.items() <= again.items()
    fingerprint = body.pop("fingerprint")
    assert len(fingerprint) == 64
    assert body == {
        "app": "ringward",
        "version": VERSION,
        "pid": os.getpid(),
        "configPath": daemon.settings.config_path,
        "dataDir": daemon.settings.data_dir,
        "socketPath": daemon.settings.http_socket,
    }


def test_identity_survives_an_api_restart(own: Daemon) -> None:
    """A restart of the API server does not change the identity."""
    before = own.get("/api/daemon/identity").json
    own.signal(15)
    own.wait()
    own.start()
    assert own.get("/api/daemon/identity").json == before


def test_refused_clients(daemon: Daemon) -> None:
    """Unauthenticated clients get 401; clients behind a proxy and limited tokens get 403."""
    assert daemon.get("/api/daemon/identity", unix=False).status == 401
    limited = bearer(make_token(daemon, "limited", "admin", tasks="web"))
    assert daemon.get("/api/daemon/identity", limited, unix=False).status == 403


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Via"])
@pytest.mark.parametrize("unix", [True, False])
def test_refused_behind_a_proxy(daemon: Daemon, header: str, unix: bool) -> None:
    """A forwarding header gets 403 whatever it says, because another client may be behind the proxy."""
    headers = {header: "127.0.0.1", **basic(PASSWORD)}
    assert daemon.get("/api/daemon/identity", headers, unix=unix).status == 403
