"""``/metrics``."""

import json
from pathlib import Path
from typing import Any

from api.resources.prometheus import MetricsText
from store.notifications import Notification, notify
from store.tasks import StoredInstance, set_instance, update_task, upsert_task
from tests.api.support.exposition import Family, parse
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms


def scraped(daemon: Daemon) -> dict[str, Family]:
    answer = daemon.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.body.decode())


def value(families: dict[str, Family], family: str, suffix: str = "", **labels: str) -> float | None:
    return families[family].samples.get((family + suffix, frozenset(labels.items())))


def test_escaping() -> None:
    """A label or a help text may contain any characters."""
    text = MetricsText()
    text.family("a_total", "counter", "with \\ and\nbreak")
    odd = 'quote " backslash \\ break \n umlaut ü'
    text.sample(3, name=odd)
    text.sample(0.5)
    assert parse(text.encode().decode())["a_total"].samples == {
        ("a_total", frozenset({("name", odd)})): 3,
        ("a_total", frozenset()): 0.5,
    }


def test_metrics(own: Daemon) -> None:
    """Metrics cover runs by task and reason, durations, active runs, schedules, services, logs and processes."""
    now = now_ms()
    with own.lock:
        upsert_task(own.db, "job", "task", "{}")
        upsert_task(own.db, "web", "service", "{}")
        update_task(own.db, "job", next_run_at=now + 60_000)
        set_instance(own.db, StoredInstance("web", 0, "running", None, now, 0))
        set_instance(own.db, StoredInstance("web", 1, "fatal", None, now, 4))
        draft = Notification("0" * 26, "run.failed", "error", "t", "b", "job", None, 1, now, now)
        notify(own.db, draft, window_ms=1, keep=9)
    for reason, ran_ms in (("succeeded", 1500), ("succeeded", 500), ("failed", 250)):
        start = now - ran_ms
        run = own.insert(make_run(task="job", created_at=start - 500 - ran_ms // 2))
        own.end(run.id, reason, started_at=start, ended_at=now, user_us=500_000, read_bytes=7)
    own.insert(make_run(task="job", status="ended", end_reason="skipped", ended_at=now))
    own.insert(make_run(task="job"))
    running = own.insert(make_run(task="job", status="running", started_at=now))
    own.insert(make_run(task="gone", status="running", started_at=now))
    log = own.log_of(running)
    log.write(b"a line\n")
    metrics = scraped(own)
    assert value(metrics, "ringward_runs_total", task="job", reason="succeeded") == 2
    assert value(metrics, "ringward_runs_total", task="job", reason="failed") == 1
    assert value(metrics, "ringward_runs_total", task="job", reason="skipped") == 1
    for family, total, within in (
        ("ringward_run_duration_seconds", 2.25, {"0.1": 0, "1.0": 2, "10.0": 3, "86400.0": 3, "+Inf": 3}),
        ("ringward_run_start_delay_seconds", 2.625, {"0.1": 0, "1.0": 2, "10.0": 3, "3600.0": 3, "+Inf": 3}),
    ):
        assert value(metrics, family, "_sum", task="job") == total
        assert value(metrics, family, "_count", task="job") == 3
        assert {le: value(metrics, family, "_bucket", task="job", le=le) for le in within} == within
    assert value(metrics, "ringward_task_cpu_seconds_total", task="job", mode="user") == 1.5
    assert value(metrics, "ringward_task_cpu_seconds_total", task="job", mode="system") == 0.0
    assert value(metrics, "ringward_task_read_bytes_total", task="job") == 21
    assert value(metrics, "ringward_task_write_bytes_total", task="job") is None, "nobody counted"
    assert value(metrics, "ringward_runs_running", task="job") == 1
    assert value(metrics, "ringward_runs_pending", task="job") == 1
    assert value(metrics, "ringward_task_next_run_timestamp_seconds", task="job") == (now + 60_000) / 1000
    age = value(metrics, "ringward_task_last_success_age_seconds", task="job")
    assert age is not None
    assert age >= 0
    assert value(metrics, "ringward_service_instances", service="web", state="fatal") == 1
    assert value(metrics, "ringward_service_instances", service="web", state="backoff") == 0
    assert value(metrics, "ringward_service_flapping", service="web") == 0
    assert value(metrics, "ringward_notifications_unread") == 1
    assert value(metrics, "ringward_rings") == 2, "the run's and that of events"
    assert (value(metrics, "ringward_ring_bytes") or 0) > 0
    assert value(metrics, "ringward_log_dropped_lines", task="job") == 0
    assert value(metrics, "ringward_scheduler_up") == 1
    assert value(metrics, "ringward_sse_clients") == 0
    assert value(metrics, "ringward_loop_lag_seconds", process="worker") is not None
    assert (value(metrics, "ringward_process_resident_memory_bytes", process="worker") or 0) > 0
    log.finish()


def test_labels_are_bounded(own: Daemon) -> None:
    """Labels name only configured tasks and never a run; totals survive runs."""
    with own.lock:
        upsert_task(own.db, "job", "task", "{}")
    run = own.insert(make_run(task="job"))
    own.end(run.id)
    own.end(own.insert(make_run(task="gone")).id)
    own.insert(make_run(task="gone", status="running", started_at=now_ms()))
    with own.lock:
        own.db.execute("DELETE FROM runs")
    metrics = scraped(own)
    assert value(metrics, "ringward_runs_total", task="job", reason="succeeded") == 1
    text = json.dumps([list(key[1]) for family in metrics.values() for key in family.samples])
    assert "gone" not in text
    assert run.id not in text


def test_without_a_scheduler(own: Daemon) -> None:
    """Without a scheduler, metrics are still served and say so."""
    own.scheduler.stop()
    try:
        assert value(scraped(own), "ringward_scheduler_up") == 0
    finally:
        own.scheduler.start()


def test_slots(own: Daemon) -> None:
    """Each slot has its size and use; a scheduler that does not know slots costs no other metric."""
    db = {"name": "db", "size": 2, "used": 1, "waiting": 0, "held_by": [], "next_runs": []}
    own.scheduler.operations["slots"] = lambda _args: {"slots": [db], "max_running": {"limit": None, "running": 1}}
    metrics = scraped(own)
    assert [value(metrics, f"ringward_slot_{name}", slot="db") for name in ("size", "used", "waiting")] == [2, 1, 0]
    own.scheduler.operations["slots"] = refuse
    metrics = scraped(own)
    assert value(metrics, "ringward_scheduler_up") == 1
    assert value(metrics, "ringward_slot_size", slot="db") is None


def refuse(_args: dict[str, Any]) -> dict[str, Any]:
    raise Refusal(400, "unknown operation slots")


def test_ring_removed_while_listing(own: Daemon) -> None:
    """A run that ends between listing and reading its ring is left out, without harm to other metrics."""
    before = value(scraped(own), "ringward_rings")
    Path(own.settings.runtime_dir, "gone.ring").symlink_to("nowhere")  # a name, and nothing behind it
    assert value(scraped(own), "ringward_rings") == before


def test_required_role(daemon: Daemon, tmp_path: Path) -> None:
    """Authenticated clients see the metrics; with metrics = "open" everybody does."""
    assert daemon.get("/metrics", unix=False).status == 401
    opened = Daemon(tmp_path, metrics_open=True)
    try:
        assert opened.get("/metrics", unix=False).status == 200
        assert opened.get("/api/tasks", unix=False).status == 401
    finally:
        opened.close()
