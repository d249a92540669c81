"""Presets for engines that are not installed, with fake clients (tests/programs/engine_client.py)."""

import grp
import json
import os
import pwd
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, shell_program
from tests.support.waiting import until

NASTY = "a 'quote', a \"double\" one, $HOME, `id`, a \\ and\ttwo\nlines; {run_id}"
DOLLARS = NASTY + " $$ ${RINGWARD_TASK} $(RINGWARD_TASK)"
SECRET = "correct'horse battery"
CLIENTS = ("docker", "kubectl", "nomad", "ray", "systemd-run", "systemctl")
LAUNCHERS = """
[launchers.docker]
preset = "docker"
image = "alpine:3"
options = ["--network=none"]
[launchers.kubernetes]
preset = "kubernetes"
client = ["kubectl", "--namespace=jobs"]
image = "alpine:3"
[launchers.nomad]
preset = "nomad"
image = "alpine:3"
[launchers.ray]
preset = "ray"
[launchers.systemd]
preset = "systemd-run"
options = ["--property=Nice=5"]
"""
ENGINES = ("docker", "kubernetes", "nomad", "ray", "systemd")
NAMES = {
    "docker": "4c01db0b339c",
    "kubernetes": "jobs/ringward-{lower}",
    "nomad": "ringward-{id}",
    "ray": "ringward-{id}",
    "systemd": "ringward-{id}.service",
}
"""Names that the engines give to the jobs of runs."""


def clients(directory: Path) -> None:
    """Install the fake clients under the names of the real ones."""
    directory.mkdir()
    for name in CLIENTS:
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec {shell_program("engine_client")} {name} "$@"\n')
        script.chmod(0o755)


@pytest.mark.lent
def test_each_preset_calls_its_client_correctly(daemon: Daemon, tmp_path: Path) -> None:
    """Each client gets the command, the variables, and the secrets where they may travel.

    A stop stops the job, and its last lines are kept. Ray does not report exit codes.
    """
    clients(tmp_path / "bin")
    state = tmp_path / "state"
    state.mkdir()
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "STANDIN_STATE": str(state), "NASTY": NASTY}
    table = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
    text = f'{LAUNCHERS}[defaults]\ngraceful_stop = "60s"\nenv = {{ {table} }}\n'
    for engine in ENGINES:
        more = f'launcher = "{engine}"\n'
        if engine in ("docker", "systemd"):
            more += f"secrets = {{ TOKEN = {json.dumps(SECRET)} }}\nworking_dir = {json.dumps(str(tmp_path))}\n"
        if engine == "systemd":
            more += f'user = "{pwd.getpwuid(os.geteuid()).pw_name}:{grp.getgrgid(os.getegid()).gr_name}"\n'
        text += (
            f"[tasks.{engine}]\n{more}params = [{{ name = 'one', kind = 'arg' }}]\n"
            'run = \'echo "$1|$NASTY|$RINGWARD_TASK"; [ -z "$TOKEN" ] || { pwd; echo "$TOKEN"; }; exit 7\'\n'
            f"[tasks.{engine}-long]\n{more}"
            "run = ['/bin/sh', '-c', 'trap \"echo bye; exit 3\" TERM; echo \"$0\"; while :; do sleep 0.05; done', "
            f"{json.dumps(NASTY)}]\n"
        )
    daemon.write(text)
    daemon.start()
    long = {engine: daemon.trigger(f"{engine}-long") for engine in ENGINES}
    short = {}
    for engine in ENGINES:
        answer = daemon.request("POST", f"/api/tasks/{engine}/run", {"params": {"one": DOLLARS}})
        short[engine] = answer.json()["id"]
    for engine, run in short.items():
        ended = daemon.ended(run)
        said = "\n".join(daemon.texts(run))
        assert f"{DOLLARS}|{NASTY}|{engine}" in said, (engine, daemon.lines(run))
        assert ended["exitCode"] == (1 if engine == "ray" else 7), engine
        assert (f"\n{tmp_path}\n***" in said) == (engine in ("docker", "systemd"))
    for engine, run in long.items():
        until(lambda run=run: NASTY in "\n".join(daemon.texts(run)), f"{engine} to run")  # type: ignore[misc]
        name = until(lambda run=run: daemon.run(run).get("executionId"), f"the name at {engine}")  # type: ignore[misc]
        assert name == NAMES[engine].format(id=run, lower=run.lower())
        assert daemon.request("POST", f"/api/runs/{run}/stop").status == 204
    for engine, run in long.items():
        assert daemon.ended(run)["endReason"] == "stopped", engine
        assert "bye" in daemon.texts(run), (engine, daemon.lines(run))
        assert not [line for line in daemon.lines(run) if line["stream"] == "system" and "SIGTERM" in line["text"]]
