"""Commands on many runs: their requests to the daemon, and their questions to the user."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from supervisor.cli import exit_codes
from supervisor.cli.main import cli
from tests.cli.test_clients import OTHER
from tests.support.command_line import Ringward
from tests.support.fake_daemon import RUN, Answer, FakeDaemon, Request, as_json, problem, run

DELETE, RESTORE, RERUN = (f"/api/runs/bulk/{name}" for name in ("delete", "restore", "rerun"))
CODES = {"search": "x", "exit_code_min": 1, "exit_code_max": 3}
TRIGGERED = {"triggered": [{"run_id": OTHER, "task_name": "job"}]}


def sent(daemon: FakeDaemon, path: str) -> Any:
    """Return the body of the only request."""
    (request,) = daemon.requests_to(path)
    return json.loads(request.body)


@pytest.mark.parametrize(
    ("arguments", "selector"),
    [
        ([RUN, OTHER.lower(), RUN], {"ids": [RUN, OTHER]}),
        (["--search", "x", "--exit-code", "1-3"], {"match_all": True, "filter": CODES}),
        (["--task", "job"], {"match_all": True, "filter": {"task_name": "job"}}),
        (
            ["--status", "failed,timeout", "--trigger", "cron", "--search", "x"],
            {"match_all": True, "filter": {"status": "failed,timeout", "triggered_by": "cron", "search": "x"}},
        ),
        (
            ["--after", "2026-11-01T00:00:00Z", "--before", "2026-11-02T00:00:00Z"],
            {
                "match_all": True,
                "filter": {"created_after": "2026-11-01T00:00:00.000Z", "created_before": "2026-11-02T00:00:00.000Z"},
            },
        ),
    ],
)
@pytest.mark.parametrize("command", ["rm", "restore", "rerun"])
def test_selections(
    ringward: Ringward, daemon: FakeDaemon, command: str, arguments: list[str], selector: dict[str, Any]
) -> None:
    """Runs are selected by name or by all given filters; without a terminal, the command does not ask."""
    path = {"rm": DELETE, "restore": RESTORE, "rerun": RERUN}[command]
    daemon.on("POST", path, TRIGGERED if command == "rerun" else {"affected": 2})
    assert ringward(command, *arguments).exit_code == 0
    assert sent(daemon, path) == selector
    assert len(daemon.requests) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--yes"],
        [RUN, "--task", "job"],
        [RUN, "--all"],
        [RUN, "--group", "shop"],
        [RUN, "job", "--tag", "eu"],
        [RUN, "--status", "failed"],
        ["--all", "--task", "job"],
        ["--exit-code", "x"],
        ["--exit-code", "5-1"],
        ["--all"],
        ["--trigger=me"],
        ["--task", "", "--status", "failed"],
        ["--all", "--search", ""],
        ["--status", ","],
        ["--status", " , "],
        ["--task", "\udcff"],
    ],
)
def test_invalid_selections(ringward: Ringward, daemon: FakeDaemon, arguments: list[str]) -> None:
    """No selection, two, an empty one, or --all without a terminal delete nothing."""
    assert ringward("rm", *arguments).exit_code == exit_codes.USAGE
    assert daemon.requests == []


@pytest.mark.parametrize(("command", "path"), [("rm", DELETE), ("rerun", RERUN)])
def test_all_runs_without_a_terminal(ringward: Ringward, daemon: FakeDaemon, command: str, path: str) -> None:
    """Other options do not replace the confirmation that ``--all`` needs."""
    daemon.on("POST", path, TRIGGERED if command == "rerun" else {"affected": 2})
    everything = (command, "--all", "--status", "failed")
    refused = ringward(*everything)
    assert refused.exit_code == exit_codes.USAGE
    assert "--all needs --yes when the command does not run on a terminal" in refused.stderr
    assert daemon.requests == []
    assert ringward(*everything, "--yes").exit_code == 0
    assert sent(daemon, path) == {"match_all": True, "filter": {"status": "failed"}}


def test_invalid_filter(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A filter that the daemon refuses is a usage error with the daemon's message."""
    refusal = problem(422, "Invalid", [{"location": "body.filter.status", "message": "no phase"}])
    daemon.on("POST", DELETE, refusal)
    result = ringward("rm", "--status", "faild")
    assert result.exit_code == exit_codes.USAGE
    assert "--status: no phase" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "affected", "code", "out", "err"),
    [
        ([RUN, OTHER], 2, 0, "2 runs deleted\n", ""),
        ([RUN, OTHER], 1, 1, "1 run deleted\n", "1 run cannot be deleted"),
        ([RUN], 0, 1, "0 runs deleted\n", "1 run cannot be deleted"),
        (["--all", "--yes"], 0, 0, "0 runs deleted\n", ""),
        ([RUN, OTHER, "--json"], 1, 1, '{\n  "affected": 1\n}\n', ""),
    ],
)
def test_deletion_result(
    ringward: Ringward, daemon: FakeDaemon, arguments: list[str], affected: int, code: int, out: str, err: str
) -> None:
    """The number of deleted runs is printed; if named runs remain, that is reported with exit code 1."""
    daemon.on("POST", DELETE, {"affected": affected})
    result = ringward("rm", *arguments)
    assert (result.exit_code, result.stdout) == (code, out)
    assert err in result.stderr
    assert bool(err) == bool(result.stderr)


