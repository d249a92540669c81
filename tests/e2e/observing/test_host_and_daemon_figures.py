"""Reports of the daemon about the host, itself, and failures, through the real daemon."""

import os
from typing import Any

import pytest

from logring.layout import KIND_PACKED, Static
from supervisor.host.cgroups import Cgroups
from tests.api.support.exposition import Family, parse
from tests.support.daemon import Daemon
from tests.support.waiting import until

NUMBERS = "".join(f"{number}\n" for number in range(1, 300_001)).encode()


def samples(daemon: Daemon) -> list[dict[str, Any]]:
    answer = daemon.get("/api/system/metrics")
    assert answer.status == 200, answer.body
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def notifications(daemon: Daemon, task: str) -> list[dict[str, Any]]:
    """Return the notifications about a task, newest first."""
    return [item for item in daemon.get("/api/notifications").json()["items"] if item.get("taskName") == task]


def test_host_samples_survive_a_restart(daemon: Daemon) -> None:
    """The host is sampled every five seconds, streamed live as events, and the samples survive a restart."""
    daemon.write('[services.s]\nrun = "exec sleep 1000"\n')
    daemon.start()
    stream = daemon.stream("/api/events/stream?types=system")
    event = next(iter(stream))
    stream.close()
    assert (event.kind, event.id) == ("system", None)
    samples_found = until(
        lambda: [sample for sample in samples(daemon) if sample["runningRuns"] == 1], "a sample with the service"
    )
    assert samples_found[0]["memoryUsedBytes"] > 0
    assert samples_found[0]["diskUsedBytes"] > 0
    assert daemon.stop() == 0
    daemon.start()
    assert samples_found[0] in samples(daemon)


def test_daemon_lists_its_own_processes(daemon: Daemon) -> None:
    """Root, scheduler, zygote, pre-forked child, API server and worker are listed once each, with pid and usage."""
    daemon.write('[services.s]\nrun = "exec sleep 1000"\n')
    daemon.start()
    helpers = {"scheduler", "gunicorn"}
    if Cgroups.find() is not None:
        helpers |= {"spawner", "spare"}  # created for the first run, which does not wait for them

    def listed() -> list[dict[str, Any]]:
        processes = [
            process for process in daemon.get("/api/system").json().get("processes", []) if process["name"] != "janitor"
        ]
        # A spare may become a run meanwhile, and a new process has the title of its parent at first.
        pids = {name: daemon.helper(f"ringward {name}").pid for name in helpers}
        once = sorted(process["name"] for process in processes) == sorted({"supervisor", "worker", *helpers})
        return processes if once and all(pids.get(one["name"], one["pid"]) == one["pid"] for one in processes) else []

    processes = until(listed, "each process once in the list")
    by_name = {process["name"]: process for process in processes}
    assert by_name["supervisor"]["pid"] == daemon.pid
    assert all(process["pssBytes"] > 0 for process in by_name.values())
    assert by_name["supervisor"]["cpuMs"] > 0


@pytest.mark.lent
def test_failure_is_notified(daemon: Daemon) -> None:
    """The last failed attempt creates a notification, which can be marked as read; another failure raises its count."""
    daemon.write('[tasks.fails-twice]\nrun = "exit 3"\nretry_attempts = 1\nretry_delay = "1ms"\n')
    daemon.start()
    assert daemon.request("POST", "/api/notifications/read").status == 204
    stream = daemon.stream("/api/notifications/stream")
    events = iter(stream)
    daemon.trigger("fails-twice")
    created, counted = next(events), next(events)
    assert (created.kind, created.data["notification"]["taskName"]) == ("notification.created", "fails-twice")
    assert (counted.kind, counted.data["count"]) == ("notification.unreadCountChanged", 1)
    (notification,) = notifications(daemon, "fails-twice")
    assert notification == created.data["notification"]
    assert (notification["kind"], notification["severity"], notification["count"]) == ("run.failed", "error", 1)
    assert daemon.run(notification["runId"])["retryAttempt"] == 1
    daemon.trigger("fails-twice")
    assert next(events).kind == "notification.updated"
    assert notifications(daemon, "fails-twice")[0]["count"] == 2
    path = f"/api/notifications/{notification['id']}"
    assert daemon.request("POST", f"{path}/read").status == 204
    assert daemon.get("/api/notifications/unreadCount").json()["count"] == 0
    assert "readAt" in notifications(daemon, "fails-twice")[0]
    assert daemon.request("POST", f"{path}/unread").status == 204
    assert daemon.request("POST", "/api/notifications/read").status == 204
    assert daemon.get("/api/notifications/unreadCount").json()["count"] == 0
    assert daemon.request("POST", f"/api/notifications/{'0' * 26}/read").status == 404
    stream.close()


