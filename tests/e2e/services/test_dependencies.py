"""Dependencies of services, in the whole daemon."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.services.test_readiness import instance, is_ready
from tests.support.daemon import Daemon
from tests.support.waiting import until

SLEEPS = 'run = "exec sleep 1000"\n'


def is_held(daemon: Daemon, name: str, reason: str) -> bool:
    record = instance(daemon, name)
    return record["state"] == "starting" and "runId" not in record and record.get("detail") == reason


def ask(daemon: Daemon, action: str, name: str) -> None:
    assert daemon.request("POST", f"/api/tasks/{name}/{action}").status == 204


def running(daemon: Daemon, name: str) -> bool:
    return bool(daemon.task(name)["state"] == "running")


@pytest.mark.lent
def test_service_waits_for_a_ready_dependency(daemon: Daemon, tmp_path: Path) -> None:
    """A waiting service says so, waits on when the scheduler is killed, and starts when its dependency is ready."""
    flag = tmp_path / "flag"
    daemon.write(
        f'[services.app]\n{SLEEPS}depends_on = ["db"]\npriority = 1\n'
        f'[services.db]\n{SLEEPS}ready = {{ exec = "test -e \'{flag}\'", every = "50ms", timeout = "1h" }}\n'
    )
    daemon.start()
    reason = "waits for db to be ready: it is starting"
    until(lambda: is_held(daemon, "app", reason), "the dependent to say so")
    assert reason in daemon.cli("ps").stdout.replace("\n", " ") or "waits" in daemon.cli("ps").stdout
    daemon.kill_helper("ringward scheduler")
    until(lambda: is_held(daemon, "app", reason), "the dependent to say so again")
    flag.touch()
    until(lambda: running(daemon, "app"), "the dependent")
    assert len(daemon.runs("app")) == len(daemon.runs("db")) == 1
    ask(daemon, "restart", "db")
    until(lambda: len(daemon.runs("db")) == 2 and is_ready(daemon, "db"), "the dependency again")
    assert len(daemon.runs("app")) == 1


@pytest.mark.lent
def test_fatal_dependency_keeps_dependents_waiting(daemon: Daemon, tmp_path: Path) -> None:
    """Dependents of a fatal service show that they wait; starting one of them also starts its dependencies."""
    flag = tmp_path / "flag"
    daemon.write(
        f'[services.app]\n{SLEEPS}depends_on = [{{ name = "db", until = "ready" }}]\n'
        f"[services.db]\nrun = \"test -e '{flag}' && exec sleep 1000; exit 1\"\n"
        'restart_attempts = 0\nhealthy_after = "1s"\n'
    )
    daemon.start()
    until(lambda: is_held(daemon, "app", "waits for db to be ready: it is fatal"), "the dependent to say so")
    flag.touch()
    ask(daemon, "start", "app")
    until(lambda: running(daemon, "db") and running(daemon, "app"), "both")
    ask(daemon, "stop", "app")
    ask(daemon, "stop", "db")
    until(lambda: daemon.task("app")["state"] == daemon.task("db")["state"] == "stopped", "both to be stopped")
    ask(daemon, "start", "app")
    until(lambda: running(daemon, "db") and running(daemon, "app"), "both again")


@pytest.mark.lent
def test_waiting_service_stops_at_once(daemon: Daemon) -> None:
    """A service that waits for a dependency is stopped at once."""
    daemon.write(
        f'[services.app]\n{SLEEPS}depends_on = ["db"]\n'
        f'[services.db]\n{SLEEPS}ready = {{ exec = "false", timeout = "1h" }}\n'
    )
    daemon.start()
    until(lambda: "detail" in instance(daemon, "app"), "the dependent to wait")
    ask(daemon, "stop", "app")
    assert daemon.task("app")["state"] == "stopped"
    assert daemon.runs("app") == []


@pytest.mark.lent
def test_service_waits_for_a_successful_task(daemon: Daemon, tmp_path: Path) -> None:
    """A task that has not run is run once for all dependents; after a failure they wait for a success."""
    flag = tmp_path / "flag"
    daemon.write(
        f"[tasks.migrate]\nrun = \"test -e '{flag}'\"\n"
        f'[services.a]\n{SLEEPS}depends_on = ["migrate"]\n[services.b]\n{SLEEPS}depends_on = ["a", "migrate"]\n'
    )
    daemon.start()
    until(lambda: is_held(daemon, "a", "waits for migrate to succeed: it has failed"), "the failure")
    assert [run["triggeredBy"] for run in daemon.runs("migrate")] == ["service"]
    daemon.kill_helper("ringward scheduler")
    assert len(daemon.runs("migrate")) == 1
    flag.touch()
    daemon.ended(daemon.trigger("migrate"))
    until(lambda: running(daemon, "a") and running(daemon, "b"), "both")
    daemon.kill_helper("ringward scheduler")
    assert len(daemon.runs("migrate")) == 2
    assert running(daemon, "b")


@pytest.mark.lent
def test_reload_changes_dependencies(daemon: Daemon) -> None:
    """A removed dependency releases the services that wait for it; running services are not touched."""
    base = f'[services.db]\n{SLEEPS}ready = {{ exec = "false", timeout = "1h" }}\n'
    daemon.write(f'{base}[services.app]\n{SLEEPS}depends_on = ["db"]\n')
    daemon.start()
    until(lambda: "detail" in instance(daemon, "app"), "the dependent to wait")
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace('depends_on = ["db"]\n', ""))
    assert daemon.cli("reload").returncode == 0
    until(lambda: running(daemon, "app"), "the dependent")
    daemon.config.write_text(
        text.replace(
            'depends_on = ["db"]\n',
            'depends_on = ["db"]\n[services.late]\n' + SLEEPS + 'depends_on = ["zz"]\n[services.zz]\n' + SLEEPS,
        )
    )
    assert daemon.cli("reload").returncode == 0
    until(lambda: running(daemon, "late"), "a service that depends on another new one")
    assert len(daemon.runs("app")) == 1


@pytest.mark.lent
def test_rolling_restart_starts_dependencies(daemon: Daemon) -> None:
    """A rolling restart starts the dependencies of the service and does not wait for them."""
    daemon.write(
        f'[services.db]\n{SLEEPS}[services.web]\n{SLEEPS}instances = 2\nhealthy_after = "1ms"\ndepends_on = ["db"]\n'
    )
    daemon.start()
    until(lambda: running(daemon, "web"), "the service")
    ask(daemon, "stop", "db")
    assert daemon.cli("restart", "--rolling", "web").returncode == 0
    until(lambda: len(daemon.runs("web")) == 4 and running(daemon, "web"), "both instances again")
    until(lambda: running(daemon, "db"), "its dependencies")


@pytest.mark.lent
def test_start_includes_all_dependencies(daemon: Daemon) -> None:
    """Starting a service starts all its dependencies, even indirect ones; so does a reload."""
    base = (
        f'[services.a]\n{SLEEPS}depends_on = ["b"]\n[services.b]\n{SLEEPS}depends_on = ["c"]\n[services.c]\n{SLEEPS}'
        f"[services.d]\n{SLEEPS}autostart = false\n"
    )
    daemon.write(base)
    daemon.start()
    until(lambda: running(daemon, "a"), "the chain")
    ask(daemon, "stop", "a")
    ask(daemon, "stop", "c")
    daemon.request("POST", f"/api/runs/{daemon.runs('b')[0]['id']}/stop")
    until(lambda: is_held(daemon, "b", "waits for c to start: it is stopped"), "the one between to wait")
    ask(daemon, "start", "a")
    until(lambda: running(daemon, "a"), "the chain again")
    daemon.config.write_text(daemon.config.read_text() + f'[services.e]\n{SLEEPS}depends_on = ["d"]\n')
    assert daemon.cli("reload").returncode == 0
    until(lambda: running(daemon, "e"), "a service that a reload added, after its dependencies")


def test_start_and_stop_order_in_a_random_graph(daemon: Daemon, tmp_path: Path) -> None:
    """In a random graph, each service starts after its dependencies and stops before them."""
    choose = random.Random(4)
    journal = tmp_path / "journal"
    run = json.dumps(
        f"trap 'echo down $RINGWARD_TASK >>{journal}; kill $!; exit' TERM; "
        f"echo up $RINGWARD_TASK >>{journal}; echo ready; sleep 1000000 & wait"
    )
    edges: dict[int, list[int]] = {n: sorted(choose.sample(range(n), min(n, choose.randrange(4)))) for n in range(40)}
    order = list(range(40))
    choose.shuffle(order)
    text = "".join(
        f'[services.s{n}]\nrun = {run}\ngraceful_stop = "60s"\nready = {{ log = "^ready$", timeout = "1h" }}\n'
        f"depends_on = {json.dumps([f's{edge}' for edge in edges[n]])}\n"
        for n in order
    )
    daemon.write(text, daemon='shutdown_timeout = "10m"')
    daemon.start()

    def all_running() -> bool:
        items: list[dict[str, Any]] = daemon.get("/api/tasks").json()["items"]
        return len(items) == 40 and all(item["state"] == "running" for item in items)

    until(all_running, "all of them", 120)
    assert daemon.stop() == 0
    lines = journal.read_text().splitlines()
    place = {line: number for number, line in enumerate(lines)}
    assert len(place) == len(lines) == 80
    for unit_number, others in edges.items():
        for other in others:
            assert place[f"up s{other}"] < place[f"up s{unit_number}"]
            assert place[f"down s{unit_number}"] < place[f"down s{other}"]


def test_dependents_follow_a_restart(daemon: Daemon) -> None:
    """With on_restart, a service restarts after its dependency has, and stops while that is stopped."""
    daemon.write(
        '[services.db]\nrun = "exec sleep 1000"\n'
        'ready = { exec = "true", every = "50ms" }\nrestart_delay = "0s"\n'
        '[services.web]\nrun = "exec sleep 1000"\ndepends_on = [{ name = "db", on_restart = "stop" }]\n'
    )
    daemon.start()

    def web() -> str | None:
        (instance,) = daemon.task("web")["instances"]
        run_id: str | None = instance["runId"] if instance["state"] == "running" else None
        return run_id

    def stopped_by(run_id: str) -> object:
        return daemon.get(f"/api/runs/{run_id}/ending").json()["requestedBy"]

    first = until(web, "the service")
    assert daemon.cli("restart", "db").returncode == 0
    second = until(lambda: (now := web()) != first and now, "its restart")
    assert stopped_by(first) == "db was restarted"
    assert daemon.cli("stop", "db").returncode == 0
    until(lambda: daemon.task("web")["instances"][0].get("detail") == "waits for db to be ready: it is stopped", "web")
    assert stopped_by(str(second)) == "db is stopped"
    assert daemon.cli("start", "db").returncode == 0
    until(web, "its start")
