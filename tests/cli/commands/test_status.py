"""The status on one screen, and completion of names."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from supervisor.cli import exit_codes
from supervisor.cli.main import cli
from tests.support.command_line import Ringward
from tests.support.fake_daemon import Answer, FakeDaemon, problem

DAEMON = {
    "version": "0.1.0",
    "hostname": "here",
    "startedAt": "2026-11-22T00:00:00.000Z",
    "configPath": "/etc/ringward/ringward.toml",
    "configStale": False,
    "configWarnings": [],
    "schedulerActive": True,
}


def task(name: str, reason: str | None, **more: Any) -> dict[str, Any]:
    last = {"id": "01M7Y4S5W8ZZEFJCB1RHHNKRSN", "status": "ended", "endReason": reason, "exitCode": 3}
    return {
        "name": name,
        "kind": "task",
        "active": {"running": 0, "pending": 0},
        "lastRun": last if reason else None,
    } | more


def test_late_task(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A task that is late needs attention, even if its last run succeeded."""
    record = task("t", "succeeded", lateSince="2026-06-01T06:00:00.000Z")
    daemon.on("GET", "/api/tasks/t", record)
    result = ringward("status", "t")
    assert (result.exit_code, "late: its work was to be done by 2026-06-01" in result.stdout) == (1, True)


def service(name: str, state: str) -> dict[str, Any]:
    return {"name": name, "kind": "service", "state": state, "active": {"running": 1, "pending": 0}}


def answering(fake: FakeDaemon, units: list[dict[str, Any]], **daemon: Any) -> None:
    fake.on("GET", "/readyz", daemon.pop("readyz", {"status": "ok"}))
    fake.on("GET", "/api/daemon", DAEMON | daemon)
    fake.on("GET", "/api/tasks", {"items": units})
    fake.on("GET", "/api/runs/summary", {"total": 812, "success": 800, "failed": 3, "missed": 1})
    fake.on("GET", "/api/runs", {"items": [{"taskName": "a"}, {"taskName": "b"}, {"taskName": "a"}], "total": 3})