@pytest.mark.parametrize(
    ("command", "options"),
    [("rm", ["-y"]), ("rm", ["-y", "--json"]), ("rm", ["-n"]), ("rerun", ["-y"]), ("rerun", ["-n"]), ("restore", [])],
)
def test_misspelt_task(ringward: Ringward, daemon: FakeDaemon, command: str, options: list[str]) -> None:
    """If nothing matches because the task does not exist, the command says so and fails."""
    path = {"rm": DELETE, "restore": RESTORE, "rerun": RERUN}[command]
    daemon.on("POST", path, {"triggered": []} if command == "rerun" else {"affected": 0})
    daemon.on("GET", "/api/runs", {"runs": [], "total": 0})
    daemon.on("GET", "/api/tasks", {"items": [{"name": "backup", "kind": "task"}]})
    result = ringward(command, "--task", "bakcup", *options)
    assert (result.exit_code, result.stdout) == (exit_codes.REFUSED, "")
    assert 'no task, service or run named "bakcup" (did you mean "backup"?)' in result.stderr


def test_rerun_result(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A rerun prints the new runs with their tasks, or exits with 1 if there is nothing to run."""
    daemon.on("POST", RERUN, TRIGGERED, {"triggered": []})
    result = ringward("rerun", RUN)
    assert (result.exit_code, result.stdout) == (0, f"RUN\tTASK\n{OTHER}\tjob\n")
    result = ringward("rerun", RUN)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing to run again" in result.stderr


@pytest.mark.parametrize(
    ("status", "condition"),
    [(None, "ended"), ("failed", "failed"), ("running,failed", "failed"), ("ended,pending", "ended")],
)
def test_dry_run(ringward: Ringward, daemon: FakeDaemon, status: str | None, condition: str) -> None:
    """A dry run shows the ended runs that would be deleted and the number of others, and changes nothing."""
    daemon.on("GET", "/api/runs", {"items": [run()], "total": 7})
    options = ["--status", status] if status else ["--task", "job"]
    result = ringward("rm", "--dry-run", *options)
    assert result.exit_code == 0
    assert RUN in result.stdout
    assert "and 6 more" in result.stderr
    (request,) = daemon.requests
    expected = {"status": condition, "naming": "camel", "limit": "1000", **({} if status else {"task_name": "job"})}
    assert request.query == expected
    shown = json.loads(ringward("rm", "--dry-run", "--json", *options).stdout)
    assert shown == {"runs": [run()], "total": 7}


def test_dry_run_of_running_runs(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Running runs are never deleted, so nothing is shown or requested."""
    result = ringward("rm", "--dry-run", "--status", "running,pending")
    assert (result.exit_code, result.stdout, daemon.requests) == (0, "", [])


def test_dry_run_of_named_runs(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Unknown and unfinished runs are omitted, except that a rerun can include a running run."""
    daemon.on("GET", f"/api/runs/{RUN}", run(status="running", endReason=None, endedAt=None))
    assert json.loads(ringward("rm", "-n", "--json", RUN, OTHER).stdout)["total"] == 0
    assert json.loads(ringward("rerun", "-n", "--json", RUN, OTHER).stdout)["total"] == 1
    assert {request.method for request in daemon.requests} == {"GET"}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon) -> FakeDaemon:
    """A terminal for questions, and a daemon on which seven runs match any filter."""
    monkeypatch.setattr("supervisor.cli.selection.is_interactive", lambda: True)
    daemon.on("GET", "/api/runs", {"items": [run()], "total": 7})
    daemon.on("POST", DELETE, {"affected": 7})
    daemon.on("POST", RERUN, TRIGGERED)
    return daemon


def answered(terminal: FakeDaemon, answer: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--data", str(terminal.socket.parent), *arguments], input=answer)


@pytest.mark.parametrize(("command", "path"), [("rm", DELETE), ("rerun", RERUN)])
def test_confirmation(terminal: FakeDaemon, command: str, path: str) -> None:
    """The command asks with the number of runs and acts only on yes; named runs and --yes need no question."""
    terminal.on("GET", "/api/tasks/job", {"name": "job", "kind": "task", "definition": {"apiTrigger": True}})
    question = {"rm": "Delete 7 runs? [y/N]", "rerun": "7 runs of job\nStart 1 run? [y/N]"}[command]
    for answer, code in (("n\n", exit_codes.REFUSED), ("\n", exit_codes.REFUSED), ("", exit_codes.INTERRUPTED)):
        result = answered(terminal, answer, command, "--task", "job")
        assert result.exit_code == code
        assert question in result.stderr
        assert not terminal.requests_to(path)
    assert answered(terminal, "y\n", command, "--task", "job").exit_code == 0
    assert len(terminal.requests_to(path)) == 1
    looked = len(terminal.requests_to("/api/runs"))
    assert answered(terminal, "", command, "--all", "--yes").exit_code == 0
    answered(terminal, "", command, RUN)
    assert len(terminal.requests_to(path)) == 3
    assert len(terminal.requests_to("/api/runs")) == looked


def test_rerun_confirmation(terminal: FakeDaemon) -> None:
    """The question counts tasks, not selected runs; services, removed tasks and api_trigger = false start nothing."""
    of = {"a": 3, "b": 1, "web": 9, "scheduled": 2, "removed": 1}

    def page(request: Request) -> Answer:
        name = request.query.get("task_name")
        total = sum(of.values()) if name is None else of.get(name, 0)
        shown = "a" if name is None else name
        return as_json({"items": [run(taskName=shown)] if total else [], "total": total})

    terminal.on("GET", "/api/runs", page)
    units = [("a", "task", True), ("b", "task", True), ("c", "task", True), ("web", "service", True)]
    units.append(("scheduled", "task", False))
    terminal.on("GET", "/api/tasks", {"items": [{"name": name, "kind": kind} for name, kind, _ in units]})
    for name, kind, triggers in units:
        unit = {"name": name, "kind": kind, "definition": {"apiTrigger": triggers}}
        terminal.on("GET", f"/api/tasks/{name}", unit)
    assert (
        "16 runs of a, b\nStart 2 runs, one of each task? [y/N]" in answered(terminal, "n\n", "rerun", "--all").stderr
    )
    assert "Start 1 run? [y/N]" in answered(terminal, "n\n", "rerun", "--task", "a").stderr


@pytest.mark.parametrize(("command", "path"), [("rm", DELETE), ("rerun", RERUN)])
def test_confirmation_of_all(terminal: FakeDaemon, command: str, path: str) -> None:
    """``--all`` asks even if other options limit the runs."""
    terminal.on("GET", "/api/tasks", {"items": [{"name": "job", "kind": "task"}]})
    terminal.on("GET", "/api/tasks/job", {"name": "job", "kind": "task", "definition": {"apiTrigger": True}})
    result = answered(terminal, "n\n", command, "--all", "--status", "failed")
    assert result.exit_code == exit_codes.REFUSED
    assert "[y/N]" in result.stderr
    assert not terminal.requests_to(path)


def test_completion() -> None:
    """Shells complete commands, options and their values."""

    def completed(*words: str) -> str:
        env = {"_RINGWARD_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        return CliRunner().invoke(cli, prog_name="ringward", env=env).stdout

    assert {"plain,restore", "plain,rerun"} <= set(completed("ringward", "re").split())
    assert "plain,--dry-run" in completed("ringward", "rm", "--dr")
    assert "plain,startup" in completed("ringward", "rm", "--trigger", "st")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_file_completion(shell: str) -> None:
    """Each shell completes the names of files and directories that a command takes."""

    def completed(*words: str) -> str:
        last = words[-1] if shell == "fish" else str(len(words) - 1)
        env = {"_RINGWARD_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": last}
        return CliRunner().invoke(cli, prog_name="ringward", env=env).stdout.replace("\n", ",")

    for words in (
        ("-c", "conf"),
        ("ps", "--config", "conf"),
        ("validate", "conf"),
        ("import", "cron", "conf"),
        ("import", "cron", "-o", "conf"),
        ("service", "install", "--program", "conf"),
    ):
        assert completed("ringward", *words).startswith("file,conf"), words
    for words in (
        ("--data", "conf"),
        ("backup", "conf"),
        ("demo", "--keep", "conf"),
        ("service", "install", "--root", "conf"),
        ("service", "install", "--scan-dir", "conf"),
    ):
        assert completed("ringward", *words).startswith("dir,conf"), words


@pytest.mark.parametrize("command", ["rm", "stop", "ps"])
def test_word_all(ringward: Ringward, daemon: FakeDaemon, command: str) -> None:
    """The word `all`, with which other programs choose everything, gets a hint at --all unless a unit has that name."""
    daemon.on("GET", "/api/tasks", {"items": [{"name": "web", "kind": "service"}]})
    missing = [{"location": "body.names[0]", "message": 'no task or service named "all"'}]
    daemon.on("POST", "/api/units/stop", problem(404, "Unknown", missing))
    result = ringward(command, "all")
    assert (result.exit_code, result.stdout) == (exit_codes.REFUSED, "")
    assert result.stderr.endswith("to choose all, use --all\n")
