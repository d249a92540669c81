"""A daemon that may not open as many files as its runs need."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from tests.e2e.daemon import Daemon
from tests.waiting import until

LIMIT = 256
RUNS = 80


class FewDescriptors(Daemon):
    """Its limit is low, and hard."""

    soft, hard = LIMIT // 4, LIMIT

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={self.soft}:{self.hard}", *super().command()]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FewDescriptors]:
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not installed")
    one = FewDescriptors(tmp_path)
    yield one
    one.clean()


def test_more_runs_than_descriptors(daemon: FewDescriptors) -> None:
    """What cannot be started says why; what runs goes on, with all its output; afterwards everything starts again."""
    daemon.write(f"""[tasks.t]\nrun = '''echo first; read _ < "$GATE" || :; echo last'''\nmax_concurrent = {RUNS}
[tasks.t.env]\nGATE = "{daemon.directory / "gate"}"\n""")
    gate = daemon.directory / "gate"
    os.mkfifo(gate)
    daemon.start()
    helpers = [daemon.helper("ringward scheduler").pid, daemon.helper("ringward gunicorn").pid]
    runs = [daemon.trigger("t") for _ in range(RUNS)]
    until(lambda: all(daemon.run(run)["status"] != "pending" for run in runs), "all to be tried")
    refused = [run for run in runs if daemon.run(run)["status"] == "ended"]
    started = [run for run in runs if run not in refused]
    assert refused
    assert started
    assert {daemon.run(run)["endReason"] for run in refused} == {"start_failed"}
    assert "cannot be started: Too many open files" in daemon.texts(refused[-1], "system")
    with gate.open("r+b", buffering=0) as file:  # open for those who come late, too
        file.write(b"\n" * len(started))
        for run in started:
            ended = daemon.ended(run)
            assert (ended["endReason"], ended["exitCode"], daemon.lines(run)[-1]["text"]) == ("succeeded", 0, "last")
            assert daemon.texts(run) == ["first", "last"]
    again = daemon.trigger("t")
    until(lambda: daemon.run(again)["status"] == "running", "another one to start")
    assert [daemon.helper("ringward scheduler").pid, daemon.helper("ringward gunicorn").pid] == helpers
    assert daemon.request("POST", f"/api/runs/{again}/stop").status == 204
    assert daemon.ended(again)["endReason"] == "stopped"
    assert daemon.stop() == 0


def test_too_few_for_a_daemon(daemon: FewDescriptors) -> None:
    """Where it could never be ready it does not start, and says what it needs."""
    daemon.soft = daemon.hard = LIMIT - 1
    daemon.write('[tasks.t]\nrun = "true"\n')
    daemon.launch()
    assert daemon.process is not None
    assert daemon.process.wait(60) == exit_codes.OS_ERROR
    assert f"at most {LIMIT - 1} files may be open" in daemon.output.read_text()
    assert f"a daemon needs {LIMIT}" in daemon.output.read_text()
    assert not daemon.data.exists()
