"""Commands of launchers: arguments and texts that keep their meaning in another engine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store.runs.ids import new_ulid
from supervisor.config.load import load
from supervisor.config.value_types.presets import PRESETS, REMOTE_MARK
from supervisor.host.unix_accounts import UnixAccount
from supervisor.ipc.messages import Spawn
from supervisor.scheduler.launchers import launcher_commands
from supervisor.scheduler.loop.user_lookup import UserIdentity
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.run_parameters import complete_values
from supervisor.scheduler.runs.spawn_requests import spawn_of

RUN = "01KANM4E7K6WZ9V3T0000000AB"
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def spawn(
    tmp_path: Path, launcher: str, unit: str, values: dict[str, str] | None = None, account: UnixAccount | None = None
) -> Spawn:
    path = tmp_path / "r.toml"
    path.write_text(f'[launchers.l]\n{launcher}\n[tasks.t]\nlauncher = "l"\n{unit}')
    path.chmod(0o600)
    task = load(str(path), {}).tasks["t"]
    run = LiveRun(Unit(task), task, RUN, trigger="api", created_at=0, params=complete_values(task, values or {}))
    run.identity = UserIdentity(account)
    return spawn_of(run, "DAEMON", "log")


PRINTS = 'start = ["printf", "%s|", "{shell}", "-e", "-c", "{run}"]'
PARAMS = 'params = [{ name = "a", kind = "arg" }, { name = "b", kind = "flag" }]'


def test_run_as_a_string(tmp_path: Path) -> None:
    """The text of `run` is one argument, unchanged; parameters are $1 and so on."""
    spawned = spawn(tmp_path, PRINTS, f"run = 'echo \"$1\" {{run_id}}'\n{PARAMS}", {"a": "x 'y'", "b": "true"})
    assert spawned.argv[2:] == ["/bin/sh", "-e", "-c", 'echo "$1" {run_id}', "/bin/sh", "x 'y'", "--b"]


def test_run_as_a_list(tmp_path: Path) -> None:
    """Each item of a list stays one argument, even through the form for a string."""
    spawned = spawn(tmp_path, PRINTS, f'run = ["printf", "%s|", "it\'s"]\n{PARAMS}', {"a": "x y"})
    done = subprocess.run(spawned.argv[2:], capture_output=True, text=True, check=True)
    assert done.stdout == "it's|x y|"
    without = spawn(tmp_path, PRINTS, 'run = ["echo", "$HOME"]')
    assert subprocess.run(without.argv[2:], capture_output=True, text=True, check=True).stdout == "$HOME\n"


def test_placeholders(tmp_path: Path) -> None:
    """Each word stays one argument, and a word without a value is left out.

    Doubled braces, or a dollar in front, are not placeholders. Words for variables are repeated, and those for secrets
    only where their values are not shown.
    """
    words = [
        *("x", "{run_id}-{run_id_lower}", "{task}/{instance}/{attempt}", "--user={user}", "--group={group}"),
        *("--dir={working_dir}", "{{run}}", "$$" + "{run_id}", "{.Name}", "-{stop_signal}", "{grace_s}"),
        *("--env={env_name}", "--set={env_name}={env_value}", "{command}"),
    ]
    unit = 'run = "true"\nuser = "root"\nstop_signal = "SIGINT"\ngraceful_stop = "1500ms"\n'
    unit += 'env = { A = "b c" }\nsecrets = { TOKEN = "abcdefgh" }\n'
    spawned = spawn(tmp_path, f"start = {json.dumps(words)}", unit)
    lower = RUN.lower()
    assert spawned.argv[:9] == [
        *("x", f"{RUN}-{lower}", "t/0/0", "--user=root", "{{run}}", "$" + "{run_id}", "{.Name}", "-2", "2")
    ]
    assert {"--env=A", "--env=TOKEN", "--set=A=b c", f"--set=RINGWARD_RUN_ID={RUN}"} < set(spawned.argv)
    assert not any("abcdefgh" in word for word in spawned.argv)
    assert spawned.argv[-4:] == ["/bin/sh", "-e", "-c", "true"]


def test_user_and_directory(tmp_path: Path) -> None:
    """The user and the directory apply either to the engine or to the client, never to both."""
    unit = 'run = "true"\nuser = "root"\nworking_dir = "/srv"\n'
    spawned = spawn(tmp_path, 'preset = "systemd-run"', unit)
    assert (spawned.cwd, spawned.argv[-8:-6]) == (None, ["--working-directory=/srv", "--uid=root"])
    own = spawn(tmp_path, 'preset = "slurm"', unit)
    assert (own.cwd, own.argv[0]) == ("/srv", "srun")


def test_client_does_not_see_variables_of_another_user(tmp_path: Path) -> None:
    """A client with the daemon's rights gets the values under names of the daemon, and only if it passes on names."""
    other = UnixAccount(65534, 65534, (65534,), {"HOME": "/"})
    unit = 'run = "true"\nuser = "nobody"\nenv = { LD_PRELOAD = "x.so" }\nsecrets = { TOKEN = "abcdefgh" }\n'
    named = spawn(tmp_path, 'preset = "systemd-run"', unit, account=other)
    assert not [name for name in named.env if not name.startswith("RINGWARD_")]
    assert [named.env[name] for name in named.secrets] == ["abcdefgh"]
    assert named.argv[-8:-3] == ["/bin/sh", "-c", named.argv[-6], "ringward", "/bin/sh"]
    assert 'LD_PRELOAD="$$RINGWARD_VALUE_0"' in named.argv[-6]
    assert {f"--setenv={secret}" for secret in named.secrets} < set(named.argv)
    unnamed = spawn(tmp_path, 'start = ["ssh", "{user}@host", "{command}"]', unit, account=other)
    assert unnamed.argv == ["ssh", "nobody@host", "/bin/sh", "-e", "-c", "true"]
    assert not [name for name in unnamed.env if not name.startswith("RINGWARD_")]
    odd = spawn(tmp_path, 'preset = "systemd-run"', unit.replace('"x.so"', '"x.so", "a.b" = ""'), account=other)
    assert odd.refusal is not None


