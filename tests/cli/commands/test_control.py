"""The commands about a service or a schedule as a whole."""

import json

import pytest

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.fake_daemon import Answer, FakeDaemon, problem

ACTIONS = ("start", "restart", "pause", "resume")
RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def posts(daemon: FakeDaemon) -> list[tuple[str, dict[str, str]]]:
    return [(request.path, request.query) for request in daemon.requests if request.method == "POST"]


@pytest.mark.parametrize("action", ACTIONS)
def test_it_is_asked_and_nothing_is_said(ringward: Ringward, daemon: FakeDaemon, action: str) -> None:
    """With --json the record is printed, as it is afterwards."""
    daemon.on("POST", f"/api/tasks/web/{action}", Answer(204))
    daemon.on("GET", "/api/tasks/web", {"name": "web", "paused": False})
    result = ringward(action, "web")
    assert (result.exit_code, result.output) == (0, "")
    assert json.loads(ringward(action, "--json", "web").stdout) == {"name": "web", "paused": False}
    assert posts(daemon) == [(f"/api/tasks/web/{action}", {})] * 2


def test_a_rolling_restart(ringward: Ringward, daemon: FakeDaemon) -> None:
    """It is asked for by an option."""
    daemon.on("POST", "/api/tasks/web/restart", Answer(204))
    assert ringward("restart", "--rolling", "web").exit_code == 0
    assert posts(daemon) == [("/api/tasks/web/restart", {"rolling": "true"})]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (problem(404, "There is no task"), exit_codes.REFUSED, "no task, service or run named"),
        (problem(409, "web is a task"), exit_codes.REFUSED, "web is a task"),
        (problem(403, "not with this role"), exit_codes.NOT_PERMITTED, "not with this role"),
        (problem(503, "try later"), exit_codes.UNREACHABLE, "try later"),
    ],
)
def test_refusals(ringward: Ringward, daemon: FakeDaemon, action: str, answer: Answer, code: int, said: str) -> None:
    """Each has its exit code and its reason."""
    daemon.on("POST", f"/api/tasks/web/{action}", answer)
    result = ringward(action, "web")
    assert (result.exit_code, said in result.stderr) == (code, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("start", "wbe"), 'no task, service or run named "wbe" (did you mean "web"?)'),
        (("logs", "bakcup"), 'no task, service or run named "bakcup" (did you mean "backup"?)'),
        (("run", "bakcup"), 'no task named "bakcup" (did you mean "backup"?)'),
        (("run", "wbe"), 'no task named "wbe"'),
        (("next", "bakcup"), 'no task named "bakcup" (did you mean "backup"?)'),
    ],
)
def test_a_name_with_a_typing_error(
    ringward: Ringward, daemon: FakeDaemon, arguments: tuple[str, ...], said: str
) -> None:
    """The nearest name of the right kind is suggested."""
    units = [{"name": "web", "kind": "service"}, {"name": "backup", "kind": "task"}]
    daemon.on("GET", "/api/tasks", {"items": units})
    missing = problem(404, "There is no such task")
    for method, path in (("POST", "start"), ("GET", "runs"), ("POST", "run"), ("GET", "schedule")):
        daemon.on(method, f"/api/tasks/{arguments[1]}/{path}", missing)
    assert ringward(*arguments).stderr == f"ringward: {said}\n"


@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_no_name(ringward: Ringward, daemon: FakeDaemon, action: str) -> None:
    """Nobody is asked about it."""
    assert ringward(action, "a/b").exit_code == exit_codes.REFUSED
    assert daemon.requests == []


def test_a_service_is_stopped_as_a_whole(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Its runs are named, but not recycled one by one; --force hurries each of them afterwards."""
    daemon.on("GET", "/api/tasks/web", {"name": "web", "kind": "service"})
    daemon.on("GET", "/api/tasks/web/runs", {"items": [{"id": RUN}], "total": 1})
    daemon.on("POST", "/api/tasks/web/stop", Answer(204))
    daemon.on("POST", f"/api/runs/{RUN}/stop", Answer(204))
    assert ringward("stop", "web").stdout == f"{RUN}\n"
    assert posts(daemon) == [("/api/tasks/web/stop", {})]
    assert json.loads(ringward("stop", "--force", "--json", "web").stdout) == {"stopped": [RUN]}
    assert posts(daemon)[1:] == [("/api/tasks/web/stop", {}), (f"/api/runs/{RUN}/stop", {"force": "true"})]


def test_a_task_is_not(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Its runs are stopped, its schedule goes on."""
    daemon.on("GET", "/api/tasks/job", {"name": "job", "kind": "task"})
    daemon.on("GET", "/api/tasks/job/runs", {"items": [{"id": RUN}], "total": 1})
    daemon.on("POST", f"/api/runs/{RUN}/stop", Answer(204))
    assert ringward("stop", "job").stdout == f"{RUN}\n"
    assert posts(daemon) == [(f"/api/runs/{RUN}/stop", {})]


def test_a_rolling_restart_in_ps(ringward: Ringward, daemon: FakeDaemon) -> None:
    """How far it has come stands beside the state."""
    web = {"name": "web", "kind": "service", "state": "starting", "rolling": {"done": 1, "total": 3}}
    daemon.on("GET", "/api/tasks", {"items": [web]})
    assert "starting (rolling 1/3)" in ringward("ps").stdout
