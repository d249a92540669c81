"""Run the tests again and again, every second time beside busy processors, and list the tests that failed.

    python -m tests.repeat RUNS [ARGUMENT OF PYTEST ...]

The output of each run is in build/repeat/. The exit status is 1 if any run failed.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

BUSY_LOOPS = 4
NO_REPORT = "(pytest ended without a report)"


@contextlib.contextmanager
def busy_processors() -> Iterator[None]:
    """Compete with the tests for the processors."""
    loops = [subprocess.Popen([sys.executable, "-I", "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_once(arguments: list[str], output: Path) -> list[str]:
    """Run pytest, its output in the file `output`, and return the tests that failed."""
    report = output.with_suffix(".xml")
    with output.open("wb") as file:
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False)
    failed = failures(report) if report.exists() else []
    return failed or [NO_REPORT] * bool(done.returncode)


def failures(report: Path) -> list[str]:
    """Return the tests that failed according to a report, as ``module::test``."""
    cases = ET.parse(report).iter("testcase")
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return [f"{case.get('classname')}::{case.get('name')}" for case in failed]


def main(runs: int, arguments: list[str], directory: Path) -> int:
    """Run the tests `runs` times, and print the failures by test."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    failed_in: defaultdict[str, list[str]] = defaultdict(list)
    for number in range(1, runs + 1):
        busy = number % 2 == 0
        with busy_processors() if busy else contextlib.nullcontext():
            failed = run_once(arguments, directory / f"{number:02d}.log")
        print(f"run {number} of {runs}{' beside busy loops' if busy else ''}: {len(failed)} failed", flush=True)
        for test in dict.fromkeys(failed):
            failed_in[test].append(f"{number}{' (busy)' if busy else ''}")
    for test, numbers in sorted(failed_in.items()):
        print(f"{test}: failed in run {', '.join(numbers)}")
    print(f"{len(failed_in)} tests failed at least once in {runs} runs; the output is in {os.path.relpath(directory)}")
    return int(bool(failed_in))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:], ROOT / "build" / "repeat"))
