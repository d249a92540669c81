"""A log that is exported to a file; the floor is ``ringward logs --raw`` of the same log."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.client import Failed
from bench.daemon import RINGWARD, Daemon, toml
from bench.measure import Row, in_turn, ratio_row

_BAR = 2.0
_LINE_BYTES = 200
_CODE = """\
import sys, time
for _ in range({lines} // 1000):
    sys.stdout.buffer.write((b"x" * {width} + b"\\n") * 1000)
sys.stdout.flush()
time.sleep(3600)
"""
_DEADLINE_S = 60.0


def export(quick: bool) -> list[Row]:
    """Measure from the reload that adds the export until its file has all lines; the run is active, and silent."""
    lines = 10_000 if quick else 500_000
    code = _CODE.format(width=_LINE_BYTES - 1, lines=lines)
    definitions = f'[tasks.lines]\nrun = {toml(["python3", "-c", code])}\nlog_max_size = "1gb"\n'
    with Daemon(definitions) as daemon:
        argv = [str(RINGWARD), "--data", str(daemon.directory / "data")]
        subprocess.run([*argv, "run", "--detach", "lines"], stdout=subprocess.DEVNULL, check=True)
        raw = [*argv, "logs", "--raw", "lines"]
        _wait(lambda: subprocess.run(raw, stdout=subprocess.PIPE, check=True).stdout.count(b"\n") == lines)
        number = 0

        def exported() -> float:
            nonlocal number
            number += 1
            path = daemon.directory / f"exported-{number}"
            table = f'[exports.e{number}]\ntype = "file"\npath = "{path}"\nmax_size = "10gb"\n'
            daemon.config.write_text(before + table)
            subprocess.run([*argv, "reload"], stdout=subprocess.DEVNULL, check=True)
            start_s = time.perf_counter()
            _wait(lambda: _ends_with(path, lines - 1))
            took_s = time.perf_counter() - start_s
            path.unlink()
            return took_s

        def printed() -> float:
            start_s = time.perf_counter()
            out = subprocess.run(raw, stdout=subprocess.PIPE, check=True).stdout
            took_s = time.perf_counter() - start_s
            if (found := out.count(b"\n")) != lines:
                raise Failed(f"{found} lines of {lines}")
            return took_s

        before = daemon.config.read_text()
        pairs = in_turn(1 if quick else 5, exported, printed)
    size = lines * _LINE_BYTES // 1_000_000
    return [ratio_row(f"export of a log of {size} MB to a file", pairs, "{:.2f} s", _BAR)]


def _wait(condition: Callable[[], bool]) -> None:
    """Poll a condition every 10 ms.

    Raises:
        Failed: it does not hold in time.
    """
    deadline_s = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise Failed("the lines did not arrive in time")
        time.sleep(0.01)


def _ends_with(path: Path, number: int) -> bool:
    """Return whether the last record of a file is that of line `number`."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 2048))
            return f'"line":{number},'.encode() in file.read()
    except FileNotFoundError:
        return False
