"""Who did what."""

import contextlib
import json
import os
import signal
from urllib.parse import urlencode

from store.runs.ids import new_ulid
from store.tasks import upsert_task
from tests.api.support.credentials import JSON, basic, bearer, cookie, login, make_token
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until


def test_every_command_is_recorded(own: Daemon) -> None:
    """Each command is recorded with person, address, object and result; reading is not recorded."""
    token = own.ask("POST", "/api/tokens", json.dumps({"name": "ci", "role": "operator"}), JSON).json["token"]
    answer = own.ask("POST", "/api/tasks/job/run", headers=bearer(token), unix=False)
    assert answer.status == 201
    triggered = answer.json["id"]
    assert own.ask("POST", "/api/tasks/unknown/run").status == 404
    until(lambda: len(own.scheduler.audit) == 3, "the refusal, which is sent a moment later")
    run = own.insert(make_run(task="running"))
    assert own.ask("POST", f"/api/runs/{run.id}/stop", headers=basic(PASSWORD), unix=False).status == 204
    assert own.get("/api/runs").status == 200
    until(lambda: len(own.scheduler.audit) == 4, "the audit")
    uid = f"uid {os.geteuid()}"
    assert [entry[1:] for entry in own.scheduler.audit] == [
        (uid, "unix", "createToken", "ci", 201, "", False),
        ("token ci", "127.0.0.1", "runTask", "job", 201, f"run {triggered}", False),
        (uid, "unix", "runTask", "unknown", 404, "There is no task unknown", False),
        ("user admin", "127.0.0.1", "stopRun", run.id, 204, "", False),
    ]
    shown = own.get("/api/audit?limit=2").json
    assert [item["operation"] for item in shown["items"]] == ["stopRun", "runTask"]
    assert shown["items"][1]["reason"] == "There is no task unknown"
    older = own.get(f"/api/audit?limit=3&before={shown['nextCursor']}").json
    assert [item["operation"] for item in older["items"]] == ["runTask", "createToken"]
    assert "nextCursor" not in older, "the last page"


def test_chosen_entries(own: Daemon) -> None:
    """The audit is filtered by person, operation, target and time, and names the task of a run."""
    token = own.ask("POST", "/api/tokens", json.dumps({"name": "ci", "role": "operator"}), JSON).json["token"]
    run = own.insert(make_run(task="running"))
    assert own.ask("POST", f"/api/runs/{run.id}/stop", headers=bearer(token), unix=False).status == 204
    assert own.ask("POST", "/api/tasks/job/run", headers=bearer(token), unix=False).status == 201
    until(lambda: len(own.scheduler.audit) == 3, "the audit")

    def chosen(**query: str) -> list[str]:
        items = own.get(f"/api/audit?{urlencode(query)}").json["items"]
        return sorted(item["operation"] for item in items)

    assert chosen(who="TOKEN CI") == ["runTask", "stopRun"]
    assert chosen(operation="stopRun") == ["stopRun"]
    assert chosen(target="jo") == ["runTask"]
    assert chosen(target="%") == []
    assert chosen(who="ci", target=run.id) == ["stopRun"]
    assert chosen(until="2026-01-01T00:00:00Z") == []
    assert len(chosen(since="2026-01-01T00:00:00Z")) == 3
    [item] = own.get("/api/audit?operation=stopRun").json["items"]
    assert item["taskName"] == "running"


def test_changes_of_a_unit(own: Daemon) -> None:
    """The changes of a unit name who made them, with their notes, also if a command was to several units."""
    with own.lock:
        upsert_task(own.db, "job", "task", "{}")
    own.scheduler.operations["task_pause"] = lambda _args: {}
    own.scheduler.operations["task_resume"] = lambda _args: {}
    own.scheduler.operations["units"] = lambda _args: {"units": [("job", "paused", []), ("other", "paused", [])]}
    assert own.ask("POST", "/api/tasks/job/pause", json.dumps({"note": "disk swap"}), JSON).status == 204
    assert own.ask("POST", "/api/tasks/job/resume").status == 204
    for names in (["job", "other"], ["j*"], ["other"]):
        body = json.dumps({"names": names, "note": "holidays"})
        assert own.ask("POST", "/api/units/pause", body, JSON).status == 200
    until(lambda: len(own.scheduler.audit) == 5, "the audit")
    items = own.get("/api/tasks/job/changes").json["items"]
    assert {item["by"] for item in items} == {f"uid {os.geteuid()}"}
    assert sorted((item["operation"], item.get("note", "")) for item in items) == [
        ("pauseTask", "disk swap"),
        ("pauseUnits", "holidays"),
        ("pauseUnits", "holidays"),
        ("resumeTask", ""),
    ]
    assert own.get("/api/tasks/unknown/changes").status == 404


