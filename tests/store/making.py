"""Runs for tests."""

from typing import Any

from store.ids import new_ulid
from store.runs import Run

T0 = 1_780_000_000_000  # ms since the epoch


def make_run(**fields: Any) -> Run:
    """A pending first attempt of task "a", or what the fields say."""
    base: dict[str, Any] = {
        "id": new_ulid(),
        "task_name": "a",
        "kind": "task",
        "status": "pending",
        "end_reason": None,
        "exit_code": -1,
        "instance_index": 0,
        "retry_attempt": 0,
        "retry_of_run_id": None,
        "triggered_by": "cron",
        "created_at": T0,
    }
    return Run(**(base | fields))
