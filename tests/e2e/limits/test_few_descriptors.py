"""A daemon with a limit of open files that is too low for its runs."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor.cli import exit_codes
from tests.support.client import UnixConnection
from tests.support.daemon import Daemon, program
from tests.support.host_features import require
from tests.support.waiting import until

LIMIT = 256
RUNS = 80


class FewDescriptors(Daemon):
    """A daemon with a low hard limit."""

    soft, hard = LIMIT // 4, LIMIT

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={self.soft}:{self.hard}", *super().command()]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FewDescriptors]:
    require("prlimit")
    descriptors = FewDescriptors(tmp_path)
    yield descriptors
    descriptors.clean()


def test_more_runs_than_descriptors(daemon: FewDescriptors) -> None:
    """Runs without descriptors wait, even across schedulers. They can be stopped, and start when others have ended."""
    daemon.write(f"""[tasks.t]\nrun = '''echo first; read _ < "$GATE" || :; echo last'''\nmax_concurrent = {RUNS}
[tasks.t.env]\nGATE = "{daemon.directory / "gate"}"\n""")
    gate = daemon.directory / "gate"
    os.mkfifo(gate)
    daemon.start()
    runs = [daemon.trigger("t") for _ in range(RUNS)]
    until(lambda: "too few free descriptors" in daemon.own_output(), "runs to wait")
    daemon.kill_helper("ringward scheduler")
    assert daemon.request("POST", f"/api/runs/{runs[-1]}/stop").status == 204
    ended = daemon.ended(runs.pop())
    assert (ended["endReason"], ended["exitCode"], "startedAt" in ended) == ("stopped", -1, False)
    assert {daemon.run(run)["status"] for run in runs} == {"pending", "running"}
    helpers = [daemon.helper("ringward scheduler").pid, daemon.helper("ringward gunicorn").pid]
    with gate.open("r+b", buffering=0) as file:  # open for late readers as well
        file.write(b"\n" * RUNS)
        for run in runs:
            ended = daemon.ended(run)
            assert (ended["endReason"], ended["exitCode"]) == ("succeeded", 0)
            assert daemon.texts(run) == ["first", "last"]
    until(lambda: "waiting runs start again" in daemon.own_output(), "all to have started")
    again = daemon.trigger("t")
    until(lambda: daemon.run(again)["status"] == "running", "another one to start")
    assert [daemon.helper("ringward scheduler").pid, daemon.helper("ringward gunicorn").pid] == helpers
    assert daemon.request("POST", f"/api/runs/{again}/stop").status == 204
    assert daemon.ended(again)["endReason"] == "stopped"
    assert daemon.stop() == 0


def test_server_without_descriptors(tmp_path: Path) -> None:
    """An API worker without descriptors logs the reason, keeps its streams, and then accepts connections again."""
    daemon = Daemon(tmp_path)
    try:
        daemon.write(f"[tasks.t]\nrun = {program('numbered', 1_000_000, 0.01, tmp_path / 'side')}\n")
        daemon.start()
        stream = daemon.stream(f"/api/runs/{daemon.trigger('t')}/log/stream")
        lines = (event.data["n"] for event in stream if event.kind == "line")
        assert next(lines) == 0
        worker = daemon.helper("ringward gunicorn").children()[0]
        soft, hard = worker.rlimit(psutil.RLIMIT_NOFILE)
        taken = {int(name) for name in os.listdir(f"/proc/{worker.pid}/fd")}
        worker.rlimit(psutil.RLIMIT_NOFILE, (min(set(range(soft)) - taken), hard))
        connections: list[UnixConnection] = []

        def refused() -> bool:
            # The worker may have closed a descriptor meanwhile, so the first connections may still be accepted.
            connections.append(UnixConnection(daemon.socket))
            connections[-1].request("GET", "/healthz")
            return "cannot accept connections: Too many open files" in daemon.own_output()

        until(refused, "the reason")
        assert list(itertools.islice(lines, 100)) == list(range(1, 101))
        worker.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
        for connection in connections:
            assert connection.getresponse().status == 200
            connection.close()
        stream.close()
        assert "Traceback" not in daemon.own_output()
        assert daemon.stop() == 0
    finally:
        daemon.clean()


@pytest.mark.parametrize("limit", [256, 300, 512])
def test_many_printing_runs(daemon: FewDescriptors, limit: int) -> None:
    """No run of many that are triggered at once is lost or refused, and every log is complete."""
    daemon.soft = daemon.hard = limit
    daemon.write("""[tasks.t]
run = "seq 10; sleep 2; seq 11 20"
max_concurrent = 1000
""")
    daemon.start()
    runs = [daemon.trigger("t") for _ in range(120)]
    for run in runs:
        assert daemon.ended(run)["endReason"] == "succeeded"
        assert daemon.texts(run) == [str(number) for number in range(1, 21)]
    assert daemon.stop() == 0


def test_too_few_descriptors(daemon: FewDescriptors) -> None:
    """With too few descriptors, the daemon does not start and says how many it needs."""
    daemon.soft = daemon.hard = LIMIT - 1
    daemon.write('[tasks.t]\nrun = "true"\n')
    daemon.launch()
    assert daemon.process is not None
    assert daemon.process.wait(60) == exit_codes.OS_ERROR
    assert f"at most {LIMIT - 1} files may be open" in daemon.output.read_text()
    assert f"a daemon needs {LIMIT}" in daemon.output.read_text()
    assert not daemon.data.exists()
