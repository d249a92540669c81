"""Services through the real daemon."""

import os
import signal

import psutil

from tests.e2e.daemon import Daemon, program
from tests.waiting import until


def running(daemon: Daemon, name: str) -> list[str]:
    """Run ids of the instances, once all of them run and have printed."""
    instances = daemon.task(name)["instances"]
    ids = [one["runId"] for one in instances if one["state"] == "running"]
    return ids if len(ids) == len(instances) and all(daemon.texts(one) for one in ids) else []


def test_instances_run_and_know_their_number(daemon: Daemon) -> None:
    """A service starts with the daemon, once per instance, each instance a run of its own with its index."""
    daemon.write('[services.s]\nrun = "echo instance $RINGWARD_INSTANCE; sleep 1000"\ninstances = 3\n')
    daemon.start()
    ids = until(lambda: running(daemon, "s"), "three instances")
    assert sorted(daemon.texts(one)[0] for one in ids) == ["instance 0", "instance 1", "instance 2"]
    assert [run["triggeredBy"] for run in daemon.runs("s")] == ["startup"] * 3
    assert daemon.task("s")["state"] == "running"


def test_a_killed_service_comes_back(daemon: Daemon) -> None:
    """An instance that dies is restarted as a new run, triggered by service; the old run tells how it died."""
    daemon.write('[services.s]\nrun = "echo $$; exec sleep 1000"\nrestart_delay = "0s"\n')
    daemon.start()
    first = until(lambda: running(daemon, "s"), "the first")[0]
    os.kill(int(daemon.texts(first)[0]), signal.SIGKILL)
    second = until(lambda: [one for one in running(daemon, "s") if one != first], "the second")[0]
    died = daemon.run(first)
    assert (died["endReason"], died["exitCode"]) == ("failed", 128 + signal.SIGKILL)
    assert daemon.run(second)["triggeredBy"] == "service"


def test_quick_failures_become_fatal(daemon: Daemon) -> None:
    """More than restart_attempts quick exits in a row end in the state fatal, each run with its own reason."""
    daemon.write('[services.s]\nrun = "exit 1"\nrestart_delay = "10ms"\nrestart_attempts = 2\n')
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "fatal", "fatal")
    assert [run["endReason"] for run in daemon.runs("s")] == ["failed"] * 3


def test_restart_never_and_on_failure(daemon: Daemon) -> None:
    """A service that may end ends as exited."""
    daemon.write(
        '[services.a]\nrun = "exit 1"\nrestart = "never"\n[services.b]\nrun = "true"\nrestart = "on_failure"\n'
    )
    daemon.start()
    until(lambda: daemon.task("a")["state"] == daemon.task("b")["state"] == "exited", "both to be exited")


def test_a_stopped_run_of_a_service_is_recycled(daemon: Daemon) -> None:
    """Stopping one run of a service ends it as stopped, and the instance comes back."""
    daemon.write(f'[services.s]\nrun = {program("obeys_term")}\nrestart_delay = "0s"\n')
    daemon.start()
    first = until(lambda: running(daemon, "s"), "the first")[0]
    assert daemon.request("POST", f"/api/runs/{first}/stop").status == 204
    until(lambda: [one for one in running(daemon, "s") if one != first], "the second")
    assert daemon.run(first)["endReason"] == "stopped"


def test_a_clean_shutdown_leaves_nothing(daemon: Daemon) -> None:
    """SIGTERM ends everything that was started, records how, removes sockets and rings, and exits with 0."""
    daemon.write(
        f"[services.s]\nrun = {program('obeys_term')}\ninstances = 2\n"
        f'[services.stubborn]\nrun = {program("ignores_term")}\ngraceful_stop = "200ms"\n'
        f"[tasks.t]\nrun = {program('obeys_term')}\n"
    )
    daemon.start()
    until(lambda: running(daemon, "s") and running(daemon, "stubborn"), "the services")
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "the task")
    children = psutil.Process(daemon.pid).children(recursive=True)
    runtime = [name for name in os.listdir("/dev/shm") if name.startswith("ringward")]
    assert daemon.stop() == 0
    assert not [child for child in children if child.is_running()]
    identity = (daemon.data / "id").read_text().strip()
    assert not [base for base in runtime if os.path.exists(f"/dev/shm/{base}/{identity}")]
    assert not os.path.exists(daemon.socket)
    daemon.start()
    assert daemon.run(run_id)["endReason"] == "daemon_stopped"
    assert daemon.texts(run_id) == ["ready", "bye"]
    assert {run["endReason"] for run in daemon.runs("stubborn") if run["status"] == "ended"} == {"daemon_stopped"}
