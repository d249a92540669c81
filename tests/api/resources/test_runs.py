"""The two lists of runs, one run and its details, stopping."""

import itertools
import os
from typing import Any
from urllib.parse import urlencode

import pytest

from store.runs.definitions import Definition, set_current
from store.runs.ids import new_ulid
from store.runs.writes import Run
from tests.api.support.credentials import bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

FOLDED = {"succeeded": "success", "missed": "skipped", "start_failed": "failed", "service": "cron", "startup": "cron"}
REASONS = (
    "succeeded",
    "failed",
    "stopped",
    "timeout",
    "crashed",
    "skipped",
    "log_overflow",
    "queue_full",
    "dst_skipped",
    "daemon_stopped",
    "missed",
    "start_failed",
)
TRIGGERS = ["cron", "api", "cloud", "service", "startup"]


def full_run(task: str, **columns: Any) -> Run:
    """A run in which every optional field has a value."""
    return make_run(
        task=task,
        **{
            "status": "ended",
            "end_reason": "succeeded",
            "exit_code": 0,
            "instance_index": 2,
            "retry_attempt": 1,
            "retry_of_run_id": new_ulid(),
            "triggered_by": "startup",
            "created_at": 1_000_000,
            "started_at": 1_000_500,
            "ended_at": 1_001_000,
            "execution_id": "outside-7",
            "params": {"a": "b"},
            **columns,
        },
    )


CAMEL = {
    "taskName": "fields",
    "status": "ended",
    "endReason": "succeeded",
    "exitCode": 0,
    "instanceIndex": 2,
    "retryAttempt": 1,
    "triggeredBy": "startup",
    "createdAt": "1970-01-01T00:16:40.000Z",
    "startedAt": "1970-01-01T00:16:40.500Z",
    "endedAt": "1970-01-01T00:16:41.000Z",
    "executionId": "outside-7",
    "params": {"a": "b"},
}
SNAKE = {
    "task_name": "fields",
    "status": "ended",
    "end_reason": "success",
    "exit_code": 0,
    "instance_index": 2,
    "retry_attempt": 1,
    "triggered_by": "cron",
    "created_at": "1970-01-01T00:16:40.000Z",
    "start_at": "1970-01-01T00:16:40.500Z",
    "end_at": "1970-01-01T00:16:41.000Z",
    "external_execution_id": "outside-7",
}


@pytest.fixture(scope="module")
def fields(shared: Daemon) -> Run:
    return shared.insert(full_run("fields"))


def ids_in(daemon: Daemon, path: str, **query: Any) -> list[str]:
    answer = daemon.get(f"{path}?{urlencode(query)}")
    assert answer.status == 200, answer.body
    body = answer.json
    return [run["id"] for run in body.get("runs", body.get("items"))]


def test_runs_of_a_task_are_camel(daemon: Daemon, fields: Run) -> None:
    """GET /api/tasks/{taskName}/runs has items with exactly the fields of convention A, and total."""
    body = daemon.get("/api/tasks/fields/runs").json
    assert set(body) == {"$schema", "items", "total"}
    assert body["total"] == 1
    assert body["items"] == [{"id": fields.id, "retryOfRunId": fields.retry_of_run_id, **CAMEL}]


def test_all_runs_are_snake(daemon: Daemon, fields: Run) -> None:
    """GET /api/runs has folded runs in convention B without params, and total."""
    body = daemon.get("/api/runs?task_name=fields").json
    assert set(body) == {"$schema", "runs", "total"}
    assert body["runs"] == [{"id": fields.id, "retry_of_run_id": fields.retry_of_run_id, **SNAKE}]


def test_single_run_has_both_conventions(daemon: Daemon, fields: Run) -> None:
    """GET /api/runs/{runId} has all fields of A with exact values, all of B with folded ones, and params."""
    body = daemon.get(f"/api/runs/{fields.id}").json
    assert body.pop("$schema").endswith("/schemas/Run.json")
    retried = {"retryOfRunId": fields.retry_of_run_id, "retry_of_run_id": fields.retry_of_run_id}
    assert body == {"id": fields.id, **retried, **SNAKE, **CAMEL}


