"""Enumerations: which values come where."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.daemon import Contract
from tests.contract.tables import PHASES, REASONS, REASONS_IN_SNAKE, TRIGGERS, TRIGGERS_IN_SNAKE


def test_reasons_and_triggers_in_camel(kinds: list[dict[str, Any]]) -> None:
    """All twelve reasons and five triggers appear unchanged."""
    assert {(run["endReason"], run["triggeredBy"]) for run in kinds} == {
        (reason, trigger) for reason in REASONS for trigger in TRIGGERS
    }


def test_reasons_and_triggers_in_snake(daemon: Contract) -> None:
    """The list of all runs has exactly the ten reasons and three triggers of convention B."""
    runs = daemon.ok("/api/runs", task_name="kinds", limit=1000)["runs"]
    assert {run["end_reason"] for run in runs} == set(REASONS_IN_SNAKE)
    assert {run["triggered_by"] for run in runs} == set(TRIGGERS_IN_SNAKE)


def test_phases(daemon: Contract) -> None:
    """The phases are pending, running and ended."""
    assert {run["status"] for run in daemon.ok("/api/runs", limit=1000)["runs"]} == set(PHASES)


def test_one_run_has_both(daemon: Contract, kinds: list[dict[str, Any]]) -> None:
    """A single run has the value of each list under the name of its convention."""
    for run in kinds:
        record = daemon.ok(f"/api/runs/{run['id']}")
        assert (record["endReason"], record["triggeredBy"]) == (run["endReason"], run["triggeredBy"])
        assert record["end_reason"] in REASONS_IN_SNAKE
        assert record["triggered_by"] in TRIGGERS_IN_SNAKE


@pytest.mark.parametrize("value", [*PHASES, *REASONS])
def test_status_in_camel(daemon: Contract, kinds: list[dict[str, Any]], value: str) -> None:
    """Status of a task's runs accepts every phase and reason of convention A, and lists the matching runs."""
    items = daemon.ok("/api/tasks/kinds/runs", status=value, limit=1000)["items"]
    assert items == [run for run in kinds if value in (run["status"], run["endReason"])]


@pytest.mark.parametrize("value", [*PHASES, *REASONS_IN_SNAKE])
def test_status_in_snake(daemon: Contract, value: str) -> None:
    """Status of all runs accepts every phase and reason of convention B, and lists the matching runs."""
    every = daemon.ok("/api/runs", limit=1000)["runs"]
    runs = daemon.ok("/api/runs", status=value, limit=1000)["runs"]
    assert runs == [run for run in every if value in (run["status"], run.get("end_reason"))]
    assert runs


@pytest.mark.parametrize("value", TRIGGERS)
def test_trigger(daemon: Contract, kinds: list[dict[str, Any]], value: str) -> None:
    """The filter triggeredBy accepts each of the five triggers."""
    items = daemon.ok("/api/tasks/kinds/runs", triggeredBy=value, limit=1000)["items"]
    assert items == [run for run in kinds if run["triggeredBy"] == value]
    assert items


@pytest.mark.parametrize(
    ("status", "matches"),
    [
        ("failed,timeout", lambda run: run["endReason"] in ("failed", "timeout")),
        ("running,missed", lambda run: run["endReason"] == "missed"),
        ("pending,ended", lambda _run: True),
        ("", lambda _run: True),
    ],
)
def test_several_statuses(
    daemon: Contract, kinds: list[dict[str, Any]], status: str, matches: Callable[[dict[str, Any]], bool]
) -> None:
    """Comma-separated phases and reasons select runs that match any of them."""
    items = daemon.ok("/api/tasks/kinds/runs", status=status, limit=1000)["items"]
    assert items == [run for run in kinds if matches(run)]
