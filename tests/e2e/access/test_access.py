"""Tokens, the audit log, idempotency keys and TLS, through the real daemon."""

import http.client
import json
import ssl
import subprocess

import pytest

from tests.support.daemon import PASSWORD, RINGWARD, Daemon
from tests.support.paths import TLS
from tests.support.ports import free_port
from tests.support.waiting import until

JOBS = "[tasks.build-a]\nrun = 'true'\n[tasks.other]\nrun = 'true'\n"


def test_token_lifecycle(daemon: Daemon) -> None:
    """A token is created and revoked on the command line. In between, it triggers its own tasks and is audited."""
    daemon.write(JOBS)
    daemon.start()
    made = daemon.cli("token", "create", "ci", "--role", "cloud", "--task", "build-*", "--expires", "1d")
    secret = made.stdout.strip()
    assert secret.startswith("rw_"), made.stderr
    # A forwarding header, so that the peer of the socket is not trusted for its uid.
    headers = {"Authorization": f"Bearer {secret}", "Via": "test"}
    answer = daemon.request("POST", "/api/tasks/build-a/run?wait=60&naming=camel", headers=headers)
    assert (answer.status, answer.json()["triggeredBy"], answer.json()["endReason"]) == (201, "cloud", "succeeded")

    def audited() -> list[list[str]]:
        return [line.split("\t")[1:6] for line in daemon.cli("audit").stdout.splitlines()[1:]]

    assert daemon.request("POST", "/api/tasks/other/run", headers=headers).status == 404
    until(lambda: len(audited()) == 3, "the rejection, which is sent a moment later")
    assert daemon.request("GET", "/api/daemon", headers=headers).status == 403
    daemon.trigger("other")
    assert daemon.request("GET", "/api/runs", headers=headers).json()["total"] == 1
    assert "ci" in daemon.cli("token", "list").stdout
    until(lambda: "lastUsedAt" in daemon.get("/api/tokens").json()["items"][0], "the use to be noted")
    assert daemon.cli("token", "revoke", "ci").returncode == 0
    assert daemon.request("GET", "/api/runs", headers=headers).status == 401

    until(lambda: len(audited()) == 5, "the audit")
    peer = audited()[-1][0]
    assert audited() == [
        [peer, "unix", "revoke token", "ci", "ok"],
        [peer, "unix", "run task", "other", "ok"],
        ["token ci", "unix", "run task", "other", "rejected (404)"],
        ["token ci", "unix", "run task", "build-a", "ok"],
        [peer, "unix", "create token", "ci", "ok"],
    ]
    assert secret not in daemon.cli("audit", "--json").stdout
    daemon.stop()
    files = [path for path in daemon.directory.rglob("*") if path.is_file()]
    assert [path.name for path in files if secret.encode() in path.read_bytes()] == []


@pytest.mark.lent
def test_idempotency_key_survives_restarts(daemon: Daemon) -> None:
    """The same key returns the same run after a killed scheduler and after a restart of the daemon."""
    daemon.write(JOBS)
    daemon.start()
    headers = {"Idempotency-Key": "deploy 42"}

    def trigger(task: str = "build-a") -> str:
        answer = daemon.request("POST", f"/api/tasks/{task}/run", headers=headers)
        assert answer.status == 201, answer.body
        return str(answer.json()["id"])

    run_id = trigger()
    assert trigger() == run_id
    daemon.ended(run_id)
    daemon.kill_helper("ringward scheduler")
    assert trigger() == run_id
    assert daemon.request("POST", "/api/tasks/other/run", headers=headers).status == 422
    daemon.stop()
    daemon.start()
    assert trigger() == run_id
    assert len(daemon.runs("build-a")) == 1


def test_tls_serves_the_configured_certificate(daemon: Daemon) -> None:
    """The daemon serves its certificate; the command line and other clients reach it by its name with a token."""
    port = free_port()
    tables = f'tls_cert = "{TLS}/cert.pem"\ntls_key = "{TLS}/key.pem"\n'
    daemon.write(JOBS, http=tables)
    text = daemon.config.read_text()
    listen = next(line for line in text.split("\n") if line.startswith("listen"))
    daemon.config.write_text(text.replace(listen, f'listen = ["127.0.0.1:{port}"]'))
    daemon.start()
    context = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    secret = daemon.cli("token", "create", "reader", "--role", "viewer").stdout.strip()
    connection.request("GET", "/api/runs", headers={"Authorization": f"Bearer {secret}", "Host": "ringward.test"})
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["total"]) == (200, 0)
    connection.close()
    environment = {**daemon.environment(), "RINGWARD_PASSWORD": secret, "SSL_CERT_FILE": str(TLS / "cert.pem")}
    command = [str(RINGWARD), "--url", f"https://127.0.0.1:{port}", "runs", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, cwd="/")
    assert (result.returncode, result.stdout.strip()) == (0, "[]"), result.stderr
    assert PASSWORD not in daemon.output.read_text()


def test_trigger_rate(daemon: Daemon) -> None:
    """Beyond trigger_rate, a credential gets 429 with Retry-After; other credentials and repeated keys do not."""
    task = "[tasks.job]\nrun = 'true'\nmax_concurrent = 10\n"
    daemon.write(task, http="trigger_rate = 2")
    daemon.start()
    secret = daemon.cli("token", "create", "ci", "--role", "operator").stdout.strip()
    headers = {"Authorization": f"Bearer {secret}", "Via": "test"}
    keyed = {**headers, "Idempotency-Key": "once"}
    path = "/api/tasks/job/run"
    first = daemon.request("POST", path, headers=keyed)
    assert [first.status, daemon.request("POST", path, headers=headers).status] == [201, 201]
    refused = daemon.request("POST", path, headers=headers)
    assert refused.status == 429
    assert refused.json()["detail"].startswith(
        "token ci has triggered 2 runs within a minute (trigger_rate): try again"
    )
    assert 1 <= int(refused.headers["Retry-After"]) <= 61
    assert daemon.request("POST", path, headers=keyed).json()["id"] == first.json()["id"]
    assert daemon.request("POST", path).status == 201
    everything = {"match_all": True}
    assert daemon.request("POST", "/api/runs/bulk/rerun", everything).status == 200
    assert daemon.request("POST", "/api/runs/bulk/rerun", everything).status == 429
    assert len(daemon.runs("job")) == 4
    daemon.config.write_text(daemon.config.read_text().replace("trigger_rate = 2", "trigger_rate = 0"))
    assert daemon.request("POST", "/api/daemon/reload").status == 200
    assert daemon.request("POST", path, headers=headers).status == 201