def test_naming_selects_one_convention(daemon: Daemon, fields: Run) -> None:
    """naming=camel and naming=snake give exactly one convention, everywhere."""
    camel = {"id": fields.id, "retryOfRunId": fields.retry_of_run_id, **CAMEL}
    snake = {"id": fields.id, "retry_of_run_id": fields.retry_of_run_id, **SNAKE}
    body = daemon.get(f"/api/runs/{fields.id}?naming=camel").json
    assert {name: body[name] for name in body if name != "$schema"} == camel
    body = daemon.get(f"/api/runs/{fields.id}?naming=snake").json
    assert {name: body[name] for name in body if name != "$schema"} == {**snake, "params": {"a": "b"}}
    assert daemon.get("/api/runs?task_name=fields&naming=camel").json["runs"] == [camel]
    assert daemon.get("/api/tasks/fields/runs?naming=snake").json["items"] == [{**snake, "params": {"a": "b"}}]


def test_absent_fields_are_left_out(daemon: Daemon) -> None:
    """A run that never started has no times, no reason and no params, not even null or empty ones."""
    run = daemon.insert(make_run(task="bare"))
    expected = {"id", "taskName", "status", "exitCode", "instanceIndex", "retryAttempt", "triggeredBy", "createdAt"}
    body = daemon.get("/api/tasks/bare/runs").json
    assert set(body["items"][0]) == expected
    assert body["items"][0]["exitCode"] == -1
    assert daemon.get(f"/api/runs/{run.id}").json["exit_code"] == -1


@pytest.fixture(scope="module")
def folding(shared: Daemon) -> dict[tuple[str, str], str]:
    """A run for each pair of end reason and trigger."""
    ids_by_kind = {}
    for number, (reason, trigger) in enumerate(itertools.product(REASONS, TRIGGERS)):
        columns: dict[str, Any] = {"status": "ended", "end_reason": reason, "triggered_by": trigger}
        columns["created_at"] = 5000 + number
        ids_by_kind[reason, trigger] = shared.insert(make_run(task="fold", **columns)).id
    return ids_by_kind


@pytest.mark.parametrize("value", [*REASONS, "success"])
def test_status_matches_shown_values(daemon: Daemon, folding: dict[tuple[str, str], str], value: str) -> None:
    """On the folded list, a reason selects every run shown with it; a name that B lacks is exact, as elsewhere."""
    exact = "succeeded" if value == "success" else value
    expected = {run for (reason, _), run in folding.items() if reason == exact}
    shown = {run for (reason, _), run in folding.items() if FOLDED.get(reason, reason) == value} or expected
    query = {"status": value, "limit": 1000}
    assert set(ids_in(daemon, "/api/runs", task_name="fold", **query)) == shown
    assert set(ids_in(daemon, "/api/runs", task_name="fold", naming="camel", **query)) == expected
    assert set(ids_in(daemon, "/api/tasks/fold/runs", **query)) == expected
    assert set(ids_in(daemon, "/api/tasks/fold/runs", naming="snake", **query)) == expected


@pytest.mark.parametrize("value", TRIGGERS)
def test_trigger_matches_shown_values(daemon: Daemon, folding: dict[tuple[str, str], str], value: str) -> None:
    """On the folded list, cron means cron, service and startup; elsewhere only itself."""
    expected = {run for (_, trigger), run in folding.items() if trigger == value}
    shown = {run for (_, trigger), run in folding.items() if FOLDED.get(trigger, trigger) == value} or expected
    assert set(ids_in(daemon, "/api/runs", task_name="fold", triggered_by=value, limit=1000)) == shown
    assert set(ids_in(daemon, "/api/runs", taskName="fold", triggeredBy=value, limit=1000, naming="camel")) == expected
    assert set(ids_in(daemon, "/api/tasks/fold/runs", triggeredBy=value, limit=1000)) == expected
    assert set(ids_in(daemon, "/api/tasks/fold/runs", triggered_by=value, limit=1000)) == expected


def test_values_are_documented(daemon: Daemon, folding: dict[tuple[str, str], str]) -> None:
    """All values of A and B are documented, and answers are checked against these enumerations."""
    body = daemon.get("/api/runs?task_name=fold&limit=1000").json
    assert {run["end_reason"] for run in body["runs"]} == {FOLDED.get(reason, reason) for reason in REASONS}
    assert {run["triggered_by"] for run in body["runs"]} == {"cron", "api", "cloud"}
    body = daemon.get("/api/tasks/fold/runs?limit=1000").json
    assert {run["endReason"] for run in body["items"]} == set(REASONS)
    assert {run["triggeredBy"] for run in body["items"]} == set(TRIGGERS)
    assert body["total"] == len(folding)


