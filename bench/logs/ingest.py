"""Speed of ingest: one fast writer, eight at once, and a writer with one write a line.

The time runs from the request of the trigger until the run has ended and its last line has been read through the API.
The floor is the time of ``writer | cat > file`` on the same disk.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.client import Client, Failed
from bench.daemon import DISK, Daemon, toml
from bench.measure import Row, between, in_turn, rate_row, ratio_row

_LINE = "x" * 199
_WAIT_S = 240
WRITERS = 8


@dataclass(frozen=True)
class Source:
    """A program that prints."""

    argv: list[str]
    lines: int
    last: str

    def definition(self, concurrent: int = 1) -> str:
        """Return the task ``flood``, whose log drops nothing."""
        return f'[tasks.flood]\nrun = {toml(self.argv)}\nlog_max_size = "4gb"\nmax_concurrent = {concurrent}\n'


def numbers(count: int) -> Source:
    """Short lines."""
    return Source(["seq", "1", str(count)], count, str(count))


def wide(megabytes: int) -> Source:
    """Lines of 200 bytes, written 64,000 bytes at a time."""
    writes = megabytes * 1_000_000 // 64_000
    code = f"import os\nb = b'{_LINE}\\n' * 320\nfor i in range({writes}): os.write(1, b)"
    return Source([sys.executable, "-I", "-S", "-c", code], writes * 320, _LINE)


def printed(megabytes: int) -> Source:
    """Lines of 200 bytes through a buffer of 8 KB, as most programs print them."""
    count = megabytes * 5_000
    code = f"import sys\nw = sys.stdout.write\nfor i in range({count}): w('{_LINE}\\n')"
    return Source([sys.executable, "-I", "-S", "-c", code], count, _LINE)


def one_by_one(count: int) -> Source:
    """Short lines, each its own write."""
    code = f"import os\nw = os.write\nfor i in range({count}): w(1, b'a line of no great length\\n')"
    return Source([sys.executable, "-I", "-S", "-c", code], count, "a line of no great length")


def through_daemon(client: Client, source: Source) -> float:
    """Measure the seconds from the trigger until the last line is read."""
    start_s = time.monotonic()
    run = client.trigger("flood", _WAIT_S)
    page = client.get(f"/api/runs/{run['id']}/log?from=-1&limit=1")
    took_s = time.monotonic() - start_s
    if run.get("endReason") != "succeeded" or page["totalLines"] != source.lines:
        raise Failed(f"{source.argv[0]}: {run.get('endReason')}, {page['totalLines']} lines of {source.lines}")
    if page["lines"][-1]["text"] != source.last:
        raise Failed(f"the last line is {page['lines'][-1]}")
    return took_s


def through_cat(source: Source, copies: int = 1, cores: Sequence[int] = ()) -> float:
    """Measure the seconds of so many ``writer | cat > file`` side by side."""
    pin = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
    paths = [f"{DISK}/ringward-bench-{os.getpid()}-{number}" for number in range(copies)]
    children: list[subprocess.Popen[bytes]] = []
    try:
        start_s = time.monotonic()
        for path in paths:
            with open(path, "wb") as file:
                writer = subprocess.Popen([*pin, *source.argv], stdout=subprocess.PIPE)
                children += [writer, subprocess.Popen([*pin, "cat"], stdin=writer.stdout, stdout=file)]
            assert writer.stdout is not None
            writer.stdout.close()
        statuses = [child.wait() for child in children]
        if any(statuses):
            raise Failed(f"{source.argv[0]} | cat failed")
        return time.monotonic() - start_s
    finally:
        for child in children:
            child.kill()
        for path in paths:
            os.unlink(path)


def ingest(quick: bool) -> list[Row]:
    """Measure one fast writer."""
    rounds = 2 if quick else 5
    sources = (
        ("seq 1 10000000", numbers(10_000_000 // (20 if quick else 1)), 1.5),
        ("400 MB of 200-byte lines, 64 KB writes", wide(400 // (20 if quick else 1)), 1.1),
        ("400 MB of 200-byte lines, printed", printed(400 // (20 if quick else 1)), 1.1),
    )
    rows = []
    for name, source, bar in sources:
        with Daemon(source.definition()) as daemon:
            client = daemon.client()

            def ours(daemon: Daemon = daemon, client: Client = client, source: Source = source) -> float:
                daemon.remove_logs()
                return through_daemon(client, source)

            pairs = in_turn(rounds, ours, lambda source=source: through_cat(source))  # type: ignore[misc]
        rows.append(ratio_row(f"ingest: {name}", pairs, "{:.2f} s", bar))
    return rows


def eight(quick: bool) -> list[Row]:
    """Measure eight fast writers at once; the second row shows whether one starves."""
    source = wide(2 if quick else 50)
    fairness: list[float] = []
    with Daemon(source.definition(WRITERS)) as daemon:
        clients = [daemon.client() for _ in range(WRITERS)]

        def ours() -> float:
            daemon.remove_logs()
            times = at_once(clients, source)
            fairness.append(min(times) / max(times))
            return max(times)

        pairs = in_turn(2 if quick else 5, ours, lambda: through_cat(source, WRITERS))
    return [
        ratio_row("8 writers at once", pairs, "{:.2f} s", 3.0),
        Row("8 writers: first to end / last", f"{min(fairness):.2f}", "", "", "", None, between(fairness, "{:.2f}")),
    ]


def at_once(clients: Sequence[Client], source: Source) -> list[float]:
    """Measure the seconds of each writer, one a connection, all through the daemon at once."""
    times: list[float] = []

    def one(client: Client) -> None:
        times.append(through_daemon(client, source))

    threads = [threading.Thread(target=one, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(times) != len(clients):
        raise Failed(f"{len(times)} of {len(clients)} writers came through")
    return times


def line_by_line(quick: bool) -> list[Row]:
    """Measure a writer with one write a line."""
    source = one_by_one(10_000 if quick else 1_000_000)
    rows = []
    for name, cores in (("", ()), (", all on one core", (0,))):
        with Daemon(source.definition(), cores=cores) as daemon:
            client = daemon.client()

            def ours(daemon: Daemon = daemon, client: Client = client) -> float:
                daemon.remove_logs()
                return source.lines / through_daemon(client, source) / 1000

            pairs = in_turn(
                2 if quick else 5,
                ours,
                lambda cores=cores: source.lines / through_cat(source, cores=cores) / 1000,  # type: ignore[misc]
            )
        rows.append(rate_row(f"line by line{name}", pairs, "{:.0f} k/s", 150))
    return rows
