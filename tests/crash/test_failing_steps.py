"""Each single write step fails once: the daemon continues, and reports anything that is lost."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from tests.crash import failing
from tests.support.daemon import PYTHON, Daemon
from tests.support.waiting import until

CONFIG = """
[tasks.plain]
run = "echo hello; echo there >&2"
[tasks.big]
run = "seq 1 60000"
[tasks.drawn]
run = "for i in 1 2 3; do printf '%s\\\\r' $i; sleep 0.05; done; echo"
tty = true
[tasks.hidden]
run = 'test "$P" = geheimnis'
params = [{ name = "P", kind = "env", secret = true }]
[tasks.slow]
run = '''until [ -e "$GATE" ]; do sleep 0.01; done'''
env = { GATE = "gate" }
"""
TELLS = re.compile(rb" (ERROR|WARNING) .*(No space left|Input/output error|Read-only|has no room)")
LINES = {"plain": 2, "big": 60_000, "drawn": 1, "hidden": 0}
"""Number of lines in the log of each task."""
FULL, BROKEN, FIXED = errno.ENOSPC, errno.EIO, errno.EROFS
TOLD = (
    ("scheduler xWrite ringward.db-wal", FULL),
    ("root mkdir logs", FULL),
    ("root mkdir logs/TASK", FULL),
    ("root mkdir logs/TASK/X", FULL),
    ("root create logs/TASK/X/RUN.log", FULL),
    ("root create logs/TASK/X/RUN.log", FIXED),
    ("root ftruncate logs/TASK/X/RUN.log", FULL),
    ("root pwritev logs/TASK/X/RUN.log", FULL),
    ("root pwritev logs/TASK/X/RUN.log", BROKEN),
    ("root create logs/TASK/X/RUN.log.frames", FULL),
    ("root ftruncate logs/TASK/X/RUN.log.frames", FULL),
    ("root pwrite logs/TASK/X/RUN.log.frames", FULL),
    ("root create RUN.ring.new", FULL),
    ("root ftruncate RUN.ring.new", FULL),
    ("root posix_fallocate RUN.ring.new", FULL),
    ("scheduler create config.last.new", FULL),
    ("scheduler replace config.last", FULL),
    ("api create audit/audit-RUN.entries", FULL),
    ("api write audit/audit-RUN.entries", FULL),
)
"""Steps during work and their errors: something is delayed, lost, or nearly lost."""
REFUSED = (
    ("scheduler mkdir secrets", FULL),
    ("scheduler create secrets/RUN.new", FULL),
    ("scheduler fsync secrets/RUN.new", BROKEN),
    ("scheduler replace secrets/RUN", FULL),
    ("scheduler xWrite ringward.db-wal", BROKEN),
)
"""Steps whose failure rejects the request that waits for them."""
BEGINNING = (
    "scheduler create scheduler.lock",
    "scheduler create events.ring.new",
    "scheduler ftruncate events.ring.new",
    "scheduler xWrite ringward.db-wal",
)
"""Steps of a starting scheduler."""
UNPUBLISHED = ("up create listening.json.new", "up replace listening.json")
"""Steps without which clients cannot find the daemon."""
ALONE = (("root create upgrade.json.new",), ("root create daemon.ring.new", "root ftruncate daemon.ring.new"))
"""Steps without which they can; those of the ring follow each other, with the first line of the daemon's log."""


