"""Slots through the real daemon: processes share them, whatever dies meanwhile."""

import json
import re
import shlex
import signal
from pathlib import Path

import pytest

from tests.e2e.upgrade.test_reload import reload
from tests.e2e.upgrade.test_upgrade import upgrade
from tests.support.daemon import RINGWARD, Daemon
from tests.support.waiting import until

pytestmark = pytest.mark.lent

TASKS = ("a", "b", "c", "d")
DB = "[slots.db]\nsize = 2\n"


def config(directory: Path, slots: str = DB) -> str:
    """Return tasks whose runs record their start and end in a file, and end on the test's command."""
    go, marks = directory / "go", directory / "told"
    run = f"echo + >> {marks}; while [ ! -e {go} ]; do sleep 0.02; done; echo - >> {marks}"
    texts = [f"[tasks.{name}]\nrun = {json.dumps(run)}\nmax_concurrent = 9\nuses = ['db']\n" for name in TASKS]
    return slots + "".join(texts)


def started_count(directory: Path) -> int:
    marks = directory / "told"
    return marks.read_text().count("+") if marks.exists() else 0


def statuses(daemon: Daemon, runs: list[str]) -> list[str]:
    return [daemon.run(run)["status"] for run in runs]


def most_at_once(directory: Path) -> int:
    """Return the largest number of concurrent runs, as recorded by the runs."""
    most = now = 0
    for sign in (directory / "told").read_text().split():
        now += 1 if sign == "+" else -1
        most = max(most, now)
    return most


def test_dying_schedulers_and_upgrades_leak_no_slot(daemon: Daemon, tmp_path: Path) -> None:
    """The two places stay taken by the same runs; afterwards, all others run, two at a time."""
    daemon.write(config(tmp_path))
    daemon.start()
    runs = [daemon.trigger(name) for name in TASKS * 2]
    until(lambda: statuses(daemon, runs).count("running") == 2, "two runs")
    until(lambda: started_count(tmp_path) == 2, "their processes")
    expected = statuses(daemon, runs)
    daemon.kill_helper("ringward scheduler")
    assert statuses(daemon, runs) == expected
    upgrade(daemon)
    assert statuses(daemon, runs) == expected
    assert started_count(tmp_path) == 2
    (tmp_path / "go").touch()
    for number, run in enumerate(runs):
        if number % 3 == 0:
            daemon.kill_helper("ringward scheduler")
        assert daemon.ended(run)["endReason"] == "succeeded"
    assert started_count(tmp_path) == len(runs)
    assert most_at_once(tmp_path) <= 2


def test_waiting_runs_name_their_slot(daemon: Daemon, tmp_path: Path) -> None:
    """The details of a waiting run, and ps, name the slot and its holders, even after the death of the scheduler."""
    daemon.write(config(tmp_path, "[slots.db]\nsize = 1\n"))
    daemon.start()
    first, second = daemon.trigger("a"), daemon.trigger("b")
    third = daemon.trigger("c")
    until(lambda: started_count(tmp_path) == 1, "the first process")
    for _ in range(2):
        body = daemon.get(f"/api/runs/{third}/details").json()
        assert body["slots"] == {"db": 1}
        holders = [{"runId": first, "taskName": "a"}, {"runId": second, "taskName": "b"}]
        assert body["waitingFor"] == [{"kind": "slot", "name": "db", "size": 1, "heldBy": holders}]
        daemon.kill_helper("ringward scheduler")
    assert daemon.get(f"/api/runs/{first}/details").json()["waitingFor"] == []
    shown = daemon.cli("ps").stdout
    assert "queued (waits for slot db: a)" in shown
    assert "queued (waits for slot db: a, b)" in shown
    (tmp_path / "go").touch()
    daemon.ended(third)
    ended = daemon.get(f"/api/runs/{third}/details").json()
    assert "waitingFor" not in ended
    assert "slots" not in ended


def slot_metrics(daemon: Daemon) -> str | None:
    """Return the metrics if they have the slots, which the scheduler must tell within a second."""
    metrics = daemon.get("/metrics").body.decode()
    return metrics if "ringward_slot_used{" in metrics else None


@pytest.mark.own
def test_slot_use(daemon: Daemon, tmp_path: Path) -> None:
    """The list of slots and the metrics show each slot's use, even after the death of the scheduler."""
    daemon.write(config(tmp_path, "[slots.api]\nsize = 3\n[slots.db]\nsize = 1\n"), daemon="max_running = 5\n")
    daemon.start()
    first, second, third = (daemon.trigger(name) for name in "abc")
    until(lambda: started_count(tmp_path) == 1, "the first process")
    holder, *queued = (
        {"runId": run, "taskName": name, "places": 1} for run, name in zip((first, second, third), "abc", strict=True)
    )
    for _ in range(2):
        body = daemon.get("/api/slots").json()
        assert body["items"] == [
            {"name": "api", "size": 3, "used": 0, "waiting": 0, "heldBy": [], "nextRuns": []},
            {"name": "db", "size": 1, "used": 1, "waiting": 2, "heldBy": [holder], "nextRuns": queued},
        ]
        assert body["maxRunning"] == {"limit": 5, "running": 1}
        metrics = until(lambda: slot_metrics(daemon), "the scheduler to answer in time")
        for sample in ('size{slot="api"} 3', 'size{slot="db"} 1', 'used{slot="db"} 1', 'waiting{slot="db"} 2'):
            assert f"ringward_slot_{sample}\n" in metrics
        daemon.kill_helper("ringward scheduler")
    (tmp_path / "go").touch()
    daemon.ended(third)
    assert [(item["used"], item["waiting"]) for item in daemon.get("/api/slots").json()["items"]] == [(0, 0), (0, 0)]


