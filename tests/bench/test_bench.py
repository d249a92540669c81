"""The benchmarks run; what they measure is not judged here."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240
    )


def test_the_table_has_figures() -> None:
    """Each row tells a figure, its floor and their ratio, and whether the bar was met."""
    done = bench("--quick", "lines", "stop")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if re.match("line by line|clean stop", line)]
    assert len(rows) == 3
    for row in rows:
        assert re.search(r" \d[\d.]* (k/s|s) +\d[\d.]* (k/s|s) +\d[\d.]* x ", row), row
        assert re.search(r"(ok|MISSED)$", row), row


def test_an_unknown_row_is_refused() -> None:
    """A wrong name starts nothing and names the right ones."""
    done = bench("speed")
    assert done.returncode == 2
    assert "no such row: speed; there are: ingest" in done.stderr


def test_memory_has_a_row_for_each_load() -> None:
    """The supervisor and the rings, while much passes through one ring and while many live."""
    done = bench("--quick", "memory")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^memory: .*, (supervisor|rings)\b.* \d+\.\d+ MB +\d+\.\d+ MB", done.stdout, re.MULTILINE)
    assert rows == ["supervisor", "rings"] * 2
