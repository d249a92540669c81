"""Services, through the real daemon."""

import datetime as dt
import itertools
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.daemon import Daemon, gone, program
from tests.support.waiting import until

pytestmark = pytest.mark.lent


def running(daemon: Daemon, name: str) -> list[str]:
    """Return the run ids of the instances once all of them run and have printed."""
    instances = daemon.task(name)["instances"]
    ids = [instance["runId"] for instance in instances if instance["state"] == "running"]
    return ids if len(ids) == len(instances) and all(daemon.texts(run_id) for run_id in ids) else []


@pytest.mark.own
def test_instances_know_their_index(daemon: Daemon) -> None:
    """A service starts with the daemon; each instance is a separate run with its index."""
    daemon.write('[services.s]\nrun = "echo instance $RINGWARD_INSTANCE; sleep 1000"\ninstances = 3\n')
    daemon.start()
    ids = until(lambda: running(daemon, "s"), "three instances")
    assert sorted(daemon.texts(run_id)[0] for run_id in ids) == ["instance 0", "instance 1", "instance 2"]
    assert [run["triggeredBy"] for run in daemon.runs("s")] == ["startup"] * 3
    assert daemon.task("s")["state"] == "running"


def test_killed_service_restarts(daemon: Daemon) -> None:
    """An instance that dies restarts as a new run with the trigger service; the old run shows how it died."""
    daemon.write('[services.s]\nrun = "echo $$; exec sleep 1000"\nrestart_delay = "0s"\n')
    daemon.start()
    first = until(lambda: running(daemon, "s"), "the first")[0]
    os.kill(int(daemon.texts(first)[0]), signal.SIGKILL)
    second = until(
        lambda: [instance_run for instance_run in running(daemon, "s") if instance_run != first], "the second"
    )[0]
    died = daemon.run(first)
    assert (died["endReason"], died["exitCode"]) == ("failed", 128 + signal.SIGKILL)
    assert daemon.run(second)["triggeredBy"] == "service"


def test_quick_failures_become_fatal(daemon: Daemon) -> None:
    """More than restart_attempts quick exits in a row lead to the state fatal; each run has its own reason."""
    daemon.write('[services.s]\nrun = "exit 1"\nrestart_delay = "10ms"\nrestart_attempts = 2\nhealthy_after = "1h"\n')
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "fatal", "fatal")
    assert [run["endReason"] for run in daemon.runs("s")] == ["failed"] * 3


@pytest.mark.parametrize("restart", ["always", "on_failure"])
def test_service_that_goes_to_the_background(daemon: Daemon, tmp_path: Path, restart: str) -> None:
    """If a service exits with 0 and leaves a process, its state has the hint to stay in the foreground."""
    pids = tmp_path / "pid"
    keys = f'restart = "{restart}"\nrestart_attempts = 0\nhealthy_after = "1h"\n'
    daemon.write(f"[services.s]\nrun = {program('daemonises', pids)}\n{keys}")
    daemon.start()
    state = "fatal" if restart == "always" else "exited"
    until(lambda: daemon.task("s")["state"] == state, "its end")
    detail = daemon.task("s")["instances"][0]["detail"]
    assert detail.startswith(
        f"it exited with code 0 and left sleep ({pids.read_text()}), so it went to the background; "
    )
    if state == "fatal":
        assert detail in " ".join(daemon.cli("status", "--json").stdout.split())
        texts = [
            item["body"] for item in daemon.get("/api/notifications").json()["items"] if item["kind"] == "service.fatal"
        ]
        assert detail in texts[0]


def test_timed_out_service_restarts(daemon: Daemon) -> None:
    """A service that times out restarts as after any end; a quick end is a quick failure."""
    daemon.write(
        '[services.s]\nrun = "exec sleep 1000"\ntimeout = "100ms"\nrestart_delay = "0s"\nrestart_attempts = 1\n'
        'healthy_after = "1h"\ngraceful_stop = "1h"\n'
    )
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "fatal", "fatal")
    assert [(run["endReason"], run["exitCode"]) for run in daemon.runs("s")] == [("timeout", 128 + signal.SIGTERM)] * 2
    assert daemon.texts(daemon.runs("s")[0]["id"], "system") == ["timed out after 100 ms: stopping"]


