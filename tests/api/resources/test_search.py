"""Searching the logs of a task's runs, and of all."""

import base64
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from logring.layout import FILE_BLOCKS_AT, STDERR, STDOUT
from logring.log_paths import log_path
from store.runs.ids import new_ulid
from store.runs.writes import Run
from store.tasks import upsert_task
from tests.api.support.credentials import bearer, make_token
from tests.api.support.harness import Daemon
from tests.api.support.records import Log, make_run
from tests.support.waiting import until


def running(daemon: Daemon, task: str, created_at: int) -> tuple[Run, Log]:
    run = daemon.insert(make_run(task=task, status="running", started_at=1, created_at=created_at))
    return run, daemon.log_of(run, file_blocks=4096)


def page(daemon: Daemon, task: str, **query: Any) -> Any:
    answer = daemon.get(f"/api/tasks/{task}/log/search?{urlencode(query)}")
    assert answer.status == 200, answer.body
    body = answer.json
    assert body.pop("$schema").endswith("/schemas/SearchPage.json")
    assert body["exhausted"] == ("nextCursor" not in body)
    return body


def pages(daemon: Daemon, task: str, **query: Any) -> Iterator[Any]:
    while True:
        body = page(daemon, task, **query)
        yield body
        if body["exhausted"]:
            return
        query["cursor"] = body["nextCursor"]


def places(daemon: Daemon, task: str, **query: Any) -> list[tuple[str, int]]:
    return [(item["runId"], item["n"]) for body in pages(daemon, task, **query) for item in body["items"]]


@pytest.fixture(scope="module")
def three(shared: Daemon) -> list[Run]:
    """Runs of one task, oldest first: two that ended and a live one; and a deleted one."""
    runs = []
    for index in range(3):
        run, log = running(shared, "three", 1000 + index)
        log.write(b"Alpha %d\n" % index, STDOUT, 5000 + index)
        log.write(b"alpha beta\n", STDERR, 6000)
        log.write(b"b\xffta 17 \xc3\xa4\n", STDOUT, 7000)
        log.write(b"alpha unfinished", STDOUT, 7000)
        if index < 2:
            log.finish()
            shared.end(run.id)
        runs.append(run)
    gone, log = running(shared, "three", 1005)
    log.write(b"alpha\n")
    log.finish()
    shared.end(gone.id)
    shared.delete(gone.id)
    return runs


def test_page(daemon: Daemon, three: list[Run]) -> None:
    """Matches are ordered by newest run, then by line, with all fields to show a line and to find it again."""
    body = page(daemon, "three", q="ALPHA 1")
    assert body["items"] == [{"runId": three[1].id, "n": 0, "ts": 5001, "stream": "stdout", "text": "Alpha 1"}]
    assert (body["exhausted"], body["scannedRuns"]) == (True, 3)
    assert body["scannedBytes"] > 60


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"q": "alpha"}, [(2, 0), (2, 1), (1, 0), (1, 1), (1, 3), (0, 0), (0, 1), (0, 3)]),
        ({"q": "alpha", "case": "true"}, [(2, 1), (1, 1), (1, 3), (0, 1), (0, 3)]),
        ({"q": "alpha", "stream": "stderr"}, [(2, 1), (1, 1), (0, 1)]),
        ({"q": "^a.*a$", "regex": "true"}, [(2, 1), (1, 1), (0, 1)]),
        ({"q": "^a.*a$"}, []),
        ({"q": r"\d+ Ä", "regex": "1"}, [(2, 2), (1, 2), (0, 2)]),
        ({"q": r"\d+ Ä", "regex": "1", "case": "1"}, []),
        ({"q": "^b.ta [^x]", "regex": "1"}, [(2, 2), (1, 2), (0, 2)]),
        ({"q": "^b.ta [^x]", "regex": "1", "raw": "1"}, []),
        ({"q": "a\nb", "regex": "false"}, None),
    ],
)
def test_parameters(
    daemon: Daemon, three: list[Run], query: dict[str, str], expected: list[tuple[int, int]] | None
) -> None:
    """Every parameter works, and pages of any size give all matches together."""
    if expected is None:
        assert daemon.get(f"/api/tasks/three/log/search?{urlencode(query)}").status == 422
        return
    named = [(three[run].id, n) for run, n in expected]
    for limit in (1, 2, 200):
        assert places(daemon, "three", **query, limit=limit) == named
    first_places = [place for place in named if place[0] == three[1].id]
    assert places(daemon, "three", **query, limit=1, runId=three[1].id) == first_places


