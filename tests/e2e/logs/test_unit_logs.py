"""Following the logs of services through the real daemon, while its processes are killed and replaced."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.daemon import Daemon
from tests.support.waiting import until

CODE = """\
import os, time
for n in range(300):
    os.write(1, b"%s %d\\n" % (os.environ["RINGWARD_RUN_ID"].encode(), n))
    time.sleep(0.01)
"""
CONFIG = f"""
[services.web]
run = {json.dumps([sys.executable, "-I", "-S", "-c", CODE])}
instances = 2
restart_delay = "100ms"

[tasks.job]
run = "echo from a job"
"""


def follow(daemon: Daemon, path: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    with path.open("wb") as output:
        command = [*daemon.client_command(), "logs", "-f", "--json", *arguments, "--config", str(daemon.config)]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=daemon.environment())


def test_followed_units_survive_replacements(daemon: Daemon, tmp_path: Path) -> None:
    """`logs -f web job` prints each line once despite a killed scheduler, a killed worker and an upgrade."""
    daemon.write(CONFIG)
    daemon.start()
    output = tmp_path / "followed"
    client = follow(daemon, output, "-n", "50000", "web", "job")
    try:

        def printed() -> list[dict[str, Any]]:
            return [json.loads(line) for line in output.read_bytes().split(b"\n")[:-1]]

        until(printed, "the first lines")
        daemon.kill_helper("ringward scheduler")
        first = daemon.trigger("job")
        daemon.ended(first)
        for worker in daemon.children("ringward", of="ringward gunicorn"):
            worker.kill()
        until(daemon.ready, "another worker")
        assert daemon.cli("upgrade").returncode == 0
        second = daemon.trigger("job")
        daemon.ended(second)
        assert daemon.cli("stop", "web").returncode == 0
        runs = [*daemon.runs("web"), *daemon.runs("job")]
        until(lambda: all(daemon.run(run["id"])["status"] == "ended" for run in runs), "the runs to end")
        runs = [*daemon.runs("web"), *daemon.runs("job")]
        expected = {(run["id"], line["n"], line["text"]) for run in runs for line in daemon.lines(run["id"])}
        until(lambda: len(printed()) >= len(expected), "all lines")
        places_found = [(line["runId"], line["n"], line["text"]) for line in printed()]
        assert len(places_found) == len(set(places_found))
        assert set(places_found) == expected
        assert {first, second} <= {run_id for run_id, _, _ in places_found}
        for run in runs:
            numbers = [n for run_id, n, _ in places_found if run_id == run["id"]]
            assert numbers == sorted(numbers)
    finally:
        client.kill()
        client.wait()