def test_restart_delays_grow_and_reset(daemon: Daemon, tmp_path: Path) -> None:
    """Restart delays grow with each quick failure up to restart_max_delay; a healthy run resets them."""
    flag = tmp_path / "flag"
    every_other = f"if test -e '{flag}'; then rm '{flag}'; sleep 0.5; else touch '{flag}'; fi; exit 1"
    daemon.write(
        '[defaults]\nrestart_delay = "20ms"\nhealthy_after = "1h"\n'
        '[services.growing]\nrun = "exit 1"\nrestart_attempts = 4\n'
        '[services.capped]\nrun = "exit 1"\nrestart_max_delay = "20ms"\nrestart_attempts = 10000\n'
        f'[services.reset]\nrun = "{every_other}"\nrestart_attempts = 1\nhealthy_after = "400ms"\n'
    )
    daemon.start()
    until(lambda: daemon.task("growing")["state"] == "fatal", "fatal")
    runs = daemon.runs("growing")
    waited = [_ms(after["createdAt"]) - _ms(run["endedAt"]) for run, after in itertools.pairwise(runs)]
    assert len(waited) == 4
    assert all(pause >= 20 << number for number, pause in enumerate(waited))
    until(lambda: len(daemon.runs("capped")) > 25, "a run that would be hours away")
    until(lambda: len(daemon.runs("reset")) > 5, "more failures than two in a row")
    assert daemon.task("reset")["state"] != "fatal"


def _ms(time: str) -> float:
    return dt.datetime.fromisoformat(time).timestamp() * 1000


def test_restart_never_and_on_failure(daemon: Daemon) -> None:
    """With ``restart`` = never or on_failure, a service that may end becomes exited."""
    daemon.write(
        '[services.a]\nrun = "exit 1"\nrestart = "never"\n[services.b]\nrun = "true"\nrestart = "on_failure"\n'
    )
    daemon.start()
    until(lambda: daemon.task("a")["state"] == daemon.task("b")["state"] == "exited", "both to be exited")
    ends = {name: [run["endReason"] for run in daemon.runs(name)] for name in "ab"}
    assert ends == {"a": ["failed"], "b": ["succeeded"]}


def test_stopped_run_of_a_service_is_replaced(daemon: Daemon) -> None:
    """Stopping one run of a service ends it as stopped, and the instance starts again."""
    daemon.write(f'[services.s]\nrun = {program("obeys_term")}\nrestart_delay = "0s"\n')
    daemon.start()
    first = until(lambda: running(daemon, "s"), "the first")[0]
    assert daemon.request("POST", f"/api/runs/{first}/stop").status == 204
    until(lambda: [instance_run for instance_run in running(daemon, "s") if instance_run != first], "the second")
    assert daemon.run(first)["endReason"] == "stopped"


@pytest.mark.own
def test_clean_shutdown_leaves_nothing(daemon: Daemon) -> None:
    """SIGTERM stops all runs, records their ends, removes sockets and rings, and exits with 0."""
    daemon.write(
        f"[services.s]\nrun = {program('obeys_term')}\ninstances = 2\n"
        f'[services.stubborn]\nrun = {program("ignores_term")}\ngraceful_stop = "200ms"\n'
        f'[tasks.t]\nrun = {program("obeys_term")}\ngraceful_stop = "1h"\n',
        daemon='shutdown_timeout = "1h"',
    )
    daemon.start()
    until(lambda: running(daemon, "s") and running(daemon, "stubborn"), "the services")
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "the task")
    children = psutil.Process(daemon.pid).children(recursive=True)
    runtime = [name for name in os.listdir("/dev/shm") if name.startswith("ringward")]
    assert daemon.stop() == 0
    assert all(map(gone, children))
    identity = (daemon.data / "id").read_text().strip()
    assert not [base for base in runtime if os.path.exists(f"/dev/shm/{base}/{identity}")]
    assert not os.path.exists(daemon.socket)
    daemon.start()
    assert daemon.run(run_id)["endReason"] == "daemon_stopped"
    assert daemon.texts(run_id) == ["ready", "bye"]
    assert {run["endReason"] for run in daemon.runs("stubborn") if run["status"] == "ended"} == {"daemon_stopped"}


def ask(daemon: Daemon, action: str, name: str = "s") -> int:
    return daemon.request("POST", f"/api/tasks/{name}/{action}").status


