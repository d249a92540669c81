"""One run, and triggering one."""

from typing import Any

from tests.contract.daemon import Contract
from tests.contract.shapes import check_object
from tests.contract.tables import BOTH, CAMEL, SNAKE, SNAKE_WITH_PARAMS


def test_single_run(daemon: Contract, kinds: list[dict[str, Any]]) -> None:
    """A single run has all fields of both conventions and params, or on request only the fields of one convention."""
    run = next(run for run in kinds if "params" in run)
    record = daemon.ok(f"/api/runs/{run['id']}")
    check_object(record, BOTH)
    assert set(record) == {field.name for field in BOTH}
    check_object(daemon.ok(f"/api/runs/{run['id']}", naming="camel"), CAMEL)
    check_object(daemon.ok(f"/api/runs/{run['id']}", naming="snake"), SNAKE_WITH_PARAMS)


def test_trigger(daemon: Contract) -> None:
    """A trigger without a body gets 201 and the new run in convention B, without params."""
    answer = daemon.request("POST", "/api/tasks/other/run")
    assert (answer.status, answer.headers.get_content_type()) == (201, "application/json")
    run = answer.json()
    check_object(run, SNAKE)
    assert (run["task_name"], run["triggered_by"]) == ("other", "api")
    assert daemon.ended(run["id"])["endReason"] == "succeeded"


def test_trigger_with_parameters(daemon: Contract) -> None:
    """The answer has no parameters, the record has them, and unknown parameters are named."""
    answer = daemon.request("POST", "/api/tasks/bulk/run", {"params": {"of": "me", "empty": ""}})
    assert answer.status == 201
    check_object(answer.json(), SNAKE)
    assert daemon.ended(answer.json()["id"])["params"] == {"of": "me", "empty": ""}
    refused = daemon.request("POST", "/api/tasks/bulk/run", {"params": {"off": "me", "empty": "-x"}})
    assert refused.status == 422
    assert {error["location"] for error in refused.json()["errors"]} == {"body.params.off", "body.params.empty"}


def test_schema_links(daemon: Contract) -> None:
    """The link to its schema in each answer leads to a schema."""
    for path in ("/api/runs", "/api/tasks/kinds/runs", f"/api/runs/{daemon.printed}"):
        link = daemon.ok(path)["$schema"]
        assert daemon.ok(link[link.index("/schemas/") :])["$schema"]
