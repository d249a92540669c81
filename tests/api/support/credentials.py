"""What clients prove with who they are."""

import base64
import json
from typing import Any

from tests.api.support.client import Answer
from tests.api.support.harness import PASSWORD, Daemon

JSON = {"Content-Type": "application/json"}


def basic(password: str, user: str = "") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def login(daemon: Daemon, password: str = PASSWORD, headers: dict[str, str] | None = None) -> Answer:
    body = b'{"password": "%b"}' % password.encode()
    return daemon.ask(
        "POST", "/api/auth/login", body, {"Content-Type": "application/json", **(headers or {})}, unix=False
    )


def cookie(answer: Answer) -> dict[str, str]:
    return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def make_token(daemon: Daemon, name: str, role: str = "viewer", **fields: Any) -> str:
    """A token's secret; a token of that name that an earlier test made goes."""
    daemon.ask("DELETE", f"/api/tokens/{name}")
    answer = daemon.ask("POST", "/api/tokens", json.dumps({"name": name, "role": role, **fields}), JSON)
    assert answer.status == 201, answer.body
    secret: str = answer.json["token"]
    return secret