def reaches(daemon: Daemon, state: str, name: str = "s") -> None:
    until(lambda: daemon.task(name)["state"] == state, f"{name} to be {state}")


def test_stopped_service_stays_down(daemon: Daemon) -> None:
    """A stopped service stays down until it is started, even across schedulers; the next daemon starts it as usual."""
    daemon.write(f'[services.s]\nrun = {program("obeys_term")}\nrestart_delay = "0s"\ninstances = 2\n')
    daemon.start()
    first = until(lambda: running(daemon, "s"), "the service")
    assert [ask(daemon, "stop"), ask(daemon, "stop")] == [204, 204]
    reaches(daemon, "stopped")
    assert {daemon.run(run_id)["endReason"] for run_id in first} == {"stopped"}
    daemon.kill_helper("ringward scheduler")
    assert daemon.task("s")["state"] == "stopped"
    assert ask(daemon, "start") == 204
    until(lambda: running(daemon, "s"), "the service after its start")
    assert len(daemon.runs("s")) == 4
    assert ask(daemon, "stop") == 204
    daemon.stop()
    daemon.start()
    until(lambda: running(daemon, "s"), "the service of the next daemon")


DEAF = f'run = {program("ignores_term")}\ngraceful_stop = "1h"\n'
"""A service that ends only when the test says so."""


def processes(daemon: Daemon, *run_ids: str) -> list[psutil.Process]:
    """Return all processes of runs."""
    children = psutil.Process(daemon.pid).children(recursive=True)
    return [child for child in children if environment(child).get("RINGWARD_RUN_ID") in run_ids]


def test_scheduler_dies_during_a_stop(daemon: Daemon) -> None:
    """The next scheduler handles the end of the stop: the service stays down, or starts if that was requested."""
    daemon.write(
        f'[services.s]\n{DEAF}restart_delay = "0s"\n[services.late]\n{DEAF}restart_delay = "0s"\n'
        f'[services.again]\n{DEAF}restart_delay = "1h"\n'
    )
    daemon.start()
    names = ("s", "late", "again")
    first, late, other = (until(lambda unit=name: running(daemon, unit), name)[0] for name in names)  # type: ignore[misc]
    assert ask(daemon, "stop") == ask(daemon, "stop", "late") == ask(daemon, "restart", "again") == 204
    assert {daemon.task(name)["state"] for name in names} == {"stopping"}
    scheduler = daemon.helper("ringward scheduler")
    scheduler.kill()
    for process in processes(daemon, first, other):
        process.kill()
    daemon.replaced("ringward scheduler", scheduler.pid)
    assert daemon.ended(first)["endReason"] == daemon.ended(other)["endReason"] == "stopped"
    assert daemon.task("late")["state"] == "stopping"
    for process in processes(daemon, late):
        process.kill()
    assert daemon.ended(late)["endReason"] == "stopped"
    reaches(daemon, "stopped")
    reaches(daemon, "stopped", "late")
    until(
        lambda: [instance_run for instance_run in running(daemon, "again") if instance_run != other],
        "its next incarnation",
    )
    assert len(daemon.runs("s")) == len(daemon.runs("late")) == 1


def test_start_during_a_stop(daemon: Daemon) -> None:
    """A service that is started while it stops starts again after its end, without its restart delay."""
    daemon.write(f'[services.s]\n{DEAF}restart_delay = "1h"\n')
    daemon.start()
    (first,) = until(lambda: running(daemon, "s"), "the service")
    assert ask(daemon, "stop") == 204
    assert daemon.task("s")["state"] == "stopping"
    assert ask(daemon, "start") == 204
    assert daemon.task("s")["state"] == "stopping"
    for process in processes(daemon, first):
        process.kill()
    until(
        lambda: [instance_run for instance_run in running(daemon, "s") if instance_run != first], "its next incarnation"
    )
    assert daemon.run(first)["endReason"] == "stopped"


def test_stop_reaches_children_that_ignore_sigterm(daemon: Daemon) -> None:
    """All processes of a service end with it; processes that ignore SIGTERM end after graceful_stop."""
    daemon.write(f'[services.s]\nrun = {program("leaves_child", "deaf")}\ngraceful_stop = "200ms"\n')
    daemon.start()
    ids = until(lambda: running(daemon, "s"), "the service")
    children = processes(daemon, *ids)
    assert children
    assert ask(daemon, "stop") == 204
    reaches(daemon, "stopped")
    assert all(map(gone, children))


def environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def test_fatal_retry_recovers_a_service(daemon: Daemon, tmp_path: Path) -> None:
    """A fatal service is tried again after fatal_retry; its failure and its recovery are notified once each.

    Only the attempt after a shortened healthy_after is healthy, which the next scheduler reads from the file.
    """
    flag = tmp_path / "repaired"
    text = (
        f"[services.mended]\nrun = \"test -e '{flag}' && exec sleep 1000; exit 1\"\n"
        'restart_delay = "1ms"\nrestart_attempts = 1\nfatal_retry = "20ms"\nhealthy_after = "1h"\n'
    )
    daemon.write(text)
    daemon.start()
    until(lambda: len(daemon.runs("mended")) > 4, "more attempts than it has")
    flag.touch()
    reaches(daemon, "running", "mended")
    daemon.config.write_text(daemon.config.read_text().replace("1h", "10ms"))
    daemon.remove_config_copies()
    daemon.kill_helper("ringward scheduler")
    until(lambda: notified(daemon, "mended")[1:], "it to be back")
    assert notified(daemon, "mended") == [("service.recovered", 1), ("service.fatal", 1)]
    assert daemon.task("mended")["state"] == "running"


def notified(daemon: Daemon, service: str) -> list[tuple[str, int]]:
    """Return the kinds of the notifications about it and their counts, newest first."""
    items = daemon.get("/api/notifications").json()["items"]
    return [(item["kind"], item["count"]) for item in items if item.get("taskName") == service]


ROLLING = 'instances = 3\nrestart_delay = "1h"\nrestart_attempts = 0\n'


def test_rolling_restart_keeps_all_but_one_running(daemon: Daemon, tmp_path: Path) -> None:
    """All instances but one run at any time. In the end all are new, even if the scheduler is killed."""
    gates = [tmp_path / f"gate-{index}" for index in range(3)]
    for gate in gates:
        gate.touch()
    ready = f"ready = {{ exec = \"test -e '{tmp_path}/gate-'$RINGWARD_INSTANCE\", every = '50ms', timeout = '1h' }}\n"
    daemon.write(f"[services.s]\nrun = {program('obeys_term')}\n{ROLLING}{ready}")
    daemon.start()
    before = until(lambda: running(daemon, "s"), "the service")
    for gate in gates:
        gate.unlink()
    assert ask(daemon, "restart?rolling=true") == 204
    assert ask(daemon, "restart") == 409
    gates[0].touch()
    until(lambda: daemon.task("s").get("rolling", {}).get("done"), "the first one")
    daemon.kill_helper("ringward scheduler")
    for gate in gates[1:]:
        gate.touch()

    def done() -> bool:
        task = daemon.task("s")
        assert [instance["state"] for instance in task["instances"]].count("running") >= 2
        return "rolling" not in task

    until(done, "its end")
    after = until(lambda: running(daemon, "s"), "all of them")
    assert not set(before) & set(after)
    assert len(daemon.runs("s")) == 6


def test_failed_rolling_restart_stops(daemon: Daemon, tmp_path: Path) -> None:
    """If the second instance fails, the third continues unchanged, and a notification is sent."""
    flag = tmp_path / "broken"
    daemon.write(
        "[services.rolled]\n"
        f"run = \"echo up; test $RINGWARD_INSTANCE = 1 && test -e '{flag}' && exit 1; exec sleep 1000\"\n"
        f"{ROLLING}healthy_after = '1h'\nready = {{ exec = \"test $RINGWARD_INSTANCE != 1 || test ! -e '{flag}'\" }}\n"
    )
    daemon.start()
    before = until(lambda: running(daemon, "rolled"), "the service")
    flag.touch()
    assert ask(daemon, "restart?rolling=true", "rolled") == 204
    until(lambda: "rolling" not in daemon.task("rolled"), "it to end")
    until(lambda: ("service.rolling", 1) in notified(daemon, "rolled"), "people to be notified")
    task = daemon.task("rolled")
    assert [instance["state"] for instance in task["instances"]] == ["running", "fatal", "running"]
    assert task["instances"][2]["runId"] == before[2]
    assert "rolling" not in task