@pytest.mark.usefixtures("three")
def test_odd_bytes(daemon: Daemon) -> None:
    """Invalid UTF-8 becomes U+FFFD."""
    texts = {item["text"] for item in page(daemon, "three", q="ta 17")["items"]}
    assert texts == {"b�ta 17 ä"}


@pytest.mark.parametrize(
    ("query", "location"),
    [
        ("", "query.q"),
        ("q=", "query.q"),
        ("q=" + "x" * 1001, "query.q"),
        ("q=%28&regex=true", "query.q"),
        ("q=%28%5CpL%7B100%7D%29%7B10%7D&regex=true", "query.q"),
        ("q=a&limit=0", "query.limit"),
        ("q=a&limit=1001", "query.limit"),
        ("q=a&stream=stdin", "query.stream"),
        ("q=a&regex=maybe", "query.regex"),
        ("q=a&runId=x", "query.runId"),
        ("q=a&form=1", "query.form"),
        ("q=a&cursor=x", "query.cursor"),
        ("q=a&cursor=%C3%A4" + "A" * 67, "query.cursor"),
        ("q=a&cursor=" + "A" * 68, "query.cursor"),
        ("q=a&cursor=" + "!" * 68, "query.cursor"),
        ("q=a&cursor=" + "A" * 67 + "%3D", "query.cursor"),
        ("q=a&cursor=" + "A" * 66 + "%3D%3D", "query.cursor"),
        ("q=a&cursor=" + "A" * 5000, "query.cursor"),
    ],
)
@pytest.mark.usefixtures("three")
def test_invalid_parameters(daemon: Daemon, query: str, location: str) -> None:
    """An invalid parameter gets 422 with its name, and leaves no traceback in the log."""
    answer = daemon.get(f"/api/tasks/three/log/search?{query}")
    assert (answer.status, [error["location"] for error in answer.json["errors"]]) == (422, [location])
    assert "Traceback" not in daemon.log.read_text()


def test_cursor_belongs_to_one_search(daemon: Daemon, three: list[Run]) -> None:
    """A cursor with other parameters than the limit, another task, or a changed character gets 422."""
    cursor = page(daemon, "three", q="alpha", limit=1)["nextCursor"]
    for query in (
        {"q": "beta"},
        {"q": "alpha", "case": "true"},
        {"q": "alpha", "raw": "1"},
        {"q": "alpha", "runId": three[0].id},
    ):
        assert daemon.get(f"/api/tasks/three/log/search?{urlencode({**query, 'cursor': cursor})}").status == 422
    assert daemon.get(f"/api/tasks/job/log/search?q=alpha&cursor={cursor}").status == 422
    packed = base64.urlsafe_b64decode(cursor)
    for at in range(len(packed)):
        changed = packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]
        query = {"q": "alpha", "cursor": base64.urlsafe_b64encode(changed).decode()}
        assert daemon.get(f"/api/tasks/three/log/search?{urlencode(query)}").status == 422
    for same in ({}, {"case": "false"}, {"regex": "0", "stream": "", "raw": "0"}):
        assert len(page(daemon, "three", q="alpha", limit=200, cursor=cursor, **same)["items"]) == 7


