"""Cost of the API with a history of a million runs: each endpoint, and every filter with every sort.

The floor is the same worker answering ``/healthz``, over the same connections, in turn. With ``BENCH_DATABASE``,
everything runs on PostgreSQL (bench/queries/database.py).
"""

import contextlib
import functools
import itertools
import json
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode

from bench.client import Client, Failed, flood
from bench.daemon import Daemon
from bench.measure import Row, in_turn, latency_rows, quantile
from bench.queries.database import database
from bench.queries.history import DAY, T0, fill, task_name
from store.database import open_writer
from store.runs.phases import END_REASONS, PHASES

_TASKS = 500
_CONNECTIONS = 8
_LINES = 10_000
_FLOOR = "/healthz"
_TRIGGER_EVERY_S = 0.05
_STORED_BAR_MS = 50
_BULK_BAR_S = 2


class _Endpoint(NamedTuple):
    name: str
    path: str
    bar_ms: float | None


class _Parameter(NamedTuple):
    """A filter of the lists: its name in both namings, and some values."""

    snake: str
    camel: str
    values: tuple[str, ...]
    common: bool
    """Whether its pages by time or duration must take at most 10 ms, alone and in pairs."""


def _instant(day: int) -> str:
    return datetime.fromtimestamp((T0 + day * DAY) / 1000, UTC).isoformat()


_STATUSES = (*PHASES, *END_REASONS, "failed,timeout")
_PARAMETERS = (
    _Parameter("status", "status", _STATUSES, common=True),
    _Parameter("task_name", "taskName", (task_name(0), task_name(250), "absent"), common=True),
    _Parameter("triggered_by", "triggeredBy", ("cron", "api", "cloud", "service", "startup"), common=True),
    _Parameter("created_after", "createdAfter", (_instant(83), _instant(50)), common=True),
    _Parameter("created_before", "createdBefore", (_instant(7), _instant(50)), common=True),
    _Parameter("exit_code_min", "exitCodeMin", ("1", "137"), common=False),
    _Parameter("exit_code_max", "exitCodeMax", ("-1", "2"), common=False),
    _Parameter("retries_only", "retriesOnly", ("true",), common=False),
    _Parameter("search", "search", ("JOB-05", "7A", "7A7B7C7D", "0"), common=False),
)
_SORTS = (
    ("created_at", "createdAt"),
    ("start_at", "startedAt"),
    ("duration", "duration"),
    ("task_name", "taskName"),
    ("status", "status"),
    ("exit_code", "exitCode"),
)
_FAST_SORTS = frozenset({"created_at", "start_at", "duration"})


def _storage(url: str | None) -> str:
    return "" if url is None else f"[storage]\ndatabase = {json.dumps(url)}\n"


@contextlib.contextmanager
def _filled(quick: bool) -> Iterator[tuple[Daemon, int]]:
    """Start a daemon with a history; yield it and the number of its runs."""
    runs = 5_000 if quick else 1_000_000
    quiet = "".join(f"[tasks.{task_name(number)}]\nrun = 'true'\n" for number in range(_TASKS))
    kept = "[defaults]\nkeep_runs = 10000000\nkeep_refused = 10000000\nkeep_for = '3650d'\n"
    talking = f"[tasks.talks]\nrun = 'seq 1 {_LINES}'\n[tasks.true]\nrun = 'true'\nmax_concurrent = 20\n"
    with database() as url, Daemon(f"{_storage(url)}{kept}{quiet}{talking}", start=False) as daemon:
        data = daemon.directory / "data"
        data.mkdir(mode=0o700)
        writer = open_writer(url or str(data / "ringward.db"))
        fill(writer, runs, _TASKS)
        writer.close()
        daemon.launch()
        daemon.wait_ready()
        yield daemon, runs


def _timed(client: Client, path: str) -> float:
    """Return the seconds until the complete answer; infinite if the query reached its time limit."""
    start_s = time.perf_counter()
    client.send("GET", path)
    status, body = client.answer()
    took_s = time.perf_counter() - start_s
    if status == 503:
        return math.inf
    if status != 200:
        raise Failed(f"GET {path}: {status} {body.decode(errors='replace')}")
    return took_s


def _rate(clients: list[Client], path: str, count: int) -> float:
    """Return the answers a second over all connections in parallel."""
    start_s = time.perf_counter()
    flood(clients, "GET", path, count, expected=200)
    return count / (time.perf_counter() - start_s)


def endpoints(quick: bool) -> list[Row]:
    """Measure the requests a second, p50 and p99 of each endpoint, then triggers during bulk deletion."""
    times = 10 if quick else 200
    rows: list[Row] = []
    with _filled(quick) as (daemon, runs):
        clients = [daemon.client() for _ in range(_CONNECTIONS)]
        client = clients[0]
        talk = client.trigger("talks", wait_s=30)["id"]
        for endpoint in _endpoints(talk, runs):
            _timed(client, endpoint.path)
            pairs = in_turn(times, lambda path=endpoint.path: _timed(client, path), lambda: _timed(client, _FLOOR))  # type: ignore[misc]
            ours, floor = zip(*pairs, strict=True)
            rows += latency_rows(f"{endpoint.name} of {runs:,} runs", ours, floor, (endpoint.bar_ms or 1e9, None))
            if endpoint.bar_ms is None:
                rows[-2:] = [_without_bar(row) for row in rows[-2:]]
            rate = functools.partial(_rate, clients, endpoint.path, times)
            rates = in_turn(2, rate, lambda: _rate(clients, _FLOOR, times))
            rows.append(_rate_row(f"{endpoint.name}, {_CONNECTIONS} clients", rates))
        rows += _bulk(daemon, client)
    return rows


