"""A daemon under load whose helpers are killed at random; afterwards every line and every row is checked.

Children number their lines, and write each number to a side file before they print it, so the side file records the
child's output. The log of a run must match it exactly, except that a killed child may have noted one last line that it
never printed.
"""

import argparse
import contextlib
import http.client
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.support.daemon import Daemon, shell_program
from tests.support.manager import soaked_daemon
from tests.support.paths import ROOT
from tests.support.waiting import until

VICTIMS = ("worker", "ringward gunicorn", "ringward scheduler", "ringward spawner", "upgrade")
"""Processes to kill. An upgrade kills none, but is as disruptive."""


def numbered(count: int, pause_s: float, sides: Path, after: str = "") -> str:
    """Return TOML for a command that prints numbered lines; the side file is named after the run."""
    command = f"{shell_program('numbered')} {count} {pause_s} {sides}/$RINGWARD_RUN_ID"
    return f'run = "{command}{after}"'


def numbered_quickly(count: int, sides: Path, after: str = "") -> str:
    """Return such a command without pauses, in the shell, which starts ten times as fast as Python."""
    line = f'echo $n >>{sides}/$RINGWARD_RUN_ID; echo "line $n"; n=$((n + 1))'
    return f"run = '''n=0; while [ $n -lt {count} ]; do {line}; done{after}'''"


def numbered_then_silent(sides: Path) -> str:
    """Return such a command that then stays until it is stopped."""
    return numbered_quickly(20, sides, "; exec sleep 1000000")


def load(sides: Path) -> str:
    """Return quick and slow tasks, floods, retries, steady services and services that crash."""
    return f"""
[tasks.slow]
{numbered(2000, 0.005, sides)}
max_concurrent = 3
queue_max = 5
[tasks.flood]
{numbered(200_000, 0, sides)}
max_concurrent = 2
on_overlap = "skip"
[tasks.steady]
{numbered(5000, 0.001, sides)}
max_concurrent = 3
on_overlap = "terminate"
[tasks.failing]
{numbered(100, 0.003, sides, "; exit 1")}
cron = "* * * * *"
retry_attempts = 3
retry_delay = "1s"
[services.ticker]
{numbered(100_000_000, 0.01, sides)}
instances = 3
[services.flaky]
{numbered(300, 0.003, sides, "; exit 1")}
restart_delay = "100ms"
restart_attempts = 10000
"""


def example() -> str:
    """Return the tasks and services of examples/ringward.toml, on a separate port."""
    text = (ROOT / "examples" / "ringward.toml").read_text()
    text = text[text.index("[defaults]") :].replace("8765", "8797")
    # Every run is checked at the end, so none may be removed earlier.
    return text.replace("[defaults]\n", "[defaults]\nkeep_runs = 1_000_000\nkeep_refused = 1_000_000\n", 1)


@dataclass
class Report:
    """The results."""

    kills: Counter[str] = field(default_factory=Counter)
    upgrades: int = 0
    accepted: set[str] = field(default_factory=set)
    """Ids of runs whose trigger got a 201."""
    refused: int = 0
    lines: int = 0
    logs: int = 0
    files: int = 0
    """Changed files that a run was given."""
    exported: int = 0
    """Lines that an export delivered."""
    reasons: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def print(self, output: str) -> None:
        """Print the results, and the number of tracebacks in the daemon's `output`."""
        print(f"kills {dict(self.kills)}, {self.upgrades or output.count('upgraded from')} upgrades")
        print(f"triggers {len(self.accepted)} accepted, {self.refused} refused")
        print(f"{self.lines} lines in {self.logs} logs, {output.count('Traceback')} tracebacks")
        print(f"{self.files} changed files given to runs, {self.exported} lines exported")
        for reason, count in sorted(self.reasons.items()):
            print(f"  {count:6} {reason}")
        print("\n".join(self.differences) or "no difference")


