"""The interface's own description."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from api.openapi import document
from tests.api.harness import Daemon

# From the interface that was asked for: what of it exists now, with its path parameters' names.
OPERATIONS = {
    ("GET", "/api/tasks"),
    ("GET", "/api/tasks/{taskName}"),
    ("POST", "/api/tasks/{taskName}/run"),
    ("GET", "/api/tasks/{taskName}/runs"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/{runId}"),
    ("DELETE", "/api/runs/{runId}"),
    ("POST", "/api/runs/bulk/delete"),
    ("POST", "/api/runs/bulk/rerun"),
    ("POST", "/api/runs/bulk/restore"),
    ("POST", "/api/runs/bulk/stop"),
    ("GET", "/api/runs/summary"),
    ("POST", "/api/runs/{runId}/stop"),
    ("GET", "/api/runs/{runId}/log"),
    ("GET", "/api/runs/{runId}/log/raw"),
    ("GET", "/api/runs/{runId}/log/stream"),
    ("GET", "/api/daemon"),
    ("GET", "/api/daemon/log/stream"),
    ("GET", "/api/events/stream"),
    ("GET", "/api/local/credentials"),
}
TASK_RUNS = {
    "limit": {"type": "integer", "format": "int64", "default": 50, "minimum": 1, "maximum": 1000},
    "offset": {"type": "integer", "format": "int64", "default": 0},
    "status": {"type": "string"},
    "taskName": {"type": "string"},
    "triggeredBy": {"type": "string", "enum": ["cron", "api", "cloud", "service", "startup", ""]},
    "createdAfter": {"type": "string", "format": "date-time"},
    "createdBefore": {"type": "string", "format": "date-time"},
    "exitCodeMin": {"type": "string", "pattern": "^-?[0-9]+$"},
    "exitCodeMax": {"type": "string", "pattern": "^-?[0-9]+$"},
    "retriesOnly": {"type": "boolean"},
    "sortField": {
        "type": "string",
        "enum": ["taskName", "status", "startedAt", "exitCode", "duration", "createdAt", ""],
    },
    "sortDirection": {"type": "string", "enum": ["asc", "desc", ""]},
    "search": {"type": "string"},
}
RUNS = {
    "limit": {"type": "integer", "format": "int64", "default": 50, "minimum": 1, "maximum": 1000},
    "offset": {"type": "integer", "format": "int64", "default": 0},
    "status": {"type": "string"},
    "task_name": {"type": "string"},
    "sort_field": {
        "type": "string",
        "enum": ["task_name", "status", "start_at", "exit_code", "duration", "created_at", ""],
    },
    "sort_direction": {"type": "string", "enum": ["asc", "desc", ""]},
    "search": {"type": "string"},
}
LOG_STREAM = {
    "from": {"type": "integer", "format": "int64", "default": -1000},
    "replayLimit": {"type": "integer", "format": "int64", "default": 5000, "minimum": 1, "maximum": 50000},
}
RUN_FIELDS = {
    # camel, snake, type, required
    ("id", "id", "string", True),
    ("taskName", "task_name", "string", True),
    ("status", "status", "string", True),
    ("endReason", "end_reason", "string", False),
    ("exitCode", "exit_code", "integer", True),
    ("instanceIndex", "instance_index", "integer", True),
    ("retryAttempt", "retry_attempt", "integer", True),
    ("retryOfRunId", "retry_of_run_id", "string", False),
    ("triggeredBy", "triggered_by", "string", True),
    ("createdAt", "created_at", "string", True),
    ("startedAt", "start_at", "string", False),
    ("endedAt", "end_at", "string", False),
    ("executionId", "external_execution_id", "string", False),
}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return document()


def parameters(described: dict[str, Any], method: str, path: str, place: str) -> dict[str, Any]:
    found = described["paths"][path][method].get("parameters", [])
    return {one["name"]: one["schema"] for one in found if one["in"] == place}


def test_version(described: dict[str, Any]) -> None:
    """OpenAPI 3.1.0, label dev, paths without a version."""
    assert described["openapi"] == "3.1.0"
    assert described["info"]["version"] == "dev"
    assert not any(re.search(r"/v\d", path) for path in described["paths"])


def test_operations(described: dict[str, Any]) -> None:
    """Every operation is there under its documented path, path parameters by their documented names."""
    present = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert present >= OPERATIONS


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/tasks/{taskName}/runs", TASK_RUNS),
        ("/api/runs", RUNS),
        ("/api/runs/{runId}/log/stream", LOG_STREAM),
    ],
)
def test_query_parameters(described: dict[str, Any], path: str, expected: dict[str, Any]) -> None:
    """Names, types, defaults, bounds, patterns and enumerations as documented; none of them required."""
    found = parameters(described, "get", path, "query")
    for name, schema in expected.items():
        assert found[name].items() >= schema.items(), name
    assert not any(one.get("required") for one in described["paths"][path]["get"]["parameters"] if one["in"] == "query")


def test_empty_parameters(described: dict[str, Any]) -> None:
    """An empty parameter is an absent one, so it is allowed wherever an absent one is, and nowhere else."""
    for methods in described["paths"].values():
        for operation in methods.values():
            for one in operation.get("parameters", []):
                if one["in"] == "query":
                    assert one.get("allowEmptyValue", False) is not one.get("required", False)


def test_path_parameters(described: dict[str, Any]) -> None:
    """taskName: 1 to 100 characters of its pattern; runId: 26 characters of the ULID alphabet."""
    task = parameters(described, "get", "/api/tasks/{taskName}/runs", "path")["taskName"]
    assert task == {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[a-zA-Z0-9._:-]+$"}
    run = parameters(described, "get", "/api/runs/{runId}/log/stream", "path")["runId"]
    assert run == {"type": "string", "minLength": 26, "maxLength": 26, "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"}


def test_last_event_id(described: dict[str, Any]) -> None:
    """The run's stream takes the header Last-Event-ID."""
    assert "Last-Event-ID" in parameters(described, "get", "/api/runs/{runId}/log/stream", "header")


