"""Incoming webhooks, through the real daemon, with helpers that are killed meanwhile."""

import hmac
import http.client
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.client import Answer, UnixConnection
from tests.support.daemon import Daemon
from tests.support.waiting import until

pytestmark = pytest.mark.lent

SECRET = "c0ffee-c0ffee-c0ffee"
CONFIG = """
[tasks.deploy]
run = 'echo "deploying $REF"'
max_concurrent = 100
params = [{ name = "REF", kind = "env", required = true, pattern = "refs/heads/[a-z0-9-]+" }]
[tasks.index]
run = "true"
[hooks.push]
task = "deploy"
kind = "github"
secret_file = "secret"
events = ["push"]
params = { REF = "$.ref" }
when = { "$.repository.full_name" = "shop/web" }
[hooks.index]
task = "index"
kind = "generic"
secret_file = "secret"
"""


def start(daemon: Daemon) -> None:
    daemon.write(CONFIG)
    (daemon.directory / "secret").write_text(SECRET)
    daemon.start()


def deliver(daemon: Daemon, document: Any, event: str = "push", secret: str = SECRET, hook: str = "push") -> Answer:
    body = json.dumps(document).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-Hub-Signature-256": f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}",
    }
    connection = UnixConnection(daemon.socket)
    try:
        connection.request("POST", f"/api/hooks/{hook}", body, headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def push(number: int, ref: str = "refs/heads/main", repository: str = "shop/web") -> dict[str, Any]:
    return {"ref": ref, "after": f"{number:040x}", "repository": {"full_name": repository}}


def test_push_runs_the_task(daemon: Daemon) -> None:
    """A push of the branch runs the task with the ref; pings, other repositories and strangers run nothing."""
    start(daemon)
    answer = deliver(daemon, push(1))
    assert answer.status == 202, answer.body
    run = daemon.ended(answer.json()["id"])
    assert (run["endReason"], run["triggeredBy"], run["params"]) == ("succeeded", "api", {"REF": "refs/heads/main"})
    assert daemon.texts(run["id"]) == ["deploying refs/heads/main"]
    assert deliver(daemon, {"zen": "Keep it simple"}, "ping").status == 204
    assert deliver(daemon, push(2, repository="shop/api")).status == 204
    refused = deliver(daemon, push(3, ref="refs/heads/$(reboot)"))
    assert refused.status == 422
    assert [error["location"] for error in refused.json()["errors"]] == ["params.REF"]
    wrong, unknown = deliver(daemon, push(4), secret="another secret"), deliver(daemon, push(4), hook="unknown")
    assert (wrong.status, unknown.status) == (401, 401)
    assert wrong.json()["detail"] == unknown.json()["detail"]
    assert len(daemon.runs("deploy")) == 1
    until(lambda: "hook:push" in daemon.cli("audit").stdout, "the audit entry")
    assert daemon.holding(SECRET) == ["config.last"] * 2
    assert SECRET not in daemon.own_output()


def test_repeated_delivery_after_kills(daemon: Daemon) -> None:
    """The same signed request returns the same run, even after the scheduler and the API server were killed."""
    start(daemon)
    first = deliver(daemon, push(11)).json()["id"]
    daemon.kill_helper("ringward scheduler")
    assert deliver(daemon, push(11)).json()["id"] == first
    daemon.kill_helper("ringward gunicorn")
    answer = deliver(daemon, push(11))
    assert (answer.status, answer.json()["id"]) == (202, first)
    assert deliver(daemon, push(12)).json()["id"] != first
    assert len(daemon.runs("deploy")) == 2


def test_deliveries_while_helpers_are_killed(daemon: Daemon) -> None:
    """Each delivery that is repeated until it is accepted runs once, whichever helper dies meanwhile."""
    start(daemon)

    def persist(number: int) -> str:
        def accepted() -> str | None:
            try:
                answer = deliver(daemon, push(number))
            except (OSError, http.client.HTTPException):  # the API server was killed
                return None
            assert answer.status in (202, 503), answer.body
            return str(answer.json()["id"]) if answer.status == 202 else None

        return until(accepted, "the delivery to be accepted")

    with ThreadPoolExecutor(4) as threads:
        results = [threads.submit(persist, number) for number in range(100, 140)]
        for helper in ("ringward scheduler", "ringward gunicorn", "ringward scheduler"):
            daemon.kill_helper(helper)
        run_ids = [result.result() for result in results]
    assert len(set(run_ids)) == 40
    assert {run["id"] for run in daemon.runs("deploy")} == set(run_ids)
    assert all(daemon.ended(run_id)["endReason"] == "succeeded" for run_id in run_ids)


@pytest.mark.own
def test_reload_replaces_the_secret(daemon: Daemon) -> None:
    """A new secret applies after the reload; an unusable one is reported, and the old one stays."""
    start(daemon)
    secret = daemon.directory / "secret"
    secret.write_text("short")
    assert daemon.process is not None
    done = daemon.cli("reload")
    assert done.returncode != 0
    assert "secret_file" in done.stderr
    assert "at least 16 bytes" in done.stderr
    assert deliver(daemon, {}, hook="index").status == 202
    secret.write_text("another-c0ffee-c0ffee\n")
    assert daemon.cli("reload").returncode == 0
    assert deliver(daemon, {}, hook="index").status == 401
    assert deliver(daemon, {"n": 2}, hook="index", secret="another-c0ffee-c0ffee").status == 202
    assert daemon.stop(signal.SIGTERM) == 0
