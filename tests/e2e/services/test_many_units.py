"""Commands to many units at once, in the whole daemon."""

from typing import Any

import pytest

from tests.support.client import Answer
from tests.support.daemon import Daemon
from tests.support.waiting import until

SLEEPS = 'run = "exec sleep 1000"\n'
SHOP = (
    f'[services.web]\n{SLEEPS}group = "shop"\ntags = ["eu"]\ndepends_on = ["db"]\n'
    f'[services.worker]\n{SLEEPS}group = "shop"\n'
    f"[services.db]\n{SLEEPS}"
    '[tasks.backup]\nrun = "exec sleep 1000"\ncron = "0 0 1 1 *"\ngroup = "shop"\n'
)


def ask(daemon: Daemon, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
    return daemon.request("POST", f"/api/units/{path}", body, headers)


def act(daemon: Daemon, verb: str, **selector: Any) -> dict[str, str]:
    """Ask until the scheduler answers, and return the result of each unit; a refusal until then changes nothing."""

    def accepted() -> Answer | None:
        answer = ask(daemon, verb, selector)
        return None if answer.status == 503 else answer

    answer = until(accepted, f"{verb} to be accepted")
    assert answer.status == 200, answer.body
    return {unit["name"]: unit["result"] for unit in answer.json()["units"]}


def are(daemon: Daemon, state: str, *names: str) -> None:
    until(lambda: {daemon.task(name)["state"] for name in names} == {state}, f"{names} to be {state}")


@pytest.mark.lent
def test_stop_and_start_of_a_group(daemon: Daemon) -> None:
    """One request stops a group and another starts it; other groups continue, and the audit has each request."""
    daemon.write(SHOP)
    daemon.start()
    are(daemon, "running", "web", "worker", "db")
    run_id = daemon.trigger("backup")
    until(lambda: daemon.run(run_id)["status"] == "running", "the task to run")
    assert act(daemon, "stop", group="shop") == {"backup": "stopped", "web": "stopped", "worker": "stopped"}
    are(daemon, "stopped", "web", "worker")
    assert daemon.ended(run_id)["endReason"] == "stopped"
    are(daemon, "running", "db")
    assert act(daemon, "start", names=["w*"], tag="eu") == {"web": "started"}
    are(daemon, "running", "web")
    assert act(daemon, "pause", all=True) == {"backup": "paused"}
    assert daemon.task("backup")["paused"]
    until(
        lambda: (
            {"stopUnits", "startUnits", "pauseUnits"}
            <= {entry["operation"] for entry in daemon.get("/api/audit").json()["items"]}
        ),
        "the audit",
    )


@pytest.mark.lent
def test_wrong_name_changes_nothing(daemon: Daemon) -> None:
    """A misspelt name gets a suggestion, a task that cannot be started is named, and nothing is done."""
    daemon.write(SHOP)
    daemon.start()
    are(daemon, "running", "web", "worker", "db")
    answer = ask(daemon, "stop", {"names": ["web", "wroker"]})
    assert (answer.status, answer.json()["detail"]) == (
        404,
        'no task or service named "wroker" (did you mean "worker"?)',
    )
    answer = ask(daemon, "restart", {"names": ["web", "backup"]})
    assert (answer.status, answer.json()["detail"]) == (409, "backup is a task; use ringward run backup")
    assert ask(daemon, "stop", {}).status == 422
    are(daemon, "running", "web", "worker", "db")
    assert len(daemon.runs("web")) == 1


@pytest.mark.lent
def test_command_survives_a_killed_scheduler(daemon: Daemon) -> None:
    """A restart that a killed scheduler did not answer happens once; a stop that it began is finished."""
    stubborn = "run = \"trap 'sleep 0.3; exit' TERM; while :; do sleep 0.05; done\"\n"
    daemon.write(f'[services.app]\n{stubborn}depends_on = ["db"]\n[services.db]\n{stubborn}')
    daemon.start()
    are(daemon, "running", "app", "db")
    daemon.helper("ringward scheduler").kill()
    assert act(daemon, "restart", all=True) == {"app": "restarted", "db": "restarted"}
    until(lambda: len(daemon.runs("app")) == len(daemon.runs("db")) == 2, "the next runs")
    are(daemon, "running", "app", "db")
    assert act(daemon, "stop", all=True) == {"app": "stopped", "db": "stopped"}
    daemon.kill_helper("ringward scheduler")
    are(daemon, "stopped", "app", "db")
    ends = [daemon.runs(name)[-1] for name in ("app", "db")]
    assert [run["endReason"] for run in ends] == ["stopped", "stopped"]
    assert ends[0]["endedAt"] <= ends[1]["endedAt"]
    assert [len(daemon.runs(name)) for name in ("app", "db")] == [2, 2]


@pytest.mark.lent
def test_token_reaches_only_its_units(daemon: Daemon) -> None:
    """For a token, all means all units that it may reach, and other units are unknown."""
    daemon.write(SHOP)
    daemon.start()
    are(daemon, "running", "web", "worker", "db")
    made = daemon.request("POST", "/api/tokens", {"name": "w", "role": "operator", "tasks": "w*"}).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert ask(daemon, "stop", {"names": ["db"]}, headers).status == 404
    units = ask(daemon, "stop", {"all": True}, headers).json()["units"]
    assert [unit["name"] for unit in units] == ["web", "worker"]
    are(daemon, "running", "db")


@pytest.mark.lent
def test_run_reaches_only_permitted_units(daemon: Daemon) -> None:
    """A run restarts the units that its ``may`` lists, even by a glob; another name is refused with a remedy."""
    script = """
for body in '{"names": ["w*"]}' '{"all": true}' '{"names": ["db"]}'; do
  curl -s -H "Authorization: Bearer $RINGWARD_TOKEN" -H 'Content-Type: application/json' \
    -d "$body" "$RINGWARD_URL/api/units/restart"
  echo
done
"""
    daemon.write(SHOP + f"[tasks.t]\nrun = '''{script}'''\nmay = [\"restart:w*\"]\n")
    daemon.start()
    are(daemon, "running", "web", "worker", "db")
    first, second, third = daemon.texts(daemon.ended(daemon.trigger("t"))["id"])
    for text in (first, second):
        assert '"web"' in text
        assert '"worker"' in text
        assert '"db"' not in text
    assert 'add \\"restart:db\\" to its may' in third
    assert len(daemon.runs("db")) == 1
