"""Apps of pm2: reading the module, with node and without, and the result."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import exit_codes
from supervisor.tools.importers import pm2
from supervisor.tools.importers.import_result import Outcome, UnreadableFile
from tests.support.command_line import Ringward
from tests.tools.importers.imported import checked, mentions

COMPUTED = """
console.log("to be ignored");
const port = 3000 + 1;
module.exports = {
  apps: ["web", "worker"].map((name) => ({ name, script: `./${name}.js`, cwd: __dirname, env: { PORT: port } })),
};
"""
LITERAL = r"""
// the shop
'use strict';
module.exports = {
  apps: [{
    name: 'web', /* of the shop */
    "script": "server.js",
    args: ['--title', 'it\'s\x41'],
    env: { NODE_ENV: `production`, LIMIT: 1_000, RATE: -.5, NOTHING: undefined, ON: true },
  },],
};
"""

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")


def app(tmp_path: Path, **said_by_app: Any) -> tuple[Outcome, dict[str, Any]]:
    """Import one app."""
    outcome = Outcome()
    text = json.dumps({"apps": [{"name": "web", "script": "server.js", **said_by_app}]})
    pm2.read(str(tmp_path / "ecosystem.json"), text, outcome)
    return outcome, checked(outcome, tmp_path)


def web(tmp_path: Path, **said_by_app: Any) -> dict[str, Any]:
    definition: dict[str, Any] = app(tmp_path, **said_by_app)[1]["web"]
    return definition


@needs_node
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ecosystem.config.js", COMPUTED),
        ("ecosystem.config.cjs", COMPUTED),
        ("ecosystem.config.mjs", "export default { apps: [{ script: 'web.js' }, { script: 'worker.js' }] };"),
    ],
)
def test_node_evaluates_the_module(ringward: Ringward, tmp_path: Path, name: str, text: str) -> None:
    """Node evaluates a module as under pm2, and the result is a valid configuration."""
    (tmp_path / name).write_text(text)
    target = tmp_path / "pm2.toml"
    result = ringward("import", "pm2", str(tmp_path / name), "-o", str(target), plain=True)
    assert (result.exit_code, "0 tasks, 2 services" in result.output) == (exit_codes.OK, True)
    assert ringward("validate", str(target), plain=True).exit_code == exit_codes.OK


@needs_node
def test_failing_module(tmp_path: Path) -> None:
    """The message of node is shown, and a module without apps is refused."""
    path = tmp_path / "ecosystem.config.js"
    path.write_text("throw new Error('no such port')")
    with pytest.raises(UnreadableFile, match="no such port"):
        pm2.read(str(path), path.read_text(), Outcome())
    path.write_text("module.exports = 5;")
    with pytest.raises(UnreadableFile, match="has no apps"):
        pm2.read(str(path), path.read_text(), Outcome())


def test_modules_without_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of literals needs no node; other modules are refused with the line and the remedy."""
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = Outcome()
    pm2.read("ecosystem.config.js", LITERAL, outcome)
    definition = checked(outcome, tmp_path)["web"]
    assert definition["run"] == ["node", "server.js", "--title", "it'sA"]
    expected = {"NODE_ENV": "production", "LIMIT": "1000", "RATE": "-0.5", "ON": "true", "NODE_APP_INSTANCE": "0"}
    assert definition["env"] == expected
    with pytest.raises(UnreadableFile, match=r"ecosystem.config.js:2: .*JSON\.stringify"):
        pm2.read("ecosystem.config.js", COMPUTED, Outcome())
    with pytest.raises(UnreadableFile, match=r"x\.js:2: "):
        pm2.read("x.js", "module.exports = {\n port: process.env.PORT }", Outcome())


@pytest.mark.parametrize(
    ("keys", "run"),
    [
        ({"args": "--port 3000 --name 'a b'"}, ["node", "server.js", "--port", "3000", "--name", "a b"]),
        ({"args": 'd"e f" --x=\'y z\' ""'}, ["node", "server.js", 'd"e', 'f"', "--x='y z'"]),
        ({"node_args": ["--max-old-space-size=300"]}, ["node", "--max-old-space-size=300", "server.js"]),
        ({"nodeArgs": "--trace-warnings"}, ["node", "--trace-warnings", "server.js"]),
        ({"script": None, "cmd": "other.js"}, ["node", "other.js"]),
        ({"script": "app.py", "interpreter": "/srv/venv/bin/python"}, ["/srv/venv/bin/python", "app.py"]),
        ({"script": "npm run serve"}, ["bash", "-c", "npm run serve"]),
        ({"script": "npm run serve", "args": "ignored"}, ["bash", "-c", "npm run serve"]),
        ({"script": "/usr/bin/caddy", "args": ["run"], "interpreter": "none"}, ["/usr/bin/caddy", "run"]),
    ],
)
def test_commands(tmp_path: Path, keys: dict[str, Any], run: list[str]) -> None:
    """Arguments are split, and keys have aliases, as in pm2."""
    assert web(tmp_path, **keys)["run"] == run


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory which alone is in PATH, with a script for node named ``tool``, and a binary ``go``."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, content in (("tool", b"#!/usr/bin/env node\n"), ("go", b"\x7fELF\0")):
        (directory / name).write_bytes(content)
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    return directory


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("start", "run", "note"),
    [
        (b"", ["node", "--trace", "www", "a"], None),
        (b"console.log(1)", ["node", "--trace", "www", "a"], None),
        (b"#!/usr/bin/env node\n", ["node", "--trace", "www", "a"], None),
        (b"#!/bin/sh\n", ["{directory}/www", "a"], "its first line names an interpreter"),
        (b"\x7fELF\0\0", ["{directory}/www", "a"], None),
    ],
)
def test_scripts_without_extension(tmp_path: Path, start: bytes, run: list[str], note: str | None) -> None:
    """Node runs a script without a known extension, unless it is binary or names another interpreter."""
    (tmp_path / "www").write_bytes(start)
    outcome, units = app(tmp_path, script="www", args="a", node_args="--trace")
    assert units["web"]["run"] == [word.format(directory=tmp_path) for word in run]
    assert not outcome.lost
    assert note is None or mentions(outcome, note)


