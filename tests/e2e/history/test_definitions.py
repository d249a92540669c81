"""Runs keep the definition with which they started."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.upgrade.test_reload import reload
from tests.support.daemon import Daemon
from tests.support.waiting import until

BEFORE = """
[tasks.backup]
run = "exit $CODE"
timeout = "5m"
env = { CODE = "0", TOKEN = "first-secret" }
env_public = ["CODE"]
secrets = { KEY = "a-secret-key" }
"""
AFTER = BEFORE.replace('CODE = "0"', 'CODE = "3"').replace('timeout = "5m"', "queue_priority = 7")
GATED = '[tasks.gate]\nrun = "until [ -e {gate} ]; do sleep 0.05; done; echo {word}"\n'


def hash_of(daemon: Daemon, run_id: str) -> str | None:
    """Return the hash in the details of a run."""
    answer: str | None = daemon.get(f"/api/runs/{run_id}/details").json().get("definitionHash")
    return answer


def definition_of(daemon: Daemon, run_id: str) -> dict[str, Any]:
    """Return the definition of a run, after a check of its hash."""
    answer = daemon.get(f"/api/runs/{run_id}/definition")
    assert answer.status == 200, answer.body
    assert b"secret-key" not in answer.body
    assert b"first-secret" not in answer.body
    body = answer.json()
    assert body["hash"] == hash_of(daemon, run_id)
    assert body["kind"] == "task"
    definition: dict[str, Any] = body["definition"]
    return definition


def ended(daemon: Daemon, task: str) -> str:
    """Run a task to its end; return the run's id."""
    run_id = daemon.trigger(task)
    daemon.ended(run_id)
    return run_id


def test_definition_before_and_after_a_reload(daemon: Daemon) -> None:
    """Each run shows the definition of its time after a reload, killed schedulers and a restart; secrets never."""
    daemon.write(BEFORE)
    daemon.start()
    good = ended(daemon, "backup")
    reload(daemon, AFTER)
    bad = ended(daemon, "backup")
    assert daemon.run(bad)["endReason"] == "failed"
    daemon.kill_helper("ringward scheduler")
    again = ended(daemon, "backup")
    daemon.stop()
    daemon.start()
    old, new = definition_of(daemon, good), definition_of(daemon, bad)
    shared = {"timezone": old["timezone"], "run": "exit $CODE", "envPublic": ["CODE"], "secrets": {"KEY": "***"}}
    assert old == {**shared, "timeoutMs": 300_000, "env": {"CODE": "0", "TOKEN": "***"}}
    assert new == {**shared, "queuePriority": 7, "env": {"CODE": "3", "TOKEN": "***"}}
    assert definition_of(daemon, again) == new
    assert hash_of(daemon, again) == hash_of(daemon, bad) != hash_of(daemon, good)


@pytest.mark.lent
def test_secret_value_and_hash(daemon: Daemon) -> None:
    """Another value of a secret or of a masked variable leaves the hash, which therefore reveals nothing about it."""
    daemon.write(BEFORE)
    daemon.start()
    first = ended(daemon, "backup")
    reload(daemon, BEFORE.replace("first-secret", "second-secret").replace("a-secret-key", "another-secret-key"))
    assert hash_of(daemon, ended(daemon, "backup")) == hash_of(daemon, first)


@pytest.mark.lent
def test_waiting_run_starts_under_the_new_definition(daemon: Daemon, tmp_path: Path) -> None:
    """A reload changes the definition of a waiting run, but not that of a running one, even if the scheduler dies."""
    gate = tmp_path / "gate"
    daemon.write(GATED.format(gate=gate, word="one"))
    daemon.start()
    running = daemon.trigger("gate")
    until(lambda: daemon.run(running)["status"] == "running", "the first run")
    waiting = daemon.trigger("gate")
    reload(daemon, GATED.format(gate=gate, word="two"))
    daemon.kill_helper("ringward scheduler")
    gate.touch()
    for run_id, word in ((running, "one"), (waiting, "two")):
        daemon.ended(run_id)
        assert daemon.texts(run_id) == [word]
        assert f"echo {word}" in definition_of(daemon, run_id)["run"]


@pytest.mark.lent
def test_definition_of_a_removed_task(daemon: Daemon) -> None:
    """The definition of a task that left the configuration is shown as long as its runs."""
    daemon.write(BEFORE + '[tasks.other]\nrun = "true"\n')
    daemon.start()
    run_id = ended(daemon, "backup")
    reload(daemon, '[tasks.other]\nrun = "true"\n')
    assert definition_of(daemon, run_id)["run"] == "exit $CODE"
    assert daemon.request("DELETE", f"/api/runs/{run_id}").status == 204
    assert daemon.get(f"/api/runs/{run_id}/definition").status == 404
