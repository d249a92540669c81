"""Runs that print and start while a package replaces the version of their daemon."""

import contextlib
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException

from tests.support.daemon import Daemon
from tests.support.waiting import until

UNITS = """\
[tasks.steady]
run = 'n=0; while :; do n=$((n + 1)); echo "line $n"; sleep 0.01; done'
[tasks.short]
run = 'echo "$RINGWARD_RUN_ID"'
max_concurrent = 2
[services.always]
run = "exec sleep 1000"
"""


@contextlib.contextmanager
def load(daemon: Daemon) -> Iterator[None]:
    """Keep the daemon of ``UNITS`` busy during the block; check that no line, no run and no service is lost."""
    steady, shorts, over = daemon.trigger("steady"), list[str](), threading.Event()
    services = [run["id"] for run in until(lambda: daemon.runs("always"), "the service")]
    until(lambda: daemon.texts(steady), "its first line")

    def trigger() -> None:
        while not over.wait(0.2):
            with contextlib.suppress(OSError, HTTPException):  # a release may refuse requests during an upgrade
                answer = daemon.request("POST", "/api/tasks/short/run")
                if answer.status == HTTPStatus.CREATED:
                    shorts.append(answer.json()["id"])

    triggering = threading.Thread(target=trigger)
    triggering.start()
    try:
        yield
        count = len(shorts)
        until(lambda: len(shorts) > count, "a run of the last version")
    finally:
        over.set()
        triggering.join()
    for run in shorts:
        assert daemon.ended(run)["exitCode"] == 0
        assert daemon.texts(run) == [run]
    daemon.request("POST", f"/api/runs/{steady}/stop")
    assert daemon.ended(steady)["endReason"] == "stopped"
    lines = daemon.texts(steady)
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert [run["id"] for run in daemon.runs("always")] == services


def version(daemon: Daemon) -> str:
    """Return the version of the daemon that runs."""
    return str(daemon.get("/api/daemon").json()["version"])
