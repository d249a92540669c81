"""Runs that send requests to the daemon through ``ringward``, as far as ``may`` permits."""

import json

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

pytestmark = pytest.mark.lent

SERVICE = '[services.web]\nrun = "exec sleep 1000"\nrestart_delay = "0s"\n'


def asking(command: str, may: list[str], extra: str = "") -> str:
    """Return a task that sends a request to the daemon, with no settings of its caller."""
    return f"[tasks.t]\nrun = {json.dumps(command)}\nmay = {json.dumps(may)}\n{extra}{SERVICE}"


def running(daemon: Daemon, task: str) -> str | None:
    return next((run["id"] for run in daemon.runs(task) if run["status"] == "running"), None)


@pytest.mark.parametrize("how", ["tcp", pytest.param("socket", marks=pytest.mark.own)])
def test_permitted_action(daemon: Daemon, how: str) -> None:
    """A run restarts a service that its ``may`` lists, over TCP or the Unix socket, and the audit names the run."""
    daemon.write(asking("ringward restart web; echo restarted", ["restart:web"]))
    if how == "socket":
        text = daemon.config.read_text()
        daemon.config.write_text(text.replace('listen = ["', 'listen = [] # ["'))
    daemon.start()
    before = until(lambda: running(daemon, "web"), "the service to run")
    run = daemon.ended(daemon.trigger("t"))
    assert (run["endReason"], daemon.texts(run["id"])) == ("succeeded", ["restarted"]), daemon.texts(
        run["id"], "stderr"
    )
    until(lambda: running(daemon, "web") not in (None, before), "another instance")
    who = f"run {run['id']} of t"
    until(lambda: who in [entry["who"] for entry in daemon.get("/api/audit").json()["items"]], "the audit")


def test_forbidden_actions(daemon: Daemon) -> None:
    """Other verbs, other units, lists and the daemon itself are refused, even to the daemon's own user."""
    script = "for c in 'stop web' 'restart other' 'ps' 'reload' 'run t' 'token list'; do ringward $c || echo $?; done"
    daemon.write(asking(script, ["restart:web"]) + '[services.other]\nrun = "exec sleep 1000"\n')
    daemon.start()
    until(lambda: running(daemon, "web") and running(daemon, "other"), "the services to run")
    run = daemon.ended(daemon.trigger("t"))
    assert [code for code in daemon.texts(run["id"], "stdout") if code.isdigit()] == ["77"] * 6
    assert 'add "stop:web" to its may' in "\n".join(daemon.texts(run["id"], "stderr"))
    assert daemon.task("web")["state"] == "running"


def test_log_of_a_permitted_run(daemon: Daemon) -> None:
    """A run starts another task, sees its output, and ends with its exit code."""
    child = '[tasks.report-daily]\nrun = "echo from the report; exit 3"\n'
    daemon.write(asking("ringward run report-daily", ["run:report-*"]) + child)
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert (run["exitCode"], daemon.texts(run["id"])) == (3, ["from the report"])
    assert daemon.runs("report-daily")[0]["triggeredBy"] == "api"


def test_status_and_log_of_a_permitted_unit(daemon: Daemon) -> None:
    """A run reads the state and the log of a unit that its ``may`` names, and of no other unit."""
    script = "ringward ps web >&2 && ringward logs -n 1 web && ringward search web shop; ringward logs job || echo $?"
    service = SERVICE.replace("exec", "echo the shop is open; exec")
    daemon.write(asking(script, ["restart:web"]).replace(SERVICE, service) + "[tasks.job]\nrun = 'true'\n")
    daemon.start()
    web = until(lambda: running(daemon, "web"), "the service to run")
    until(lambda: daemon.texts(web), "its output")
    run = daemon.ended(daemon.trigger("t"))
    texts = daemon.texts(run["id"], "stdout")
    assert (texts[0], texts[-1]) == ("the shop is open", "77"), daemon.texts(run["id"], "stderr")
    assert "the shop is open" in texts[1]


def test_token_is_masked_and_ends_with_the_run(daemon: Daemon) -> None:
    """The output masks the token, which is invalid after the end of its run."""
    daemon.write(asking("echo $RINGWARD_TOKEN; echo $RINGWARD_TOKEN | rev; sleep 0", ["restart:web"]))
    daemon.start()
    run_id = daemon.trigger("t")
    daemon.ended(run_id)
    masked, reversed_token = daemon.texts(run_id)
    assert masked == "***"
    token = reversed_token[::-1]
    assert token.startswith(f"rr_{run_id}_")
    answer = daemon.request("POST", "/api/tasks/web/restart", headers={"Authorization": f"Bearer {token}"})
    assert answer.status == 401


def test_run_without_permissions_gets_no_token(daemon: Daemon) -> None:
    """Without ``may``, the environment of a run has no address, no token and no interpreter of Ringward."""
    daemon.write('[tasks.t]\nrun = "env"\n')
    daemon.start()
    names = {line.partition("=")[0] for line in daemon.texts(daemon.ended(daemon.trigger("t"))["id"])}
    assert names.isdisjoint({"RINGWARD_URL", "RINGWARD_TOKEN", "RINGWARD_PYTHON"})


def test_path_folder_holds_only_ringward(daemon: Daemon) -> None:
    """The last folder of PATH contains the program ringward and nothing else."""
    daemon.write(asking('ls "${PATH##*:}"', ["restart:web"]))
    daemon.start()
    assert daemon.texts(daemon.ended(daemon.trigger("t"))["id"]) == ["ringward"]


def test_explicit_credential_wins_over_the_peer(daemon: Daemon) -> None:
    """A wrong Authorization header is refused on the Unix socket, even from the daemon's own user."""
    daemon.write(SERVICE)
    daemon.start()
    assert daemon.get("/api/tasks").status == 200
    assert daemon.request("GET", "/api/tasks", headers={"Authorization": "Bearer rw_" + "x" * 43}).status == 401


def test_launched_run_gets_no_token(daemon: Daemon) -> None:
    """The client of another engine gets no token, because it could pass it on to another host."""
    launcher = '[launchers.l]\nstart = ["sh", "-c", "env", "{command}"]\n'
    daemon.write(launcher + asking("true", ["restart:web"], 'launcher = "l"\n'))
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert not any(line.startswith("RINGWARD_TOKEN=") for line in daemon.texts(run["id"]))
