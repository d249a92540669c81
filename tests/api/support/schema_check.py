"""Holds answers against the OpenAPI document: the part of JSON Schema that it uses, nothing is let through unseen."""

import re
from typing import TYPE_CHECKING, Any

from api.openapi import document
from api.schemas.wire_times import parse_rfc3339

if TYPE_CHECKING:
    from tests.api.support.client import Answer

_DOCUMENT = document()
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_KNOWN = frozenset(
    (
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "pattern",
        "format",
        "anyOf",
        "oneOf",
        "$ref",
        "title",
        "description",
        "default",
        "examples",
        "additionalProperties",
        "const",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "x-enum-varnames",
    )
)
_CHECKED_ITEMS = 200
"""Of one list: where there are many they are alike."""
_OF_ANY = frozenset(
    (
        "Cache-Control",
        "Connection",
        "Content-Encoding",
        "Content-Length",
        "Content-Security-Policy",
        "Content-Type",
        "Cross-Origin-Resource-Policy",
        "Date",
        "Referrer-Policy",
        "Server",
        "Transfer-Encoding",
        "Vary",
        "X-Accel-Buffering",
        "X-Content-Type-Options",
    )
)
"""Headers that no answer needs to be described with."""
_RUN, _RUN_IN_SNAKE = ({"$ref": f"#/components/schemas/{name}"} for name in ("Run", "RunSnakeWithParams"))
"""The schemas of a single run: the default, and with naming=snake, which only the parameter's description mentions."""
_OPERATIONS: list[tuple[str, re.Pattern[str], dict[str, Any]]] = [
    (method.upper(), re.compile("^" + re.sub(r"{\w+}", "[^/]+", path) + "$"), operation)
    # A literal path goes before a template that matches it as well.
    for path, methods in sorted(_DOCUMENT["paths"].items(), key=lambda path_and_methods: "{" in path_and_methods[0])
    for method, operation in methods.items()
]


def find(method: str, path: str) -> dict[str, Any] | None:
    """The document's operation for a request."""
    for declared_method, pattern, operation in _OPERATIONS:
        if declared_method == method and pattern.match(path):
            return operation
    return None


def check(value: Any, schema: dict[str, Any], place: str = "$") -> None:
    """Fail when `value` is not what `schema` says; fields that it does not name are not allowed."""
    assert set(schema) <= _KNOWN, f"{place}: the checker does not know {set(schema) - _KNOWN}"
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return check(value, _DOCUMENT["components"]["schemas"][name], place)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _check_any(value, schema[word], place)
    if "type" in schema:
        assert isinstance(value, _TYPES[schema["type"]]), f"{place}: {value!r} is no {schema['type']}"
        assert schema["type"] == "boolean" or not isinstance(value, bool), f"{place}: a boolean"
    if "enum" in schema:
        assert value in schema["enum"], f"{place}: {value!r} is not in {schema['enum']}"
    if isinstance(value, str):
        _check_text(value, schema, place)
    if isinstance(value, list):
        for index, item in enumerate(value[:_CHECKED_ITEMS]):
            check(item, schema.get("items", {}), f"{place}[{index}]")
    if isinstance(value, dict):
        _check_object(value, schema, place)
    return None


def _check_any(value: Any, schemas: list[dict[str, Any]], place: str) -> None:
    failures = []
    for schema in schemas:
        try:
            return check(value, schema, place)
        except AssertionError as err:
            failures.append(str(err))
    raise AssertionError("; ".join(failures))


def _check_text(value: str, schema: dict[str, Any], place: str) -> None:
    if "pattern" in schema:
        assert re.search(schema["pattern"], value), f"{place}: {value!r} does not match {schema['pattern']}"
    if schema.get("format") == "date-time":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value), f"{place}: {value!r}"
        parse_rfc3339(value, up=False)
    if schema.get("format") == "uri":
        assert re.match(r"^(https?://[^/]+/|about:|urn:)", value), f"{place}: {value!r} is no absolute URI"


def _check_object(value: dict[str, Any], schema: dict[str, Any], place: str) -> None:
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        assert name in value, f"{place}: {name} is missing"
    for name, item in value.items():
        assert item is not None, f"{place}.{name}: null"
        if name in properties:
            check(item, properties[name], f"{place}.{name}")
        else:
            more = schema.get("additionalProperties", not properties)
            assert more is not False, f"{place}.{name} is not in the document"
            if isinstance(more, dict):
                check(item, more, f"{place}.{name}")


def check_answer(method: str, path: str, answer: "Answer") -> None:
    """Fail when the document does not describe an answer for the request."""
    operation = find("GET" if method == "HEAD" else method, path)
    if operation is None:
        return
    status, media_type = answer.status, answer.media_type
    described = operation["responses"].get(str(status))
    assert described is not None, f"{method} {path}: status {status} is not in the document"
    for name in map(str.title, answer.headers):
        is_described = name in _OF_ANY or name in map(str.title, described.get("headers", {}))
        assert is_described, f"{method} {path}: {name} with status {status} is not in the document"
    content = described.get("content")
    if content is None:
        assert answer.body == b"", f"{method} {path}: a body with status {status}"
        return
    assert media_type in content, f"{method} {path}: {media_type} with status {status}"
    if method != "HEAD" and media_type.endswith("json"):
        schema = content[media_type]["schema"]
        if schema == _RUN and answer.json.get("$schema", "").endswith("/RunSnakeWithParams.json"):
            schema = _RUN_IN_SNAKE
        check(answer.json, schema)


def event_schema(path: str, name: str) -> dict[str, Any]:
    """The schema of an event's data."""
    operation = find("GET", path)
    assert operation is not None
    events = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]["oneOf"]
    for event in events:
        if event["properties"]["event"]["const"] == name:
            schema: dict[str, Any] = event["properties"]["data"]
            return schema
    raise AssertionError(f"event {name} of {path} is not in the document")
