"""The commands about services and schedules: their requests, waits and output."""

import json
from typing import Any

import pytest

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.fake_daemon import RUN, Answer, FakeDaemon, problem, run

ACTIONS = ("start", "restart", "pause", "resume")
OTHER = RUN[:-1] + "W"


def answers(daemon: FakeDaemon, action: str, result: str = "unchanged", *names: str, **more: Any) -> None:
    """Set the daemon's answer to a command to many units."""
    units = [{"name": name, "result": result, **more} for name in names or ("web",)]
    daemon.on("POST", f"/api/units/{action}", {"affected": 0, "units": units})


def posted(daemon: FakeDaemon) -> list[tuple[str, dict[str, str], Any]]:
    requests = [request for request in daemon.requests if request.method == "POST"]
    return [(request.path, request.query, json.loads(request.body) if request.body else None) for request in requests]


def service(name: str = "web", **instance: Any) -> dict[str, Any]:
    """Return the record of a service with one ready instance."""
    first_instance = {"index": 0, "state": "running", "runId": RUN, "ready": True} | instance
    active = {"running": 1, "pending": 0}
    definition = {"gracefulStopMs": 5000}
    return {
        "name": name,
        "kind": "service",
        "state": first_instance["state"],
        "instances": [first_instance],
        "active": active,
        "definition": definition,
    }


@pytest.mark.parametrize("action", ACTIONS)
def test_one_unit(ringward: Ringward, daemon: FakeDaemon, action: str) -> None:
    """A command to one unit prints nothing, or the record with --json."""
    answers(daemon, action)
    daemon.on("GET", "/api/tasks/web", service())
    result = ringward(action, "web")
    assert (result.exit_code, result.output) == (0, "")
    assert json.loads(ringward(action, "--json", "web").stdout) == service()
    assert posted(daemon) == [(f"/api/units/{action}", {}, {"names": ["web"]})] * 2


@pytest.mark.parametrize(
    ("arguments", "selector"),
    [
        (["web", "w*"], {"names": ["web", "w*"]}),
        (["--group", "shop"], {"group": "shop"}),
        (["w*", "--tag", "eu", "--group", "shop"], {"names": ["w*"], "group": "shop", "tag": "eu"}),
        (["--all"], {"all": True}),
    ],
)
def test_many_units(ringward: Ringward, daemon: FakeDaemon, arguments: list[str], selector: dict[str, Any]) -> None:
    """The command sends the selector unchanged, and --json prints the result of each unit."""
    answers(daemon, "restart", "restarted", "web", "worker", runIds=[RUN])
    for name in ("web", "worker"):
        daemon.on("GET", f"/api/tasks/{name}", service(name, runId=OTHER))
    shown = json.loads(ringward("restart", "--json", *arguments).stdout)
    assert [(unit["name"], unit["result"]) for unit in shown["units"]] == [
        ("web", "restarted"),
        ("worker", "restarted"),
    ]
    assert posted(daemon) == [("/api/units/restart", {}, selector)]


@pytest.mark.parametrize(
    "arguments", [[], ["--all", "web"], ["--all", "--group", "g"], [""], ["--group", ""], ["web", "--timeout", "x"]]
)
@pytest.mark.parametrize("action", ["start", "stop", "restart"])
def test_missing_or_contradictory_selection(
    ringward: Ringward, daemon: FakeDaemon, action: str, arguments: list[str]
) -> None:
    """A missing or contradictory selection is a usage error and never selects everything."""
    assert ringward(action, *arguments).exit_code == exit_codes.USAGE
    assert daemon.requests == []