@pytest.fixture(scope="module")
def mixed(shared: Daemon) -> list[Run]:
    rows = [
        make_run(task="mix", created_at=1000, triggered_by="api"),
        make_run(task="mix", created_at=2000, status="running", started_at=2500),
        full_run("mix", created_at=3000, started_at=3100, ended_at=3200, exit_code=3, end_reason="failed"),
        full_run("mix", created_at=4000, started_at=4100, ended_at=9000, exit_code=0, retry_attempt=0),
    ]
    return [shared.insert(row) for row in rows]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ({}, [3, 2, 1, 0]),
        ({"sortDirection": "asc"}, [0, 1, 2, 3]),
        ({"sortField": "", "sortDirection": "", "triggeredBy": "", "search": ""}, [3, 2, 1, 0]),
        ({"sortField": "createdAt", "limit": 2, "offset": 1}, [2, 1]),
        ({"sort_field": "created_at", "sort_direction": "asc", "limit": 1}, [0]),
        ({"sortField": "startedAt", "sortDirection": "asc"}, [1, 2, 3, 0]),
        ({"sortField": "start_at"}, [3, 2, 1, 0]),
        ({"sortField": "exitCode", "sortDirection": "desc"}, [2, 3, 1, 0]),
        ({"sortField": "duration", "sortDirection": "desc"}, [1, 3, 2, 0]),
        ({"sortField": "status", "sortDirection": "asc"}, [2, 3, 0, 1]),
        ({"status": "pending,running"}, [1, 0]),
        ({"status": "ended"}, [3, 2]),
        ({"retriesOnly": "true"}, [2]),
        ({"retries_only": "1"}, [2]),
        ({"retriesOnly": "false"}, [3, 2, 1, 0]),
        ({"exitCodeMin": "0"}, [3, 2]),
        ({"exitCodeMin": "1", "exitCodeMax": "99999999999999999999999"}, [2]),
        ({"exit_code_max": "-1"}, [1, 0]),
        ({"createdAfter": "1970-01-01T00:00:02Z"}, [3, 2, 1]),
        ({"created_after": "1970-01-01T00:00:02.0001Z"}, [3, 2]),
        ({"createdBefore": "1970-01-01T00:00:02.000Z"}, [1, 0]),
        ({"search": "MIX"}, [3, 2, 1, 0]),
        ({"offset": 100}, []),
    ],
)
def test_filters_and_sorts(daemon: Daemon, mixed: list[Run], query: dict[str, Any], rows: list[int]) -> None:
    """Every filter and sort works in either naming on both lists; missing values come last."""
    expected = [mixed[row].id for row in rows]
    assert ids_in(daemon, "/api/tasks/mix/runs", **query) == expected
    assert ids_in(daemon, "/api/runs", task_name="mix", **query) == expected


def test_sort_by_status_matches_shown_values(daemon: Daemon, shared: Daemon) -> None:
    """End reasons that are shown as one are sorted as one, with their runs by id."""
    reasons = ["start_failed", "queue_full", "skipped", "failed", "missed"]
    rows = [
        shared.insert(full_run("folded", created_at=1000 + n, end_reason=reason)) for n, reason in enumerate(reasons)
    ]
    exact, shown = ([rows[number].id for number in order] for order in ([3, 4, 1, 2, 0], [0, 3, 1, 2, 4]))
    query = {"sort_field": "status", "sort_direction": "asc"}
    assert ids_in(daemon, "/api/runs", task_name="folded", **query) == shown
    assert ids_in(daemon, "/api/runs", task_name="folded", naming="camel", **query) == exact
    assert ids_in(daemon, "/api/tasks/folded/runs", **query) == exact
    assert ids_in(daemon, "/api/tasks/folded/runs", naming="snake", **query) == shown


def test_search_finds_ids(daemon: Daemon, mixed: list[Run]) -> None:
    """Search matches a part of the task name or of the id, case-insensitively."""
    assert ids_in(daemon, "/api/runs", search=mixed[2].id.lower()) == [mixed[2].id]
    assert ids_in(daemon, "/api/tasks/mix/runs", search="no such thing") == []