@pytest.mark.own
def test_metrics_while_the_scheduler_hangs(daemon: Daemon, tmp_path: Path) -> None:
    """The metrics omit slots while the scheduler hangs, and have them when it works again."""
    daemon.write(config(tmp_path))
    daemon.start()
    assert 'ringward_slot_used{slot="db"} 0\n' in until(lambda: slot_metrics(daemon), "the scheduler to answer in time")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    try:
        answer = daemon.get("/metrics")
    finally:
        scheduler.resume()
    assert answer.status == 200
    assert b"ringward_scheduler_up" in answer.body
    assert b"ringward_slot_used{" not in answer.body
    until(lambda: slot_metrics(daemon), "the slots")


def test_killed_supervisor_frees_the_slots(daemon: Daemon, tmp_path: Path) -> None:
    """The runs of a killed supervisor are killed and end as crashed; waiting runs take their places, two at a time."""
    daemon.write(config(tmp_path))
    daemon.start()
    runs = [daemon.trigger(name) for name in TASKS]
    until(lambda: started_count(tmp_path) == 2, "two processes")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    until(lambda: started_count(tmp_path) == 4, "two more processes")
    until(lambda: statuses(daemon, runs) == ["ended", "ended", "running", "running"], "their start to be stored")
    last = daemon.trigger("a")
    daemon.kill_helper("ringward scheduler")
    assert statuses(daemon, [last]) == ["pending"]
    (tmp_path / "go").touch()
    assert [daemon.ended(run)["endReason"] for run in [*runs, last]] == ["crashed"] * 2 + ["succeeded"] * 3


def test_reload_changes_the_slot_size(daemon: Daemon, tmp_path: Path) -> None:
    """A larger slot lets waiting runs start; a smaller one ends none; an impossible one is refused with the line."""
    daemon.write(config(tmp_path))
    daemon.start()
    runs = [daemon.trigger(name) for name in TASKS]
    until(lambda: started_count(tmp_path) == 2, "two processes")
    reload(daemon, config(tmp_path, "[slots.db]\nsize = 3\n"))
    until(lambda: started_count(tmp_path) == 3, "one more process")
    reload(daemon, config(tmp_path, "[slots.db]\nsize = 1\n"))
    daemon.kill_helper("ringward scheduler")
    assert statuses(daemon, runs).count("running") == 3
    daemon.write(config(tmp_path, ""))
    answer = daemon.request("POST", "/api/daemon/reload")
    assert answer.status == 422
    assert re.search(r"ringward.toml:\d+: tasks.a.uses.db", str(answer.json()))
    (tmp_path / "go").touch()
    assert {daemon.ended(run)["endReason"] for run in runs} == {"succeeded"}


@pytest.mark.parametrize("how", ["permitted by may", "as the daemon's user", "outside its session"])
@pytest.mark.lent
def test_self_deadlock_is_refused(daemon: Daemon, how: str) -> None:
    """The command ``ringward run`` fails with the reason if its run would wait for the calling run.

    The daemon recognizes the run by its token, or by the process that connects to the Unix socket.
    """
    may, command = "", f"{shlex.quote(str(RINGWARD))} run inner --config {daemon.config}"
    if how == "permitted by may":
        may, command = "may = ['run:inner']", f"{shlex.quote(str(RINGWARD))} run inner"
    elif how == "outside its session":
        command = f"setsid env -i {command}"
    daemon.write(
        "[slots.db]\nsize = 1\n[tasks.inner]\nrun = 'true'\nuses = ['db']\n"
        f"[tasks.outer]\nrun = {json.dumps(command)}\nuses = ['db']\n{may}\n"
    )
    daemon.start()
    outer = daemon.trigger("outer")
    assert daemon.ended(outer)["endReason"] == "failed"
    text = " ".join(daemon.texts(outer, "stderr"))
    assert f"would wait for the slot db, which the requesting run {outer} of outer holds" in text
    assert daemon.runs("inner") == []


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.own
def test_max_running(daemon: Daemon, tmp_path: Path, limit: int) -> None:
    """max_running holds across all tasks and after the death of the scheduler."""
    daemon.write(config(tmp_path, "[slots.db]\nsize = 100\n"), daemon=f"max_running = {limit}\n")
    daemon.start()
    runs = [daemon.trigger(name) for name in TASKS]
    until(lambda: started_count(tmp_path) == limit, "as many processes as may run")
    daemon.kill_helper("ringward scheduler")
    assert statuses(daemon, runs).count("running") == limit
    (tmp_path / "go").touch()
    assert {daemon.ended(run)["endReason"] for run in runs} == {"succeeded"}
    assert most_at_once(tmp_path) <= limit
