"""The benchmarks run; their figures are not judged here."""

import os
import re
import subprocess
import sys

from tests.support.daemon import RINGWARD
from tests.support.paths import ROOT


def bench(*arguments: str, module: str = "bench", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "BENCH_RINGWARD": str(RINGWARD), **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_table_has_figures() -> None:
    """Each row shows a figure, its floor, their ratio, and whether the bar was met."""
    done = bench("--quick", "lines", "stop")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if re.match("line by line|clean stop", line)]
    assert len(rows) == 3
    for row in rows:
        assert re.search(r" \d[\d.]* (k/s|s) +\d[\d.]* (k/s|s) +\d[\d.]* x ", row), row
        assert re.search(r"(ok|MISSED)$", row), row


def test_growth_has_exponents() -> None:
    """Each figure is shown at the smallest and the largest amount, with its exponent and whether the bar was met."""
    done = bench("--quick", "lines", module="bench.growth")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if " 1,000  " in line]
    assert len(rows) == 6
    for row in rows:
        assert re.search(r" 100,000 +\d[\d.]* \w+ +\d[\d.]* \w+ +-?\d\.\d\d +<= \d\.\d (ok|MISSED)$", row), row


def test_unknown_row_is_refused() -> None:
    """An unknown row starts nothing, and the error names the valid ones."""
    done = bench("speed")
    assert done.returncode == 2
    assert "no such row: speed; there are: ingest" in done.stderr


def test_missing_peers_are_skipped() -> None:
    """Each missing peer is named, with the command that installs it; the exit status is 0."""
    done = bench("peers", BENCH_PEERS="", PATH="/var/empty")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\w+) is skipped: .*; to have it: (?:pip|npm) install", done.stderr, re.MULTILINE) == [
        "runwisp",
        "supervisord",
        "circus",
        "pm2",
    ]
    assert done.stdout.splitlines()[2:3] == [""]


def test_memory_has_a_row_for_each_load() -> None:
    """The supervisor and the rings are measured under one busy ring and under many runs."""
    done = bench("--quick", "memory")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^memory: .*, (supervisor|rings)\b.* \d+\.\d+ MB +\d+\.\d+ MB", done.stdout, re.MULTILINE)
    assert rows == ["supervisor", "rings"] * 2


def test_many_clients_get_everything() -> None:
    """Each of 200 clients receives every line and the end, even clients that connect with the trigger."""
    done = bench("--quick", "fanout", "streams", "herd")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^fan-out: .*, API worker +\d+ % of a core", done.stdout, re.MULTILINE)
    assert re.search(r"^fan-out: .*, p99 +\d+\.\d ms", done.stdout, re.MULTILINE)
    assert re.search(r"^memory: 200 idle streams, more +-?\d+\.\d MB", done.stdout, re.MULTILINE)
    assert re.search(r"^200 streams at the trigger, .* 200 of 200 .* ok$", done.stdout, re.MULTILINE)


def test_metrics_have_rows() -> None:
    """The cost of a sample, of answers with samples of different spans, and of a scrape is measured."""
    done = bench("--quick", "metrics")
    assert done.returncode == 0, done.stderr
    sample = r"^a sample of the host, read and stored: processor +\d+\.\d+ ms .* (ok|MISSED)$"
    assert re.search(sample, done.stdout, re.MULTILINE)
    assert re.search(r"^samples of 2 days: their size +\d+\.\d MB", done.stdout, re.MULTILINE)
    spans = re.findall(r"^samples of (.*): the answer, p50 +\d+\.\d+ ms", done.stdout, re.MULTILINE)
    assert spans == ["2 days", "1 day", "1 hour"]
    assert re.search(r"^scrape of 50 tasks, \d+ kB, p50 +\d+\.\d+ ms", done.stdout, re.MULTILINE)
    assert re.search(r"^scrape of 50 tasks, \d+ kB: processor of the worker +\d+\.\d+ ms", done.stdout, re.MULTILINE)


def test_slowest_list_is_named() -> None:
    """For each bar, the slowest of all lists is named by its path, with the number of lists.

    A list that was stopped at its time limit counts as the slowest.
    """
    done = bench("--quick", "filters")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^slowest: /api/\S+ +(?:\d+\.\d|inf) ms", done.stdout, re.MULTILINE)) == 2
    assert len(re.findall(r"^lists of 5,000 runs with that bar: \d+, over it: \d+", done.stdout, re.MULTILINE)) == 2


def test_many_tasks_have_rows() -> None:
    """Boot, idling, a reload with all schedules changed, and a simulation each have a figure."""
    done = bench("--quick", "scale", "simulate")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^boot with 200 cron tasks +\d+\.\d+ s", done.stdout, re.MULTILINE)
    assert re.search(r"^idle with 200 tasks +\d+\.\d+ %", done.stdout, re.MULTILINE)
    assert re.search(r"^reload of 200 tasks, all schedules changed +\d+\.\d+ s", done.stdout, re.MULTILINE)
    assert re.search(r"^simulation of 30 days of 20 tasks +\d+\.\d+ s", done.stdout, re.MULTILINE)