def test_total_counts_all_pages(daemon: Daemon, mixed: list[Run]) -> None:
    """Total is exact on every page."""
    assert daemon.get("/api/tasks/mix/runs?limit=1").json["total"] == len(mixed)
    assert daemon.get("/api/tasks/mix/runs?offset=50").json["total"] == len(mixed)
    assert daemon.get("/api/runs?task_name=mix&status=ended&limit=1").json["total"] == 2


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize("path", ["/api/runs", "/api/tasks/mix/runs", "/api/runs/deleted"])
@pytest.mark.parametrize("sort", ["createdAt", "duration"])
def test_highest_offset(daemon: Daemon, path: str, sort: str) -> None:
    """A page after all runs is empty, up to the highest offset."""
    query = "" if path.endswith("deleted") else f"&sortField={sort}"
    response = daemon.get(f"{path}?offset={2**63 - 1}&limit=1000{query}")
    assert response.status == 200
    assert response.json.get("runs", response.json.get("items")) == []


def test_task_filter_and_path_must_both_hold(daemon: Daemon, mixed: list[Run]) -> None:
    """The parameter taskName on a task's own list narrows the list and does not replace the task."""
    assert ids_in(daemon, "/api/tasks/mix/runs", taskName="other") == []
    assert len(ids_in(daemon, "/api/tasks/mix/runs", task_name="mix")) == len(mixed)


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/api/runs?limit=0", "query.limit"),
        ("/api/runs?limit=1001", "query.limit"),
        ("/api/runs?offset=-1", "query.offset"),
        ("/api/runs?status=nonsense", "query.status"),
        ("/api/runs?triggered_by=moon", "query.triggered_by"),
        ("/api/runs?sort_field=params", "query.sort_field"),
        ("/api/runs?sort_direction=up", "query.sort_direction"),
        ("/api/runs?naming=kebab", "query.naming"),
        ("/api/runs?limt=5", "query.limt"),
        ("/api/tasks/mix/runs?exitCodeMin=x", "query.exitCodeMin"),
        ("/api/tasks/mix/runs?createdAfter=yesterday", "query.createdAfter"),
        (f"/api/tasks/{'a' * 101}/runs", "path.taskName"),
        ("/api/tasks/a%20b/runs", "path.taskName"),
        ("/api/runs/not-a-ulid", "path.runId"),
        ("/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAI", "path.runId"),
    ],
)
def test_invalid_parameters(daemon: Daemon, path: str, location: str) -> None:
    """422 names the parameter and the value."""
    answer = daemon.get(path)
    assert answer.status == 422
    (error,) = answer.json["errors"]
    assert error["location"] == location
    assert error["value"]


def test_all_invalid_parameters_at_once(daemon: Daemon) -> None:
    """Each invalid parameter of path and query has an element."""
    errors = daemon.get("/api/tasks/a%20b/runs?limit=0&offset=x&nonsense=1").json["errors"]
    assert {error["location"] for error in errors} == {"path.taskName", "query.limit", "query.offset", "query.nonsense"}


@pytest.mark.parametrize(
    "path",
    ["", "?naming=camel", "/stop", "/log", "/log/raw", "/log/stream", "/resources", "/ending"],
    ids=lambda path: path or "run",
)
def test_unknown_and_deleted_runs(daemon: Daemon, path: str) -> None:
    """A missing or deleted run gets 404, with all its sub-paths."""
    method = "POST" if path == "/stop" else "GET"
    assert daemon.ask(method, f"/api/runs/{new_ulid()}{path}").status == 404
    gone = daemon.insert(full_run("gone"))
    daemon.delete(gone.id)
    assert daemon.ask(method, f"/api/runs/{gone.id}{path}").status == 404


def test_runs_of_unknown_tasks(daemon: Daemon) -> None:
    """404 requires a name that is neither configured nor has runs; a filter without matches is not enough."""
    assert daemon.get("/api/tasks/nowhere/runs").status == 404
    daemon.insert(make_run(task="removed"))
    assert daemon.get("/api/tasks/removed/runs?status=crashed").json["total"] == 0


def test_stop(daemon: Daemon) -> None:
    """The scheduler is asked to stop the run and learns the person; the answer is 204."""
    run = daemon.insert(make_run(task="stop", status="running", started_at=1))
    assert daemon.ask("POST", f"/api/runs/{run.id}/stop?force=true").status == 204
    assert daemon.scheduler.calls[-1] == ("stop", {"run": run.id, "force": True, "by": f"uid {os.getuid()}"})


