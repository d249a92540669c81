"""Flows through the real daemon and the command line."""

import json

import pytest

from tests.support.daemon import Daemon
from tests.support.paths import ROOT

pytestmark = pytest.mark.lent

CONFIG = """
[tasks.load]
run = ["sh", "-c", "echo load $1 for $2", "sh"]
params = [{ name = "source", kind = "arg" }, { name = "day", kind = "arg" }]

[flows.nightly]
params = [{ name = "day", default = "today" }]
[flows.nightly.steps.extract]
run = "echo extract; echo path=rows.csv >> $RINGWARD_OUTPUT"
[flows.nightly.steps.clean]
after = ["extract"]
each = { region = ["eu", "us"] }
run = ["sh", "-c", "echo clean $1 in $2", "sh", "${step:extract.path}", "${each:region}"]
[flows.nightly.steps.load]
after = ["clean"]
task = "load"
params = { source = "${step:extract.path}", day = "${param:day}" }
[flows.nightly.steps.report]
after = ["load"]
run = "exit 3"
optional = true
[flows.nightly.steps.alarm]
after = ["load", "report"]
when = "failure"
run = "echo alarm"

[flows.outer.steps.inner]
task = "broken"
optional = true
[flows.outer.steps.last]
after = ["inner"]
run = "echo last"

[flows.broken.steps.work]
run = "echo working; exit 4"
[flows.broken.steps.alarm]
after = ["work"]
when = "failure"
run = "echo alarm"
"""


@pytest.fixture
def flows(daemon: Daemon) -> Daemon:
    daemon.write(CONFIG)
    daemon.start()
    return daemon


def test_run_a_flow(flows: Daemon) -> None:
    """`run` prints the lines of all steps with their names and items, and exits with the result of the flow."""
    done = flows.cli("run", "nightly", "-p", "day=2026-11-21")
    lines = done.stdout.splitlines()
    assert lines[0] == "extract | extract"
    assert sorted(lines[1:3]) == ["clean[eu] | clean rows.csv in eu", "clean[us] | clean rows.csv in us"]
    assert lines[3:] == ["load      | load rows.csv for 2026-11-21"]
    failed = flows.cli("run", "broken")
    ending = dict(line.split("\t", 1) for line in flows.cli("ending", "broken").stdout.split("\n\n")[0].splitlines())
    assert (ending["reason"], ending["failed step"], ending["exit code"]) == ("failed", "work", "4")
    assert flows.cli("ending", "broken").stdout.splitlines()[-1] == "working"
    nested = flows.cli("run", "outer").stdout.splitlines()
    assert [line.replace(" ", "") for line in nested] == ["work|working", "alarm|alarm", "last|last"]
    several = flows.cli("run", "broke*", "night*").stdout.splitlines()
    assert {"broken  | working", "broken  | alarm", "nightly | extract"} <= set(several)
    assert (failed.returncode, failed.stdout.splitlines()) == (4, ["work  | working", "alarm | alarm"])


def test_flow_as_a_task(flows: Daemon) -> None:
    """A flow is listed, shown and selected as a task; its steps are folded, and have their own names."""
    flows.cli("run", "nightly")
    names = [line.split("\t")[0] for line in flows.cli("ps").stdout.splitlines()[1:]]
    assert names == ["broken", "load", "nightly", "outer"]
    of_one = [line.split("\t")[0] for line in flows.cli("ps", "--steps", "broken").stdout.splitlines()[1:]]
    assert of_one == ["broken", "broken:alarm", "broken:work"]
    assert flows.cli("logs", "nightly").stdout.splitlines()[-1].split() == [
        "load",
        "|",
        "load",
        "rows.csv",
        "for",
        "today",
    ]
    assert flows.cli("logs", "nightly:extract").stdout == "extract\n"
    assert flows.cli("run", "nightly:extract").stdout == "extract\n"
    steps = flows.cli("flow", "nightly").stdout.splitlines()
    assert [line.split("\t")[0] for line in steps[1:]] == [
        "nightly",
        "  extract",
        "    clean",
        "      [eu]",
        "      [us]",
        "      load",
        "        report",
        "          alarm",
    ]
    assert steps[2].split("\t")[4] == "path=rows.csv"
    assert steps[7].split("\t")[4] == "failed (3), optional"
    assert json.loads(flows.cli("flow", "nightly", "--json").stdout)["steps"][0]["runs"][0]["outputs"] == {
        "path": "rows.csv"
    }


def test_metrics_and_status(flows: Daemon) -> None:
    """Metrics and the status have flows, and not their steps; the resources of steps count for their flow."""
    flows.cli("run", "broken")
    text = flows.get("/metrics").body.decode()
    assert 'ringward_runs_total{task="broken",reason="failed"}' in text
    assert 'ringward_task_cpu_seconds_total{task="broken",mode="user"}' in text
    assert "broken:" not in text
    status = json.loads(flows.cli("status", "--json").stdout)
    assert [entry["what"] for entry in status["attention"] if entry["what"].startswith("broken")] == ["broken"]


def test_stream_of_a_flow(flows: Daemon) -> None:
    """The log of a flow's run is empty; streams and searches of a flow cover the runs of its steps, and only these."""
    flows.cli("run", "load", "-p", "source=alone", "-p", "day=x")
    run = json.loads(flows.cli("run", "--detach", "--json", "nightly").stdout)
    flows.cli("wait", run["id"])
    assert flows.get(f"/api/runs/{run['id']}/log").json()["totalLines"] == 0
    streamed = flows.get(f"/api/logs/stream?flow_run_id={run['id']}&from=0").body.decode()
    assert "event: done" in streamed
    assert "clean rows.csv in eu" in streamed
    of_flow = flows.get("/api/tasks/nightly/log/stream?follow=false").body.decode()
    assert "load rows.csv for today" in of_flow
    assert "load alone" not in of_flow
    found = flows.get("/api/logs/search?task=nightly&q=load").json()["items"]
    assert [hit["text"] for hit in found] == ["load rows.csv for today"]
    assert flows.get(f"/api/runs?flow_run_id={run['id']}").json()["total"] == 5


def test_example(daemon: Daemon) -> None:
    """The flow of the example lists the programs of this host, and succeeds."""
    text = (ROOT / "examples" / "ringward.toml").read_text()
    daemon.write(text[text.index("[flows.programs]") :])
    daemon.start()
    done = daemon.cli("run", "programs")
    labels = [line.partition("|")[0].strip() for line in done.stdout.splitlines()]
    assert (done.returncode, labels[0], labels[-1]) == (0, "extract", "report"), done.stdout
    assert set(labels) == {"extract", "clean[bin]", "clean[sbin]", "report"}