def test_nothing_needs_attention(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Past failures need no attention, but are counted."""
    answering(daemon, [task("a", "succeeded"), task("b", None, paused=True), service("web", "running")])
    result = ringward("status")
    assert result.exit_code == exit_codes.OK
    assert "Nothing needs attention" in result.output
    assert "2: 1 idle, 1 paused" in result.output
    assert "812 runs, 3 failed, 1 missed: a 2, b 1" in result.output


@pytest.mark.parametrize(
    ("units", "facts", "check"),
    [
        ([task("a", "failed")], {}, "a"),
        ([task("a", "missed")], {}, "a"),
        ([service("web", "fatal")], {}, "web"),
        ([service("web", "backoff")], {}, "web"),
        ([service("web", "running") | {"flapping": True}], {}, "web"),
        ([], {"configStale": True}, "configuration"),
        ([], {"configWarnings": ["no such user"]}, "configuration"),
        ([], {"inotifyProblems": ["raise fs.inotify.max_user_watches"]}, "on_change"),
        ([], {"logProblems": ["t 01J: its output waits: Input/output error"]}, "logs"),
        ([], {"schedulerActive": False}, "scheduler"),
        ([], {"schedulerActive": False, "readyz": problem(503, "Not ready")}, "scheduler"),
        ([], {"readyz": problem(503, "Not ready")}, "database"),
        ([], {"readyz": {"status": "degraded"}}, "daemon"),
        ([], {"readyz": problem(503, "Not ready"), "databaseProblem": "it was replaced"}, "database"),
    ],
)
def test_attention(
    ringward: Ringward, daemon: FakeDaemon, units: list[dict[str, Any]], facts: dict[str, Any], check: str
) -> None:
    """The problem is named, and the exit code tells scripts about it."""
    answering(daemon, units, **facts)
    result = ringward("status", "--json")
    assert result.exit_code == exit_codes.REFUSED
    assert [entry["what"] for entry in json.loads(result.output)["attention"]] == [check]


def test_advice(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A warning about what a run would lack is shown, and does not need attention; older daemons have none."""
    answering(daemon, [], configWarnings=["no such user"], configAdvice=["no such user"])
    result = ringward("status")
    assert (result.exit_code, "\nWarnings about the configuration: 1\n" in result.output) == (exit_codes.OK, True)
    assert "no such user" in result.output
    answering(daemon, [])
    assert "Warnings about the configuration" not in ringward("status").output


def test_reason_of_a_service(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The text about a service has the detail of an instance in that state."""
    instances = [{"state": "running", "detail": "warm"}, {"state": "fatal", "detail": "not ready within 1s"}]
    answering(daemon, [service("web", "fatal") | {"instances": instances}])
    (entry,) = json.loads(ringward("status", "--json").output)["attention"]
    assert entry["text"] == "fatal: failed too often in a row: not ready within 1s"


def test_starting_daemon(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A daemon that is starting needs no attention."""
    answering(daemon, [], starting=True, schedulerActive=False)
    assert ringward("status").output == "The daemon is starting.\n"
    result = ringward("status", "--json")
    assert (result.exit_code, json.loads(result.output)["attention"]) == (exit_codes.OK, [])


def test_no_daemon(ringward: Ringward) -> None:
    """A missing daemon has another exit code than a problem that needs attention."""
    assert ringward("status").exit_code == exit_codes.UNREACHABLE


def test_health(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Health is the state of the daemon alone, as a word and an exit code; 503 and a missing daemon share one code."""
    daemon.on("GET", "/readyz", {"status": "degraded"})
    result = ringward("health")
    assert (result.exit_code, result.output) == (exit_codes.OK, "degraded\n")
    assert json.loads(ringward("health", "--json").output) == {"status": "degraded"}
    daemon.on("GET", "/readyz", Answer(503))
    assert ringward("health").exit_code == exit_codes.UNREACHABLE
    assert ringward("health", "--data", "nowhere").exit_code == exit_codes.UNREACHABLE
    daemon.on("GET", "/readyz", problem(404, "There is nothing"))
    assert ringward("health").exit_code == exit_codes.UNREACHABLE


def completed(data: str, *arguments: str) -> list[str]:
    """Return the completions that a shell offers for the last argument."""
    shell = ShellComplete(cli, {}, "ringward", "_RINGWARD_COMPLETE")
    return [completion.value for completion in shell.get_completions(["--data", data, *arguments[:-1]], arguments[-1])]


def test_names_are_completed(daemon: FakeDaemon) -> None:
    """Names of the kind that the command takes are completed."""
    answering(daemon, [task("backup", None), task("build", None), service("bus", "running")])
    data = str(daemon.socket.parent)
    assert completed(data, "run", "b") == ["backup", "build"]
    assert completed(data, "restart", "b") == ["bus"]
    assert completed(data, "logs", "bu") == ["build", "bus"]
    assert completed(data, "sta") == ["status", "start"]


def test_no_completion_without_a_daemon(daemon: FakeDaemon) -> None:
    """Without a daemon, completion prints neither names nor errors."""
    data = str(daemon.socket.parent)
    daemon.on("GET", "/api/tasks", Answer(503))
    assert completed(data, "run", "b") == []
    assert completed(data + "/nowhere", "run", "b") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(ringward: Ringward, shell: str) -> None:
    """Each script calls the program for its completions."""
    result = ringward("completion", shell, plain=True)
    assert result.exit_code == exit_codes.OK
    assert "_RINGWARD_COMPLETE" in result.output


def test_completion_request() -> None:
    """The program answers the request of bash's completion script."""
    environ = os.environ | {"_RINGWARD_COMPLETE": "bash_complete", "COMP_WORDS": "ringward dem", "COMP_CWORD": "1"}
    code = "from supervisor.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert done.stdout.split(",")[1].strip() == "demo"


def test_misspelt_command(ringward: Ringward) -> None:
    """A misspelt command gets the nearest one as a suggestion."""
    result = ringward("statsu", plain=True)
    assert result.exit_code == exit_codes.USAGE
    assert "Did you mean status?" in result.output
    assert "Did you mean" not in ringward("xyzzy", plain=True).output


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("schedule",), "Did you mean next?"),
        (("tail",), "Did you mean logs?"),
        (("runs", "--since", "1h"), "--after"),
        (("rm", "--since", "1h"), "--after"),
        (("rm", "--statsu", "failed"), "--status"),
        (("logs", "--tail", "5", "x"), "--lines"),
        (("stat",), "Did you mean status?"),
        (("describe", "x"), "Did you mean status?"),
        (("inspect", "x"), "Did you mean status?"),
        (("show", "x"), "Did you mean status?"),
        (("disable", "x"), "ringward stop --disable SERVICE"),
        (("services",), "Did you mean ps?"),
        (("runs", "-n", "5"), "Did you mean --limit?"),
        (("runs", "--last", "5"), "Did you mean --limit?"),
        (("runs", "--failed"), "Did you mean --status failed?"),
        (("ps", "-a"), "Did you mean --all?"),
        (("ps", "-o", "json"), "Did you mean --json?"),
        (("ps", "--format", "json"), "Did you mean --json?"),
        (("ps", "--format=json"), "Did you mean --json?"),
        *(((word,), None) for word in ("cp", "exit", "prune", "port", "rest", "set", "shutdown", "srop", "strap")),
        (("service", "unistall"), None),
        (("stop", "--time", "5"), None),
        (("logs", "--tial", "5"), None),
    ],
)
def test_synonyms_of_commands(ringward: Ringward, words: tuple[str, ...], suggestion: str | None) -> None:
    """A synonym is suggested before a similar spelling; nothing is suggested rather than something wrong."""
    result = ringward(*words, plain=True)
    assert result.exit_code == exit_codes.USAGE
    if suggestion is None:
        assert "Did you mean" not in result.output
    else:
        assert suggestion in result.output