@pytest.mark.usefixtures("three")
def test_unknown_tasks_and_runs(daemon: Daemon) -> None:
    """A task without configuration and runs, a missing run, or another task's run gets 404."""
    other, _ = running(daemon, "not-three", 1)
    for path in (
        "/api/tasks/nothing/log/search?q=a",
        f"/api/tasks/three/log/search?q=a&runId={new_ulid()}",
        f"/api/tasks/three/log/search?q=a&runId={other.id}",
    ):
        assert daemon.get(path).status == 404
    assert daemon.get("/api/tasks/no%20name/log/search?q=a").status == 422
    assert page(daemon, "not-three", q="a")["items"] == []


def everywhere(daemon: Daemon, headers: Any = None, **query: Any) -> list[tuple[str, str, int]]:
    """Return task, run and line of all hits in the logs of all units, page by page."""
    places_found = []
    while True:
        answer = daemon.get(f"/api/logs/search?{urlencode(query)}", headers, unix=headers is None)
        assert answer.status == 200, answer.body
        body = answer.json
        assert body["exhausted"] == ("nextCursor" not in body) == ("searchedBackTo" not in body)
        places_found += [(item["taskName"], item["runId"], item["n"]) for item in body["items"]]
        if body["exhausted"]:
            return places_found
        query["cursor"] = body["nextCursor"]


@pytest.fixture(scope="module")
def units(shared: Daemon) -> list[Run]:
    """Runs of three units, oldest first, with lines 500 ms apart; the configuration lacks the first unit."""
    runs = []
    with shared.lock:
        for name, group in (("all-b", "g"), ("all-c", "h")):
            upsert_task(shared.db, name, "task", json.dumps({"group": group, "tags": ["t"]}))
    for index, name in enumerate(("all-a", "all-b", "all-c", "all-b")):
        run, log = running(shared, name, 5000 + 1000 * index)
        log.write(b"needle %d\n" % index, STDOUT, 5000 + 1000 * index)
        log.write(b"needle again\n", STDERR, 5500 + 1000 * index)
        if index < 3:
            log.finish()
            shared.end(run.id, started_at=run.created_at, ended_at=5600 + 1000 * index)
        runs.append(run)
    return runs


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [(3, 0), (3, 1), (2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1)]),
        ({"task": "all-b"}, [(3, 0), (3, 1), (1, 0), (1, 1)]),
        ({"task": "all-a,all-c"}, [(2, 0), (2, 1), (0, 0), (0, 1)]),
        ({"task": "all-*", "stream": "stderr"}, [(3, 1), (2, 1), (1, 1)]),
        ({"group": "h"}, [(2, 0), (2, 1)]),
        ({"tag": "t", "q": "needle [12]", "regex": "true"}, [(2, 0), (1, 0)]),
        ({"since": "1970-01-01T00:00:06.5Z", "until": "1970-01-01T00:00:07Z"}, [(2, 0), (1, 1)]),
        ({"until": "1970-01-01T00:00:05Z"}, [(0, 0)]),
        ({"since": "1970-01-01T00:00:08Z"}, [(3, 0), (3, 1)]),
    ],
)
def test_all_logs(daemon: Daemon, units: list[Run], query: dict[str, str], expected: list[tuple[int, int]]) -> None:
    """A search of all logs finds each line once, newest run first, with pages of any size."""
    named = [(units[run].task_name, units[run].id, n) for run, n in expected]
    for limit in (1, 3, 200):
        assert everywhere(daemon, **{"q": "NEEDLE", **query}, limit=limit) == named


def test_times_limit_the_search_of_one_task(daemon: Daemon, units: list[Run]) -> None:
    """The search of one task accepts the same times as the search of all logs."""
    query = {"since": "1970-01-01T00:00:06.5Z", "until": "1970-01-01T00:00:08Z"}
    assert places(daemon, "all-b", q="needle", limit=1, **query) == [(units[3].id, 0), (units[1].id, 1)]


