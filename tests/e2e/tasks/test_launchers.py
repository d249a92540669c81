"""Runs on real engines: a Slurm cluster of one node, and an sshd."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.tasks.slurm import Slurm
from tests.support.daemon import Daemon
from tests.support.sshd import Sshd
from tests.support.waiting import until

NASTY = "a 'quote', a \"double\" one, $HOME, `id`, a \\ and\ttwo\nlines; {run_id}"
SECRET = "correct'horse battery"
# It reports its start and end, obeys SIGTERM with a last line, and no supervisor finds it without the engine. The
# shell's message about its killed child would be lost with the client, and so would the shell.
STUBBORN = """
unset RINGWARD_DAEMON
exec sh -c 'exec 2>/dev/null; trap "echo end $RINGWARD_RUN_ID >>$SIDE; echo bye; exit 3" TERM
echo begin $RINGWARD_RUN_ID >>$SIDE; echo here; while :; do sleep 0.05; done'
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    new_slurm = Slurm()
    yield new_slurm
    new_slurm.close()


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    new_sshd = Sshd()
    yield new_sshd
    new_sshd.close()


class Engine:
    """The properties of an engine that a test needs."""

    def __init__(self, table: str, env: dict[str, str]) -> None:
        self.table = table
        """``[launchers.l]``."""
        self.env = env
        """Environment of its clients."""

    def defaults(self, **env: str) -> str:
        table = ", ".join(f"{name} = {json.dumps(value)}" for name, value in {**self.env, **env}.items())
        return f'{self.table}\n[defaults]\nlauncher = "l"\ngraceful_stop = "60s"\nenv = {{ {table} }}\n'


@pytest.fixture(params=["slurm", "ssh"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "slurm":
        cluster: Slurm = request.getfixturevalue("slurm")
        return Engine('[launchers.l]\npreset = "slurm"\n', cluster.environment)
    server: Sshd = request.getfixturevalue("sshd")
    client = json.dumps(server.client)
    return Engine(f'[launchers.l]\npreset = "ssh"\nhost = "127.0.0.1"\nclient = {client}\n', {})


def named(daemon: Daemon, run_id: str) -> str:
    """Return the engine's name for the job of a run, once it is known."""
    job_name: str = until(lambda: daemon.run(run_id).get("executionId"), "the name of the job")
    return job_name


def stopped(daemon: Daemon, run_id: str) -> dict[str, Any]:
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
    return daemon.ended(run_id)


@pytest.mark.lent
def test_job_behaves_like_a_local_run(daemon: Daemon, engine: Engine, tmp_path: Path) -> None:
    """Output, exit code, directory, variables and parameters of a job match a local run; secrets are masked.

    A job that times out before the engine knows it is stopped as soon as the engine does.
    """
    daemon.write(
        f"""{engine.defaults(NASTY=NASTY)}
[tasks.text]
run = 'echo "$1|$2|$NASTY|$RINGWARD_TASK"; pwd; echo "$TOKEN" >&2; exit 7'
working_dir = {json.dumps(str(tmp_path))}
secrets = {{ TOKEN = {json.dumps(SECRET)} }}
params = [{{ name = "one", kind = "arg" }}, {{ name = "two", kind = "option" }}]
[tasks.broken]
run = "exit 255"
[tasks.slow]
run = "sleep 1000"
timeout = "100ms"
[tasks.list]
run = ["printf", "%s|", {json.dumps(NASTY)}, ""]
params = [{{ name = "one", kind = "arg" }}]
"""
    )
    daemon.start()
    broken, slow = daemon.trigger("broken"), daemon.trigger("slow")
    answer = daemon.request("POST", "/api/tasks/text/run", {"params": {"one": NASTY, "two": "x y"}})
    assert answer.status == 201, answer.body
    text, plain = answer.json()["id"], daemon.trigger("list")
    assert (daemon.ended(text)["endReason"], daemon.ended(text)["exitCode"]) == ("failed", 7)
    said = "\n".join(daemon.texts(text))
    assert said == f"{NASTY}|--two=x y|{NASTY}|text\n{tmp_path}"
    assert "***" in daemon.texts(text, "stderr")
    assert daemon.ended(slow)["endReason"] == "timeout"
    assert daemon.ended(broken)["exitCode"] == 255
    assert any("ssh's own exit code" in text for text in daemon.texts(broken, "system")) == ("ssh" in engine.table)
    assert daemon.ended(plain)["endReason"] == "succeeded"
    assert "\n".join(daemon.texts(plain)) == f"{NASTY}||"


@pytest.mark.lent
def test_stop_stops_the_job(daemon: Daemon, engine: Engine, tmp_path: Path) -> None:
    """A stop gives the job its grace, and keeps its last lines.

    After a killed scheduler, the next one still knows the id of the job.
    """
    side = tmp_path / "side"
    daemon.write(f"{engine.defaults(SIDE=str(side))}\n[tasks.t]\nrun = '''{STUBBORN}'''\nmax_concurrent = 2\n")
    daemon.start()
    first = daemon.trigger("t")
    until(lambda: daemon.texts(first) == ["here"], "its first line")
    name = named(daemon, first)
    assert stopped(daemon, first)["endReason"] == "stopped"
    assert daemon.texts(first) == ["here", "bye"]
    second = daemon.trigger("t")
    until(lambda: daemon.texts(second) == ["here"], "its first line")
    other = named(daemon, second)
    daemon.kill_helper("ringward scheduler")
    run = daemon.run(second)
    assert (run["status"], run["executionId"]) == ("running", other)
    assert stopped(daemon, second)["endReason"] == "stopped"
    assert daemon.texts(second) == ["here", "bye"]
    assert [daemon.run(run_id)["executionId"] for run_id in (first, second)] == [name, other]
    assert side.read_text().split() == ["begin", first, "end", first, "begin", second, "end", second]


def test_jobs_of_a_killed_supervisor_are_stopped(daemon: Daemon, engine: Engine, tmp_path: Path) -> None:
    """Jobs that still run at the engine are stopped before the next daemon starts replacements."""
    side = tmp_path / "side"
    daemon.write(f"{engine.defaults(SIDE=str(side))}\n[services.s]\nrun = '''{STUBBORN}'''\n")
    daemon.start()
    first = until(lambda: daemon.runs("s"), "the service")[0]["id"]
    until(lambda: daemon.texts(first), "it to run")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    second = until(lambda: daemon.runs("s")[1:], "the service to start again", 60)[0]["id"]
    assert daemon.run(first)["endReason"] == "crashed"
    until(lambda: daemon.texts(second), "it to run")
    daemon.stop()
    assert side.read_text().split() == ["begin", first, "end", first, "begin", second, "end", second]
