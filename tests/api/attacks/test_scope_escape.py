"""A token that is limited to some tasks against everything about the others."""

import json
import re

import pytest

from api.operation_table import OPERATIONS
from api.operations.operation import Access, Operation
from logring.layout import STDOUT
from store.tasks import upsert_task
from tests.api.attacks.test_privilege_escalation import GUARDED, ids, path_of, required_query
from tests.api.support.credentials import bearer, make_token
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until

ABOUT_ONE = [operation for operation in GUARDED if "{taskName}" in operation.path or "{runId}" in operation.path]
ABOUT_ALL = [operation for operation in GUARDED if operation not in ABOUT_ONE]


def scoped(daemon: Daemon, role: str = "admin", tasks: str = "mine-*") -> dict[str, str]:
    return bearer(make_token(daemon, f"scoped-{role}", role, tasks=tasks))


def ask(daemon: Daemon, operation: Operation, path: str, headers: dict[str, str]) -> int:
    method = "HEAD" if operation.method == "GET" else operation.method
    return daemon.ask(method, path + required_query(operation), headers=headers, unix=False).status


@pytest.mark.parametrize("operation", ABOUT_ONE, ids=ids)
def test_other_tasks_and_their_runs(daemon: Daemon, operation: Operation) -> None:
    """Other tasks and their runs get 404, as if they did not exist, and the scheduler is not asked."""
    other = daemon.insert(make_run(task="other"))
    headers = scoped(daemon)
    path = path_of(operation).replace("/job", "/other").replace("01ARZ3NDEKTSV4RRFFQ69G5FAV", other.id)
    daemon.scheduler.calls.clear()
    assert ask(daemon, operation, path, headers) == 404
    assert daemon.scheduler.calls == []


@pytest.mark.parametrize("operation", [operation for operation in ABOUT_ALL if not operation.scoped], ids=ids)
def test_operations_on_the_whole_daemon(daemon: Daemon, operation: Operation) -> None:
    """Tokens, audit, the daemon's log and state, and notifications get 403, even with an admin's token."""
    headers = scoped(daemon)
    if operation.body is None:
        assert ask(daemon, operation, path_of(operation), headers) == 403
        return
    json_headers = {"Content-Type": "application/json", **headers}
    answer = daemon.ask(operation.method, path_of(operation), b"{}", json_headers, unix=False)
    assert answer.status == 403


def test_operations_that_filter_by_scope() -> None:
    """A new operation on all tasks is refused to limited tokens unless it is on this list and has a test below."""
    assert {operation.id for operation in ABOUT_ALL if operation.scoped} == {
        "listTasks",
        "listRuns",
        "listDeletedRuns",
        "summarizeRuns",
        "listNewestRuns",
        "listFailures",
        "listRunningResources",
        "listTaskResources",
        "streamEvents",
        "streamLogs",
        "searchLogs",
        "listSlots",
        "listUpcoming",
        "getMetrics",
        "bulkDeleteRuns",
        "bulkRerunRuns",
        "bulkRestoreRuns",
        "bulkStopRuns",
        "startUnits",
        "stopUnits",
        "restartUnits",
        "pauseUnits",
        "resumeUnits",
        "enableUnits",
    }
    assert all(operation.access is not Access.LOCAL for operation in OPERATIONS if operation.scoped)


def test_lists_and_totals(daemon: Daemon) -> None:
    """Other tasks and their runs are neither listed nor counted, whatever the request asks for."""
    with daemon.lock:
        for name in ("listed-1", "other"):
            upsert_task(daemon.db, name, "task", "{}")
    mine = daemon.insert(make_run(task="listed-1"))
    other = daemon.insert(make_run(task="other"))
    headers = scoped(daemon, tasks="listed-*")
    for query in ("", "&sortField=taskName", "&search=o", f"&search={other.id[:8]}", "&status=pending"):
        body = daemon.get(f"/api/runs?naming=camel&limit=1000{query}", headers, unix=False).json
        assert {run["taskName"] for run in body["runs"]} <= {"listed-1"}
        assert body["total"] == len(body["runs"])
    assert mine.id in {run["id"] for run in daemon.get("/api/runs?limit=1000", headers, unix=False).json["runs"]}
    for query in ("task_name=other", f"search={other.id}"):
        assert daemon.get(f"/api/runs?{query}", headers, unix=False).json["total"] == 0
    tasks = daemon.get("/api/tasks", headers, unix=False).json["items"]
    assert [task["name"] for task in tasks] == ["listed-1"]