class FailingDaemon(Daemon):
    """A daemon that runs under failing.py instead of Python."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.planned = directory / "plan"
        self._python = directory / "python"
        self._python.write_text(f'#!/bin/sh\nexec "{PYTHON}" -I "{failing.__file__}" "{self.planned}" "$@"\n')
        self._python.chmod(0o700)

    def environment(self) -> dict[str, str]:
        seam = {"FAILING_PYTHON": str(self._python), "FAILING_DATA": str(self.data)}
        return {**super().environment(), **seam}

    def command(self) -> list[str]:
        directory = os.path.dirname(failing.__file__)
        code = (
            f"import sys; sys.executable = {str(self._python)!r}; sys.path.append({directory!r}); import failing;"
            f" failing.patch(failing.Steps({str(self.planned)!r}, 'up')); sys.path.pop();"
            " from supervisor.cli.entry import main; main()"
        )
        return [str(PYTHON), "-I", "-c", code]

    def write(self, text: str, *, daemon: str = "", http: str = "") -> None:
        super().write(text.replace("gate", str(self.directory / "gate")), daemon=daemon, http=http)

    def plan(self, *labels: str, error: int = errno.ENOSPC) -> None:
        failing.write_plan(str(self.planned), [f"{label} {error}" for label in labels])

    def failed(self) -> None:
        until(lambda: not self.planned.exists(), "all failures")
        until(self.ready, "the daemon to be ready")

    def triggered(self, task: str) -> tuple[str, list[str]]:
        """Trigger until it is accepted; return the run and the reasons of earlier rejections."""
        body = {"params": {"P": "geheimnis"}} if task == "hidden" else {}
        refusals: list[str] = []

        def is_taken() -> str | None:
            answer = self.request("POST", f"/api/tasks/{task}/run", body)
            if answer.status == 201:
                return str(answer.json()["id"])
            assert answer.status == 503, answer.body
            refusals.append(answer.json()["detail"])
            return None

        return until(is_taken, f"{task} to be taken"), refusals

    def kinds(self) -> list[str]:
        return [item["kind"] for item in self.get("/api/notifications").json()["items"]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FailingDaemon]:
    new_daemon = FailingDaemon(tmp_path)
    yield new_daemon
    new_daemon.clean()


def work(daemon: FailingDaemon, label: str) -> list[str]:
    """Run one of each kind to its end; return rejections."""
    runs, refused = {}, []
    for task in LINES:
        runs[task], refusals = daemon.triggered(task)
        refused += refusals
    if "config.last" in label:
        assert daemon.request("POST", "/api/daemon/reload").status == 200
    if " audit/" in label:  # the scheduler stores the entries of other commands
        assert daemon.request("POST", "/api/tasks/missing/run").status == 404
    for task, run in runs.items():
        assert daemon.ended(run)["endReason"] == "succeeded"
        printed = daemon.get(f"/api/runs/{run}/log/raw").body.count(b"\n")
        ours = daemon.get(f"/api/runs/{run}/log?from=0&stream=system").json()["lines"]
        dropped = [line["text"] for line in ours]
        assert (printed, dropped) == (LINES[task], [])
    return refused


def fail(daemon: FailingDaemon, label: str, error: int, times: int = 1) -> list[str]:
    """Make a step fail this many times during work; return rejections."""
    if " mkdir " in label:
        shutil.rmtree(daemon.data / label.rpartition(" ")[2].partition("/")[0], ignore_errors=True)
    daemon.plan(*[label] * times, error=error)
    refused = work(daemon, label)
    daemon.failed()
    return refused


def reported(daemon: FailingDaemon, before: int, description: str) -> None:
    """Wait until the log, after `before` bytes, reports an error and that log files can be written again."""
    until(lambda: TELLS.search(daemon.output.read_bytes()[before:]), description)

    def balanced() -> bool:
        text = daemon.output.read_text()
        files = text.count("cannot write the log file") == text.count("the log file can be written again")
        return files and text.count("rings have no place") == text.count("rings have a place again")

    until(balanced, "log files to be written again")


def test_failing_steps_under_load(daemon: FailingDaemon) -> None:
    """All accepted runs run and are kept. Lost or delayed steps are reported, even in the log of the run."""
    daemon.write(CONFIG)
    daemon.start()
    until((daemon.data / "reserve").exists, "the reserve")
    helpers = [daemon.helper("ringward scheduler").pid, daemon.helper("ringward gunicorn").pid]
    for label, error in TOLD:
        before = daemon.output.stat().st_size
        assert not fail(daemon, label, error)
        reported(daemon, before, f"a word about {label}")
    for label, error in REFUSED:  # repeated: the error may hit a write without a request, such as a sample
        # Twice: changes that fail together are retried one by one before any is rejected.
        until(lambda label=label, error=error: fail(daemon, label, error, 2), f"a refusal of {label}")  # type: ignore[misc]
    until(lambda: daemon.get("/readyz").json()["status"] == "ok", "the reserve")
    until(lambda: {"disk.full", "disk.recovered"} <= {*daemon.kinds()}, "the notifications")
    assert [daemon.helper("ringward scheduler").pid, daemon.helper("ringward gunicorn").pid] == helpers
    assert "Traceback" not in daemon.output.read_text()


def test_failing_steps_of_a_start(daemon: FailingDaemon) -> None:
    """A daemon that cannot publish its address does not start and says why; no other failing step stops the start."""
    daemon.write(CONFIG)
    for label in UNPUBLISHED:
        daemon.plan(label)
        daemon.launch()
        assert daemon.process is not None
        assert daemon.process.wait(60) == exit_codes.OS_ERROR
        assert "listening.json cannot be written: No space left on device" in daemon.output.read_text()
    for labels in ALONE:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()
        daemon.plan(*labels)
        daemon.start()
        until(lambda: work(daemon, "") is not None and not daemon.planned.exists(), "all failures")
    (daemon.data / "scheduler.lock").unlink()
    run, _ = daemon.triggered("slow")
    until(lambda: daemon.run(run)["status"] == "running", "the run")
    daemon.plan(*BEGINNING)
    scheduler = daemon.helper("ringward scheduler")
    scheduler.kill()
    (daemon.directory / "gate").touch()
    daemon.replaced("ringward scheduler", scheduler.pid)
    until(lambda: work(daemon, "") is not None and not daemon.planned.exists(), "all failures")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert "Traceback" not in daemon.output.read_text()
