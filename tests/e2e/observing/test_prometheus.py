"""``/metrics`` of the real daemon, checked with Prometheus' own tools, and the Grafana dashboard based on it."""

import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from tests.api.support.exposition import parse
from tests.e2e.observing.prometheus import Prometheus, prometheus
from tests.support.daemon import Daemon, program
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

DASHBOARD = ROOT / "deploy" / "grafana" / "ringward.json"
CONFIG = f"""
[slots.db]
size = 2
[tasks.good]
run = "true"
cron = "0 0 1 1 *"
uses = ["db"]
[tasks.bad]
run = "exit 1"
[services.up]
run = {program("obeys_term")}
[services.down]
run = "exit 1"
restart_delay = "1ms"
restart_attempts = 1
[exports.all]
type = "file"
path = "exported.ndjson"
"""
_MEANT = {
    "$__rate_interval": "1m",
    "$__range": "1m",
    "$instance": ".*",
    "$task": ".*",
}
"""Values that Grafana substitutes for these."""


def token_of(daemon: Daemon) -> str:
    answer = daemon.request("POST", "/api/tokens", {"name": "prometheus", "role": "viewer"})
    assert answer.status == 201, answer.body
    token: str = answer.json()["token"]
    return token


def filled(text: str) -> str:
    for name, meaning in _MEANT.items():
        text = text.replace(name, meaning)
    assert "$" not in text, text
    return text


def targets(dashboard: dict[str, Any]) -> list[tuple[str, set[str]]]:
    """Return the queries of all panels, each with the labels that its legend or table uses."""
    queries = []
    for panel in dashboard["panels"]:
        renamed = [
            transformation["options"]["renameByName"]
            for transformation in panel.get("transformations", ())
            if transformation["id"] == "organize"
        ]
        columns = {name for names in renamed for name in names if not name.startswith("Value")}
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            labels = columns & set(re.findall(r"\w+", target["expr"])) if target.get("format") == "table" else shown
            queries.append((filled(target["expr"]), labels))
    return queries


def shows(server: Prometheus, expression: str, labels: set[str]) -> bool:
    series = server.query(expression)
    assert all(labels <= set(labels_found) for labels_found in series), f"{expression} does not give {labels}"
    return bool(series)


def test_promtool_and_dashboard_queries(daemon: Daemon, tmp_path: Path) -> None:
    """Promtool accepts the metrics; Prometheus scrapes them, and every query of the dashboard finds data."""
    daemon.write(CONFIG)
    daemon.start()
    address = re.search(r'listen = \["([^"]+)"', daemon.config.read_text())
    assert address is not None
    until(lambda: daemon.task("down")["state"] == "fatal", "a service to become fatal")
    until(lambda: daemon.task("up")["active"]["running"], "the other to run")
    for name in ("good", "bad"):
        daemon.ended(daemon.trigger(name))
    dashboard = json.loads(DASHBOARD.read_text())
    with prometheus(tmp_path, free_port(), address[1], token_of(daemon)) as server:
        until(lambda: server.query("ringward_runs_total"), "the first scrape")
        for name in ("good", "bad"):
            daemon.ended(daemon.trigger(name))
        for expression, labels in targets(dashboard):
            until(partial(shows, server, expression, labels), expression)
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                assert match is not None
                series = server.query(filled(match[1]))
                assert series
                assert all(match[2] in labels_found for labels_found in series)
    text = daemon.get("/metrics").body
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    assert not [name for name in parse(text.decode()) if name not in DASHBOARD.read_text()]
