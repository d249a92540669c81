"""Searches through the real daemon."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.daemon import Daemon, program
from tests.support.waiting import until

pytestmark = pytest.mark.lent


def page(daemon: Daemon, task: str, **query: Any) -> Any:
    answer = daemon.get(f"/api/tasks/{task}/log/search?{urlencode(query)}")
    assert answer.status == 200, answer.body
    return answer.json()


def test_search_covers_ended_and_running_runs(daemon: Daemon) -> None:
    """Every run of the task is searched, newest first, and an active run up to its latest line."""
    daemon.write(
        '[tasks.t]\nrun = "echo all is well; echo Error one >&2; echo error two; exec sleep 600"\n'
        '[tasks.silent]\nrun = "true"\n'
    )
    daemon.start()
    assert page(daemon, "t", q="x")["exhausted"]
    assert daemon.get("/api/tasks/nothing/log/search?q=x").status == 404
    ended = daemon.trigger("t")
    until(lambda: len(daemon.lines(ended)) == 3, "its lines")
    daemon.request("POST", f"/api/runs/{ended}/stop?force=true")
    daemon.ended(ended)
    live = daemon.trigger("t")
    until(lambda: len(daemon.lines(live)) == 3, "its lines")
    places_found = [
        (item["runId"], item["n"], item["stream"], item["text"]) for item in page(daemon, "t", q="ERROR")["items"]
    ]
    assert places_found == [
        (run_id, line["n"], line["stream"], line["text"])
        for run_id in (live, ended)
        for line in daemon.lines(run_id)
        if line["text"] in ("Error one", "error two")
    ]
    assert len(places_found) == 4
    silent = daemon.trigger("silent")
    daemon.ended(silent)
    assert page(daemon, "silent", q="x")["items"] == []

    shown = daemon.cli("search", "t", "^error [a-z]+$", "--regex", "--run", live)
    (number,) = (line["n"] for line in daemon.lines(live) if line["text"] == "error two")
    assert (shown.returncode, shown.stdout) == (0, f"{live}:{number}: error two\n")
    assert daemon.cli("search", "t", "nothing like that").returncode == 1
    everywhere = daemon.cli("search", "^error [a-z]+$", "--regex", "--since", "1h")
    assert everywhere.stdout.splitlines() == [
        f"t {run_id}:{line['n']}: error two"
        for run_id in (live, ended)
        for line in daemon.lines(run_id)
        if line["text"] == "error two"
    ]
    assert daemon.cli("search", "t", "(", "--regex").returncode == 64


def test_cursor_survives_a_killed_api(daemon: Daemon, tmp_path: Path) -> None:
    """A cursor finds every matching line of several runs once, although gunicorn is killed between the calls."""
    daemon.write(f"[tasks.n]\nrun = {program('numbered', 5000, 0, tmp_path / 'side')}\n")
    daemon.start()
    ids = []
    for _ in range(2):
        ids.append(daemon.trigger("n"))
        daemon.ended(ids[-1])
    query = {"q": "^line [0-9]*77[0-9]*$", "regex": "true", "case": "true", "limit": 60}
    places_found: list[tuple[str, int]] = []
    body: Any = {"nextCursor": None}
    calls = 0
    while "nextCursor" in body:
        cursor = {} if body["nextCursor"] is None else {"cursor": body["nextCursor"]}
        body = page(daemon, "n", **query, **cursor)
        places_found += [(item["runId"], item["n"]) for item in body["items"]]
        calls += 1
        if calls in (1, 3):
            daemon.kill_helper("ringward gunicorn")
    numbers = [number for number in range(5000) if "77" in str(number)]
    assert calls > 3
    assert places_found == [(run_id, number) for run_id in reversed(ids) for number in numbers]