def test_scope_without_a_task(daemon: Daemon) -> None:
    """A scope that matches no task sees nothing."""
    daemon.insert(make_run(task="other"))
    headers = scoped(daemon, tasks="nobody")
    assert daemon.get("/api/runs", headers, unix=False).json["total"] == 0
    assert daemon.get("/api/tasks", headers, unix=False).json["items"] == []


def test_summary(daemon: Daemon) -> None:
    """The summary counts only visible runs, even if the request names other tasks."""
    daemon.insert(make_run(task="mine-2"))
    daemon.insert(make_run(task="other"))
    headers = scoped(daemon, tasks="mine-2")
    total = daemon.get("/api/runs?limit=1", headers, unix=False).json["total"]
    assert daemon.get("/api/runs/summary", headers, unix=False).json["total"] == total
    assert daemon.get("/api/runs/summary?task_name=other", headers, unix=False).json["total"] == 0


def test_newest_runs(daemon: Daemon) -> None:
    """Other tasks do not exist in the newest runs, even if the request names them."""
    mine = daemon.insert(make_run(task="mine-3"))
    daemon.insert(make_run(task="other"))
    items = daemon.get("/api/runs/newest?tasks=other,mine-3", scoped(daemon), unix=False).json["items"]
    assert [[run["id"] for run in item["runs"]] for item in items] == [[mine.id]]


def test_failures(daemon: Daemon) -> None:
    """Failures of other tasks do not exist, even if the request names a run by its id."""
    mine, other = (
        daemon.insert(make_run(task=task, status="ended", end_reason="failed", exit_code=1))
        for task in ("mine-4", "other")
    )
    for query in ("", f"?runs={mine.id},{other.id}"):
        items = daemon.get(f"/api/runs/failures{query}", scoped(daemon), unix=False).json["items"]
        assert [item["run"]["id"] for item in items] == [mine.id]


def test_search_of_all_logs(daemon: Daemon) -> None:
    """A search finds no lines of other tasks, which do not exist even if the request names them."""
    runs = [daemon.insert(make_run(task=name, status="running", started_at=1)) for name in ("mine-5", "other")]
    for run in runs:
        log = daemon.log_of(run, file_blocks=4096)
        log.write(b"haystack\n", STDOUT, 1000)
        log.finish()
        daemon.end(run.id)
    assert len(daemon.get("/api/logs/search?q=haystack").json["items"]) == 2
    headers = scoped(daemon)
    items = daemon.get("/api/logs/search?q=haystack", headers, unix=False).json["items"]
    assert [hit["runId"] for hit in items] == [runs[0].id]
    assert daemon.get("/api/logs/search?q=haystack&task=other", headers, unix=False).status == 404


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "pause", "resume"])
def test_commands_to_many_units(daemon: Daemon, verb: str) -> None:
    """The scheduler learns which units the token may see, whatever the request selects."""
    headers = scoped(daemon) | {"Content-Type": "application/json"}
    for body in ({"all": True}, {"names": ["*", "other"]}, {"group": "g"}):
        answer = daemon.ask("POST", f"/api/units/{verb}", json.dumps(body), headers, unix=False)
        assert answer.status == 200
        operation, arguments = daemon.scheduler.calls[-1]
        assert (operation, arguments["verb"], arguments["reach"]) == ("units", verb, ["mine-*"])


def test_deleted_runs(daemon: Daemon) -> None:
    """Only deleted runs of the token's tasks are listed, even if the request names other tasks."""
    for task in ("mine-gone", "other"):
        daemon.delete(daemon.insert(make_run(task=task, status="ended", end_reason="failed")).id)
    headers = scoped(daemon, tasks="mine-gone")
    listed = daemon.get("/api/runs/deleted", headers, unix=False).json
    assert [run["taskName"] for run in listed["runs"]] == ["mine-gone"]
    assert daemon.get("/api/runs/deleted?task_name=other", headers, unix=False).json["total"] == 0


def test_events(own: Daemon) -> None:
    """Events of other tasks and of the daemon are not sent, neither live nor in a resumed stream."""
    headers = scoped(own, tasks="*")
    limited = scoped(own, "viewer")
    for header, expected in ((limited, ["mine-1"]), (headers, ["mine-1", "other"])):
        stream = own.stream("/api/events/stream?types=", header, unix=False)
        own.announce("config.reloaded")
        own.announce("run.created", runId="x", taskName="other")
        own.announce("run.created", runId="x", taskName="mine-1")
        seen = [event.data.get("taskName") for event in stream.take(len(expected))]
        assert sorted(seen) == expected
        stream.close()
    resumed = own.stream("/api/events/stream", {**limited, "Last-Event-ID": "-1"}, unix=False)
    assert [event.data["taskName"] for event in resumed.take(2)] == ["mine-1", "mine-1"]
    resumed.close()


