"""What filters and sorts of the lists mean, and the same filters of the selector, on real rows."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.contract.daemon import Contract
from tests.contract.tables import FILTER, NAMES, OF_RUNS, OF_TASK_RUNS

Runs = list[dict[str, Any]]
FIELDS = NAMES.keys() - {"$schema", "params"}

# Filter of the task's list, of the selector, the value (a text, or made from the runs), and the selected runs.
Case = tuple[str, str, Any, Callable[[dict[str, Any], Any], bool]]
CASES: tuple[Case, ...] = (
    ("createdAfter", "created_after", lambda runs: runs[20]["createdAt"], lambda run, at: run["createdAt"] >= at),
    ("createdBefore", "created_before", lambda runs: runs[20]["createdAt"], lambda run, at: run["createdAt"] <= at),
    ("exitCodeMin", "exit_code_min", 3, lambda run, code: run["exitCode"] >= code),
    ("exitCodeMin", "exit_code_min", -1, lambda run, code: run["exitCode"] >= code),
    ("exitCodeMax", "exit_code_max", -1, lambda run, code: run["exitCode"] <= code),
    ("exitCodeMax", "exit_code_max", 3, lambda run, code: run["exitCode"] <= code),
    ("retriesOnly", "retries_only", True, lambda run, _: run["retryAttempt"] > 0),
    ("retriesOnly", "retries_only", False, lambda _run, _: True),
    ("search", "search", lambda runs: runs[7]["id"], lambda run, text: run["id"] == text),
    ("search", "search", lambda runs: runs[7]["taskName"][1:], lambda _run, _: True),
    ("status", "status", "failed,crashed", lambda run, text: run["endReason"] in text.split(",")),
    ("status", "status", "running", lambda _run, _: False),
    ("taskName", "task_name", lambda runs: runs[0]["taskName"], lambda _run, _: True),
    ("taskName", "task_name", "nothing", lambda _run, _: False),
    ("triggeredBy", "triggered_by", "cloud", lambda run, text: run["triggeredBy"] == text),
    ("triggeredBy", "triggered_by", "startup", lambda run, text: run["triggeredBy"] == text),
)
every = pytest.mark.parametrize("case", CASES, ids=[f"{camel}-{number}" for number, (camel, *_) in enumerate(CASES)])


def made(value: Any, runs: Runs) -> Any:
    return value(runs) if callable(value) else value


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_filter_has_a_case() -> None:
    """Each filter of the tables has a case in these tests."""
    aside = {"limit", "offset", "sortField", "sortDirection"}
    assert {case[0] for case in CASES} == {run.name for run in OF_TASK_RUNS if run.place == "query"} - aside
    assert {case[1] for case in CASES} == {field.name for field in FILTER}


@every
def test_filters_of_a_list(daemon: Contract, kinds: Runs, case: Case) -> None:
    """A task's list has exactly the matching runs, including limits, and their number."""
    name, _, value, matches = case
    value = made(value, kinds)
    body = daemon.ok("/api/tasks/kinds/runs", limit=1000, **{name: text(value)})
    expected = [run for run in kinds if matches(run, value)]
    assert body["items"] == expected
    assert body["total"] == len(expected)


@every
def test_filters_of_the_selector(daemon: Contract, case: Case) -> None:
    """A bulk operation affects exactly the matching runs, including limits."""
    _, name, value, matches = case
    runs = daemon.ok("/api/tasks/bulk/runs", limit=1000)["items"]
    value = made(value, runs)
    selector = {"match_all": True, "filter": {"task_name": "bulk", name: value}}
    expected = {run["id"] for run in runs if matches(run, value)}
    affected = daemon.post("/api/runs/bulk/delete", selector)["affected"]
    earlier_ids = {run["id"] for run in daemon.ok("/api/tasks/bulk/runs", limit=1000)["items"]}
    restored = daemon.post("/api/runs/bulk/restore", selector)["affected"]
    assert {run["id"] for run in runs} - earlier_ids == expected
    assert affected == restored == len(expected)
    assert daemon.ok("/api/tasks/bulk/runs", limit=1000)["items"] == runs


@pytest.mark.parametrize("search", ["KIND", "ind", "kinds"])
def test_filters_of_all_runs(daemon: Contract, kinds: Runs, search: str) -> None:
    """The list of all runs searches and filters by task."""
    ids = [run["id"] for run in kinds]
    assert [run["id"] for run in daemon.ok("/api/runs", limit=1000, search=search)["runs"]] == ids
    assert [run["id"] for run in daemon.ok("/api/runs", limit=1000, task_name="kinds")["runs"]] == ids


def value_of(run: dict[str, Any], field: str) -> Any:
    if field == "duration":
        return instant(run["endedAt"]) - instant(run["startedAt"]) if "startedAt" in run else None
    return run.get(field)


def instant(at: str) -> datetime:
    return datetime.fromisoformat(at)


@pytest.mark.parametrize("direction", ["asc", "desc", ""])
@pytest.mark.parametrize("field", next(run.schema["enum"] for run in OF_TASK_RUNS if run.name == "sortField"))
def test_sorts(daemon: Contract, kinds: Runs, field: str, direction: str) -> None:
    """Every field and direction, in the name of either list; empty is newest first; missing values come last.

    Runs of one phase are sorted by end reason, and each list by the names that it shows.
    """
    items = daemon.ok("/api/tasks/kinds/runs", limit=1000, sortField=field, sortDirection=direction)["items"]
    assert sorted(run["id"] for run in items) == sorted(run["id"] for run in kinds)
    values = [value_of(run, field or "createdAt") for run in items]
    there = [value for value in values if value is not None]
    assert there == sorted(there, reverse=direction != "asc")
    assert values[: len(there)] == there
    snake = field if field == "duration" else NAMES.get(field, "")
    query = {"task_name": "kinds", "limit": 1000, "sort_field": snake, "sort_direction": direction}
    assert daemon.ok("/api/runs", naming="camel", **query)["runs"] == items
    other = daemon.ok("/api/runs", **query)["runs"]
    if field == "status":
        for runs, reason in ((items, "endReason"), (other, "end_reason")):
            order = [(run["status"], run[reason], run["id"]) for run in runs]
            assert order == sorted(order, reverse=direction != "asc")
    else:
        assert [run["id"] for run in other] == [run["id"] for run in items]


def test_sorts_have_one_name_each() -> None:
    """sort_field accepts the values of sortField, in the other naming."""
    camel = next(run.schema["enum"] for run in OF_TASK_RUNS if run.name == "sortField")
    snake = next(run.schema["enum"] for run in OF_RUNS if run.name == "sort_field")
    assert [NAMES.get(name, name) for name in camel] == snake
