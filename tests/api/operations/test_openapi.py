"""The interface's own description, beyond the tables of ``tests/contract``."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import re2

from api.openapi import document
from supervisor.ipc.child_process import RINGWARD
from tests.api.support.harness import Daemon
from tests.contract.shapes import check_schema
from tests.contract.tables import SNAKE_WITH_PARAMS


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return document()


def test_empty_parameters(described: dict[str, Any]) -> None:
    """An empty value is allowed exactly where the parameter may be absent, because it means the same."""
    for methods in described["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query":
                    assert parameter.get("allowEmptyValue", False) is not parameter.get("required", False)


def test_answers_in_either_naming(described: dict[str, Any]) -> None:
    """Exactly one schema matches an answer in either naming; lists have items in either."""
    schemas = described["components"]["schemas"]

    def forms(schema: dict[str, Any]) -> list[str]:
        name = schema["$ref"].rsplit("/", 1)[1]
        return [variant["$ref"].rsplit("/", 1)[1] for variant in schemas[name]["oneOf"]]

    def answer(path: str, method: str = "get", status: str = "200") -> dict[str, Any]:
        content = described["paths"][path][method]["responses"][status]["content"]
        schema: dict[str, Any] = content["application/json"]["schema"]
        return schema

    assert forms(answer("/api/runs/bulk/delete", "post")) == ["Deleted", "Affected"]
    assert forms(answer("/api/tasks/{taskName}/run", "post", "201")) == ["RunSnake", "RunCamel"]
    for path, field, namings in (
        ("/api/runs", "runs", ["RunSnake", "RunCamel"]),
        ("/api/tasks/{taskName}/runs", "items", ["RunCamel", "RunSnakeWithParams"]),
    ):
        any_of = schemas[answer(path)["$ref"].rsplit("/", 1)[1]]["properties"][field]["anyOf"]
        assert [forms(form["items"]) for form in any_of if form.get("type") == "array"] == [namings]


def test_a_run_in_both_namings(described: dict[str, Any]) -> None:
    """A single run is described by its exact fields; the other naming's fields are allowed and explained."""
    answer = described["paths"]["/api/runs/{runId}"]["get"]["responses"]["200"]["content"]["application/json"]
    assert answer["schema"] == {"$ref": "#/components/schemas/Run"}
    schemas = described["components"]["schemas"]
    assert schemas["Run"]["properties"] == schemas["RunCamel"]["properties"]
    assert schemas["Run"]["additionalProperties"] is True
    assert "all fields of RunSnakeWithParams" in schemas["Run"]["description"]


def test_no_schema_has_both_namings(described: dict[str, Any]) -> None:
    """No schema contains both namings, because generators map taskName and task_name to one name."""
    for name, schema in described["components"]["schemas"].items():
        plain = [key.replace("_", "").lower() for key in schema.get("properties", {})]
        assert len(plain) == len(set(plain)), name


def test_enumerations_are_components(described: dict[str, Any]) -> None:
    """Every enumeration is a component, and no two of their values map to one constant name."""
    schemas = described["components"]["schemas"]
    constants = [name for schema in schemas.values() for name in schema.get("x-enum-varnames", ())]
    assert len(constants) == len(set(constants))
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            assert "enum" not in json.dumps(field)
        if "enum" in schema:
            assert len(schema["enum"]) == len(schema["x-enum-varnames"])


def test_operation_ids(described: dict[str, Any]) -> None:
    """No operation id is the beginning of another one, because generators append suffixes."""
    ids = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert [
        (operation_id, other)
        for operation_id in ids
        for other in ids
        if operation_id != other and other.startswith(operation_id)
    ] == []


def test_request_bodies(described: dict[str, Any]) -> None:
    """Request bodies allow ``$schema`` and no unknown field, and all their errors are documented."""
    bodies = 0
    for methods in described["paths"].values():
        for operation in methods.values():
            own = operation["operationId"] in ("receiveHook", "ping", "reportPing")  # their senders decide
            if "requestBody" in operation and not own:
                bodies += 1
                name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
                schema = described["components"]["schemas"][name]
                assert schema["additionalProperties"] is False
                assert "$schema" in schema["properties"]
                assert "$schema" not in schema.get("required", [])
                assert {"400", "408", "413", "415", "422"} <= set(operation["responses"])
    assert bodies


