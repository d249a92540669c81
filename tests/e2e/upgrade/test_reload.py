"""A configuration that is edited while the daemon runs."""

import json
import os
import pty
import random
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from supervisor.ipc.log_line import stamp
from tests.support.client import Answer
from tests.support.daemon import Daemon, program
from tests.support.waiting import until

SLEEPER = program("obeys_term")


def edit(daemon: Daemon, text: str, *, http: str = "", tables: str = "") -> None:
    """Write another configuration with the same address and socket."""
    lines = daemon.config.read_text().split("\n")
    listen = next(line for line in lines if line.startswith("listen"))
    daemon.config.write_text(
        f'[daemon]\ndata_dir = "data"\n{tables}\n[http]\n{listen}\nsocket = "{daemon.socket}"\n{http}\n{text}'
    )


def ask(daemon: Daemon, *, dry_run: bool = False) -> Answer:
    return daemon.request("POST", f"/api/daemon/reload{'?dry_run=true' if dry_run else ''}")


def reload(daemon: Daemon, text: str, **more: str) -> dict[str, Any]:
    """Edit and reload, which succeeds; return the report."""
    edit(daemon, text, **more)
    answer = ask(daemon)
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json()
    body.pop("$schema")
    return body


def running(daemon: Daemon, name: str) -> dict[int, str]:
    """Return the run ids of a service by instance."""
    return {run["instanceIndex"]: run["id"] for run in daemon.runs(name) if run["status"] == "running"}


def notices(daemon: Daemon) -> list[dict[str, Any]]:
    """Return the notifications."""
    items: list[dict[str, Any]] = daemon.get("/api/notifications").json()["items"]
    return items


def log(daemon: Daemon) -> str:
    return daemon.output.read_text()


@pytest.mark.lent
def test_reload_touches_only_changed_units(daemon: Daemon) -> None:
    """Unchanged services keep their processes, changed ones get new ones; instances and tasks are added or removed."""
    daemon.write(
        f"[services.same]\nrun = {SLEEPER}\n"
        f'[services.changed]\nrun = {SLEEPER}\nhealthy_after = "10ms"\ninstances = 2\n'
        f"[services.fewer]\nrun = {SLEEPER}\ninstances = 3\n"
        f"[services.gone]\nrun = {SLEEPER}\n"
        '[tasks.t]\nrun = "echo before"\n[tasks.left]\nrun = "true"\n'
    )
    daemon.start()
    names = {"same": 1, "changed": 2, "fewer": 3, "gone": 1}
    until(lambda: all(len(running(daemon, name)) == count for name, count in names.items()), "the services")
    before = {name: running(daemon, name) for name in names}
    edit(
        daemon,
        f"[services.same]\nrun = {SLEEPER}\n"
        f'[services.changed]\nrun = {SLEEPER}\nhealthy_after = "10ms"\ninstances = 2\nenv = {{ A = "1" }}\n'
        f"[services.fewer]\nrun = {SLEEPER}\n"
        f"[services.new]\nrun = {SLEEPER}\n"
        '[tasks.t]\nrun = "echo after"\n',
    )
    planned, done = ask(daemon, dry_run=True).json(), ask(daemon).json()
    assert planned == done
    assert {name: done[name] for name in ("added", "removed")} == {"added": ["new"], "removed": ["gone", "left"]}
    assert done["changed"] == [
        {"name": "changed", "reasons": ["env: 2 instances are restarted, one after the other"]},
        {"name": "fewer", "reasons": ["instances: 2 are stopped"]},
        {"name": "t", "reasons": ["run: applies to the next run"]},
    ]
    until(lambda: len(running(daemon, "new")) == 1, "the new service")
    until(
        lambda: len(now := running(daemon, "changed")) == 2 and not set(now.values()) & set(before["changed"].values()),
        "both instances to be other ones",
    )
    until(lambda: running(daemon, "fewer") == {0: before["fewer"][0]}, "the surplus instances to end")
    until(lambda: not running(daemon, "gone"), "the removed service to end")
    assert running(daemon, "same") == before["same"]
    assert daemon.texts(daemon.ended(daemon.trigger("t"))["id"]) == ["after"]
    assert {task["name"] for task in daemon.get("/api/tasks").json()["items"]} == {
        "same",
        "changed",
        "fewer",
        "new",
        "t",
    }
    assert daemon.runs("gone")[0]["endReason"] == "stopped"
    assert daemon.request("POST", "/api/tasks/left/run").status == 404