def test_programs_in_path(tmp_path: Path, programs: Path) -> None:
    """A program in PATH is started directly, unless node needs options to run it."""
    assert web(tmp_path, script="go", args="run", node_args="--trace")["run"] == ["go", "run"]
    assert web(tmp_path, script="tool", args="start")["run"] == ["tool", "start"]
    expected = ["node", "--trace", f"{programs}/tool", "start"]
    assert web(tmp_path, script="tool", args="start", node_args="--trace")["run"] == expected


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("keys", "run", "words"),
    [
        ({"script": "./bin/www"}, ["node", "./bin/www"], "cannot be read here: it is started with node"),
        ({"script": "caddy"}, ["caddy"], "cannot be read here: it is started directly"),
        ({"interpreter": "node@16"}, ["node", "server.js"], "interpreter = node@16"),
        ({"script": "a.ts"}, ["node", "a.ts"], "a.ts is started with node here"),
        ({"script": "a.tsx"}, ["node", "a.tsx"], "a.tsx is started with node here"),
        ({"script": "a.coffee"}, ["coffee", "a.coffee"], "a.coffee is started with coffee here"),
        ({"script": "a.ls"}, ["lsc", "a.ls"], "a.ls is started with lsc here"),
    ],
)
def test_uncertain_interpreters(tmp_path: Path, keys: dict[str, Any], run: list[str], words: str) -> None:
    """An interpreter that may be the wrong one is to be checked."""
    outcome, units = app(tmp_path, **keys)
    assert units["web"]["run"] == run
    assert any(words in note.text for note in outcome.lost)


def test_file_server(tmp_path: Path) -> None:
    """pm2's own file server is not converted."""
    outcome, units = app(tmp_path, script="serve", env={"PM2_SERVE_PORT": 8080})
    assert not units
    assert mentions(outcome, "pm2's own file server")


def test_python(tmp_path: Path, programs: Path) -> None:
    """Python is python3 where there is no python, and does not buffer its output."""
    definition = web(tmp_path, script="app.py")
    assert (definition["run"], definition["env"]["PYTHONUNBUFFERED"]) == (["python3", "app.py"], "1")
    (programs / "go").rename(programs / "python")
    assert web(tmp_path, script="app.py")["run"] == ["python", "app.py"]


def test_variables(tmp_path: Path) -> None:
    """Values become the same text as in JavaScript, and the key port sets PORT."""
    env = web(tmp_path, env={"NOTHING": None, "LIST": [1, {"a": "é"}], "EMPTY": "", "PORT": 1}, port=2)["env"]
    expected = {"NOTHING": "null", "LIST": '[1,{"a":"é"}]', "EMPTY": "", "PORT": "2", "NODE_APP_INSTANCE": "0"}
    assert env == expected


def test_times_and_restarts(tmp_path: Path) -> None:
    """Defaults match pm2's defaults, and values of an app replace them."""
    definition = web(tmp_path)
    assert (definition["stop_signal"], definition["graceful_stop"]) == ("SIGINT", "1600ms")
    assert definition["working_dir"] == str(tmp_path)
    assert web(tmp_path, min_uptime="10s", kill_timeout=3000)["graceful_stop"] == "3s"
    definition = web(tmp_path, stop_exit_codes=[0, 3], namespace="shop", uid="nobody", max_memory_restart="300M")
    assert (definition["restart"], definition["exit_codes"], definition["group"]) == ("on_failure", [0, 3], "shop")
    assert (definition["user"], definition["limits"]) == ("nobody", {"memory": "300mb"})
    assert web(tmp_path, autorestart=False)["restart"] == "never"
    assert web(tmp_path, stop_exit_codes=0)["exit_codes"] == [0]
    assert mentions(app(tmp_path, kill_timeout=60_000)[0], "shutdown_timeout")


