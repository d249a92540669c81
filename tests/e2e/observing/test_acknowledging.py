"""Acknowledged failures, through the daemon."""

import json
import os
import subprocess
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

CONFIG = """
[tasks.fails]
run = "echo broken >&2; exit 3"
[tasks.well]
run = "true"
[services.crashes]
run = "exit 1"
restart_delay = "1ms"
restart_attempts = 1
"""


def record(daemon: Daemon, name: str = "fails") -> dict[str, Any]:
    body: dict[str, Any] = daemon.get(f"/api/tasks/{name}").json()
    return body


def status(daemon: Daemon) -> dict[str, Any]:
    """Return the output of ``ringward status``."""
    command = [*daemon.client_command(), "status", "--json", "--config", str(daemon.config)]
    overview: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)
    return overview


def names(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["what"] for entry in entries}


@pytest.mark.own
def test_acknowledged_until_the_next_failure(daemon: Daemon) -> None:
    """An acknowledged failure needs no attention until the task fails again, even after a restart of the daemon."""
    daemon.write(CONFIG)
    daemon.start()
    run = daemon.request("POST", "/api/tasks/fails/run?wait=60").json()
    until(lambda: record(daemon, "crashes")["state"] == "fatal", "the service to give up")
    assert {"fails", "crashes"} <= names(status(daemon)["attention"])
    assert daemon.request("POST", f"/api/runs/{run['id']}/acknowledge", {"note": "known"}).status == 204
    assert daemon.request("POST", "/api/tasks/crashes/acknowledge").status == 204
    daemon.stop()
    daemon.start()
    acknowledged = record(daemon)["acknowledged"]
    assert (acknowledged["by"], acknowledged["note"]) == (f"uid {os.getuid()}", "known")
    assert "until" not in acknowledged
    overview = status(daemon)
    assert "fails" not in names(overview["attention"])
    assert "fails" in names(overview["acknowledged"])
    until(lambda: record(daemon, "crashes")["state"] == "fatal", "the service to give up again")
    assert "acknowledged" not in record(daemon, "crashes")
    daemon.request("POST", "/api/tasks/fails/run?wait=60")
    assert "acknowledged" not in record(daemon)
    assert "fails" in names(status(daemon)["attention"])
    (entry,) = [item for item in daemon.get("/api/audit").json()["items"] if item["operation"] == "acknowledgeRun"]
    assert entry["target"] == "fails"
    assert entry["result"] == "until the next failure: known"


@pytest.mark.lent
def test_acknowledged_for_a_time(daemon: Daemon) -> None:
    """An acknowledgement with a time holds that long, even if the task fails again; it can be withdrawn."""
    daemon.write(CONFIG)
    daemon.start()
    daemon.request("POST", "/api/tasks/fails/run?wait=60")
    assert daemon.request("POST", "/api/tasks/fails/acknowledge", {"forMs": 3_600_000}).status == 204
    daemon.request("POST", "/api/tasks/fails/run?wait=60")
    assert "until" in record(daemon)["acknowledged"]
    assert daemon.request("POST", "/api/tasks/fails/unacknowledge").status == 204
    assert "acknowledged" not in record(daemon)
    assert daemon.request("POST", "/api/tasks/fails/acknowledge", {"forMs": 1000}).status == 204
    until(lambda: "acknowledged" not in record(daemon), "the end of the acknowledgement")


@pytest.mark.lent
def test_only_failures_can_be_acknowledged(daemon: Daemon) -> None:
    """Healthy units, and runs that are not the last ones, are refused with the reason."""
    daemon.write(CONFIG)
    daemon.start()
    first = daemon.request("POST", "/api/tasks/fails/run?wait=60").json()["id"]
    daemon.request("POST", "/api/tasks/fails/run?wait=60")
    daemon.request("POST", "/api/tasks/well/run?wait=60")
    answer = daemon.request("POST", "/api/tasks/well/acknowledge")
    assert (answer.status, answer.json()["detail"]) == (
        409,
        "well needs no attention, so there is nothing to acknowledge",
    )
    answer = daemon.request("POST", f"/api/runs/{first}/acknowledge")
    assert (answer.status, answer.json()["detail"]) == (
        409,
        f"{first} is not the last run of fails; acknowledge fails",
    )
    assert daemon.request("POST", "/api/tasks/none/acknowledge").status == 404
    assert daemon.request("POST", "/api/tasks/fails/acknowledge", {"forMs": 1}).status == 422


def public_page(daemon: Daemon) -> str:
    """Return the status page, as a client without a session gets it."""
    page = daemon.request("GET", "/status", headers={"Authorization": ""})
    assert page.status == 200
    return page.body.decode()


@pytest.mark.own
def test_public_incident(daemon: Daemon) -> None:
    """A public acknowledgement is a current incident until the service is healthy again, and then a past one."""
    healed = daemon.directory / "healed"
    page = 'status_page = { title = "Shop", sections = { Web = ["crashes"] } }'
    service = f"""
[services.crashes]
run = "test -e {healed} && exec sleep 3600; exit 1"
restart_delay = "1ms"
restart_attempts = 1
[tasks.hidden]
run = "exit 1"
"""
    daemon.write(service, http=f'public = ["crashes"]\n{page}')
    daemon.start()
    until(lambda: record(daemon, "crashes")["state"] == "fatal", "the service to give up")
    known = {"note": "We know <of> it", "public": True}
    daemon.request("POST", "/api/tasks/hidden/run?wait=60")
    assert daemon.request("POST", "/api/tasks/hidden/acknowledge", known).status == 409
    assert daemon.request("POST", "/api/tasks/crashes/acknowledge", {"public": True}).status == 409
    assert daemon.request("POST", "/api/tasks/crashes/acknowledge", known).status == 204
    until(lambda: "We know &lt;of&gt; it" in public_page(daemon), "the incident")
    assert "Current incidents" in public_page(daemon)
    assert "hidden" not in public_page(daemon)
    healed.touch()
    assert daemon.request("POST", "/api/tasks/crashes/restart").status == 204
    until(lambda: "Current incidents" not in public_page(daemon), "the end of the incident")
    until(lambda: 'class="badge good">running' in public_page(daemon), "the state of the service")
    text = public_page(daemon)
    assert text.index("Past incidents") < text.index("We know &lt;of&gt; it")
    assert daemon.get("/api/daemon").json()["publicUnits"] == ["crashes"]