def test_metrics(daemon: Daemon) -> None:
    """Metrics contain no series of other tasks."""
    with daemon.lock:
        for name in ("mine-1", "other"):
            upsert_task(daemon.db, name, "task", "{}")
    text = daemon.get("/metrics", scoped(daemon, "viewer"), unix=False).body.decode()
    assert "mine-1" in text
    assert '"other"' not in text
    assert not re.search("^ringward_(rings|ring_bytes|notifications_unread) ", text, re.MULTILINE)


def test_upcoming(daemon: Daemon) -> None:
    """The scheduler only lists what the tasks of the token will do."""
    assert daemon.get("/api/upcoming", scoped(daemon, "viewer"), unix=False).status == 200
    operation, arguments = next(call for call in reversed(daemon.scheduler.calls) if call[0] == "upcoming")
    assert (operation, arguments["reach"]) == ("upcoming", "mine-*")


def test_slots(daemon: Daemon) -> None:
    """Sizes and counts of slots include other tasks, but their runs are not listed."""
    runs = [("01ARZ3NDEKTSV4RRFFQ69G5FAV", "other", 1), ("01ARZ3NDEKTSV4RRFFQ69G5FAW", "mine-1", 1)]
    db = {"name": "db", "size": 2, "used": 2, "waiting": 2, "held_by": runs, "next_runs": runs[::-1]}
    daemon.scheduler.operations["slots"] = lambda _args: {
        "slots": [db],
        "max_running": {"limit": None, "running": 2},
    }
    body = daemon.get("/api/slots", scoped(daemon, "viewer"), unix=False).json
    mine = [{"runId": runs[1][0], "taskName": "mine-1", "places": 1}]
    assert body["items"] == [{"name": "db", "size": 2, "used": 2, "waiting": 2, "heldBy": mine, "nextRuns": mine}]
    assert body["maxRunning"] == {"running": 2}
    text = daemon.get("/metrics", scoped(daemon, "viewer"), unix=False).body.decode()
    assert 'ringward_slot_waiting{slot="db"} 2' in text


def test_resources(daemon: Daemon) -> None:
    """Resource usage of other tasks' runs is not shown."""
    running = [daemon.insert(make_run(task=name, status="running", started_at=1)) for name in ("mine-1", "other")]
    seen = daemon.get("/api/resources", scoped(daemon, "viewer"), unix=False).json["items"]
    for run in running:
        daemon.end(run.id)
    assert running[0].id in {item["runId"] for item in seen}
    assert {item["taskName"] for item in seen} == {"mine-1"}
    with daemon.lock:
        for name in ("mine-1", "other"):
            upsert_task(daemon.db, name, "task", "{}")
    seen = daemon.get("/api/resources/totals", scoped(daemon, "viewer"), unix=False).json["items"]
    assert [item["taskName"] for item in seen] == ["mine-1"]


@pytest.mark.parametrize("name", ["delete", "rerun", "restore", "stop"])
def test_bulk(daemon: Daemon, name: str) -> None:
    """The scheduler receives the token's limit with every selection."""
    seen = []

    def note(args: dict[str, object]) -> dict[str, object]:
        seen.append(args)
        return {"affected": 0, "triggered": []}

    daemon.scheduler.operations[f"bulk_{name}"] = note
    headers = {"Content-Type": "application/json", **scoped(daemon)}
    other = daemon.insert(make_run(task="other"))
    for body in ({"match_all": True}, {"ids": [other.id]}, {"match_all": True, "filter": {"task_name": "other"}}):
        answer = daemon.ask("POST", f"/api/runs/bulk/{name}", json.dumps(body), headers, unix=False)
        assert answer.status in (200, 422), answer.body
    until(lambda: len(seen) >= 2, "the commands")
    assert all("mine-*" in json.dumps(args) for args in seen)


@pytest.mark.parametrize("glob", ["mine-[1]", "mine-?", "[m]ine-*"])
def test_globs(daemon: Daemon, glob: str) -> None:
    """Globs match as for file names, case-sensitively."""
    headers = scoped(daemon, tasks=glob)
    for name in ("mine-1", "mine-12", "Mine-1", "xmine-1"):
        daemon.insert(make_run(task=name))
    seen = {
        name
        for name in ("mine-1", "mine-12", "Mine-1", "xmine-1")
        if daemon.get(f"/api/tasks/{name}/runs", headers, unix=False).status == 200
    }
    assert seen == ({"mine-1", "mine-12"} if glob.endswith("*") else {"mine-1"})