def test_bulk_operations(own: Daemon) -> None:
    """A bulk operation is recorded with its selector, the number of runs and the first ids; a rerun names both."""
    ids = [new_ulid() for _ in range(5)]
    own.scheduler.operations["bulk_delete"] = lambda _args: {"affected": 12, "first": ids[:3], "deleted_at": 1}
    own.scheduler.operations["bulk_stop"] = lambda _args: {"affected": 0, "first": []}
    own.scheduler.operations["bulk_rerun"] = lambda _args: {"triggered": [{"run_id": ids[4], "task_name": "job"}]}
    chosen = {"status": "failed,timeout", "task_name": "job", "exit_code_min": 2, "retries_only": True}
    for kind, selector in (
        ("delete", {"match_all": True, "filter": chosen, "except_ids": [ids[0]]}),
        ("delete", {"ids": [*ids, "no id", ids[0]]}),
        ("stop", {"match_all": True}),
        ("rerun", {"ids": [ids[3]]}),
    ):
        assert own.ask("POST", f"/api/runs/bulk/{kind}", json.dumps(selector), JSON).status == 200
    until(lambda: len(own.scheduler.audit) == 4, "the audit")
    some = ", ".join(ids[:3])
    assert [(entry.target, entry.reason) for entry in own.scheduler.audit] == [
        (
            "runs with task job, status failed,timeout, exit code from 2, retries only, without 1 run: " + ids[0],
            f"12 runs: {some} and 9 more",
        ),
        (f"5 runs: {some} and 2 more", f"12 runs: {some} and 9 more"),
        ("all runs", "0 runs"),
        (ids[3], f"1 run: job {ids[4]}"),
    ]
    shown = own.get("/api/audit?limit=1").json["items"][0]
    assert (shown["target"], shown["result"], "reason" in shown) == (ids[3], f"1 run: job {ids[4]}", False)


def test_refusals_are_recorded(own: Daemon) -> None:
    """A refused command is recorded with the reason."""
    secret = make_token(own, "curious")
    assert own.ask("POST", "/api/tasks/job/run", headers=bearer(secret), unix=False).status == 403
    until(lambda: own.scheduler.audit and own.scheduler.audit[-1].status == 403, "the audit")
    entry = own.scheduler.audit[-1]
    assert (entry.who, entry.operation, entry.target) == ("token curious", "runTask", "job")
    assert entry.reason == "The role viewer does not permit this operation"


def test_logins(own: Daemon) -> None:
    """Logins, logouts and each wrong password are recorded once, however the password was sent."""
    session = cookie(login(own))
    assert login(own, "wrong").status == 401
    assert own.get("/api/runs", basic("wrong"), unix=False).status == 401
    until(lambda: len(own.scheduler.audit) == 3, "the wrong passwords, which are sent a moment later")
    assert own.ask("POST", "/api/auth/logout", headers=session, unix=False).status == 204
    until(lambda: len(own.scheduler.audit) == 4, "the audit")
    assert [(entry.operation, entry.who, entry.status, entry.failed_login) for entry in own.scheduler.audit] == [
        ("login", "user admin", 204, False),
        ("login", "", 401, True),
        ("login", "", 401, True),
        ("logout", "user admin", 204, False),
    ]


def test_unauthenticated_clients_do_not_fill_the_audit(own: Daemon) -> None:
    """Unauthenticated clients leave no entries except wrong passwords."""
    assert own.ask("POST", "/api/tasks/job/run", unix=False).status == 401
    assert own.ask("POST", "/api/tasks/job/run", headers=bearer("rw_" + "A" * 43), unix=False).status == 401
    assert login(own, headers={"Origin": "http://evil.example"}).status == 403
    assert own.ask("POST", "/api/auth/logout", unix=False).status == 204
    login(own)
    until(lambda: own.scheduler.audit, "the audit")
    assert [entry.operation for entry in own.scheduler.audit] == ["login"]


