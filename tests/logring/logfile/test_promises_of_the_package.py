"""Promises of the package as a whole."""

import gzip
import subprocess
import sys
from pathlib import Path

from logring.layout import STDERR, STDOUT, SYSTEM
from logring.log_paths import log_path, ring_path
from logring.reader import Line, LogReader
from tests.logring.support.rings import T0, read_all

DATA = Path(__file__).parent / "data"


def test_paths() -> None:
    """Rings are in the runtime directory, log files in a directory of their task and the start of the run id."""
    assert ring_path("/run/x", "daemon") == "/run/x/daemon.ring"
    run = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert log_path("/data", "backup", run) == f"/data/logs/backup/01ARZ3/{run}.log"


def test_writing_side_is_light() -> None:
    """The writing side, which the root process loads, imports no expensive module that the root does not load anyway.

    ``dataclasses``, which imports ``inspect``, is in the root because of the messages.
    """
    code = "import logring.ring.writer, logring.logfile.log_file, logring.log_paths, sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "ctypes",
        "asyncio",
        "logging",
        "threading",
        "subprocess",
    }
    assert heavy.isdisjoint(out)


def test_first_format_can_be_read(tmp_path: Path) -> None:
    """A ring and a log file of format 1 stay readable."""
    expected = [
        Line(0, T0, STDOUT, b"one", continued=False, frames=False),
        Line(1, T0, STDOUT, b"", continued=False, frames=False),
        Line(2, T0 + 1, STDERR, b"x" * 1024, continued=False, frames=False),
        Line(3, T0 + 1, STDERR, b"xxxxxx\xff\0", continued=True, frames=False),
        Line(4, T0 + 2, SYSTEM, b"a line of our own", continued=False, frames=False),
    ]
    ring, log = tmp_path / "format-1.ring", tmp_path / "format-1.log"
    for path in (ring, log):
        path.write_bytes(gzip.decompress((DATA / f"{path.name}.gz").read_bytes()))
    reader = LogReader(str(ring), None)
    assert read_all(reader) == expected
    assert [tuple(pending) for pending in reader.pending()] == [(STDOUT, b"unfinished", T0 + 3)]
    reader.close()
    reader = LogReader(None, str(log))
    assert read_all(reader) == [*expected, Line(5, T0 + 3, STDOUT, b"unfinished", continued=False, frames=False)]
    assert reader.head().sealed
    reader.close()