@pytest.mark.own
def test_services_start_and_stop_in_order(daemon: Daemon, tmp_path: Path) -> None:
    """Lower priorities start earlier and stop later; a service without autostart waits for a command."""
    stops = tmp_path / "said"
    daemon.write(
        "".join(
            f"[services.{name}]\nrun = \"trap 'echo {name} >> {stops}; exit' TERM; echo up; sleep 1000 & wait\"\n"
            f"priority = {priority}\n"
            for name, priority in (("web", 300), ("db", 1), ("cache", 20))
        )
        + '[services.later]\nrun = "exec sleep 1000"\nautostart = false\n'
    )
    daemon.start()
    until(lambda: all(running(daemon, name) for name in ("web", "db", "cache")), "all three")
    started = sorted((daemon.runs(name)[0]["startedAt"], number) for number, name in enumerate(("db", "cache", "web")))
    assert [number for _, number in started] == [0, 1, 2]
    assert daemon.task("later")["state"] == "stopped"
    assert ask(daemon, "start", "later") == 204
    reaches(daemon, "running", "later")
    assert daemon.stop() == 0
    assert stops.read_text().split() == ["web", "cache", "db"]


def test_paused_schedule_stays_paused(daemon: Daemon) -> None:
    """A paused schedule stays paused across restarts of scheduler and daemon until it is resumed."""
    daemon.write('[tasks.t]\nrun = "true"\ncron = "* * * * *"\n[services.s]\nrun = "exec sleep 1000"\n')
    daemon.start()
    assert "nextRunAt" in daemon.task("t")
    assert ask(daemon, "pause", "t") == 204
    daemon.kill_helper("ringward scheduler")
    daemon.stop()
    daemon.start()
    task = daemon.task("t")
    assert task["paused"]
    assert "nextRunAt" not in task
    assert ask(daemon, "resume", "t") == 204
    task = daemon.task("t")
    assert not task["paused"]
    assert "nextRunAt" in task
    assert [ask(daemon, "pause"), ask(daemon, "start", "t"), ask(daemon, "stop", "nothing")] == [409, 409, 404]


def test_service_commands(daemon: Daemon) -> None:
    """The command line starts, stops and restarts services, prints JSON, and exits with 1 on a refusal."""
    daemon.write(f'[services.s]\nrun = {program("obeys_term")}\n[tasks.t]\nrun = "true"\n')
    daemon.start()
    (first,) = until(lambda: running(daemon, "s"), "the service")
    assert daemon.cli("stop", "s").stdout == f"{first}\n"
    reaches(daemon, "stopped")
    assert json.loads(daemon.cli("start", "--json", "s").stdout)["name"] == "s"
    until(lambda: running(daemon, "s"), "the service")
    assert daemon.cli("restart", "--rolling", "s").returncode == 0
    assert json.loads(daemon.cli("pause", "--json", "t").stdout)["paused"] is True
    assert json.loads(daemon.cli("resume", "--json", "t").stdout)["paused"] is False
    for action, name in (("start", "t"), ("restart", "t"), ("stop", "t"), ("pause", "s"), ("resume", "s")):
        assert daemon.request("POST", f"/api/tasks/{name}/{action}").status == 409
    wrong = daemon.cli("start", "t")
    assert (wrong.returncode, "t is a task" in wrong.stderr) == (1, True)
    unknown = daemon.cli("pause", "nothing")
    assert (unknown.returncode, 'no task named "nothing"' in unknown.stderr) == (1, True)


def test_events_have_rfc_3339_times(daemon: Daemon) -> None:
    """Times in events are RFC 3339, and fields without a value are omitted, as in records."""
    daemon.write(f"[services.s]\nrun = {program('obeys_term')}\n")
    daemon.start()
    (run,) = until(lambda: running(daemon, "s"), "the service")
    stream = daemon.stream("/api/events/stream?types=run.started,service.state", "-1")
    started = next(event for event in stream if event.data.get("runId") == run and event.kind == "run.started")
    assert started.data["startedAt"] == daemon.run(run)["startedAt"]
    assert daemon.request("POST", "/api/tasks/s/stop").status == 204
    stopped = next(event for event in stream if event.data.get("state") == "stopped")
    assert "runId" not in stopped.data
    stream.close()
