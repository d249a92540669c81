"""The run record in both namings."""

from typing import Any

import pytest

from tests.contract.daemon import Contract
from tests.contract.shapes import check_object
from tests.contract.tables import BOTH, CAMEL, NAMES, SNAKE, Field

OPTIONAL = {field.name for field in CAMEL if not field.required} - {"$schema"}


def test_record_in_camel(kinds: list[dict[str, Any]]) -> None:
    """A task's runs have every field of convention A with its type, and optional ones only on some runs."""
    for run in kinds:
        check_object(run, CAMEL)
    for name in OPTIONAL - {"endReason"}:
        assert len({name in run for run in kinds}) == 2, name


def test_record_in_snake(daemon: Contract) -> None:
    """All runs have convention B, without params."""
    runs = daemon.ok("/api/runs", task_name="kinds", limit=1000)["runs"]
    for run in runs:
        check_object(run, SNAKE)
    for name in {NAMES[camel] for camel in OPTIONAL} - {"params", "end_reason"}:
        assert len({name in run for run in runs}) == 2, name


@pytest.mark.parametrize("one", [one for one in CAMEL if one.name not in ("$schema", "endReason", "triggeredBy")])
def test_conventions_agree(daemon: Contract, kinds: list[dict[str, Any]], one: Field) -> None:
    """Fields without an enumeration of their own differ only in name."""
    for run in kinds[:2]:
        record = daemon.ok(f"/api/runs/{run['id']}")
        check_object(record, BOTH)
        snake = NAMES[one.name]
        assert record.get(one.name) == record.get(snake) == run.get(one.name)


def test_reason_only_after_the_end(daemon: Contract, kinds: list[dict[str, Any]]) -> None:
    """An ended run has a reason; a pending or running one has none."""
    assert all("endReason" in run for run in kinds)
    for run_id, status in ((daemon.running, "running"), (daemon.pending, "pending")):
        run = daemon.run(run_id)
        check_object(run, CAMEL)
        assert run["status"] == status
        assert not {"endReason", "endedAt"} & set(run)


def test_retry_names_its_run(kinds: list[dict[str, Any]]) -> None:
    """A retry has a retryAttempt above 0 and a retryOfRunId."""
    assert {run["retryAttempt"] > 0 for run in kinds} == {True, False}
    assert all((run["retryAttempt"] > 0) == ("retryOfRunId" in run) for run in kinds)


def test_real_retry(daemon: Contract) -> None:
    """The daemon's own retry has the next attempt and names the failed run."""
    first, second = daemon.runs("fails")
    assert (first["id"], first["retryAttempt"], first["exitCode"]) == (daemon.failed, 0, 3)
    assert (second["retryOfRunId"], second["retryAttempt"]) == (daemon.failed, 1)


def test_params_are_texts(kinds: list[dict[str, Any]]) -> None:
    """Params is an object of strings."""
    assert next(run["params"] for run in kinds if "params" in run) == {"of": "kinds", "empty": ""}