def test_stop_of_an_ended_run(daemon: Daemon) -> None:
    """Stopping an ended run gets 204 and does nothing."""
    run = daemon.insert(full_run("stop"))
    assert daemon.ask("POST", f"/api/runs/{run.id}/stop").status == 204
    assert daemon.scheduler.calls == []


def test_stop_refused(daemon: Daemon) -> None:
    """A refusal by the scheduler keeps its status and message."""

    def refuse(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(404, "I know no such run")

    daemon.scheduler.operations["stop"] = refuse
    run = daemon.insert(make_run(task="stop"))
    answer = daemon.ask("POST", f"/api/runs/{run.id}/stop")
    assert (answer.status, answer.json["detail"]) == (404, "I know no such run")


def test_head(daemon: Daemon, fields: Run) -> None:
    """HEAD answers as GET does, without the body."""
    head, get = (daemon.ask(method, f"/api/runs/{fields.id}") for method in ("HEAD", "GET"))
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


def test_newest_runs_of_several_tasks(daemon: Daemon) -> None:
    """One request returns the newest runs of many tasks, in the order of the requested names."""
    made = [daemon.insert(make_run(task="newest-a", created_at=1_780_000_000_000 + n)) for n in range(3)]
    other = daemon.insert(make_run(task="newest-b"))
    items = daemon.get("/api/runs/newest?tasks=newest-b,newest-none,newest-a&limit=2").json["items"]
    assert [item["taskName"] for item in items] == ["newest-b", "newest-a"]
    assert [run["id"] for run in items[0]["runs"]] == [other.id]
    assert [run["id"] for run in items[1]["runs"]] == [made[2].id, made[1].id]
    assert daemon.get("/api/runs/newest").json["items"] == []
    answer = daemon.get("/api/runs/newest?tasks=a,b%20c")
    assert answer.status == 422
    assert answer.json["errors"][0]["message"].startswith('"b c" must have 1 to 100 characters')
    many = ",".join(f"t{n}" for n in range(101))
    assert "at most 100 elements" in daemon.get(f"/api/runs/newest?tasks={many}").body.decode()


def details(daemon: Daemon, run_id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    answer = daemon.ask("GET", f"/api/runs/{run_id}/details", headers=headers or {}, unix=not headers)
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    assert body.pop("$schema").endswith("/schemas/RunDetails.json")
    return body


def test_waiting_run(daemon: Daemon) -> None:
    """The scheduler says why a run waits; a limited token sees no holders beyond its tasks."""
    run = daemon.insert(make_run(task="mine-1", requested_by="alice", scheduled_at=1_780_000_000_000))
    mine, other = new_ulid(), new_ulid()
    waits = {
        "uses": {"db": 2},
        "waiting_for": [
            {"kind": "slot", "name": "db", "size": 2, "held_by": [[other, "other"], [mine, "mine-2"]]},
            {"kind": "daemon", "name": "", "size": 1, "held_by": []},
            {"kind": "retry", "until": 1_780_000_000_000},
        ],
    }
    daemon.scheduler.operations["runs_wait"] = lambda args: {"runs": dict.fromkeys(args["runs"], waits)}
    details_found = details(daemon, run.id)
    holders = [{"runId": other, "taskName": "other"}, {"runId": mine, "taskName": "mine-2"}]
    assert details_found == {
        "by": "alice",
        "scheduledFor": "2026-05-28T20:26:40.000Z",
        "slots": {"db": 2},
        "waitingFor": [
            {"kind": "slot", "name": "db", "size": 2, "heldBy": holders},
            {"kind": "daemon", "size": 1, "heldBy": []},
            {"kind": "retry", "until": "2026-05-28T20:26:40.000Z"},
        ],
    }
    seen = details(daemon, run.id, bearer(make_token(daemon, "limited", "viewer", tasks="mine-*")))
    assert seen["waitingFor"][0]["heldBy"] == holders[1:]


def test_expected_end(daemon: Daemon) -> None:
    """Details of a running run say when it ends if it takes as long as usual; a waiting run has no such time."""
    waits = {"uses": {}, "waiting_for": [], "usual_ms": 240_000}
    daemon.scheduler.operations["runs_wait"] = lambda args: {"runs": dict.fromkeys(args["runs"], waits)}
    running = daemon.insert(make_run(task="usual", status="running", started_at=1_780_000_000_000))
    waiting = daemon.insert(make_run(task="usual"))
    assert details(daemon, running.id)["expectedEndAt"] == "2026-05-28T20:30:40.000Z"
    assert "expectedEndAt" not in details(daemon, waiting.id)


def test_extended_list(daemon: Daemon) -> None:
    """Details stand beside the documented records of the list; other lists have none."""
    run = daemon.insert(make_run(task="waits", requested_by="alice"))
    ended = daemon.insert(make_run(task="waits", status="ended", end_reason="failed"))
    reasons = [{"kind": "daemon", "name": "", "size": 1, "held_by": []}]
    daemon.scheduler.operations["runs_wait"] = lambda args: {
        "runs": {run: {"uses": {"db": 1}, "waiting_for": reasons} for run in args["runs"]}
    }
    for path, key in (("/api/runs?task_name=waits", "runs"), ("/api/tasks/waits/runs?limit=50", "items")):
        plain = daemon.get(path).json
        body = daemon.get(f"{path}&extended=true").json
        details = {"by": "alice", "slots": {"db": 1}, "waitingFor": [{"kind": "daemon", "size": 1, "heldBy": []}]}
        assert body.pop("details") == {run.id: details, ended.id: {}}
        assert body == plain
        assert len(body[key]) == 2


def test_definition_of_a_run(daemon: Daemon) -> None:
    """A run's definition has the names of the API; details of the run and of lists have its hash."""
    text = '{"kind": "service", "run": "x", "live": {"http": "/", "every_ms": 5}, "env": {"A_B": "***"}, "tags": ["t"]}'
    with daemon.lock:
        set_current(daemon.db, "defined", Definition(text, "1" * 32), 0)
    run = daemon.insert(
        make_run(task="defined", status="ended", end_reason="failed", ended_at=1, definition_hash="1" * 32)
    )
    answer = daemon.get(f"/api/runs/{run.id}/definition")
    assert answer.status == 200
    shown = {name: value for name, value in answer.json.items() if name != "$schema"}
    assert shown == {
        "hash": "1" * 32,
        "kind": "service",
        "definition": {"run": "x", "live": {"http": "/", "everyMs": 5}, "env": {"A_B": "***"}, "tags": ["t"]},
    }
    assert details(daemon, run.id) == {"definitionHash": "1" * 32}
    assert daemon.get("/api/runs?task_name=defined&extended=true").json["details"] == {run.id: details(daemon, run.id)}
    limited = bearer(make_token(daemon, "elsewhere", "viewer", tasks="other-*"))
    assert daemon.ask("GET", f"/api/runs/{run.id}/definition", headers=limited).status == 404


def test_run_without_a_definition(daemon: Daemon) -> None:
    """A run whose definition was never recorded, or is no longer stored, gets 404 with the reason."""
    earlier = daemon.insert(make_run(status="ended", end_reason="failed", ended_at=1))
    pruned = daemon.insert(make_run(status="ended", end_reason="failed", ended_at=1, definition_hash="2" * 32))
    for run, reason in ((earlier, "older than the recording"), (pruned, "not stored any more")):
        answer = daemon.get(f"/api/runs/{run.id}/definition")
        assert (answer.status, reason in answer.json["detail"]) == (404, True)
    assert details(daemon, earlier.id) == {}
    assert daemon.get(f"/api/runs/{new_ulid()}/definition").status == 404


def test_reasons_without_a_scheduler(daemon: Daemon) -> None:
    """A scheduler of the previous release omits the reasons; for an ended run, it is not asked."""
    run = daemon.insert(make_run(task="t"))
    daemon.scheduler.operations["runs_wait"] = _unknown
    assert details(daemon, run.id) == {}
    ended = daemon.insert(make_run(task="t", status="ended", end_reason="failed"))
    daemon.scheduler.calls.clear()
    assert details(daemon, ended.id) == {}
    assert daemon.scheduler.calls == []
    assert daemon.get(f"/api/runs/{new_ulid()}/details").status == 404


def _unknown(_args: dict[str, Any]) -> dict[str, Any]:
    raise Refusal(400, "unknown operation runs_wait")