def test_stop_signals(tmp_path: Path) -> None:
    """With a stop command, the client gets no signal until the job's grace period ends; without one, at once."""
    unit = 'run = "true"\nstop_signal = [["SIGINT", "1s"], ["SIGTERM", "2s"]]\n'
    slurm = spawn(tmp_path, 'preset = "slurm"', unit)
    assert (slurm.launched, slurm.stop_signal, slurm.grace_ms) == (True, 0, 8000)
    assert slurm.stop_then == [[2, 1000], [15, 2000]]
    bare = spawn(tmp_path, 'start = ["x", "{command}"]', unit)
    assert (bare.launched, bare.stop_signal, bare.grace_ms) == (True, 2, 1000)


@pytest.mark.parametrize("preset", ["systemd-run", 'kubernetes"\nimage = "alpine:3'])
def test_expanding_engines(tmp_path: Path, preset: str) -> None:
    """Dollars are doubled for engines that expand variables, so every text reaches the job unchanged."""
    unit = "run = 'echo $$ $(A) \"$1\"'\nenv = { A = '$(B)$' }\nparams = [{ name = 'p', kind = 'arg' }]\n"
    spawned = spawn(tmp_path, f'preset = "{preset}"', unit, {"p": "${TOKEN}"})
    assert spawned.argv[-3:] == ['echo $$$$ $$(A) "$$1"', "/bin/sh", "$${TOKEN}"]
    assert ("--env=A=$$(B)$$" in spawned.argv) == ("kubernetes" in preset)
    own = spawn(tmp_path, 'start = ["x", "{command}"]', unit, {"p": "${TOKEN}"})
    assert own.argv[-1] == "${TOKEN}"


def test_nomad_templates(tmp_path: Path) -> None:
    """Template characters of Nomad in a command are escaped, so they reach the job unchanged."""
    unit = "run = 'echo ${A%.*} %{x} $$ %d \"$1\"'\nparams = [{ name = 'p', kind = 'arg' }]\n"
    spawned = spawn(tmp_path, 'preset = "nomad"', unit, {"p": "${A}"})
    (group,) = json.loads(spawned.env["RINGWARD_INPUT"])["Job"]["TaskGroups"]
    assert group["Tasks"][0]["Config"]["args"][2:] == ['echo $${A%.*} %%{x} $$ %d "$1"', "/bin/sh", "$${A}"]