@pytest.mark.lent
def test_running_task_keeps_its_definition(daemon: Daemon, tmp_path: Path) -> None:
    """A run keeps the definition at its start, even if its task is removed and added again."""
    gate = tmp_path / "gate"
    text = f"[tasks.t]\nrun = \"while ! test -e '{gate}'; do sleep 0.01; done; exit 7\"\nexit_codes = [7]\n"
    daemon.write(text)
    daemon.start()
    first, second = daemon.trigger("t"), daemon.trigger("t")
    until(lambda: daemon.run(first)["status"] == "running", "it to run")
    result = reload(daemon, "")
    assert result["warnings"] == ["t is removed: 1 run continues to its end, 1 waiting run is stopped"]
    assert daemon.ended(second)["endReason"] == "stopped"
    reload(daemon, '[tasks.t]\nrun = "echo new"\n')
    third = daemon.trigger("t")
    assert (daemon.run(first)["status"], daemon.run(third)["status"]) == ("running", "pending")
    gate.touch()
    assert daemon.ended(first)["endReason"] == "succeeded"
    assert daemon.ended(third)["exitCode"] == 0
    assert daemon.texts(third) == ["new"]


@pytest.mark.lent
def test_invalid_file_changes_nothing(daemon: Daemon) -> None:
    """An invalid file changes nothing, by API or command.

    The reload reports the same errors as validate, and the file stays stale.
    """
    daemon.write('[tasks.t]\nrun = "echo hello"\n')
    daemon.start()
    text = '[tasks.t]\nrun = 5\n[tasks.u]\nrum = "true"\n'
    edit(daemon, text)
    answer = ask(daemon)
    assert (answer.status, answer.headers.get_content_type()) == (422, "application/problem+json")
    errors = answer.json()["errors"]
    assert [error["value"]["key"] for error in errors] == ["tasks.t.run", "tasks.u", "tasks.u.rum"]
    line = daemon.config.read_text().split("\n").index("run = 5") + 1
    assert errors[0]["location"] == f"{daemon.config}:{line}: tasks.t.run"
    assert (errors[0]["value"]["file"], errors[0]["value"]["line"]) == (str(daemon.config), line)
    reloaded, validated = daemon.cli("reload"), daemon.cli("validate")
    assert reloaded.returncode == validated.returncode == 78
    assert reloaded.stderr == validated.stderr
    assert daemon.texts(daemon.ended(daemon.trigger("t"))["id"]) == ["hello"]
    until(lambda: daemon.get("/api/daemon").json()["configStale"], "the staleness to be seen")
    reload(daemon, '[tasks.t]\nrun = "echo hello"\n')
    assert daemon.get("/api/daemon").json()["configStale"] is False


@pytest.mark.lent
def test_staleness_is_announced_once(daemon: Daemon) -> None:
    """Editing a file causes one event and one notification; the reload causes an event and ends the staleness."""
    daemon.write('[tasks.t]\nrun = "true"\n')
    daemon.start()
    stream = daemon.stream("/api/events/stream?types=config.stale,config.reloaded")
    before, notices_before = daemon.get("/api/daemon").json(), notices(daemon)
    assert before["configStale"] is False
    edit(daemon, '[tasks.t]\nrun = "false"\n[tasks.u]\nrun = "true"\n')
    events = iter(stream)
    stale = next(events)
    assert (stale.kind, stale.data["path"]) == ("config.stale", str(daemon.config))
    until(lambda: daemon.get("/api/daemon").json()["configStale"], "the API to say so")
    edit(daemon, '[tasks.u]\nrun = "true"\n')
    assert ask(daemon).status == 200
    reloaded = next(events)
    assert reloaded.kind == "config.reloaded"
    assert {name: reloaded.data[name] for name in ("added", "changed", "removed")} == {
        "added": ["u"],
        "changed": [],
        "removed": ["t"],
    }
    stream.close()
    after = daemon.get("/api/daemon").json()
    assert (after["configStale"], after["tasks"]) == (False, 1)
    assert after["configLoadedAt"] > before["configLoadedAt"]
    assert [notice["kind"] for notice in notices(daemon) if notice not in notices_before] == ["config.stale"]


