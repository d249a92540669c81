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
        ({"node_args": ["--max-old-space-size=300"]}, ["node", "--max-old-space-size=300", "server.js"]),
        ({"script": "app.py"}, ["python3", "app.py"]),
        ({"script": "app.py", "interpreter": "/srv/venv/bin/python"}, ["/srv/venv/bin/python", "app.py"]),
        ({"script": "npm", "args": "start"}, ["npm", "start"]),
        ({"script": "npm run serve"}, ["bash", "-c", "npm run serve"]),
        ({"script": "/usr/bin/caddy", "args": ["run"], "interpreter": "none"}, ["/usr/bin/caddy", "run"]),
    ],
)
def test_commands(tmp_path: Path, keys: dict[str, Any], run: list[str]) -> None:
    """The interpreter depends on the extension of the script, as with pm2."""
    assert web(tmp_path, **keys)["run"] == run


def test_times_and_restarts(tmp_path: Path) -> None:
    """Defaults match pm2's defaults, and values of an app replace them."""
    definition = web(tmp_path)
    assert (definition["restart_attempts"], definition["healthy_after"], definition["restart_delay"]) == (
        15,
        "1s",
        "0s",
    )
    assert (definition["stop_signal"], definition["graceful_stop"]) == ("SIGINT", "1600ms")
    assert definition["working_dir"] == str(tmp_path)
    definition = web(tmp_path, max_restarts=5, min_uptime="10s", exp_backoff_restart_delay=100, kill_timeout=3000)
    assert (definition["restart_attempts"], definition["healthy_after"], definition["graceful_stop"]) == (
        4,
        "10s",
        "3s",
    )
    assert (definition["restart_backoff"], definition["restart_delay"]) == ("exponential", "100ms")
    definition = web(tmp_path, stop_exit_codes=[0, 3], namespace="shop", uid="nobody", max_memory_restart="300M")
    assert (definition["restart"], definition["exit_codes"], definition["group"]) == ("on_failure", [0, 3], "shop")
    assert (definition["user"], definition["limits"]) == ("nobody", {"memory": "300mb"})
    assert web(tmp_path, autorestart=False)["restart"] == "never"
    assert mentions(app(tmp_path, kill_timeout=60_000)[0], "shutdown_timeout")


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
        {"args": "'open"},
        {"instances": "all"},
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, keys: dict[str, Any]) -> None:
    """An app with an invalid value is not carried over, and is reported with all its values."""
    outcome, units = app(tmp_path, **keys)
    assert not units
    whole = json.dumps({"name": "web", "script": "server.js", **keys})
    assert mentions(outcome, "apps[0]", "is not carried over", whole)


@pytest.mark.parametrize("text", ['{"script": "\\ud800"}', "[" * 100_000])
def test_unusable_json(text: str) -> None:
    """A string that is not Unicode text, and too many levels, are refused."""
    with pytest.raises(UnreadableFile, match=r"^x: (a string is not valid Unicode|is nested too deeply)"):
        pm2.read("x", text, Outcome())


def test_settings_not_carried_over_are_reported(tmp_path: Path) -> None:
    """Settings not carried over are listed above the table of the app; pm2's own settings are not mentioned."""
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
    assert toml.index("# LOOK AT THIS: watch") < toml.index("[services.web]")
    outcome = Outcome()
    pm2.read("e.json", json.dumps({"apps": [{"name": "x"}], "deploy": {"production": {}}}), outcome)
    assert mentions(outcome, "e.json deploy")
    assert mentions(outcome, "e.json apps[0]", "no script")
