"""Many services that crash at random and are stopped and started at random; afterwards everything is accounted for.

Each incarnation notes its actions before it performs them (tests/programs/crashes.py): how it ends, which processes it
leaves behind, and every byte of output.
"""

import contextlib
import os
import random
import re
import shlex
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from supervisor.host.cgroups import Cgroups
from tests.crash.harness import all_runs, soak_parser
from tests.support.daemon import Daemon
from tests.support.manager import soaked_daemon
from tests.support.paths import PROGRAMS
from tests.support.waiting import until

SIGNALLED = 128
REQUESTED = ("stopped", "daemon_stopped")
_PATIENCE_S = 60.0
_WARM_UP_RUNS = 3
_OPENED_LATER = 6
"""Additional descriptors that a process may have at the end: connections to the database and to API workers."""


def configuration(count: int, sides: Path, most_s: float) -> str:
    """Return `count` services, every eighth with three instances, and one for the warm-up."""

    def service(name: str, life_s: float, instances: int) -> str:
        command = f"exec {shlex.join([sys.executable, '-I', '-S', str(PROGRAMS / 'crashes.py')])} '{sides}' {life_s}"
        return f'[services.{name}]\nrun = "{command}"\ninstances = {instances}\n'

    defaults = (
        "[defaults]\nautostart = false\nkeep_runs = 1_000_000\nkeep_refused = 1_000_000\n"
        "redraw = 'off'\ngraceful_stop = '1s'\n"
        "restart_attempts = 10_000\nrestart_delay = '10ms'\nrestart_max_delay = '200ms'\n"
    )
    services = [service(f"c{number}", most_s, 1 if number % 8 else 3) for number in range(count)]
    return defaults + service("warm", 0.1, 1) + "".join(services)


