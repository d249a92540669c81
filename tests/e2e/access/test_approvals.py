"""Runs that wait for an approval, through the real daemon with accounts, the command line and killed helpers."""

import contextlib
import json
import os
import pwd
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.access.test_accounts import SECRET, basic, ringward
from tests.support.daemon import Daemon
from tests.support.waiting import until

CONFIG = """
[tasks.deploy]
run = "echo deployed"
needs_approval = true

[tasks.secure]
run = "echo secured"
needs_approval = ["alice", "bob", "UNIX"]
not_by_starter = true

[flows.release.steps.build]
run = "echo built"
[flows.release.steps.publish]
after = ["build"]
run = "echo published"
needs_approval = true
"""


def own_name() -> str:
    """Return the name of the user that runs the tests; without one, its id as records have it."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return f"uid {os.geteuid()}"


def start(daemon: Daemon) -> None:
    daemon.write(CONFIG.replace("UNIX", own_name()))
    daemon.start()
    for name, role in (("alice", "operator"), ("bob", "operator"), ("eve", "operator"), ("carl", "viewer")):
        assert ringward(daemon, f"{SECRET}\n", "user", "add", name, "--role", role).returncode == 0


def answer(daemon: Daemon, verb: str, run: str, who: str, note: str | None = None) -> int:
    """Answer with an account, and return the status."""
    body = None if note is None else {"note": note}
    return daemon.request("POST", f"/api/runs/{run}/{verb}", body, basic(who, SECRET)).status


def waiting(daemon: Daemon, run: str) -> Callable[[], bool]:
    """Return a condition: the run waits for its approval."""

    def found() -> bool:
        details = daemon.get(f"/api/runs/{run}/details").json()
        return [reason["kind"] for reason in details.get("waitingFor", [])] == ["approval"]

    return found


def test_who_may_answer(daemon: Daemon) -> None:
    """Only operators answer, only those whom the task names, and with not_by_starter not the one who started it."""
    start(daemon)
    run = daemon.request("POST", "/api/tasks/secure/run", headers=basic("alice", SECRET)).json()["id"]
    (reason,) = daemon.get(f"/api/runs/{run}/details").json()["waitingFor"]
    assert reason["approvers"][:2] == ["alice", "bob"]
    statuses = [answer(daemon, verb, run, who) for verb in ("approve", "reject") for who in ("carl", "eve", "alice")]
    assert statuses == [403] * 6
    assert waiting(daemon, run)()
    assert answer(daemon, "approve", run, "bob", "looks good") == 204
    assert daemon.ended(run)["endReason"] == "succeeded"
    approval = daemon.get(f"/api/runs/{run}/ending").json()["approval"]
    assert (approval["answer"], approval["by"], approval["note"]) == ("approved", "user bob", "looks good")
    over_the_socket = daemon.request("POST", "/api/tasks/secure/run", headers=basic("alice", SECRET)).json()["id"]
    assert daemon.cli("approve", over_the_socket).returncode == 0
    own = daemon.trigger("secure")

    def audited() -> set[tuple[str, int]]:
        entries = json.loads(daemon.cli("audit", "--json").stdout)["items"]
        return {(item["who"], item["status"]) for item in entries if item["operation"] == "approveRun"}

    until(lambda: audited() >= {("user bob", 204), ("user eve", 403)}, "the audit")
    assert answer(daemon, "reject", own, "bob") == 204


def test_two_answers_at_the_same_moment(daemon: Daemon) -> None:
    """Of several answers at once, exactly one counts; the others get 409, and the record has the one that counted."""
    start(daemon)
    for _ in range(3):
        run = daemon.trigger("deploy")
        asked = [(verb, who) for verb in ("approve", "reject") for who in ("alice", "bob")]
        with ThreadPoolExecutor(len(asked)) as pool:
            statuses = list(pool.map(lambda one, run=run: answer(daemon, one[0], run, one[1]), asked))
        assert sorted(statuses) == [204, 409, 409, 409]
        verb, who = asked[statuses.index(204)]
        reason = daemon.ended(run)["endReason"]
        assert reason == ("succeeded" if verb == "approve" else "stopped")
        approval = daemon.get(f"/api/runs/{run}/ending").json()["approval"]
        assert approval["by"] == f"user {who}"


def test_helpers_die_while_a_step_waits(daemon: Daemon) -> None:
    """A step goes on waiting while scheduler, API server and daemon die, and starts once, after its approval."""
    start(daemon)
    flow = daemon.trigger("release")

    def publish() -> str | None:
        runs = [run["id"] for run in daemon.runs("release:publish")]
        return runs[0] if runs else None

    run = until(publish, "the step that waits")
    until(waiting(daemon, run), "the wait")
    limit = daemon.get(f"/api/runs/{run}/details").json()["waitingFor"][0]["until"]
    daemon.kill_helper("ringward scheduler")
    until(waiting(daemon, run), "the wait to go on after the scheduler died")
    daemon.kill_helper("ringward gunicorn")
    until(waiting(daemon, run), "the wait to go on after the API server died")
    for number in (signal.SIGKILL, signal.SIGTERM):
        daemon.stop(number)
        daemon.start()
        until(waiting(daemon, run), f"the wait to go on after {number.name}")
    assert daemon.get(f"/api/runs/{run}/details").json()["waitingFor"][0]["until"] == limit
    assert daemon.run(flow)["status"] == "running"
    assert daemon.cli("approve", "release", "--note", "go").returncode == 0
    daemon.kill_helper("ringward scheduler")
    assert daemon.ended(flow)["endReason"] == "succeeded"
    assert daemon.texts(run) == ["published"]
    assert len([one for one in daemon.get("/api/notifications").json()["items"] if one["kind"] == "run.approval"]) == 1
    late = daemon.cli("reject", run)
    assert late.returncode == 1
    assert "already answered" in " ".join(late.stderr.split())