def test_single_run_in_snake(described: dict[str, Any]) -> None:
    """A single run in snake naming includes its parameters, which lists leave out."""
    check_schema(described, {"$ref": "#/components/schemas/RunSnakeWithParams"}, SNAKE_WITH_PARAMS)


def test_errors(described: dict[str, Any]) -> None:
    """Every answer that is not a success is a problem document."""
    for methods in described["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"]


def test_foreign_hosts(described: dict[str, Any]) -> None:
    """Every operation but the probes documents the refusal of a foreign Host; orchestrators use any name for probes."""
    for path, methods in described["paths"].items():
        for operation in methods.values():
            assert ("421" in operation["responses"]) is (path not in ("/healthz", "/readyz"))


def test_events_of_a_log(described: dict[str, Any]) -> None:
    """The events of a run's stream are documented; the daemon's stream has no end event."""
    for path, names in (
        ("/api/runs/{runId}/log/stream", {"line", "lines", "region", "dropped", "rotated", "done"}),
        ("/api/daemon/log/stream", {"line", "lines", "region", "dropped", "rotated"}),
    ):
        answer = described["paths"][path]["get"]["responses"]["200"]
        events = answer["content"]["text/event-stream"]["schema"]["oneOf"]
        assert {event["properties"]["event"]["const"] for event in events} == names


def patterns_in(described: Any) -> Iterator[str]:
    """Every pattern of a schema within the document."""
    if isinstance(described, dict):
        if isinstance(described.get("pattern"), str):
            yield described["pattern"]
        described = list(described.values())
    if isinstance(described, list):
        for schema in described:
            yield from patterns_in(schema)


def test_patterns(described: dict[str, Any]) -> None:
    """Every pattern compiles without look-around, as in RE2."""
    patterns = set(patterns_in(described))
    assert patterns
    for pattern in patterns:
        re2.compile(pattern)


def test_deadline_is_a_time(described: dict[str, Any]) -> None:
    """The header with a deadline is described as an RFC 3339 time, wherever it is accepted."""
    schemas = [
        parameter["schema"]
        for methods in described["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", [])
        if parameter["name"] == "Ringward-Deadline"
    ]
    assert len(schemas) > 30
    for schema in schemas:
        assert re.fullmatch(schema["pattern"], "2026-11-21T03:04:05.678Z")
        assert re.fullmatch(schema["pattern"], "2026-11-21t03:04:05+01:00")
        assert not re.fullmatch(schema["pattern"], "soon")


def test_references_resolve(described: dict[str, Any]) -> None:
    """Every $ref resolves, no component is unused, and every operation has a unique id."""
    used = set(re.findall(r'"#/components/(\w+/[\w-]+)"', json.dumps(described)))
    components = described["components"]
    assert used == {f"{kind}/{name}" for kind in ("schemas", "headers") for name in components[kind]}
    ids = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


def test_document_is_served_and_printed(daemon: Daemon, described: dict[str, Any]) -> None:
    """GET /openapi.json and ``python -I -m ringward api-document``, which needs no daemon, give the same document.

    The served one has the URL by which the client reached the daemon.
    """
    served = {**described, "servers": [{"url": f"http://127.0.0.1:{daemon.port}"}]}
    assert daemon.get("/openapi.json", unix=False).json == served
    assert described["servers"] == [{"url": "/"}]
    printed = subprocess.run([sys.executable, *RINGWARD, "api-document"], capture_output=True, check=True)
    assert json.loads(printed.stdout) == described
    assert printed.stderr == b""


def test_unknown_schemas(daemon: Daemon) -> None:
    """An unknown schema gets 404, and an invalid name 422."""
    assert daemon.get("/schemas/Nothing.json").status == 404
    assert daemon.get("/schemas/Run").status == 422
