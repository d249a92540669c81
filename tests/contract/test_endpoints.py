"""Each operation with shapes, as the served document describes it: method, path, parameters, body, answer."""

import re
from typing import Any

import pytest

from supervisor.version import VERSION
from tests.contract import tables
from tests.contract.daemon import on_one_database
from tests.contract.shapes import check_parameter, check_schema, operation
from tests.contract.tables import ENDPOINTS, Endpoint


def name(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


pytestmark = on_one_database
every = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name)


@every
def test_parameters(document: dict[str, Any], endpoint: Endpoint) -> None:
    """Location, type, default, bounds, pattern and values match the tables; only path parameters are required."""
    parameters_found = {
        (declared["in"], declared["name"]): declared for declared in operation(document, endpoint).get("parameters", ())
    }
    for parameter in endpoint.parameters:
        check_parameter(parameters_found[parameter.place, parameter.name], parameter)
    known = {(parameter.place, parameter.name) for parameter in endpoint.parameters}
    assert not [
        place
        for place, parameter_found in parameters_found.items()
        if place not in known and parameter_found.get("required")
    ]
    assert {name for place, name in parameters_found if place == "path"} == set(re.findall(r"{(\w+)}", endpoint.path))


@every
def test_body(document: dict[str, Any], endpoint: Endpoint) -> None:
    """A body is JSON, and required exactly where the interface requires it."""
    body = operation(document, endpoint).get("requestBody", {})
    assert body.get("required", False) is bool(endpoint.body)
    if endpoint.body:
        check_schema(document, body["content"]["application/json"]["schema"], endpoint.body, exact=False)


@every
def test_answer(document: dict[str, Any], endpoint: Endpoint) -> None:
    """Each operation has one success status and media type, and fields, types and values as in the tables."""
    answers = operation(document, endpoint)["responses"]
    assert [status for status in answers if int(status) < 400] == [str(endpoint.status)]
    content = answers[str(endpoint.status)]["content"]
    assert list(content) == [endpoint.media_type]
    if endpoint.answer:
        check_schema(document, content[endpoint.media_type]["schema"], endpoint.described or endpoint.answer)


@every
def test_refusals(document: dict[str, Any], endpoint: Endpoint) -> None:
    """Every answer that is not a success is a problem document."""
    answers = operation(document, endpoint)["responses"]
    refusals = {status: answer for status, answer in answers.items() if int(status) >= 400}
    assert "422" in refusals
    for answer in refusals.values():
        assert list(answer["content"]) == ["application/problem+json"]
        schema = answer["content"]["application/problem+json"]["schema"]
        check_schema(document, schema, tables.PROBLEM, exact=False)


def test_events(document: dict[str, Any]) -> None:
    """Every event has event and data, and may have id and retry; ``done`` has its two fields."""
    schema = operation(document, ENDPOINTS[-1])["responses"]["200"]["content"]["text/event-stream"]["schema"]
    events = {event_schema["properties"]["event"]["const"]: event_schema for event_schema in schema["oneOf"]}
    for event in events.values():
        assert set(event["required"]) == {"event", "data"}
        types = {field: property_schema.get("type") for field, property_schema in event["properties"].items()}
        del types["data"]
        assert types == {"event": "string", "id": "integer", "retry": "integer"}
    check_schema(document, events["done"]["properties"]["data"], tables.DONE)


def test_version(document: dict[str, Any]) -> None:
    """The document is OpenAPI 3.1.0 with the version ``dev`` beside the product's; no path contains a version."""
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == "dev"
    assert document["info"]["x-product-version"] == VERSION
    assert not [path for path in document["paths"] if re.search(r"/v?\d", path)]