class Storm:
    """Triggers and kills for some time, followed by checks."""

    def __init__(self, daemon: Daemon, directory: Path, seed: int, *, with_example: bool) -> None:
        self._daemon = daemon
        self._random = random.Random(seed)
        self._sides = directory / "sides"
        self._sides.mkdir()
        self.report = Report()
        text = load(self._sides)
        if with_example:
            shutil.copytree(ROOT / "examples" / "scripts", directory / "scripts")
            text = example() + text
        daemon.write(text)

    def run(self, seconds: float, longest_pause_s: float = 4.0, kills: int = 0) -> Report:
        """Run until the given number of kills; the pauses in between are random, up to the longest."""
        daemon = self._daemon
        daemon.start()
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + 1
        while time.monotonic() < end or self.report.kills.total() < kills:
            self._trigger(self._random.choice(("slow", "flood", "steady")))
            if time.monotonic() >= next_kill:
                self._kill(self._random.choice(VICTIMS))
                next_kill = time.monotonic() + self._random.uniform(0.3, longest_pause_s)
        until(daemon.ready, "the daemon to be ready after the last kill")
        self._kill("upgrade")
        until(self._upgraded, "the end of the last upgrade")
        identity = (daemon.data / "id").read_text().strip()
        if daemon.stop() != 0:
            self.report.differences.append("the daemon did not end with status 0")
        self._check_for_leftovers(identity)
        daemon.start()
        compare(daemon, self._sides, self.report)
        return self.report

    def _trigger(self, task: str) -> None:
        # Responses set the pace of the load, so a killed server slows it down.
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = self._daemon.request("POST", f"/api/tasks/{task}/run?wait=1")
            if answer.status == 201:
                self.report.accepted.add(answer.json()["id"])
                return
        self.report.refused += 1

    def _kill(self, victim: str) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):  # killed and not yet replaced
            if victim == "upgrade":
                os.kill(self._daemon.pid, signal.SIGUSR2)
            elif victim == "worker":
                self._daemon.helper("ringward gunicorn").children()[0].kill()
            elif victim == "ringward spawner":  # it exists only if runs have cgroups, and perhaps only after a start
                self._daemon.children(victim)[0].kill()
            else:
                self._daemon.helper(victim).kill()
            self.report.kills[victim] += 1

    def _upgraded(self) -> bool:
        """Return whether an upgrade happened and none is in progress."""
        text = self._daemon.output.read_text()
        self.report.upgrades = text.count("upgraded from")
        return text.rfind("upgraded from") > text.rfind("upgrade: testing")

    def _check_for_leftovers(self, identity: str) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("RINGWARD_DAEMON") == identity:
                    self.report.differences.append(f"left behind: {process}")


def compare(daemon: Daemon, sides: Path, report: Report) -> None:
    """Compare the daemon's data with the notes of the children and the accepted triggers."""
    noted = list(sides.iterdir())  # before reading the rows, because runs continue and new ones start
    runs = all_runs(daemon)
    for run in runs.values():
        report.reasons[f"{run['taskName']} {run.get('endReason', run['status'])}"] += 1
        if run.get("endReason") == "crashed":
            report.differences.append(f"crashed: {run}")
    report.differences += [f"accepted and lost: {run_id}" for run_id in report.accepted - runs.keys()]
    for side in noted:
        if side.name not in runs:
            report.differences.append(f"ran without a row: {side.name}")
        elif runs[side.name]["status"] == "ended":
            compare_log(daemon, side, runs[side.name], report)


def compare_log(daemon: Daemon, side: Path, run: dict[str, Any], report: Report, *, may_lack_bytes: int = 0) -> None:
    """Compare the log of a run with its side file; the log may lack up to `may_lack_bytes` at its end."""
    numbers = side.read_text().split()
    if numbers != [str(number) for number in range(len(numbers))]:
        report.differences.append(f"ran twice: {run}")
    own = [f"line {number}" for number in numbers]
    raw = daemon.get(f"/api/runs/{side.name}/log/raw").body.decode()
    logged = [line for line in raw.split("\n") if line.startswith("line ")]
    report.logs += 1
    report.lines += len(logged)
    missing = own[len(logged) :]
    begins = logged == own[: len(logged)]
    if not begins or (len(missing) > 1 and sum(len(line) + 1 for line in missing) > may_lack_bytes):
        report.differences.append(f"{side.name}: printed {len(own)}, logged {len(logged)}: {run}")


def all_runs(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """Return every run by id."""
    runs_by_id: dict[str, dict[str, Any]] = {}
    while True:
        path = f"/api/runs?naming=camel&limit=1000&offset={len(runs_by_id)}&sort_field=created_at&sort_direction=asc"
        page = daemon.get(path).json()["runs"]
        if not page:
            return runs_by_id
        runs_by_id.update((run["id"], run) for run in page)


def soak_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for the length of a run in seconds, its seed, and its service manager."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int, nargs="?", default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--descriptor-store", action="store_true", help="run under a fake service manager that has one")
    return parser


def main() -> int:
    """``python -m tests.crash.harness SECONDS [SEED] [--descriptor-store]``: run for this long, with the example."""
    options = soak_parser(__doc__).parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as name,
        soaked_daemon(Path(name), descriptor_store=options.descriptor_store) as daemon,
    ):
        try:
            report = Storm(daemon, Path(name), options.seed, with_example=True).run(options.seconds)
        finally:
            output = daemon.output.read_text()
    report.print(output)
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