@pytest.mark.parametrize("status", ["echo dead", "echo 'No job(s) with prefix or ID found' >&2; exit 1"])
def test_nomad_job_stopped_before_its_start(tmp_path: Path, status: str) -> None:
    """A client whose job was stopped before its start ends with an error."""
    nomad = tmp_path / "nomad"
    nomad.write_text(f"#!/bin/sh\ncase $2 in inspect) {status};; esac\n")
    nomad.chmod(0o755)
    (text,) = [word for word in PRESETS["nomad"].start if "job allocs" in word]
    done = subprocess.run(
        ["/bin/sh", "-c", text, "sh", "J", str(nomad)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "J ended before it started: it was stopped\n")


def test_ssh_arguments_have_no_secrets(tmp_path: Path) -> None:
    """Over ssh, secrets and variables are not arguments, so a list of processes does not show them."""
    unit = 'run = "true"\nenv = { A = "abcdefgh" }\nsecrets = { TOKEN = "ijklmnop" }\n'
    spawned = spawn(tmp_path, 'preset = "ssh"\nhost = "web1"', unit)
    assert not any("abcdefgh" in word or "ijklmnop" in word for word in spawned.argv)
    assert "ijklmnop" in spawned.env["RINGWARD_INPUT"]


@settings(max_examples=25, deadline=None)
@example([], {"-": "", "-i": "-u", "a b": "$"})
@given(
    st.lists(texts, max_size=4),
    st.dictionaries(texts.filter(lambda name: bool(name) and "=" not in name), texts, max_size=3),
)
def test_script_preserves_arguments(arguments: list[str], env: dict[str, str]) -> None:
    """Arguments and variables pass unchanged through the script in a POSIX shell."""
    env = {name: value for name, value in env.items() if name not in ("PATH", "LC_ALL")}
    code = (
        "import os,sys,json; print(json.dumps([sys.argv[1:], {n: os.environ.get(n) for n in json.loads(sys.argv[1])}]))"
    )
    command = ["/usr/bin/env", sys.executable, "-I", "-S", "-c", code, json.dumps(list(env)), *arguments]
    text = launcher_commands.script(command, env, cwd="/", umask=0o27)
    done = subprocess.run(["/bin/sh"], input=text.encode(), capture_output=True, env=_PLAIN, check=True)
    document: list[Any] = json.loads(done.stdout)
    assert document == [[json.dumps(list(env)), *arguments], env]


def test_ssh_job_is_killed_after_its_grace(tmp_path: Path) -> None:
    """A job that ignores its signal is killed after its grace, however long each probe takes."""
    count = tmp_path / "count"
    sleep = tmp_path / "sleep"
    sleep.write_text(f"#!/bin/sh\necho >>{count}\nexec {shutil.which('sleep')} 1\n")
    sleep.chmod(0o755)
    run = new_ulid()
    (remote,) = [word for word in PRESETS["ssh"].stop if "kill" in word]
    (text,) = launcher_commands.words([remote], {"run_id": run, "stop_signal": "15", "grace_s": "1"})
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    job = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**_PLAIN, REMOTE_MARK: run})
    assert job.stdout is not None
    job.stdout.readline()
    path = {**_PLAIN, "PATH": f"{tmp_path}:{_PLAIN['PATH']}"}
    with subprocess.Popen(["/bin/sh", "-c", text], env=path) as ending, job:
        assert job.wait() == -9
        assert ending.wait() == 0
    assert len(count.read_text()) <= 3


_PLAIN = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def test_truncated_script(tmp_path: Path) -> None:
    """A script that is cut off by a broken connection starts nothing."""
    mark = tmp_path / "mark"
    text = launcher_commands.script(["touch", str(mark)], {"A": "b"}, cwd="/", umask=None)
    for end in range(len(text)):
        subprocess.run(["/bin/sh", "-c", 'eval "$1"', "sh", text[:end]], capture_output=True)
    assert not mark.exists()
    subprocess.run(["/bin/sh", "-c", 'eval "$1"', "sh", text], check=True)
    assert mark.exists()