def test_unfinished_search_of_all_logs(daemon: Daemon, units: list[Run]) -> None:
    """The cursor has the time of the run at which it continues, and belongs to one search."""
    body = daemon.get("/api/logs/search?q=needle&limit=3").json
    assert body.keys() >= {"nextCursor", "searchedBackTo", "scannedRuns", "scannedBytes"}
    assert body["searchedBackTo"] == "1970-01-01T00:00:07.000Z"
    assert body["items"][0] == {
        "taskName": "all-b",
        "instanceIndex": 0,
        "runId": units[3].id,
        "n": 0,
        "ts": 8000,
        "stream": "stdout",
        "text": "needle 3",
    }
    for other in ("q=needle&task=all-b", "q=needle&since=1970-01-01T00:00:00Z", "q=again"):
        assert daemon.get(f"/api/logs/search?{other}&cursor={body['nextCursor']}").status == 422
    assert daemon.get(f"/api/tasks/all-b/log/search?q=needle&cursor={body['nextCursor']}").status == 422


@pytest.mark.usefixtures("units")
def test_search_of_unknown_units(daemon: Daemon) -> None:
    """A name, glob or group without matches gets 404, and an invalid parameter 422."""
    for query in ("task=nobody", "task=nob*", "group=nobody", "task=all-b,nobody"):
        assert daemon.get(f"/api/logs/search?q=x&{query}").status == 404
    for query, location in (("", "query.q"), ("q=(&regex=1", "query.q"), ("q=x&task=a%20b", "query.task")):
        answer = daemon.get(f"/api/logs/search?{query}")
        assert (answer.status, [error["location"] for error in answer.json["errors"]]) == (422, [location])


def test_limited_token_searches_its_units_only(daemon: Daemon, units: list[Run]) -> None:
    """Units that a token may not see are not found, and look like unknown ones."""
    headers = bearer(make_token(daemon, "searching", "viewer", tasks="all-[ab]"))
    mine = [(run.task_name, run.id, n) for run in reversed(units) if run.task_name != "all-c" for n in (0, 1)]
    assert everywhere(daemon, headers, q="needle") == mine
    assert everywhere(daemon, headers, q="needle", tag="t", limit=1) == [place for place in mine if place[0] == "all-b"]
    for query in ("task=all-c", "task=all-c,all-b", "group=h"):
        assert daemon.get(f"/api/logs/search?q=needle&{query}", headers, unix=False).status == 404
    nothing = bearer(make_token(daemon, "nothing", "viewer", tasks="no-*"))
    assert everywhere(daemon, nothing, q="needle") == []


def test_deleted_run_is_skipped(daemon: Daemon) -> None:
    """A deleted run is skipped, even by a cursor that points into it."""
    runs = [running(daemon, "passing", 10 + index) for index in range(3)]
    for _, log in runs:
        log.write(b"x\nx\n")
    first = page(daemon, "passing", q="x", limit=3)
    assert [item["runId"] for item in first["items"]] == [runs[2][0].id] * 2 + [runs[1][0].id]
    daemon.end(runs[1][0].id)
    daemon.delete(runs[1][0].id)
    assert places(daemon, "passing", q="x", cursor=first["nextCursor"]) == [(runs[0][0].id, 0), (runs[0][0].id, 1)]