def test_rolling_restart(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The option --rolling requests a rolling restart, and a service that is in one is reported."""
    answers(daemon, "restart", "busy")
    result = ringward("restart", "--rolling", "web")
    assert (result.exit_code, "a rolling restart is in progress" in result.stderr) == (exit_codes.REFUSED, True)
    assert posted(daemon) == [("/api/units/restart", {"rolling": "true"}, {"names": ["web"]})]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (
            problem(404, "No", [{"location": "body.names[0]", "message": 'no service named "web"'}]),
            exit_codes.REFUSED,
            'ringward: no service named "web"\n',
        ),
        (
            problem(409, "No", [{"location": "body.names[0]", "message": "web is a task"}]),
            exit_codes.REFUSED,
            "ringward: web is a task\n",
        ),
        (problem(404, "no such path"), exit_codes.REFUSED, "needs a newer daemon"),
        (problem(403, "not with this role"), exit_codes.NOT_PERMITTED, "not with this role"),
        (problem(503, "try later"), exit_codes.UNREACHABLE, "try later"),
    ],
)
def test_refusals(ringward: Ringward, daemon: FakeDaemon, action: str, answer: Answer, code: int, message: str) -> None:
    """Each refusal has its exit code and its reason."""
    daemon.on("POST", f"/api/units/{action}", answer)
    result = ringward(action, "web")
    assert (result.exit_code, message in result.stderr) == (code, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ending", "bakcup"), 'no task, service or run named "bakcup" (did you mean "backup"?)'),
        (("run", "bakcup"), 'no task named "bakcup" (did you mean "backup"?)'),
        (("run", "wbe"), 'no task named "wbe"'),
        (("next", "bakcup"), 'no task named "bakcup" (did you mean "backup"?)'),
    ],
)
def test_misspelt_name(ringward: Ringward, daemon: FakeDaemon, arguments: tuple[str, ...], message: str) -> None:
    """A misspelt name gets the nearest name of the right kind as a suggestion."""
    units = [{"name": "web", "kind": "service"}, {"name": "backup", "kind": "task"}]
    daemon.on("GET", "/api/tasks", {"items": units})
    missing = problem(404, "There is no such task")
    for method, path in (("GET", "runs"), ("POST", "run"), ("GET", "schedule")):
        daemon.on(method, f"/api/tasks/{arguments[1]}/{path}", missing)
    assert ringward(*arguments).stderr == f"ringward: {message}\n"


@pytest.mark.parametrize("action", [*ACTIONS, "stop"])
def test_invalid_name(ringward: Ringward, daemon: FakeDaemon, action: str) -> None:
    """A text that cannot be a name is refused without a request to the daemon."""
    assert ringward(action, "a/b").exit_code == exit_codes.REFUSED
    assert daemon.requests == []


def test_failed_start(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A failed start exits with 1, after the reason and the last log lines of each service that did not start."""
    answers(daemon, "start", "started", "web", "bad")
    daemon.on("GET", "/api/tasks/web", service())
    daemon.on("GET", "/api/tasks/bad", service("bad", state="backoff", ready=False, failures=1))
    daemon.on("GET", "/api/tasks/bad/runs", {"items": [run(taskName="bad", endReason="failed")], "total": 1})
    lines = [{"n": 0, "ts": 1, "stream": "stderr", "text": "cannot bind port 80"}]
    daemon.on("GET", f"/api/runs/{RUN}/ending", {"reason": "failed", "exitCode": 3, "lastLines": lines})
    result = ringward("start", "web", "bad")
    assert result.exit_code == exit_codes.REFUSED
    assert result.stderr == (
        "ringward: bad did not start: its process exited with code 3; another attempt follows\n"
        "  | cannot bind port 80\n"
    )


def test_timeout(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A service that is not ready at the time limit is reported with the reason."""
    answers(daemon, "restart", "restarted", runIds=[OTHER])
    daemon.on("GET", "/api/tasks/web", service(state="starting", ready=False, detail="waits for db to be ready"))
    daemon.on("GET", "/api/tasks/web/runs", {"items": [], "total": 0})
    result = ringward("restart", "web", "--timeout", "0")
    assert result.exit_code == exit_codes.REFUSED
    assert result.stderr == "ringward: web did not restart: timed out after 0 s; starting (waits for db to be ready)\n"


def test_no_wait(ringward: Ringward, daemon: FakeDaemon) -> None:
    """With --no-wait, the command ends when the daemon has received the request."""
    answers(daemon, "start", "started")
    assert ringward("start", "--no-wait", "web").exit_code == 0
    assert [request.path for request in daemon.requests] == ["/api/units/start"]
    assert ringward("start", "--no-wait", "--timeout", "1s", "web").exit_code == exit_codes.USAGE


def test_stop(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A stop prints the ids of the runs and waits until they have ended."""
    answers(daemon, "stop", "stopped", runIds=[RUN])
    daemon.on("GET", "/api/tasks/web", service())
    daemon.on("GET", "/api/tasks/web/runs", {"items": [run()], "total": 1}, {"items": [], "total": 0})
    assert ringward("stop", "web").stdout == f"{RUN}\n"
    assert len(daemon.requests_to("/api/tasks/web/runs")) == 2
    assert json.loads(ringward("stop", "--force", "--json", "web").stdout) == {"stopped": [RUN]}
    assert [query for _, query, _ in posted(daemon)] == [{}, {"force": "true"}]


def test_stop_times_out(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The exit code is 1 if runs have not ended at the time limit."""
    answers(daemon, "stop", "stopped", runIds=[RUN])
    daemon.on("GET", "/api/tasks/web/runs", {"items": [run()], "total": 1})
    result = ringward("stop", "web", "--timeout", "0")
    assert (result.exit_code, result.stdout) == (exit_codes.REFUSED, f"{RUN}\n")
    assert result.stderr == "ringward: web did not stop: timed out after 0 s; waits for 1 run to end\n"


def test_stop_of_runs_and_units(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A stop accepts ids of runs and names together."""
    answers(daemon, "stop", "stopped", runIds=[])
    daemon.on("GET", f"/api/runs/{RUN}", run(status="running"))
    daemon.on("POST", f"/api/runs/{RUN}/stop", Answer(204))
    assert ringward("stop", "--no-wait", RUN.lower(), "web").stdout == f"{RUN}\n"
    assert posted(daemon) == [("/api/units/stop", {}, {"names": ["web"]}), (f"/api/runs/{RUN}/stop", {}, None)]


def test_stop_of_a_removed_unit(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The runs of a unit that is no longer configured are stopped one by one."""
    missing = [{"location": "body.names[0]", "message": 'no task or service named "gone"'}]
    daemon.on("POST", "/api/units/stop", problem(404, "No", missing))
    daemon.on("GET", "/api/tasks/gone/runs", {"items": [run(taskName="gone")], "total": 1})
    daemon.on("POST", f"/api/runs/{RUN}/stop", Answer(204))
    assert ringward("stop", "--no-wait", "gone").stdout == f"{RUN}\n"


def test_stop_of_everything(ringward: Ringward, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """--all asks first and fails without a terminal; --yes answers the question."""
    answers(daemon, "stop", "stopped", runIds=[])
    daemon.on("GET", "/api/tasks", {"items": [service()]})
    result = ringward("stop", "--all")
    assert (result.exit_code, "--yes" in result.stderr) == (exit_codes.USAGE, True)
    assert posted(daemon) == []
    monkeypatch.setattr("supervisor.cli.units.unit_choice.is_interactive", lambda: True)
    assert ringward("stop", "--all").exit_code == exit_codes.INTERRUPTED
    assert posted(daemon) == []
    assert ringward("stop", "--all", "--yes", "--no-wait").exit_code == 0
    assert posted(daemon) == [("/api/units/stop", {}, {"all": True})]


def test_usual_duration_in_ps(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Beside a running task stands how long it usually takes."""
    task = {"name": "t", "kind": "task", "active": {"running": 1, "pending": 0}, "usualMs": 243_217}
    idle = {**task, "name": "u", "active": {"running": 0, "pending": 0}}
    daemon.on("GET", "/api/tasks", {"items": [task, idle]})
    lines = ringward("ps").stdout.splitlines()
    assert ("running, usually 4m 3s" in lines[1], "usually" in lines[2]) == (True, False)


def test_deadline_in_ps(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Beside an active task stands when it is to be done, and beside any task that it is late."""
    at = "2026-06-01T06:00:00.000Z"
    running = {"name": "t", "kind": "task", "active": {"running": 1, "pending": 0}, "doneBy": at}
    late = {"name": "u", "kind": "task", "active": {"running": 0, "pending": 0}, "doneBy": at, "lateSince": at}
    daemon.on("GET", "/api/tasks", {"items": [running, late]})
    _, first, second = ringward("ps").stdout.splitlines()
    assert first.split("\t")[2] == f"running, due {at}"
    assert second.split("\t")[2] == f"idle, late (due {at})"


def test_rolling_restart_in_ps(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The progress of a rolling restart is shown beside the state."""
    web = {"name": "web", "kind": "service", "state": "starting", "rolling": {"done": 1, "total": 3}}
    daemon.on("GET", "/api/tasks", {"items": [web]})
    assert "starting (rolling 1/3)" in ringward("ps").stdout


def test_disabled_service(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A start names who disabled a service, and fails if the service was named; --note needs --disable."""
    withheld = {"by": "anna", "at": "2026-11-26T03:05:00.000Z", "note": "a disk"}
    daemon.on("GET", "/api/tasks/web", {**service(), "withheld": withheld})
    answers(daemon, "start", "disabled")
    for name, code, said in (
        ("web", exit_codes.REFUSED, "web did not start: it is disabled by anna since "),
        ("w*", 0, "web is left out: it is disabled by anna since "),
    ):
        result = ringward("start", name)
        assert (result.exit_code, said in result.stderr) == (code, True)
        assert ": a disk; start it with: ringward start --enable web" in result.stderr
    answers(daemon, "stop", "stopped", runIds=[])
    assert ringward("stop", "--disable", "--note", "a disk", "web").exit_code == 0
    assert posted(daemon)[-1] == ("/api/units/stop", {}, {"names": ["web"], "disable": True, "note": "a disk"})
    assert ringward("stop", "--note", "a disk", "web").exit_code == exit_codes.USAGE


def test_pause_with_an_end(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A pause may have an end and a note, also that of the whole daemon; contradictory options are errors."""
    answers(daemon, "pause", "paused")
    for path in ("pause", "resume"):
        daemon.on("POST", f"/api/daemon/{path}", Answer(204))
    until = "2099-11-20T22:00:00.000Z"
    assert ringward("pause", "web", "--until", "2099-11-20T22:00Z", "--note", "a disk").exit_code == 0
    assert ringward("pause", "--daemon", "--until", "2099-11-20T22:00Z").exit_code == 0
    assert ringward("pause", "web", "--for", "2h").exit_code == 0
    assert ringward("resume", "--daemon").exit_code == 0
    first, second, third, last = posted(daemon)
    assert first == ("/api/units/pause", {}, {"names": ["web"], "until": until, "note": "a disk"})
    assert second == ("/api/daemon/pause", {}, {"until": until})
    assert third[2]["until"].endswith("Z")
    assert last == ("/api/daemon/resume", {}, None)
    for arguments in (
        ["web", "--until", "never"],
        ["web", "--until", "2020-01-01"],
        ["web", "--for", "x"],
        ["web", "--for", "1h", "--until", "22:00"],
        ["web", "--daemon"],
    ):
        assert ringward("pause", *arguments).exit_code == exit_codes.USAGE, arguments
