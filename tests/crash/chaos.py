"""Everything at once: kills of every helper and of the root, upgrades, triggers, stops, reloads, bulk deletes.

``python -m tests.crash.chaos SECONDS [SEED] [--descriptor-store]``. The rules of :mod:`tests.crash.harness` hold,
except for runs that died with a killed root: they end as ``crashed``, and their logs may lack output that was still in
a pipe or in the root. A descriptor store keeps those pipes and runs.
Each changed file is given to a run, and each line in the log of an exported run is delivered.
"""

import contextlib
import http.client
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from tests.crash.harness import VICTIMS, Report, Storm, all_runs, compare_log, load, numbered, soak_parser
from tests.support.daemon import Daemon
from tests.support.manager import soaked_daemon
from tests.support.waiting import until

CHILDREN = ("ringward spare", "ringward spawner")
HELPERS_OF_THE_SCHEDULER = (
    "ringward janitor",
    "ringward watcher",
    "ringward notifier",
    "ringward filewatcher",
    "ringward exporter",
)
ROOT = "root"
ALL_VICTIMS = (*VICTIMS, *CHILDREN, *HELPERS_OF_THE_SCHEDULER)
_ROOT_EVERY = 12
"""One kill in this many hits the root; most other faults need a root that lives for a while."""
_LOST_BYTES = 512 * 1024
"""One pipe (256 KiB) and one batch, as docs/inside/guarantees.rst states."""

_FAILING = ("failing", "flaky", "judged")
"""Units whose runs may fail."""
_SIGKILLED = 137
"""Exit code of a run whose process was killed as a spare that had just begun to execute the command."""
_EXPORTED = ("judged", "failing", "ready", "changed")
_PAUSE_NS = 1_000_000_000
"""More than ``settle`` of the task that runs for changed files."""
_CATCH_UP_S = 120.0
"""Time for an export to deliver its backlog after the last kill."""


def more_load(directory: Path, sides: Path) -> str:
    """Return units that need the scheduler's other helpers, in addition to the units of the harness."""
    return f"""
[notifiers.nowhere]
url = "json://127.0.0.1:9"
[[routes]]
notify = ["nowhere"]
[tasks.judged]
{numbered(300, 0.002, sides)}
failure_output = "line 299"
max_concurrent = 2
[services.ready]
{numbered(100_000_000, 0.02, sides)}
ready = {{ log = "line 5" }}
[tasks.changed]
on_change = "{directory}/in/*"
settle = "200ms"
run = '''tr '\\0' '\\n' <"$RINGWARD_FILES" | tee {directory}/given/$RINGWARD_RUN_ID'''
[exports.some]
type = "file"
path = "{directory}/exported/lines"
max_size = "1mb"
keep = 1000
tasks = {json.dumps(_EXPORTED)}
"""