def test_run_fields(described: dict[str, Any]) -> None:
    """Both conventions have exactly the documented fields, types and requirements; the union has all of both."""
    schemas = described["components"]["schemas"]
    for index, name in ((0, "RunCamel"), (1, "RunSnakeWithParams")):
        schema = schemas[name]
        assert set(schema["properties"]) == {field[index] for field in RUN_FIELDS} | {"$schema", "params"}
        assert set(schema["required"]) == {field[index] for field in RUN_FIELDS if field[3]}
        for field in RUN_FIELDS:
            assert schema["properties"][field[index]]["type"] == field[2]
            if field[2] == "integer":
                assert schema["properties"][field[index]]["format"] == "int64"
        for place in ("createdAt", "startedAt", "endedAt") if index == 0 else ("created_at", "start_at", "end_at"):
            assert schema["properties"][place]["format"] == "date-time"
        assert schema["properties"]["params"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert "params" not in schemas["RunSnake"]["properties"]
    assert set(schemas["Run"]["properties"]) == {name for field in RUN_FIELDS for name in field[:2]} | {
        "$schema",
        "params",
    }


def test_enumerations(described: dict[str, Any]) -> None:
    """End reasons and triggers of A and of B as documented."""
    schemas = described["components"]["schemas"]
    camel, snake = schemas["RunCamel"]["properties"], schemas["RunSnake"]["properties"]
    exact = (
        "succeeded failed stopped timeout crashed skipped log_overflow queue_full dst_skipped daemon_stopped missed"
        " start_failed"
    )
    folded = "success failed stopped timeout crashed skipped log_overflow queue_full dst_skipped daemon_stopped"
    assert camel["endReason"]["enum"] == exact.split()
    assert snake["end_reason"]["enum"] == folded.split()
    assert camel["triggeredBy"]["enum"] == ["cron", "api", "cloud", "service", "startup"]
    assert snake["triggered_by"]["enum"] == ["cron", "api", "cloud"]
    assert camel["status"]["enum"] == snake["status"]["enum"] == ["pending", "running", "ended"]
    assert camel["id"]["pattern"] == "^[0-9A-HJKMNP-TV-Z]{26}$"


def test_lists(described: dict[str, Any]) -> None:
    """Items or runs, an array or null, and total; both required."""
    for name, field in (("TaskRuns", "items"), ("Runs", "runs")):
        schema = described["components"]["schemas"][name]
        assert set(schema["properties"]) == {"$schema", field, "total"}
        assert set(schema["required"]) == {field, "total"}
        assert {one["type"] for one in schema["properties"][field]["anyOf"]} == {"array", "null"}
        assert schema["properties"]["total"]["format"] == "int64"


def test_answers_in_either_naming(described: dict[str, Any]) -> None:
    """An answer may fit both namings at once, as an empty list does: any of them, not exactly one."""
    for path in ("/api/runs", "/api/tasks/{taskName}/runs", "/api/runs/{runId}"):
        answer = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert len(answer["anyOf"]) > 1


def test_request_bodies(described: dict[str, Any]) -> None:
    """They take the ``$schema`` link, and no field that is not named; what can be wrong with them is all there."""
    bodies = 0
    for methods in described["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                bodies += 1
                name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
                schema = described["components"]["schemas"][name]
                assert schema["additionalProperties"] is False
                assert "$schema" in schema["properties"]
                assert "$schema" not in schema.get("required", [])
                assert {"400", "408", "413", "415", "422"} <= set(operation["responses"])
    assert bodies


def test_errors(described: dict[str, Any]) -> None:
    """The error body's fields; errors is an array or null of location, message, value."""
    schemas = described["components"]["schemas"]
    fields = {"$schema", "type", "title", "status", "detail", "instance", "errors"}
    assert set(schemas["Problem"]["properties"]) == fields
    assert schemas["Problem"]["properties"]["type"]["default"] == "about:blank"
    assert set(schemas["ErrorDetail"]["properties"]) == {"location", "message", "value"}
    for methods in described["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"]


def test_done(described: dict[str, Any]) -> None:
    """The closing event has finalLine and status; every event may have id and retry."""
    done = described["components"]["schemas"]["Done"]
    assert set(done["required"]) == {"finalLine", "status"}
    assert done["properties"]["finalLine"]["format"] == "int64"
    answer = described["paths"]["/api/runs/{runId}/log/stream"]["get"]["responses"]["200"]
    events = answer["content"]["text/event-stream"]["schema"]["items"]["oneOf"]
    names = {event["properties"]["event"]["const"] for event in events}
    assert names == {"line", "region", "dropped", "rotated", "done"}
    assert all({"id", "retry", "event", "data"} == set(event["properties"]) for event in events)


def test_references_resolve(described: dict[str, Any]) -> None:
    """Every $ref leads somewhere, and every operation has an id of its own."""
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert names <= set(described["components"]["schemas"])
    ids = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


def test_it_is_served_and_printed(daemon: Daemon, described: dict[str, Any]) -> None:
    """GET /openapi.json and ``python -I -m api.openapi``, which needs no daemon, give the same document."""
    assert daemon.get("/openapi.json", unix=False).json == described
    printed = subprocess.run([sys.executable, "-I", "-m", "api.openapi"], capture_output=True, check=True)
    assert json.loads(printed.stdout) == described
    assert printed.stderr == b""


def test_unknown_schemas(daemon: Daemon) -> None:
    """404 for a schema that is none, 422 for a name that can be none."""
    assert daemon.get("/schemas/Nothing.json").status == 404
    assert daemon.get("/schemas/Run").status == 422
