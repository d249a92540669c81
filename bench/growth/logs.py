"""How costs grow with the followers of a run, and with the lines of its log."""

from contextlib import closing
from urllib.parse import quote

from bench.client import Client, Failed
from bench.daemon import Daemon, toml
from bench.growth.series import CONSTANT, LINEAR, Series, median_ms
from bench.lifecycle.lifetime import cpu_ns, pss_mb
from bench.logs.fanout import followed, idle_memory_mb

_FOLLOWERS = (1, 10, 100, 1_000, 2_000)
_STREAMS = (200, 500, 1_000, 2_000)
_LINES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_TIMES = 20
_WAIT_S = 240


def followers(quick: bool) -> list[Series]:
    """Measure with up to 2,000 followers of one run that prints 100 lines a second."""
    used = Series("following 100 lines/s, processor time", "{:.1f} %", LINEAR)
    delay = Series("delay of these lines, median", "{:.1f} ms", LINEAR)
    memory = Series("idle streams, memory", "{:.1f} MB", LINEAR)
    for amount in _FOLLOWERS[: 2 if quick else None]:
        found = followed(amount, 300 if quick else 1000, lines_per_s=100)
        used.values[amount] = found["daemon"]
        delay.values[amount] = found["p50"] * 1000
    for amount in _STREAMS[: 2 if quick else None]:
        before, after = idle_memory_mb(amount)
        memory.values[amount] = after - before
    return [used, delay, memory]


def lines(quick: bool) -> list[Series]:
    """Measure logs with up to a hundred million lines."""
    figures = {
        "write": Series("printing, processor time for each line", "{:.3f} µs", CONSTANT),
        "first": Series("first page of 100 lines", "{:.2f} ms", CONSTANT),
        "middle": Series("page from the middle", "{:.2f} ms", CONSTANT),
        "last": Series("last page", "{:.2f} ms", CONSTANT),
        "search": Series("search without a match", "{:.1f} ms", LINEAR),
        "memory": Series("memory of the supervisor after the run", "{:.1f} MB", CONSTANT),
    }
    for amount in _LINES[: 3 if quick else None]:
        for name, value in _with_lines(amount).items():
            figures[name].values[amount] = value
    return list(figures.values())


def _with_lines(amount: int) -> dict[str, float]:
    definition = f"[tasks.t]\nrun = {toml(['seq', 1, amount])}\nlog_max_size = '4gb'\n"
    with Daemon(definition) as daemon, closing(daemon.client()) as client:
        supervisor = daemon.processes()[0]
        before_ns = cpu_ns(supervisor)
        run = client.trigger("t", wait_s=_WAIT_S)
        if run["endReason"] != "succeeded":
            raise Failed(f"the run has {run['endReason']}")
        log = f"/api/runs/{run['id']}/log?limit=100&from="
        return {
            "write": (cpu_ns(supervisor) - before_ns) / amount / 1000,
            "first": median_ms(lambda: client.get(f"{log}0"), _TIMES),
            "middle": median_ms(lambda: client.get(f"{log}{amount // 2}"), _TIMES),
            "last": median_ms(lambda: client.get(f"{log}-100"), _TIMES),
            "search": median_ms(lambda: _search(client), 3),
            "memory": pss_mb(supervisor.pid),
        }


def _search(client: Client) -> None:
    """Search the whole log for a text that it does not contain."""
    cursor = ""
    while True:
        found = client.get(f"/api/tasks/t/log/search?q=absent{cursor}")
        if found["exhausted"]:
            return
        cursor = f"&cursor={quote(found['nextCursor'])}"
