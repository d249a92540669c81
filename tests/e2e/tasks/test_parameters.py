"""Parameters, through the real daemon: as arguments and environment, never as text that is parsed again."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.client import Answer
from tests.support.daemon import Daemon
from tests.support.waiting import until

SHOW = """
import json, os, sys
print(json.dumps([sys.argv[1:], {name: os.environ.get(name) for name in ("DAY", "MODE", "TOKEN")}]))
"""
SECRET = "correct-horse-42"
HOSTILE = (
    "; touch injected",
    "$(touch injected)",
    "`touch injected`",
    "a\nb",
    "' \" \\",
    "${HOME} $1 *",
    "&& exit 3",
    "ünï cødé 🎉",
    "%s {run} {0}",
)


def declared(*params: str) -> str:
    return f"params = [{', '.join(params)}]\n"


def given(daemon: Daemon, task: str, query: str = "?wait=60&naming=camel", **params: Any) -> Answer:
    return daemon.request("POST", f"/api/tasks/{task}/run{query}", {"params": params})


def shown(daemon: Daemon, run_id: str) -> Any:
    (line,) = daemon.texts(run_id)
    return json.loads(line)


def write_show(daemon: Daemon) -> str:
    path = daemon.config.parent / "show.py"
    path.write_text(SHOW)
    return f"/usr/bin/env python3 {path}"


@pytest.mark.lent
def test_parameters_reach_the_command(daemon: Daemon) -> None:
    """Parameters arrive as variables, positional arguments, options and flags, in scripts and lists, with any value."""
    show = write_show(daemon)
    params = declared(
        '{ name = "DAY", kind = "env" }',
        '{ name = "level", kind = "option" }',
        '{ name = "first", kind = "arg", pattern = "(?s).*" }',
        '{ name = "second", kind = "arg", default = "2" }',
        '{ name = "dry-run", kind = "flag" }',
    )
    daemon.write(
        f"[tasks.text]\nrun = '{show} \"$@\"'\nworking_dir = '.'\n{params}"
        f"[tasks.list]\nrun = {json.dumps(show.split())}\nworking_dir = '.'\n{params}"
        "[tasks.first]\nrun = 'printf %s \"$0 $# $1\"'\n" + declared('{ name = "a", kind = "arg" }')
    )
    daemon.start()
    for task in ("text", "list"):
        for value in HOSTILE:
            run = given(daemon, task, DAY=value, level=value, first=value, **{"dry-run": "true"}).json()
            assert (run["endReason"], run["exitCode"]) == ("succeeded", 0)
            argv, env = shown(daemon, run["id"])
            assert argv == [value, "2", f"--level={value}", "--dry-run"]
            assert env["DAY"] == value
            assert run["params"] == {"DAY": value, "level": value, "first": value, "second": "2", "dry-run": "true"}
        run = given(daemon, task, first="-x").json()
        assert shown(daemon, run["id"])[0] == ["-x", "2"]
        run = given(daemon, task).json()
        assert shown(daemon, run["id"]) == [["", "2"], {"DAY": None, "MODE": None, "TOKEN": None}]
        assert run["params"] == {"second": "2"}
    assert not list(daemon.config.parent.glob("**/injected"))
    assert daemon.texts(given(daemon, "first", a="x y").json()["id"]) == ["/bin/sh 1 x y"]
    assert daemon.texts(given(daemon, "first").json()["id"]) == ["/bin/sh 0 "]


def test_invalid_parameters_start_nothing(daemon: Daemon) -> None:
    """Invalid parameters yield a 422 that names each of them, and no run. A scheduled run takes the defaults."""
    daemon.write(
        "[tasks.t]\nrun = 'true'\n"
        + declared(
            '{ name = "DAY", kind = "env", required = true, pattern = "[0-9]{4}-[0-9]{2}-[0-9]{2}" }',
            '{ name = "count", kind = "option", type = "integer" }',
            '{ name = "format", kind = "arg", choices = ["csv", "json"] }',
            '{ name = "free", kind = "arg" }',
            '{ name = "TOKEN", kind = "env", secret = true }',
        )
        + "[tasks.daily]\nrun = 'echo $MODE'\nrun_on_start = true\n"
        + declared('{ name = "MODE", kind = "env", default = "fast" }')
    )
    daemon.start()
    answer = given(daemon, "t", count="x", format="cvs", free="-rf", TOKEN="short", dAY="1")
    assert answer.status == 422
    by_location = {error["location"]: error["message"] for error in answer.json()["errors"]}
    assert by_location == {
        "body.params.DAY": "is required",
        "body.params.count": "must be a whole number of at most 18 digits",
        "body.params.format": 'must be "csv" or "json"',
        "body.params.free": by_location["body.params.free"],
        "body.params.TOKEN": "cannot be masked: a secret must have lines of 6 to 8192 bytes",
        "body.params.dAY": "is not a parameter of this task; it has DAY, count, format, free, TOKEN",
    }
    assert "hyphen" in by_location["body.params.free"]
    for wrong in ({"DAY": "2026-11-21\nx"}, {"DAY": "2026-11-21", "free": "a\0b"}, {"DAY": 3}, {"DAY": None}):
        assert given(daemon, "t", **wrong).status == 422
    for size, status in ((70_000, 422), (1 << 20, 413)):
        assert given(daemon, "t", DAY="2026-11-21", free="x" * size).status == status
    assert given(daemon, "t", **{f"p{n}": "" for n in range(101)}).status == 422
    done = daemon.cli("run", "t", "-p", "DAY=2026-11-21", "-p", "count=x")
    assert done.returncode == 125
    assert "-p count: must be a whole number" in done.stderr
    assert daemon.runs("t") == []
    (started,) = daemon.runs("daily")
    assert daemon.ended(started["id"])["params"] == {"MODE": "fast"}
    assert daemon.texts(started["id"]) == ["fast"]


def test_retry_queue_and_rerun_keep_the_values(daemon: Daemon) -> None:
    """A retry, a queued run after a killed scheduler, and a rerun have the values of the first run."""
    show = write_show(daemon)
    params = declared('{ name = "DAY", kind = "env", default = "monday" }', '{ name = "a", kind = "arg" }')
    daemon.write(
        f"[tasks.fails]\nrun = '{show} \"$@\"; exit 1'\nretry_attempts = 1\nretry_delay = '0s'\n{params}"
        f"[tasks.waits]\nrun = '{show} \"$@\"; while [ ! -e go ]; do sleep 0.01; done'\nworking_dir = '.'\n{params}"
    )
    daemon.start()
    first = given(daemon, "fails", DAY="friday", a="x").json()["id"]
    again = until(lambda: (runs := daemon.runs("fails"))[1:] and runs[1]["id"], "the retry")
    ends = [daemon.ended(run_id) for run_id in (first, again)]
    assert [run["params"] for run in ends] == [{"DAY": "friday", "a": "x"}] * 2
    assert shown(daemon, first) == shown(daemon, again)
    waiting = [given(daemon, "waits", "", DAY=day, a=day).json()["id"] for day in ("one", "two")]
    daemon.kill_helper("ringward scheduler")
    (daemon.config.parent / "go").touch()
    for run_id, day in zip(waiting, ("one", "two"), strict=True):
        assert daemon.ended(run_id)["params"] == {"DAY": day, "a": day}
        assert shown(daemon, run_id)[0] == [day]
    answer = daemon.request("POST", "/api/runs/bulk/rerun", {"match_all": True})
    new = {rerun["task_name"]: rerun["run_id"] for rerun in answer.json()["triggered"]}
    assert daemon.ended(new["waits"])["params"] == {"DAY": "two", "a": "two"}
    daemon.ended(new["fails"])
    assert shown(daemon, new["fails"]) == shown(daemon, first)
    changed = declared('{ name = "DAY", kind = "env", choices = ["monday"] }')
    daemon.config.write_text(daemon.config.read_text().replace(params, changed))
    assert daemon.request("POST", "/api/daemon/reload").status == 200
    refused = daemon.request("POST", "/api/runs/bulk/rerun", {"match_all": True})
    assert refused.status == 409
    assert {error["location"] for error in refused.json()["errors"]} == {
        f"tasks.{task}.params.{name}" for task in ("fails", "waits") for name in ("DAY", "a")
    }


@pytest.mark.lent
def test_idempotency_key_covers_the_values(daemon: Daemon) -> None:
    """The same key with the same values returns the same run; with other values it is refused."""
    daemon.write("[tasks.t]\nrun = 'true'\n" + declared('{ name = "A", kind = "env" }', '{ name = "B", kind = "env" }'))
    daemon.start()
    headers = {"Idempotency-Key": "k"}

    def run_with(**params: str) -> Answer:
        return daemon.request("POST", "/api/tasks/t/run", {"params": params}, headers)

    first = run_with(A="1", B="2")
    assert run_with(B="2", A="1").json()["id"] == first.json()["id"]
    assert run_with(A="1", B="3").status == 422


def test_secret_parameter_reaches_only_its_run(daemon: Daemon) -> None:
    """Only the command and its retry have the secret; until they end, one file of the daemon's user holds it."""
    command = "echo got $TOKEN; while [ ! -e go ]; do sleep 0.01; done; [ $RINGWARD_ATTEMPT = 1 ]"
    daemon.write(
        f"[tasks.login]\nrun = '{command}'\nworking_dir = '.'\nretry_attempts = 1\nretry_delay = '0s'\n"
        + declared('{ name = "TOKEN", kind = "env", secret = true, required = true }', '{ name = "A", kind = "env" }')
    )
    daemon.start()
    headers = {"Idempotency-Key": "k"}
    triggered = daemon.request("POST", "/api/tasks/login/run", {"params": {"TOKEN": SECRET, "A": "x"}}, headers)
    first = triggered.json()["id"]
    until(lambda: daemon.texts(first) == ["got ***"], "its output")
    secret_file = daemon.data / "secrets" / first
    assert (secret_file.stat().st_mode & 0o777, secret_file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(secret_file.read_text()) == {"TOKEN": SECRET}
    for process in psutil.Process(daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # the command's sleep
            assert SECRET not in " ".join(process.cmdline())
    daemon.kill_helper("ringward scheduler")
    (daemon.config.parent / "go").touch()
    assert daemon.ended(first)["params"] == {"A": "x"}
    again = until(lambda: (runs := daemon.runs("login"))[1:] and runs[1]["id"], "the retry")
    assert daemon.ended(again)["endReason"] == "succeeded"
    assert daemon.texts(again) == ["got ***"]
    until(lambda: not list(secret_file.parent.iterdir()), "the secrets to be forgotten")
    refused = daemon.request("POST", "/api/runs/bulk/rerun", {"ids": [first]})
    assert (refused.status, refused.json()["errors"]) == (
        409,
        [{"location": "tasks.login.params.TOKEN", "message": "is secret, and its value is no longer kept"}],
    )
    wrong = given(daemon, "login", TOKEN=SECRET, A=5)
    assert (wrong.status, SECRET.encode() in wrong.body) == (422, False)
    paths = ("/api/tasks", "/api/tasks/login", f"/api/runs/{first}", f"/api/runs/{first}/ending", "/api/audit")
    assert not any(SECRET.encode() in daemon.get(path).body for path in paths)
    assert daemon.holding(SECRET) == []
    assert daemon.stop() == 0
    assert SECRET not in daemon.output.read_text()


@pytest.mark.lent
def test_rerun_of_an_active_run_with_secrets(daemon: Daemon, tmp_path: Path) -> None:
    """A rerun of an active run gets its secret, and a run that waited for long still has its own."""
    daemon.write(
        "[tasks.t]\nrun = 'echo $TOKEN | tr a-z A-Z; while [ ! -e go ]; do sleep 0.01; done'\n"
        f"working_dir = '{tmp_path}'\n" + declared('{ name = "TOKEN", kind = "env", secret = true }')
    )
    daemon.start()
    first = given(daemon, "t", "", TOKEN=SECRET).json()["id"]
    answer = daemon.request("POST", "/api/runs/bulk/rerun", {"ids": [first]})
    (new,) = answer.json()["triggered"]
    (tmp_path / "go").touch()
    daemon.ended(new["run_id"])
    assert daemon.texts(new["run_id"]) == [SECRET.upper()]


@pytest.mark.lent
def test_task_describes_its_parameters(daemon: Daemon) -> None:
    """A task describes every declared parameter, but not the default of a secret."""
    daemon.write(
        "[tasks.t]\nrun = 'true'\n"
        + declared(
            f'{{ name = "TOKEN", kind = "env", secret = true, default = "{SECRET}", description = "who" }}',
            '{ name = "n", kind = "option", type = "integer", default = 3, choices = [1, 3] }',
        )
    )
    daemon.start()
    token, number = daemon.task("t")["definition"]["params"]
    assert token == {
        "name": "TOKEN",
        "kind": "env",
        "type": "string",
        "default": "***",
        "required": False,
        "choices": [],
        "description": "who",
        "secret": True,
    }
    assert (number["type"], number["default"], number["choices"]) == ("integer", "3", ["1", "3"])


@pytest.mark.lent
def test_values_on_the_command_line(daemon: Daemon) -> None:
    """``-p`` passes values, or takes them from the environment, where ``ps`` does not show them."""
    daemon.write(
        "[tasks.t]\nrun = 'echo $A $HOME_TOWN'\n"
        + declared('{ name = "A", kind = "env" }', '{ name = "HOME_TOWN", kind = "env" }')
    )
    daemon.start()
    os.environ["HOME_TOWN"] = "Brno"
    try:
        done = daemon.cli("run", "t", "-p", "A=x=y", "-p", "HOME_TOWN")
    finally:
        del os.environ["HOME_TOWN"]
    assert (done.returncode, done.stdout) == (0, "x=y Brno\n")
    for wrong in (["A=1", "A=2"], ["=1"], ["NOT_THERE"]):
        options = [part for text in wrong for part in ("-p", text)]
        assert daemon.cli("run", "t", *options).returncode == 64
