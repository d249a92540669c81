"""Time of instances in each state, by UTC day."""

from store import metrics
from store.database import Database
from store.metrics import MetricSample
from store.runs.daily_outcomes import DAY_MS
from store.runs.writes import insert_run
from store.service_uptime import (
    KEPT_CHANGES,
    StateChange,
    StateTime,
    changes,
    close_earlier,
    prune,
    restarts_since,
    state_times,
)
from store.tasks import StoredInstance, drop_instances, instances, set_instance
from tests.store.making import make_run

DAY = 20_000
T0 = DAY * DAY_MS


def became(db: Database, state: str, at: int, index: int = 0, run_id: str | None = None) -> None:
    set_instance(db, StoredInstance("web", index, state, run_id, at, 0))


def test_time_by_day(writer: Database) -> None:
    """An ended state counts for each UTC day that it touches; changes of details count nothing."""
    became(writer, "running", T0 - 1000, run_id="r1")
    set_instance(writer, StoredInstance("web", 0, "running", "r1", T0 - 1000, 0, True, "serving"))
    became(writer, "backoff", T0 + 2 * DAY_MS + 500)
    became(writer, "running", T0 + 2 * DAY_MS + 700, run_id="r2")
    became(writer, "running", T0, index=1)
    assert state_times(writer, "web", DAY) == [
        StateTime(DAY, 0, "running", DAY_MS),
        StateTime(DAY + 1, 0, "running", DAY_MS),
        StateTime(DAY + 2, 0, "backoff", 200),
        StateTime(DAY + 2, 0, "running", 500),
    ]
    assert state_times(writer, "web", DAY - 1)[0] == StateTime(DAY - 1, 0, "running", 1000)
    assert changes(writer, "web") == [
        StateChange(0, T0 + 2 * DAY_MS + 700, "running", "r2"),
        StateChange(0, T0 + 2 * DAY_MS + 500, "backoff", None),
        StateChange(0, T0 - 1000, "running", "r1"),
        StateChange(1, T0, "running", None),
    ]
    drop_instances(writer, "web")
    assert len(state_times(writer, "web", DAY)) == 4


def test_clock_set_back(writer: Database) -> None:
    """A state that ends before it begins counts nothing."""
    became(writer, "running", T0)
    became(writer, "fatal", T0 - 5)
    assert state_times(writer, "web", 0) == []


def test_newest_changes(writer: Database) -> None:
    """Each instance keeps only its newest changes; the times of older ones stay counted."""
    for at in range(KEPT_CHANGES + 7):
        became(writer, ("running", "backoff")[at % 2], T0 + at)
    all_changes = changes(writer, "web")
    assert len(all_changes) == KEPT_CHANGES
    assert all_changes[0].at == T0 + KEPT_CHANGES + 6
    assert sum(state_time.ms for state_time in state_times(writer, "web", DAY)) == KEPT_CHANGES + 6


def test_states_of_an_earlier_daemon(writer: Database) -> None:
    """A new daemon counts the states of an earlier one up to its last sample; states of surviving runs continue."""
    became(writer, "running", T0)
    set_instance(writer, StoredInstance("kept", 0, "running", "r", T0, 0))
    metrics.add(writer, MetricSample(T0 + 50_000))
    now = T0 + 90_000
    close_earlier(writer, now, {"kept"})
    close_earlier(writer, now, {"kept"})
    assert state_times(writer, "web", DAY) == [StateTime(DAY, 0, "running", 50_000)]
    assert state_times(writer, "kept", DAY) == []
    assert [(instance.state, instance.since) for instance in instances(writer)] == [("running", T0), ("stopped", now)]


def test_restarts(writer: Database) -> None:
    """Restarts are runs of a service that were started again, including running ones."""
    ended = {"status": "ended", "end_reason": "failed"}
    for trigger, at, more in (("startup", 5, ended), ("service", 3, ended), ("service", 6, ended), ("service", 7, {})):
        insert_run(writer, make_run(task_name="web", kind="service", triggered_by=trigger, created_at=T0 + at, **more))
    assert restarts_since(writer, "web", T0 + 4) == 2


def test_old_days_are_pruned(writer: Database) -> None:
    """Days and the changes of removed services are pruned after more than a year."""
    became(writer, "running", T0)
    became(writer, "fatal", T0 + 9)
    prune(writer, T0 + 399 * DAY_MS)
    assert len(state_times(writer, "web", 0)) == 1
    prune(writer, T0 + 401 * DAY_MS)
    assert state_times(writer, "web", 0) == []
    assert changes(writer, "web") == []
