"""Another host takes over after a dead one: a new data directory on the same PostgreSQL database."""

import socket
from datetime import datetime
from pathlib import Path

from tests.e2e.history.test_postgres import OnPostgres, on_postgres
from tests.support.daemon import Daemon
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

TASKS = """
[tasks.second]
cron = "* * * * * *"
catch_up = 1000
on_overlap = "queue"
queue_max = 1000
coalesce = false
run = "echo second"
[tasks.long]
run = "echo begun; exec sleep 600"
[tasks.hello]
run = "echo hello"
[tasks.quiet]
run = "true"
[services.web]
run = "echo up; exec sleep 600"
"""


def scheduled(daemon: Daemon) -> list[int]:
    """Return the scheduled times of the runs of `second`, in s since the epoch."""
    details = [daemon.get(f"/api/runs/{run['id']}/details").json() for run in daemon.runs("second")]
    return sorted(round(datetime.fromisoformat(run["scheduledFor"]).timestamp()) for run in details)


def test_take_over(tmp_path: Path, postgres: PostgresServer) -> None:
    """After the host died, each instant has one run, open runs crashed, services run, and old logs name the host."""
    alpha, beta = tmp_path / "alpha", tmp_path / "beta"
    alpha.mkdir()
    beta.mkdir()
    with on_postgres(alpha, postgres) as first:
        first.begin(TASKS)
        done, quiet = first.ended(first.trigger("hello")), first.ended(first.trigger("quiet"))
        long = first.trigger("long")
        until(lambda: first.texts(long), "its first line")
        web = first.runs("web")[0]["id"]
        until(lambda: len(scheduled(first)) > 2, "scheduled runs")
        first.clean()  # the host is dead: none of its processes is left
        second = OnPostgres(beta)
        second.url = first.url
        try:
            second.begin(TASKS)
            times = scheduled(second)
            until(lambda: len(scheduled(second)) > len(times) + 2, "more scheduled runs")
            times = scheduled(second)
            assert times == list(range(times[0], times[-1] + 1))
            for run in (long, web):
                assert second.run(run)["endReason"] == "crashed"
            until(lambda: any(run["status"] == "running" for run in second.runs("web")), "the service")
            assert second.run(done["id"]) == done
            for run in (done["id"], long):
                for path in ("log", "log/raw", "log/stream"):
                    answer = second.get(f"/api/runs/{run}/{path}")
                    assert answer.status == 503, path
                    assert f"is on {socket.gethostname()}, the host from which" in answer.json()["detail"]
            assert second.get(f"/api/runs/{quiet['id']}/log").json()["totalLines"] == 0
            assert second.texts(second.ended(second.trigger("hello"))["id"]) == ["hello"]
            assert f"another daemon, on {socket.gethostname()}, used this database before" in second.output.read_text()
        finally:
            second.clean()