def _endpoints(talk: str, runs: int) -> list[_Endpoint]:
    return [
        _Endpoint("runs: page of 50", "/api/runs", 10),
        _Endpoint("runs: failed ones", "/api/runs?status=failed", 10),
        _Endpoint("runs: by duration", "/api/runs?sort_field=duration", 10),
        _Endpoint("runs: deep offset", f"/api/runs?offset={runs // 2}", 25),
        _Endpoint("runs of a task", f"/api/tasks/{task_name(0)}/runs", 10),
        _Endpoint("summary", "/api/runs/summary", 10),
        _Endpoint("a run", f"/api/runs/{talk}", None),
        _Endpoint(f"tasks ({_TASKS})", "/api/tasks", None),
        _Endpoint("a task", f"/api/tasks/{task_name(0)}", None),
        _Endpoint("log page of 100", f"/api/runs/{talk}/log?from={_LINES // 2}&limit=100", None),
    ]


def _without_bar(row: Row) -> Row:
    return Row(row.what, row.figure, row.floor, row.ratio, "", None, row.spread)


def _rate_row(what: str, pairs: list[tuple[float, float]]) -> Row:
    ours, floor = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(what, f"{ours:.0f} /s", f"{floor:.0f} /s", f"{floor / ours:.1f} x", "", None)


def _bulk(daemon: Daemon, client: Client) -> list[Row]:
    """Delete a tenth and restore it while another client triggers runs; the floor is the triggers alone."""
    selector = {"match_all": True, "filter": {"triggered_by": "api", "created_before": _instant(90)}}
    found = []
    for what in ("delete", "restore"):
        alone = _triggers(daemon, lambda: time.sleep(1))
        took_s = [0.0]
        affected = [0]

        def work(what: str = what, took_s: list[float] = took_s, affected: list[int] = affected) -> None:
            start_s = time.perf_counter()
            affected[0] = client.post(f"/api/runs/bulk/{what}", selector)["affected"]
            took_s[0] = time.perf_counter() - start_s

        meanwhile = _triggers(daemon, work)
        name = f"bulk {what} of {affected[0]:,}"
        found.append(Row(name, f"{took_s[0]:.2f} s", "", "", f"<= {_BULK_BAR_S} s", took_s[0] <= _BULK_BAR_S))
        found += latency_rows(f"a trigger during {name}", meanwhile, alone, (_STORED_BAR_MS, None))
    return found


def _triggers(daemon: Daemon, work: Callable[[], None]) -> list[float]:
    """Measure the seconds of triggers, one after the other, until some work is done."""
    client = daemon.client()
    thread = threading.Thread(target=work)
    thread.start()
    taken: list[float] = []
    while thread.is_alive() or not taken:
        start_s = time.perf_counter()
        client.trigger("true")
        taken.append(time.perf_counter() - start_s)
        time.sleep(_TRIGGER_EVERY_S)
    thread.join()
    client.close()
    return taken


def filters(quick: bool) -> list[Row]:
    """Measure all documented filters with all sorts in both lists, and return the slowest."""
    rounds = 1 if quick else 3
    with _filled(quick) as (daemon, runs):
        client = daemon.client()
        floor = [_timed(client, _FLOOR) for _ in range(100)]
        found: dict[float, list[tuple[float, str]]] = {10: [], 200: []}
        for bar_ms, path in _lists(quick):
            _timed(client, path)
            found[bar_ms].append((statistics.median(_timed(client, path) for _ in range(rounds)) * 1000, path))
    rows = []
    floor_ms = statistics.median(floor) * 1000
    for bar_ms, taken in found.items():
        ordered = sorted(taken, reverse=True)
        over = sum(ms > bar_ms for ms, _ in taken)
        middle = quantile([ms for ms, _ in taken], 0.5)
        for place, (ms, path) in enumerate(ordered[: 1 if quick else 5]):
            rows.append(
                Row(
                    f"{'slowest' if not place else 'then'}: {unquote(path)}",
                    f"{ms:.1f} ms",
                    f"{floor_ms:.2f} ms",
                    f"{ms / floor_ms:.1f} x",
                    f"<= {bar_ms:g} ms",
                    ms <= bar_ms,
                )
            )
        what = f"lists of {runs:,} runs with that bar: {len(taken)}, over it: {over}; p50 of all"
        rows.append(Row(what, f"{middle:.1f} ms", f"{floor_ms:.2f} ms", f"{middle / floor_ms:.1f} x", "", None))
    return rows


def _lists(quick: bool) -> Iterator[tuple[float, str]]:
    """Yield bar (ms) and path of each filter, and each pair of common ones, with each sort, in both lists."""
    for camel, base in ((False, "/api/runs"), (True, f"/api/tasks/{task_name(0)}/runs")):
        for common, wanted in _wanted(camel=camel, quick=quick):
            for sort, direction in itertools.product(_SORTS, ("asc", "desc")):
                names = ("sortField", "sortDirection") if camel else ("sort_field", "sort_direction")
                query = {**wanted, names[0]: sort[camel], names[1]: direction}
                yield 10 if common and sort[0] in _FAST_SORTS else 200, f"{base}?{urlencode(query)}"


def _wanted(*, camel: bool, quick: bool) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield sets of filters, and whether all of them are common."""

    def name(parameter: _Parameter) -> str:
        return parameter.camel if camel else parameter.snake

    yield True, {}
    for parameter in _PARAMETERS:
        for value in parameter.values[: 1 if quick else None]:
            yield parameter.common, {name(parameter): value}
    if quick:
        return
    # Pairs use only some values, because each filter is also measured alone.
    for one, other in itertools.combinations([parameter for parameter in _PARAMETERS if parameter.common], 2):
        yield True, {name(one): one.values[-1 if one.snake == "status" else 0], name(other): other.values[0]}