@pytest.mark.lent
def test_sighup_reloads(daemon: Daemon) -> None:
    """SIGHUP reloads; the daemon's log shows the result."""
    daemon.write('[tasks.t]\nrun = "true"\n')
    daemon.start()
    edit(daemon, '[tasks.u]\nrun = "true"\n')
    os.kill(daemon.pid, signal.SIGHUP)
    until(lambda: "reloaded (SIGHUP): added u; removed t" in log(daemon), "the reload")
    edit(daemon, "[tasks.u]\n")
    os.kill(daemon.pid, signal.SIGHUP)
    until(lambda: "tasks.u: has no command" in log(daemon), "the refusal")
    assert daemon.get("/api/tasks/u").status == 200


def test_reload_notifies_the_service_manager(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload sends RELOADING with the monotonic time, then READY, even if the file is invalid."""
    path = f"{daemon.socket}.notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        daemon.write("")
        daemon.start()
        assert sock.recv(4096).startswith(b"READY=1")
        for text in ('[tasks.t]\nrun = "true"\n', "[tasks.t\n"):
            edit(daemon, text)
            os.kill(daemon.pid, signal.SIGHUP)
            first, second = sock.recv(4096).decode(), sock.recv(4096).decode()
            assert first.startswith("RELOADING=1\nMONOTONIC_USEC=")
            assert int(first.rpartition("=")[2]) > 0
            assert second.startswith("READY=1")
    os.unlink(path)


def test_terminal_hangup_ends_the_daemon(daemon: Daemon) -> None:
    """A terminal that hangs up ends the daemon; SIGHUP from a terminal that remains reloads it."""
    daemon.write("")
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run with SIGHUP ignored
        os.execve(daemon.command()[0], [*daemon.command(), "up", "--config", str(daemon.config)], daemon.environment())
    seen = bytearray()

    def shows(text: bytes) -> bool:
        seen.extend(os.read(terminal, 65536))
        return text in seen

    until(lambda: shows(b"ready: 0 tasks"), "the daemon to be ready")
    edit(daemon, '[tasks.t]\nrun = "true"\n')
    os.kill(pid, signal.SIGHUP)
    until(lambda: shows(b"reloaded (SIGHUP): added t"), "the reload")
    os.close(terminal)
    exit_info = until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG), "the daemon to end")
    assert (exit_info.si_code, exit_info.si_status) == (os.CLD_EXITED, 0)


def test_http_settings_replace_the_api_server(daemon: Daemon) -> None:
    """Changed HTTP settings restart the API server; runs continue, and the scheduler stays."""
    daemon.write(f"[services.s]\nrun = {SLEEPER}\n")
    daemon.start()
    before = until(lambda: running(daemon, "s"), "the service")
    gunicorn, scheduler = daemon.helper("ringward gunicorn").pid, daemon.helper("ringward scheduler").pid
    result = reload(
        daemon, f"[services.s]\nrun = {SLEEPER}\n", http='metrics = "open"\nworkers = 2\nbase_path = "/jobs"'
    )
    assert result["changed"][0]["name"] == "[http]"
    until(lambda: daemon.helper("ringward gunicorn").pid != gunicorn, "another gunicorn")
    until(lambda: len(daemon.helper("ringward gunicorn").children()) == 2, "its workers")
    until(lambda: daemon.get("/jobs/readyz").status == 200, "the new path")
    assert running(daemon, "s") == before
    assert daemon.helper("ringward scheduler").pid == scheduler


def test_durability_replaces_the_scheduler(daemon: Daemon) -> None:
    """A changed durability restarts the scheduler at once; runs continue."""
    daemon.write(f"[services.s]\nrun = {SLEEPER}\n")
    daemon.start()
    before = until(lambda: running(daemon, "s"), "the service")
    scheduler = daemon.helper("ringward scheduler").pid
    reload(daemon, f'[storage]\ndurability = "power"\n[services.s]\nrun = {SLEEPER}\n')
    daemon.replaced("ringward scheduler", scheduler)
    assert running(daemon, "s") == before


def test_other_settings_apply_at_once(daemon: Daemon) -> None:
    """Log level, time zone, and settings of retention and notifications apply at once."""
    daemon.write('[tasks.t]\nrun = "true"\ncron = "0 3 1 1 *"\n', daemon='timezone = "UTC"')
    daemon.start()
    run_id = daemon.ended(daemon.trigger("t"))["id"]
    assert daemon.get("/api/tasks/t").json()["nextRunAt"].endswith("T03:00:00.000Z")
    result = reload(
        daemon,
        '[storage]\nundo_window = "0s"\n[notify]\nhistory_keep = 1\n[tasks.t]\nrun = "true"\ncron = "0 3 1 1 *"\n',
        tables='timezone = "Asia/Tokyo"\nlog_level = "error"',
    )
    assert [change["name"] for change in result["changed"]] == ["[daemon]", "[storage]", "[notify]", "t"]
    assert daemon.get("/api/daemon").json()["timezone"] == "Asia/Tokyo"
    assert daemon.get("/api/tasks/t").json()["nextRunAt"].endswith("T18:00:00.000Z")
    until(lambda: "restarting gunicorn" in log(daemon) or daemon.ready(), "the API server")
    before = stamp(time.time_ns() // 1_000_000)
    assert daemon.request("DELETE", f"/api/runs/{run_id}").status == 204
    assert daemon.request("POST", "/api/runs/bulk/restore", {"ids": [run_id]}).json()["affected"] == 0
    assert [line for line in log(daemon).splitlines() if " INFO scheduler" in line and line > before] == []


@pytest.mark.lent
def test_settings_that_need_a_restart_are_refused(daemon: Daemon) -> None:
    """A change that needs a restart is refused with its place and reason, and so is the rest of the file."""
    daemon.write("")
    daemon.start()
    daemon.config.write_text(
        daemon.config.read_text().replace('data_dir = "data"', 'data_dir = "other"') + "[tasks.t]\nrun = 'x'\n"
    )
    answer = ask(daemon)
    assert answer.status == 409
    assert [error["value"]["key"] for error in answer.json()["errors"]] == ["daemon.data_dir"]
    assert daemon.get("/api/tasks/t").status == 404

    def audited() -> bool:
        entries = daemon.get("/api/audit").json()["items"]
        return bool(entries) and (entries[0]["operation"], entries[0]["status"]) == ("reloadDaemon", 409)

    until(audited, "the audit")


@pytest.mark.lent
def test_paused_and_stopped_units_stay(daemon: Daemon) -> None:
    """Paused tasks stay paused and stopped services stay stopped, even if they change."""
    daemon.write(f'[tasks.t]\nrun = "true"\ncron = "* * * * *"\n[services.s]\nrun = {SLEEPER}\n')
    daemon.start()
    assert daemon.request("POST", "/api/tasks/t/pause").status == 204
    assert daemon.request("POST", "/api/tasks/s/stop").status == 204
    until(lambda: daemon.task("s")["state"] == "stopped", "the service to stop")
    reload(
        daemon, f'[tasks.t]\nrun = "false"\ncron = "*/2 * * * *"\n[services.s]\nrun = {SLEEPER}\nenv = {{ A = "1" }}\n'
    )
    task = daemon.task("t")
    assert (task["paused"], task.get("nextRunAt")) == (True, None)
    assert daemon.task("s")["state"] == "stopped"


@pytest.mark.lent
def test_next_scheduler_uses_the_loaded_configuration(daemon: Daemon) -> None:
    """Every later scheduler uses the configuration that was loaded, whatever the file says by then."""
    daemon.write('[tasks.t]\nrun = "echo one"\n')
    daemon.start()
    reload(daemon, '[tasks.t]\nrun = "echo two"\n')
    daemon.config.write_text("[tasks.t\n")
    daemon.kill_helper("ringward scheduler")
    assert daemon.texts(daemon.ended(daemon.trigger("t"))["id"]) == ["two"]


@pytest.mark.lent
@pytest.mark.parametrize("instances", [1, 3])
def test_interrupted_reload_is_completed(daemon: Daemon, instances: int) -> None:
    """If a scheduler dies during a reload, the next one completes it: each changed process is new."""
    text = f'[services.s]\nrun = {SLEEPER}\ninstances = {instances}\nhealthy_after = "1s"\n[tasks.t]\nrun = "true"\n'
    daemon.write(text)
    daemon.start()
    until(lambda: len(running(daemon, "s")) == instances, "the service")
    before = running(daemon, "s")
    edit(daemon, text.replace("healthy_after", 'env = { A = "1" }\nhealthy_after').replace("[tasks.t]", "[tasks.u]"))
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    os.kill(daemon.pid, signal.SIGHUP)
    scheduler.kill()
    until(lambda: daemon.helper("ringward scheduler").pid != scheduler.pid, "another scheduler")
    until(
        lambda: len(now := running(daemon, "s")) == instances and not set(now.values()) & set(before.values()),
        "all instances to be other ones",
    )
    until(lambda: daemon.get("/api/tasks/u").status == 200, "the other task")
    until(lambda: daemon.get("/api/daemon").json()["configStale"] is False, "the end of the reload")


@pytest.mark.lent
def test_scheduler_killed_during_a_reload(daemon: Daemon) -> None:
    """A scheduler can die at any moment of a reload, and in the end all units match the file."""
    chance = random.Random(7)
    daemon.write("")
    daemon.start()
    for number in range(3):
        names = chance.sample("abcdef", 3)
        text = "".join(
            f'[services.{name}]\nrun = {SLEEPER}\nenv = {{ A = "{number}" }}\nhealthy_after = "0s"\n' for name in names
        )
        edit(daemon, f'{text}[tasks.t{number}]\nrun = "true"\n')
        scheduler = daemon.helper("ringward scheduler")
        with subprocess.Popen(
            [*daemon.command(), "reload", "--config", str(daemon.config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as client:
            length = len(log(daemon))

            def has_begun(length: int = length, client: "subprocess.Popen[str]" = client) -> bool:
                return len(log(daemon)) > length or client.poll() is not None

            until(has_begun, "a sign of it")
            if scheduler.is_running():
                scheduler.kill()
            _, errors = client.communicate()
        until(daemon.ready, "the daemon to be ready again")
        if client.returncode != 0:  # it was killed before the request arrived, and the next one took too long to start
            assert daemon.cli("reload").returncode == 0, errors

        def settled(names: list[str] = names, number: int = number) -> bool:
            by_name = {task["name"]: task for task in daemon.get("/api/tasks").json()["items"]}
            if set(by_name) != {*names, f"t{number}"}:
                return False
            try:
                alive = [child.environ() for child in daemon.children("obeys_term")]
            except psutil.NoSuchProcess:
                return False
            if not all(alive):  # a process that has just ended shows none
                return False
            return sorted(environment["RINGWARD_TASK"] for environment in alive) == sorted(names) and all(
                environment["A"] == str(number) for environment in alive
            )

        until(settled, f"the state after edit {number}", 60)


@pytest.mark.lent
def test_edits_match_a_fresh_start(daemon: Daemon, tmp_path: Path) -> None:
    """After forty random edits, a running daemon shows the same as a newly started one."""
    chance = random.Random(11)

    def text() -> str:
        parts = []
        for name in "abcd":
            kind = chance.choice(("tasks", "services", ""))
            if kind == "tasks":
                cron = chance.choice(("", 'cron = "0 3 1 1 *"\n', 'cron = "0 4 29 2 *"\ntimezone = "Asia/Tokyo"\n'))
                parts.append(f'[tasks.{name}]\nrun = "exit {chance.randint(0, 9)}"\n{cron}')
            elif kind == "services":
                env = f'env = {{ A = "{chance.randint(0, 2)}" }}\n'
                count = chance.randint(1, 2)
                parts.append(
                    f'[services.{name}]\nrun = "exec sleep 1000"\nhealthy_after = "0s"\ninstances = {count}\n{env}'
                )
        return "".join(parts)

    def shown(new_daemon: Daemon) -> dict[str, Any]:
        by_name = {task["name"]: task for task in new_daemon.get("/api/tasks").json()["items"]}
        for task in by_name.values():
            task.pop("lastRun", None)
            for place in task.get("instances", ()):
                for key in ("runId", "since", "startedAt", "pid"):
                    place.pop(key, None)
        return by_name

    daemon.write(text())
    daemon.start()
    for _ in range(40):
        reload(daemon, text())
    fresh = Daemon(tmp_path / "fresh")
    fresh.directory.mkdir()
    try:
        fresh.write(daemon.config.read_text().partition(daemon.socket + '"\n')[2])
        fresh.start()
        until(lambda: shown(daemon) == shown(fresh), "both to show the same")
    except AssertionError:
        assert json.dumps(shown(daemon), indent=1) == json.dumps(shown(fresh), indent=1)
        raise
    finally:
        fresh.clean()