def test_stepped_clock(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Silent tasks need attention, with the time of their next run, and so do removals that wait for the clock."""
    silent = [{"name": "a", "runsAgainAt": "2026-11-22T09:00:00.000Z"}]
    held_until = "2026-11-22T08:00:00.000Z"
    answering(daemon, [], silentTasks=silent, silentTaskCount=3, removalsHeldUntil=held_until)
    result = ringward("status")
    assert result.exit_code == exit_codes.REFUSED
    for text in (
        "runs again at 2026-11-22T09:00:00.000Z",
        "2 more tasks do not run",
        f"before {held_until}",
        "trust-clock",
    ):
        assert text in result.output


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("help",), ("--help",)),
        (("help", "ps"), ("ps", "--help")),
        (("help", "token", "create"), ("token", "create", "--help")),
        (("version",), ("--version",)),
        (("-V",), ("--version",)),
    ],
)
def test_help_and_version_as_words(ringward: Ringward, words: tuple[str, ...], option: tuple[str, ...]) -> None:
    """`help`, `help COMMAND` and `version` do what the options do."""
    result = ringward(*words, plain=True)
    assert result.exit_code == 0
    assert result.output == ringward(*option, plain=True).output


def test_status_of_a_unit(ringward: Ringward, daemon: FakeDaemon) -> None:
    """`status NAME` shows the named unit as `ps` does, and what is wrong with it; other units do not count."""
    units = {unit["name"]: unit for unit in (task("bad", "failed"), task("good", "succeeded"), service("web", "fatal"))}
    answering(daemon, list(units.values()))
    for name, unit in units.items():
        daemon.on("GET", f"/api/tasks/{name}", unit)
    good = ringward("status", "good")
    assert good.exit_code == exit_codes.OK
    assert "Nothing needs attention." in good.stdout
    assert good.stdout.splitlines()[0] == ringward("ps", "good").stdout.splitlines()[0]
    bad = ringward("status", "bad", "good")
    assert bad.exit_code == exit_codes.REFUSED
    assert "last run failed (exit code 3)" in bad.stdout
    assert "fatal" not in bad.stdout
    shown = json.loads(ringward("status", "--json", "web").stdout)
    assert [unit["name"] for unit in shown["units"]] == ["web"]
    assert [entry["what"] for entry in shown["attention"]] == ["web"]
    missing = ringward("status", "wbe")
    assert (missing.exit_code, missing.stdout) == (exit_codes.REFUSED, "")
    assert 'no task or service named "wbe" (did you mean "web"?)' in missing.stderr