class Chaos(Storm):
    """A storm with commands of users, in which the root is killed as well."""

    def __init__(self, daemon: Daemon, directory: Path, seed: int) -> None:
        super().__init__(daemon, directory, seed, with_example=False)
        self._versions = 0
        self._files: list[str] = []
        """Names of the changed files, which are times in ns."""
        for name in ("in", "given"):
            (directory / name).mkdir()
        self.killed_at_ms: list[int] = []
        """Times at which the root was killed."""
        self._configure()

    def _configure(self) -> None:
        """Write the configuration, each time with a changed environment of one service and another task."""
        self._versions += 1
        port = self._port()
        text = load(self._sides) + more_load(self._daemon.directory, self._sides)
        text = text.replace("[services.ready]", f'[services.ready]\nenv = {{ VERSION = "{self._versions}" }}')
        text += f"[tasks.extra-{self._versions % 3}]\n{numbered(50, 0.001, self._sides)}\ncron = '* * * * *'\n"
        head = f'[daemon]\ndata_dir = "data"\n[http]\nlisten = ["127.0.0.1:{port}"]\nsocket = "{self._daemon.socket}"\n'
        text = text.replace("[exports.some]", f'[exports.some]\nalert_after = "{self._versions}m"')
        head += '[storage]\nundo_window = "7d"\n[defaults]\nkeep_runs = 1_000_000\nkeep_refused = 1_000_000\n'
        new = self._daemon.config.with_suffix(".new")
        new.write_text(head + text)
        new.chmod(0o600)
        new.rename(self._daemon.config)

    def _port(self) -> int:
        text = self._daemon.config.read_text()
        return int(text.partition('listen = ["127.0.0.1:')[2].partition('"')[0])

    def run(self, seconds: float, longest_pause_s: float = 2.0, kills: int = 0) -> Report:
        """Run for some time, then check everything that is left."""
        daemon = self._daemon
        daemon.start()
        until(self._watches_files, "a run for a changed file")
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + 1
        acts = (self._stop_one, self._reload, self._delete, self._restore, self._restart, self._pause, self._change)
        while time.monotonic() < end or self.report.kills.total() < kills:
            self._trigger(self._random.choice(("slow", "flood", "steady", "judged")))
            self._ask(self._random.choice(acts))
            if time.monotonic() >= next_kill:
                if self._random.randrange(_ROOT_EVERY):
                    self._kill(self._random.choice(ALL_VICTIMS))
                else:
                    self._kill_root()
                next_kill = time.monotonic() + self._random.uniform(0.1, longest_pause_s)
        if not self.report.kills[ROOT]:
            self._kill_root()
        until(daemon.ready, "the daemon to be ready after the last kill")
        identity = (daemon.data / "id").read_text().strip()
        if daemon.stop() != 0:
            self.report.differences.append("the daemon did not end with status 0")
        self._check_for_leftovers(identity)
        daemon.start()
        restored = daemon.request("POST", "/api/runs/bulk/restore", {"match_all": True})
        assert restored.status == 200, restored.body
        self._compare()
        self._compare_files()
        self._compare_exported()
        return self.report

    # Commands of users. Any status other than success is acceptable: the daemon may be restarting.

    def _ask(self, act: Callable[[], Any]) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            act()

    def _stop_one(self) -> None:
        page = self._daemon.get("/api/runs?naming=camel&status=running&limit=20").json().get("runs", [])
        if page:
            run = self._random.choice(page)
            self._daemon.request("POST", f"/api/runs/{run['id']}/stop")

    def _reload(self) -> None:
        self._configure()
        self._daemon.request("POST", "/api/daemon/reload")

    def _delete(self) -> None:
        task = self._random.choice(("slow", "flood", "judged", "failing"))
        self._daemon.request("POST", "/api/runs/bulk/delete", {"match_all": True, "filter": {"task_name": task}})

    def _restore(self) -> None:
        self._daemon.request("POST", "/api/runs/bulk/restore", {"match_all": True, "filter": {"task_name": "slow"}})

    def _restart(self) -> None:
        self._daemon.request("POST", f"/api/tasks/{self._random.choice(('ticker', 'flaky', 'ready'))}/restart")

    def _pause(self) -> None:
        verb = self._random.choice(("pause", "resume"))
        self._daemon.request("POST", f"/api/tasks/failing/{verb}")

    def _change(self) -> None:
        """Move a new file to the watched directory."""
        place, name = self._daemon.directory / "in", str(time.time_ns())
        (place / f".{name}").write_text("x")
        (place / f".{name}").rename(place / name)
        self._files.append(name)

    def _watches_files(self) -> bool:
        """Return whether a file was given to a run; files from before the first listing of the directory never are."""
        if any((self._daemon.directory / "given").iterdir()):
            self._files.clear()
            return True
        if not self._files or time.time_ns() - int(self._files[-1]) > _PAUSE_NS:
            self._change()
        return False

    # Faults.

    def _kill(self, victim: str) -> None:
        if victim not in (*CHILDREN, *HELPERS_OF_THE_SCHEDULER):
            super()._kill(victim)
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            of = "ringward scheduler" if victim in HELPERS_OF_THE_SCHEDULER else ""
            for child in self._daemon.children(victim, of)[:1]:
                child.kill()
                self.report.kills[victim] += 1

    def _kill_root(self) -> None:
        daemon = self._daemon
        assert daemon.process is not None
        self.killed_at_ms.append(time.time_ns() // 1_000_000)
        daemon.process.kill()
        daemon.process.wait()
        self.report.kills[ROOT] += 1
        daemon.start()

    # Checks of the result.

    def _compare(self) -> None:
        report, noted = self.report, list(self._sides.iterdir())
        runs = all_runs(self._daemon)
        report.differences += [f"accepted and lost: {run_id}" for run_id in report.accepted - runs.keys()]
        for run in runs.values():
            report.reasons[f"{run['taskName']} {run.get('endReason', run['status'])}"] += 1
            if run.get("endReason") == "crashed" and not any(
                _ms(run["createdAt"]) <= at <= _ms(run["endedAt"]) for at in self.killed_at_ms
            ):
                report.differences.append(f"crashed without a death of the root: {run}")
            if run.get("endReason") == "failed" and run["taskName"] not in _FAILING and run["exitCode"] != _SIGKILLED:
                report.differences.append(f"failed without a reason: {run}")
        for side in noted:
            if side.name not in runs:
                report.differences.append(f"ran without a row: {side.name}")
            elif runs[side.name]["status"] == "ended":
                lost = _LOST_BYTES if runs[side.name]["endReason"] == "crashed" else 0
                compare_log(self._daemon, side, runs[side.name], report, may_lack_bytes=lost)

    def _compare_files(self) -> None:
        """Look for files that no run was given."""
        with contextlib.suppress(AssertionError):
            until(lambda: not self._not_given(), "all files to be given to runs")
        self.report.differences += [f"no run was given the file {name}" for name in self._not_given()]

    def _not_given(self) -> list[str]:
        """Return the files that no run received, except files that a failed run may have received."""
        given: dict[str, int] = {}
        failed = []
        for run in all_runs(self._daemon).values():
            if run["taskName"] == "changed" and run["status"] == "ended":
                created = _ms(run["createdAt"])
                if run["endReason"] == "succeeded":
                    noted = (self._daemon.directory / "given" / run["id"]).read_text().split()
                    given.update((Path(path).name, created) for path in noted)
                else:
                    failed.append(created)
        self.report.files = len(given)
        names, next_run = [], sys.maxsize
        for name in reversed(self._files):
            next_run = given.get(name, next_run)
            if name not in given and not any(int(name) // 1_000_000 <= at <= next_run for at in failed):
                names.append(name)
        return names

    def _compare_exported(self) -> None:
        """Look for lines of the logs that were not delivered, or differ."""
        expected = {
            run_id: {line["n"]: (line["stream"], line["text"]) for line in self._daemon.lines(run_id)}
            for run_id, run in all_runs(self._daemon).items()
            if run["taskName"] in _EXPORTED and run["status"] == "ended"
        }

        def complete() -> bool:
            exported = self._exported()
            return all(lines.keys() <= exported[run_id].keys() for run_id, lines in expected.items())

        with contextlib.suppress(AssertionError):
            until(complete, "all lines to be delivered", _CATCH_UP_S)
        exported = self._exported()
        for run_id, lines in expected.items():
            differ = [number for number, line in lines.items() if exported[run_id].get(number) != line]
            if differ:
                self.report.differences.append(f"{run_id}: {len(differ)} of {len(lines)} lines differ in the export")
            self.report.exported += len(lines) - len(differ)

    def _exported(self) -> dict[str, dict[int, tuple[str, str]]]:
        """Return stream and text of the delivered lines, by run and number."""
        lines_by_run: dict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
        for path in (self._daemon.directory / "exported").iterdir():
            for line in path.read_bytes().split(b"\n")[:-1]:
                record = json.loads(line)
                if "skipped" not in record:
                    lines_by_run[record["runId"]][record["line"]] = (record["stream"], record["text"])
        return lines_by_run


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def main() -> int:
    """Run it and print the result; return 1 if anything differs."""
    options = soak_parser(__doc__).parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as name,
        soaked_daemon(Path(name), descriptor_store=options.descriptor_store) as daemon,
    ):
        daemon.write("")
        try:
            report = Chaos(daemon, Path(name), options.seed).run(options.seconds)
        finally:
            output = daemon.output.read_text()
            Path(f"{tempfile.gettempdir()}/chaos-{options.seed}.log").write_text(output)
    report.print(output)
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