def test_more_runs_than_are_read_at_once(daemon: Daemon) -> None:
    """Each of many runs is searched once and in order, although most have no log and share one millisecond."""
    ids = [daemon.insert(make_run(task="many", created_at=100 + index // 150)).id for index in range(350)]
    ids.sort(reverse=True)
    order = sorted(ids, key=lambda listed_id: -next(run.created_at for run in all_runs(daemon) if run.id == listed_id))
    expected = [order[0], order[99], order[100], order[349]]
    for run_id in expected:
        daemon.log_of(make_run(run_id, "many")).write(b"found\n")
    body = page(daemon, "many", q="found")
    assert ([item["runId"] for item in body["items"]], body["scannedRuns"]) == (expected, 350)
    assert [run_id for run_id, _ in places(daemon, "many", q="found", limit=1)] == expected


def all_runs(daemon: Daemon) -> list[Run]:
    from store.runs.writes import runs_from

    with daemon.lock:
        return runs_from(daemon.db, "many", 2**62, "~", 1000)


def test_damage_is_skipped(own: Daemon) -> None:
    """A damaged block or a foreign file is skipped, which the server's log reports."""
    runs = [running(own, "damaged", 10 + index) for index in range(3)]
    for run, log in runs:
        log.write(b"%07d\n" % 0 * 40000)
        log.finish()
        own.end(run.id)
    paths = [log_path(own.settings.data_dir, "damaged", run.id) for run, _ in runs]
    Path(paths[2]).write_bytes(b"something else" * 1000)
    with open(paths[1], "r+b") as file:
        os.pwrite(file.fileno(), b"\xee", FILE_BLOCKS_AT + 65536 + 1000)
    places_found = places(own, "damaged", q="0", limit=1000)
    counts = [sum(run_id == run.id for run_id, _ in places_found) for run, _ in runs]
    assert counts[0] == 40000
    assert 30000 < counts[1] < 40000
    assert counts[2] == 0
    text = own.log.read_text()
    assert f"1 damaged blocks of the log of {runs[1][0].id}" in text
    assert f"the log of {runs[2][0].id}, which cannot be read" in text


@pytest.fixture(scope="module")
def large(real: Daemon) -> Run:
    """Lines of 15,000 letters at random, 15 MB."""
    run, log = running(real, "large", 1)
    letters = bytes(b"abcdefgh"[byte % 8] for byte in range(256))
    for _ in range(1000):
        log.write(os.urandom(15000).translate(letters) + b"\n")
    log.finish()
    real.end(run.id)
    return run


@pytest.mark.usefixtures("large")
def test_answers_are_bounded(real: Daemon) -> None:
    """Long lines fill an answer before the limit does, and nothing is left out."""
    pages_found = [[item["n"] for item in body["items"]] for body in pages(real, "large", q="a", limit=1000)]
    assert len(pages_found) > 2
    assert [n for items in pages_found for n in items] == list(range(1000))


def test_slow_search_ends_in_time(real: Daemon, large: Run) -> None:
    """A call with a slow expression ends in time, and pages of logs are served meanwhile."""
    query = {"q": "[a-d].{16}z", "regex": "true"}

    def served_meanwhile() -> int:
        served = 0
        with ThreadPoolExecutor() as clients:
            searches = [clients.submit(page, real, "large", **query) for _ in range(2)]
            while not any(search.done() for search in searches):
                assert real.get(f"/api/runs/{large.id}/log?from=500&limit=10").status == 200
                served += not any(search.done() for search in searches)
        results.extend(search.result() for search in searches)
        return served

    results: list[Any] = []
    until(served_meanwhile, "a page while there is a search")
    for body in results:
        assert not body["exhausted"]
        assert body["scannedBytes"] > 0
    assert page(real, "large", **query, cursor=results[0]["nextCursor"])["scannedBytes"] > 0


@pytest.mark.usefixtures("large")
def test_too_many_searches(real: Daemon) -> None:
    """Searches beyond the limit wait, and each ends with an answer or with 503."""
    statuses: list[int] = []

    def search() -> None:
        answer = real.get("/api/tasks/large/log/search?q=(a|b)%2Bz&regex=true")
        statuses.append(answer.status)
        assert answer.status == 200 or "Retry-After" in answer.headers

    threads = [threading.Thread(target=search) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 12
    assert set(statuses) <= {200, 503}


def test_cursor_survives_the_worker(own: Daemon) -> None:
    """A cursor contains everything, so another process continues where the killed one stopped."""
    _, log = running(own, "job", 1)
    log.write(b"".join(b"%d\n" % number for number in range(1000)))
    first = page(own, "job", q="7", limit=100)
    (worker,) = own.workers()
    os.kill(worker, signal.SIGKILL)
    until(lambda: own.workers() not in ([], [worker]), "another worker")
    following = places(own, "job", q="7", cursor=first["nextCursor"])
    numbers = [item["n"] for item in first["items"]] + [n for _, n in following]
    assert numbers == [number for number in range(1000) if "7" in str(number)]