@pytest.mark.parametrize(
    ("keys", "delay", "backoff", "healthy_after"),
    [
        ({}, "100ms", "exponential", "1s"),
        ({"max_restarts": 3, "min_uptime": "5s"}, "100ms", "exponential", "5s"),
        ({"restart_delay": 1500}, "1500ms", "constant", "1s"),
        ({"exp_backoff_restart_delay": 200}, "200ms", "exponential", "30s"),
    ],
)
def test_restarts_never_end(tmp_path: Path, keys: dict[str, Any], delay: str, backoff: str, healthy_after: str) -> None:
    """Restarts never end, because pm2 counts only the first quick exits of an app; there is always a delay."""
    outcome, units = app(tmp_path, **keys)
    definition = units["web"]
    assert definition["restart_attempts"] == "unlimited"
    assert (definition["restart_delay"], definition["restart_backoff"]) == (delay, backoff)
    assert definition["healthy_after"] == healthy_after
    assert mentions(outcome, f"after {keys.get('max_restarts', 16)} quick exits", "restarts never end here")
    assert bool(outcome.lost) == ("max_restarts" in keys)


def test_zero_means_not_set(tmp_path: Path) -> None:
    """A value of 0 has no effect in pm2, so the defaults apply."""
    zeros = dict.fromkeys(("max_restarts", "min_uptime", "kill_timeout", "restart_delay"), 0)
    outcome, units = app(tmp_path, **zeros)
    assert units["web"] == web(tmp_path)
    assert not outcome.lost


def test_instances(tmp_path: Path) -> None:
    """Forked instances get their number and ports; a cluster becomes one instance, which is reported."""
    outcome, units = app(tmp_path, instances=3, exec_mode="fork", increment_var="PORT", env={"PORT": 3000, "A": "x"})
    definition = units["web"]
    assert (definition["instances"], definition["env"]) == (3, {"A": "x"})
    shown = definition["run"].replace("exec node server.js", "echo $NODE_APP_INSTANCE $PORT")
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", shown], env={"RINGWARD_INSTANCE": "2"}, capture_output=True, text=True
    )
    assert done.stdout == "2 3002\n"
    assert not outcome.lost
    outcome, units = app(tmp_path, instances=4)
    assert "instances" not in units["web"]
    assert mentions(outcome, "apps[0]", "cluster mode")


def test_cron_restart(tmp_path: Path) -> None:
    """cron_restart becomes a task that has the permission to restart the service, and no other permission."""
    _, units = app(tmp_path, cron_restart="0 3 * * *")
    task = units["restart-web"]
    assert (task["cron"], task["run"], task["may"]) == ("0 3 * * *", ["ringward", "restart", "web"], ["restart:web"])
    assert mentions(app(tmp_path, cron_restart="whenever")[0], "cron_restart = whenever")


@pytest.mark.parametrize(
    "keys",
    [
        {"env": ["A=1"]},
        {"max_restarts": "many"},
        {"max_restarts": float("inf")},
        {"instances": "all"},
        {"cwd": "/srv", "script": " "},
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, keys: dict[str, Any]) -> None:
    """An app with an invalid value is not converted, and is reported with all its values."""
    outcome, units = app(tmp_path, **keys)
    assert not units
    whole = json.dumps({"name": "web", "script": "server.js", **keys})
    assert mentions(outcome, "apps[0]", "is not converted", whole)


@pytest.mark.parametrize("text", ['{"script": "\\ud800"}', "[" * 100_000])
def test_unusable_json(text: str) -> None:
    """A string that is not Unicode text, and too many levels, are refused."""
    with pytest.raises(UnreadableFile, match=r"^x: (a string is not valid Unicode|is nested too deeply)"):
        pm2.read("x", text, Outcome())


def test_settings_not_carried_over_are_reported(tmp_path: Path) -> None:
    """Settings not converted are listed above the table of the app; pm2's own settings are not mentioned."""
    outcome, _ = app(
        tmp_path,
        watch=True,
        wait_ready=True,
        out_file="/var/log/web.log",
        env_production={"A": "1"},
        something="new",
        merge_logs=True,
        watch_delay=5,
    )
    for key in ("watch ", "wait_ready", "out_file = /var/log/web.log", "env_production", "something = new"):
        assert mentions(outcome, "apps[0]", key)
    assert not mentions(outcome, "merge_logs")
    toml = outcome.toml("a test")
    assert toml.index("# CHECK: watch") < toml.index("[services.web]")
    outcome, units = app(tmp_path, name=None, script="./worker/")
    assert (list(units), mentions(outcome, "is named")) == (["worker"], False)
    outcome = Outcome()
    pm2.read("e.json", json.dumps({"apps": [{"name": "x"}], "deploy": {"production": {}}}), outcome)
    assert mentions(outcome, "e.json deploy")
    assert mentions(outcome, "e.json apps[0]", "no script")
