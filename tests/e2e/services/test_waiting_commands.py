"""Commands that wait, against the whole daemon."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

SLEEPS = 'run = "exec sleep 1000"\n'


@pytest.mark.lent
def test_start_waits_for_readiness(daemon: Daemon, tmp_path: Path) -> None:
    """After a start, services with a check and their dependencies are ready; after a stop, no process is left."""
    flag = tmp_path / "flag"
    daemon.write(
        f'[services.db]\nautostart = false\n{SLEEPS}ready = {{ exec = "test -e \'{flag}\'", every = "50ms" }}\n'
        f'[services.app]\nautostart = false\n{SLEEPS}depends_on = ["db"]\ngroup = "shop"\n'
    )
    daemon.start()
    command = [*daemon.client_command(), "start", "--group", "shop", "--config", str(daemon.config)]
    waits = subprocess.Popen(command, env=daemon.environment())
    until(lambda: daemon.task("db")["state"] == "starting" and daemon.task("app")["state"] == "starting", "the start")
    assert waits.poll() is None
    flag.touch()
    assert waits.wait(60) == 0
    assert daemon.task("app")["state"] == daemon.task("db")["state"] == "running"
    runs = [daemon.runs(name)[0]["id"] for name in ("db", "app")]
    done = daemon.cli("stop", "app", "db")
    assert (done.returncode, sorted(done.stdout.split())) == (0, sorted(runs))
    assert daemon.task("app")["state"] == daemon.task("db")["state"] == "stopped"


@pytest.mark.lent
def test_failed_start(daemon: Daemon) -> None:
    """A failed start exits with 1, after the reason and the last lines of the log; started services are left alone."""
    daemon.write(
        f"[services.good]\nautostart = false\n{SLEEPS}"
        '[services.bad]\nautostart = false\nrun = "echo cannot bind port 80 >&2; exit 3"\nrestart_delay = "1h"\n'
        f'[services.slow]\nautostart = false\n{SLEEPS}ready = {{ exec = "false", timeout = "1h" }}\n'
    )
    daemon.start()
    done = daemon.cli("start", "good", "bad")
    assert done.returncode == 1
    assert "ringward: bad did not start: its process exited with code 3" in done.stderr
    assert "  | cannot bind port 80\n" in done.stderr
    assert "good" not in done.stderr
    assert daemon.task("good")["state"] == "running"
    done = daemon.cli("restart", "slow", "--timeout", "100ms")
    assert (done.returncode, "slow did not restart: timed out after 0.1 s; starting" in done.stderr) == (1, True)
    assert daemon.cli("wait", "slow", "--for", "running").returncode == 0


@pytest.mark.lent
def test_start_times_out(daemon: Daemon) -> None:
    """The command shows the last lines of the unready run, and does not name an earlier run's end as the reason."""
    daemon.write(
        "[services.slow]\nautostart = false\nrun = 'echo no bus; exec sleep 1000'\n"
        'ready = { exec = "false", timeout = "1h" }\n'
    )
    daemon.start()

    def printed() -> list[list[str]]:
        return [daemon.texts(run["id"]) for run in daemon.runs("slow")]

    assert daemon.cli("start", "slow", "--no-wait").returncode == 0
    until(lambda: printed() == [["no bus"]], "its line")
    assert daemon.cli("stop", "slow").returncode == 0
    assert daemon.cli("start", "slow", "--no-wait").returncode == 0
    until(lambda: printed() == [["no bus"]] * 2, "the line of the next run")
    done = daemon.cli("start", "slow", "--timeout", "0s")
    assert done.returncode == 1
    reason, *lines = done.stderr.splitlines()
    assert reason.startswith("ringward: slow did not start: timed out after 0 s; starting")
    assert lines == ["  | no bus"]


def test_restart_outlasts_killed_helpers(daemon: Daemon) -> None:
    """A scheduler and an API server that die during the wait delay its result but do not change it."""
    daemon.write(f'[services.web]\n{SLEEPS}instances = 2\nready = {{ exec = "sleep 0.5", every = "50ms" }}\n')
    daemon.start()
    assert daemon.cli("wait", "web", "--timeout", "1m").returncode == 0
    command = [*daemon.client_command(), "restart", "--rolling", "web", "--config", str(daemon.config)]
    waits = subprocess.Popen(command, env=daemon.environment())
    until(lambda: "rolling" in daemon.task("web"), "the restart")
    daemon.kill_helper("ringward scheduler")
    daemon.helper("ringward gunicorn").kill()
    assert waits.wait(60) == 0
    assert len(daemon.runs("web")) == 4
    assert all(instance["ready"] for instance in daemon.task("web")["instances"])


@pytest.mark.lent
def test_wait_for_a_task(daemon: Daemon, tmp_path: Path) -> None:
    """A wait for a task ends with its runs, and a wait for a run with that run."""
    flag = tmp_path / "flag"
    daemon.write(f"[tasks.t]\nrun = \"while ! test -e '{flag}'; do sleep 0.05; done\"\n")
    daemon.start()
    assert daemon.cli("wait", "t").returncode == 0
    run_id = daemon.trigger("t")
    assert daemon.cli("wait", "t", "--for", "running").returncode == 0
    assert daemon.cli("wait", run_id, "--timeout", "0").returncode == 1
    done = daemon.cli("wait", "t", "--timeout", "0")
    assert (done.returncode, done.stderr) == (
        1,
        "ringward: t is not idle: timed out after 0 s; waits for 1 run to end\n",
    )
    flag.touch()
    assert daemon.cli("wait", "t", "--for", "ended").returncode == daemon.cli("wait", run_id).returncode == 0
    assert daemon.run(run_id)["status"] == "ended"


@pytest.mark.lent
def test_misspelt_name_changes_nothing(daemon: Daemon) -> None:
    """Nothing is stopped if one of the names is wrong."""
    daemon.write(f"[services.web]\n{SLEEPS}[tasks.t]\nrun = 'true'\n")
    daemon.start()
    assert daemon.cli("wait", "web", "--for", "running").returncode == 0
    done = daemon.cli("stop", "web", "wbe")
    assert (done.returncode, done.stderr) == (1, 'ringward: no task or service named "wbe" (did you mean "web"?)\n')
    assert daemon.cli("stop", "--all").returncode == 64
    assert daemon.cli("restart", "t").stderr == "ringward: t is a task; use ringward run t\n"
    assert daemon.task("web")["state"] == "running"
    shown = json.loads(daemon.cli("stop", "--json", "--all", "--yes").stdout)
    assert shown == {"stopped": [daemon.runs("web")[0]["id"]]}