def test_audit_contains_no_secrets(own: Daemon) -> None:
    """The audit contains no passwords, no tokens, and no content of wrong fields."""
    secret = make_token(own, "quiet", "admin")
    login(own)
    login(own, "hunter2-hunter2")
    own.ask("POST", "/api/auth/login", json.dumps({"hunter2-hunter2": "hunter2-hunter2"}), JSON, unix=False)
    own.ask("POST", "/api/tokens", json.dumps({"hunter2-hunter2": 1}), {**JSON, **bearer(secret)}, unix=False)
    own.ask("DELETE", "/api/tokens/none", headers=bearer(secret), unix=False)
    until(lambda: any(entry.target == "none" for entry in own.scheduler.audit), "the audit")
    text = str(own.scheduler.audit) + own.get("/api/audit").body.decode() + own.log.read_text()
    assert not any(word in text for word in ("hunter2", PASSWORD, secret))


def test_entries_wait_for_the_scheduler(own: Daemon) -> None:
    """While the scheduler is down, entries wait and then arrive in order; one with a lost answer may arrive twice."""
    session = cookie(login(own))
    until(lambda: own.scheduler.audit, "the log-in to be stored")
    own.scheduler.stop()
    statuses = [own.ask("POST", "/api/tasks/job/run", headers=session, unix=False).status for _ in range(2)]
    assert statuses == [503, 503]
    own.scheduler.start()
    until(lambda: len({*own.scheduler.audit}) == 3, "the audit")
    assert [entry.status for entry in dict.fromkeys(own.scheduler.audit)] == [204, 503, 503]


def test_killed_worker_loses_no_entry(own: Daemon) -> None:
    """Each answered request is recorded once, even if the worker is killed at that moment."""
    assert own.ask("POST", "/api/tasks/job/run").status == 201
    os.kill(own.workers()[0], signal.SIGKILL)
    until(lambda: own.scheduler.audit, "the audit")
    own.scheduler.stop()
    assert own.ask("POST", "/api/tasks/other/run").status == 503
    (worker,) = own.workers()
    os.kill(worker, signal.SIGKILL)
    own.scheduler.start()
    until(lambda: len(own.get("/api/audit").json["items"]) == 2, "the audit")
    assert [item["target"] for item in own.get("/api/audit").json["items"]] == ["other", "job"]
    until(lambda: not left_by(own), "the files to go")
    own.signal(15)
    own.wait()
    assert not left_by(own)


def test_worker_killed_during_a_waiting_request(own: Daemon) -> None:
    """A trigger that waits for the end of its run is recorded once, even if the worker is killed meanwhile."""
    with contextlib.closing(own.connect(unix=True)) as waiting:
        waiting.request("POST", "/api/tasks/job/run?wait=240")
        until(lambda: "trigger" in [op for op, _ in own.scheduler.calls], "the trigger")
        until(lambda: own.scheduler.audit, "the audit")
        os.kill(own.workers()[0], signal.SIGKILL)
    assert own.ask("POST", "/api/tasks/other/run?wait=1").status == 201
    until(lambda: own.scheduler.audit[-1].target == "other", "the audit")
    stored = own.get("/api/audit").json["items"]
    assert [(entry["target"], entry["status"]) for entry in stored] == [("other", 201), ("job", 201)]


def test_stored_entries_leave_the_spool(own: Daemon) -> None:
    """Stored entries are removed from the spool however the worker ends, and later entries reuse it."""
    assert own.ask("POST", "/api/tasks/job/run").status == 201
    until(lambda: own.scheduler.audit, "the audit")
    until(lambda: not left_by(own), "the file to go")
    own.scheduler.stop()
    assert own.ask("POST", "/api/tasks/other/run").status == 503
    assert len(left_by(own)) == 1
    own.scheduler.start()
    until(lambda: len(own.scheduler.audit) == 2 and not left_by(own), "the audit")


def left_by(daemon: Daemon) -> list[str]:
    return [name for name in os.listdir(daemon.settings.audit_dir) if name.startswith("audit")]


def test_ending_worker_sends_waiting_entries(own: Daemon) -> None:
    """A worker that is asked to end first sends the waiting entries."""
    assert own.ask("POST", "/api/tasks/job/run").status == 201
    own.signal(15)
    own.wait()
    until(lambda: own.scheduler.audit, "the entries to be taken")
    assert [entry.operation for entry in own.scheduler.audit] == ["runTask"]