@dataclass
class Report:
    """The results."""

    runs: int = 0
    bytes: int = 0
    left: int = 0
    """Number of processes that outlived their main process, or would have."""
    commands: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class Crashes:
    """The whole test."""

    def __init__(self, daemon: Daemon, directory: Path, *, count: int, most_s: float, cgroups: str, seed: int) -> None:
        self._daemon = daemon
        self._random = random.Random(seed)
        self._sides = directory / "sides"
        self._sides.mkdir()
        self._names = [f"c{number}" for number in range(count)]
        self.report = Report()
        daemon.write(configuration(count, self._sides, most_s), daemon=f'cgroups = "{cgroups}"')

    def run(self, seconds: float) -> Report:
        """Let the services crash for some time, and until one has left a process behind; then check the result."""
        self._daemon.start()
        self._warm_up()
        before = self._descriptors()
        for name in self._names:
            self._command("start", name)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s or not self._any_left_behind():
            name = self._random.choice(self._names)
            for command in self._random.choice((["restart"], ["stop", "start"], ["start"])):
                self._command(command, name)
            time.sleep(self._random.random() / 2)
        for name in self._names:
            self._command("stop", name)
        self._settle(before)
        self._compare()
        identity = (self._daemon.data / "id").read_text().strip()
        if self._daemon.stop() != 0:
            self._differs("the daemon did not end with status 0")
        self._check_for_processes(identity)
        return self.report

    def _any_left_behind(self) -> bool:
        """Return whether a process has left another one behind, which chance decides."""
        return any("left" in path.read_text() for path in self._sides.glob("*.notes"))

    def _differs(self, difference: str) -> None:
        self.report.differences.append(difference)

    def _command(self, command: str, name: str) -> None:
        answer = self._daemon.request("POST", f"/api/tasks/{name}/{command}")
        self.report.commands[f"{command} {answer.status}"] += 1
        if answer.status != 204:
            self._differs(f"{command} {name}: {answer.status} {answer.body!r}")

    def _warm_up(self) -> None:
        """Make the daemon open everything that it opens only once."""
        self._command("start", "warm")
        until(lambda: len(self._daemon.runs("warm")) > _WARM_UP_RUNS, "the first runs")
        self._command("stop", "warm")
        until(lambda: self._daemon.task("warm")["state"] == "stopped", "their end")

    def _descriptors(self) -> dict[str, Counter[str]]:
        """Return the descriptors of root and scheduler by kind."""
        scheduler = self._daemon.helper("ringward scheduler")
        return {"root": _descriptors(self._daemon.pid), "scheduler": _descriptors(scheduler.pid)}

    def _settle(self, before: dict[str, Counter[str]]) -> None:
        """Check that nothing runs at the end and that no resources of ended runs remain."""
        self._wait("a service that does not stop", self._awake)
        self._wait("zombies", self._zombies)
        self._wait("descriptors", lambda: self._more_descriptors(before))
        self._wait("rings", self._rings)

    def _more_descriptors(self, before: dict[str, Counter[str]]) -> list[str]:
        now = self._descriptors()
        much = [name for name in now if now[name].total() > before[name].total() + _OPENED_LATER]
        return [f"{name}: {dict(now[name] - before[name])} more" for name in much]

    def _wait(self, description: str, remains: Any) -> None:
        try:
            until(lambda: not remains(), description, _PATIENCE_S)
        except AssertionError:
            self._differs(f"{description}: {remains()}")

    def _awake(self) -> list[str]:
        tasks = self._daemon.get("/api/tasks").json()["items"]
        return [f"{task['name']}: {task['state']}" for task in tasks if task["state"] != "stopped"]

    def _zombies(self) -> list[str]:
        children = psutil.Process(self._daemon.pid).children(recursive=True)
        mistakes = []
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() == psutil.STATUS_ZOMBIE:
                    mistakes.append(str(child))
        return mistakes

    def _rings(self) -> list[str]:
        runs = {run["id"] for run in self._daemon.runs("c0")} | {path.stem for path in self._sides.iterdir()}
        places = self._daemon.runtime_dirs()
        return [path.name for place in places for path in place.glob("*.ring") if path.stem in runs]

    def _check_for_processes(self, identity: str) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("RINGWARD_DAEMON") == identity:
                    self._differs(f"left behind: {process}")

    def _compare(self) -> None:
        """Compare rows and logs with the notes."""
        runs = all_runs(self._daemon)
        self.report.runs = len(runs)
        noted = {path.stem for path in self._sides.iterdir()}
        for run_id in noted - runs.keys():
            self._differs(f"ran without a row: {run_id}")
        for run in runs.values():
            self.report.reasons[run.get("endReason", run["status"])] += 1
            for difference in (*self._wrong_end(run), *self._wrong_bytes(run)):
                self._differs(f"{run['taskName']} {run['id']}: {difference}: {run}")
        self._check_for_overlaps(list(runs.values()))
        place = Cgroups.find()
        if place is not None and os.path.isdir(place.directory):
            for name in runs.keys() & set(os.listdir(place.directory)):
                self._differs(f"a cgroup is left of {name}")

    def _wrong_end(self, run: dict[str, Any]) -> list[str]:
        path = self._sides / f"{run['id']}.notes"
        notes = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        if not notes:  # stopped before it wrote notes
            return [] if run["endReason"] in REQUESTED else ["it noted nothing"]
        mistakes = []
        if notes[0] != ["instance", str(run["instanceIndex"])]:
            mistakes.append(f"another instance: {notes[0]}")
        for word, pid in notes:
            if word == "left":
                self.report.left += 1
                if psutil.pid_exists(int(pid)) and _run_of(int(pid)) == run["id"]:
                    mistakes.append(f"process {pid} is left")
        ends = [(word, int(number)) for word, number in notes if word in ("exit", "signal")]
        if run["endReason"] in REQUESTED:
            return mistakes
        if not ends:
            return [*mistakes, "it did not end by itself"]
        ((word, number),) = ends
        code = number if word == "exit" else SIGNALLED + number
        if (run["endReason"], run["exitCode"]) != ("failed" if code else "succeeded", code):
            mistakes.append(f"its end was {word} {number}")
        return mistakes

    def _wrong_bytes(self, run: dict[str, Any]) -> list[str]:
        mistakes = []
        for number, stream in ((1, "stdout"), (2, "stderr")):
            side = self._sides / f"{run['id']}.{number}"
            own = side.read_bytes() if side.exists() else b""
            logged = self._daemon.get(f"/api/runs/{run['id']}/log/raw?stream={stream}").body
            self.report.bytes += len(logged)
            # If it was killed while printing, the end of its output exists only in its notes.
            whole = own.startswith(logged) if run["endReason"] in REQUESTED else own == logged
            if not whole:
                mistakes.append(f"{stream}: {len(own)} bytes printed, {len(logged)} logged")
        return mistakes

    def _check_for_overlaps(self, runs: list[dict[str, Any]]) -> None:
        """Check that incarnations of an instance never overlap."""
        last: dict[tuple[str, int], dict[str, Any]] = {}
        for run in sorted(runs, key=lambda run: str(run.get("startedAt", ""))):
            if "startedAt" not in run:
                continue
            before = last.get((run["taskName"], run["instanceIndex"]))
            if before is not None and before["endedAt"] > run["startedAt"]:
                self._differs(f"at the same time: {before} {run}")
            last[run["taskName"], run["instanceIndex"]] = run


def _descriptors(pid: int) -> Counter[str]:
    """Return the kinds of open files: link targets without inode numbers."""
    counter: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            counter[re.sub(r"\[\d+\]", "", os.readlink(f"/proc/{pid}/fd/{name}"))] += 1
    return counter


def _run_of(pid: int) -> str | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).environ().get("RINGWARD_RUN_ID")
    return None


def main() -> int:
    """``python -m tests.crash.services SECONDS [SEED] [--descriptor-store]``: run for this long."""
    parser = soak_parser(__doc__)
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument("--life", type=float, default=10, help="how long an incarnation lives at most, in seconds")
    parser.add_argument("--cgroups", choices=["auto", "off"], default="auto")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as name,
        soaked_daemon(Path(name), descriptor_store=options.descriptor_store) as daemon,
    ):
        try:
            report = Crashes(
                daemon,
                Path(name),
                count=options.services,
                most_s=options.life,
                cgroups=options.cgroups,
                seed=options.seed,
            ).run(options.seconds)
        finally:
            output = daemon.output.read_text()
    print(f"{report.runs} runs, {report.bytes} bytes of output, {report.left} processes left behind by them")
    print(f"commands {dict(report.commands)}, {output.count('Traceback')} tracebacks in the daemon's log")
    for reason, count in sorted(report.reasons.items()):
        print(f"  {count:6} {reason}")
    print("\n".join(report.differences) or "no difference")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