@pytest.mark.lent
def test_fatal_service_is_notified_once(daemon: Daemon) -> None:
    """A fatal service is notified once, even if the scheduler is restarted and finds it fatal."""
    daemon.write('[services.given-up]\nrun = "exit 1"\nrestart_delay = "1ms"\nrestart_attempts = 1\n')
    daemon.start()
    (notification,) = until(lambda: notifications(daemon, "given-up"), "the notification")
    assert (notification["kind"], notification["count"]) == ("service.fatal", 1)
    daemon.kill_helper("ringward scheduler")
    assert notifications(daemon, "given-up") == [notification]


def test_metrics_are_well_formed(daemon: Daemon) -> None:
    """Metrics describe the runs, are well formed, and are public if the configuration says so."""
    daemon.write(
        '[tasks.t]\nrun = "true"\ncron = "0 3 1 1 *"\n[services.s]\nrun = "exec sleep 1000"\n', http='metrics = "open"'
    )
    daemon.start()
    daemon.ended(daemon.trigger("t"))

    def metrics_of_runs() -> dict[str, Family] | None:
        """Return the metrics if the scheduler has answered within a second."""
        answer = daemon.request("GET", "/metrics", headers={"Forwarded": "for=somebody"})
        assert answer.status == 200
        parsed = parse(answer.body.decode())
        up = parsed["ringward_scheduler_up"].samples
        return parsed if up["ringward_scheduler_up", frozenset()] == 1 else None

    metrics = until(metrics_of_runs, "the scheduler to be up")
    runs = metrics["ringward_runs_total"].samples
    assert runs["ringward_runs_total", frozenset({("task", "t"), ("reason", "succeeded")})] == 1
    assert ("ringward_task_next_run_timestamp_seconds", frozenset({("task", "t")})) in metrics[
        "ringward_task_next_run_timestamp_seconds"
    ].samples
    assert daemon.request("GET", "/api/tasks", headers={"Forwarded": "for=somebody"}).status == 401


@pytest.mark.lent
def test_task_shows_next_instants_and_todays_outcomes(daemon: Daemon) -> None:
    """A task shows its next instants, and the outcomes of its runs today."""
    daemon.write('[tasks.nightly]\nrun = "true"\ncron = "30 2 1 * *"\ntimezone = "Europe/Prague"\n')
    daemon.start()
    daemon.ended(daemon.trigger("nightly"))
    instants = daemon.get("/api/tasks/nightly/schedule?count=400").json()
    assert instants["errors"][0]["location"] == "query.count"
    items = daemon.get("/api/tasks/nightly/schedule?count=100").json()["items"]
    assert len(items) == 100
    assert items[0]["at"] == daemon.task("nightly")["nextRunAt"]
    (day,) = daemon.get("/api/tasks/nightly/days").json()["items"]
    assert (day["total"], day["counts"]) == (1, {"succeeded": 1})


def test_ranges_of_a_compressed_log(daemon: Daemon) -> None:
    """A range of an ended run's log is the same before and after compression."""
    daemon.write('[tasks.t]\nrun = "seq 300000"\n[tasks.tiny]\nrun = "echo hello"\n[storage]\ncompress_after = "0s"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    daemon.ended(run_id)
    path = daemon.log_file(run_id)
    tags = set()
    for _ in range(2):
        for start, end in ((0, 9), (1_500_000, 1_800_000), (len(NUMBERS) - 5, len(NUMBERS) - 1)):
            headers = {"Range": f"bytes={start}-{end}"}
            answer = daemon.request("GET", f"/api/runs/{run_id}/log/raw", headers=headers)
            assert answer.status == 206
            assert answer.body == NUMBERS[start : end + 1]
            assert answer.headers["Content-Range"] == f"bytes {start}-{end}/{len(NUMBERS)}"
            tags.add(answer.headers["ETag"])
        daemon.ended(daemon.trigger("tiny"))
        # A janitor that ran before the log was complete pauses for a minute.
        until(lambda: Static.parse(path.read_bytes()[:4096], "log").kind == KIND_PACKED, "the log to be compressed", 90)
    assert len(tags) == 1


def test_changed_configuration_file_is_reported(daemon: Daemon) -> None:
    """The daemon reports any configuration file that has changed since it was loaded."""
    included = daemon.directory / "more.toml"
    included.write_text('[tasks.t]\nrun = "true"\n')
    included.chmod(0o600)
    daemon.write("", daemon='include = ["more.toml"]')
    daemon.start()
    assert daemon.get("/api/daemon").json()["configStale"] is False
    later = included.stat().st_mtime + 3600
    os.utime(included, (later, later))
    until(lambda: daemon.get("/api/daemon").json()["configStale"], "it to be seen")
