"""Holds values that came, and schemas that are served, against the tables."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tests.contract.tables import NARROWER, Endpoint, Field, Parameter

_TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
_INT64 = range(-(2**63), 2**63)
_LIMITS = frozenset(
    (
        "enum",
        "default",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "pattern",
    )
)


# Values


def check_object(value: Any, fields: Sequence[Field], place: str = "$") -> None:
    """Fail unless `value` has every required field, no other than these, and each as it should be."""
    assert isinstance(value, dict), f"{place}: {value!r}"
    by_name = {field.name: field for field in fields}
    assert {field.name for field in fields if field.required} <= set(value) <= set(by_name), f"{place}: {sorted(value)}"
    for name, item in value.items():
        check_value(item, by_name[name], f"{place}.{name}")


def check_value(value: Any, field: Field, place: str) -> None:
    if field.nullable and value is None:
        return
    if field.type:
        assert isinstance(value, _TYPES[field.type]), f"{place}: {value!r}"
        assert field.type == "boolean" or not isinstance(value, bool), f"{place}: {value!r}"
    if field.type == "string":
        _check_text(value, field, place)
    elif field.type == "integer":
        assert value in _INT64, place
    elif field.texts:
        assert all(isinstance(text, str) for text in value.values()), f"{place}: {value!r}"
    elif field.fields:
        check_object(value, field.fields, place)
    elif field.type == "array":
        for index, item in enumerate(value):
            if isinstance(field.items, str):
                check_value(item, Field("", field.items), f"{place}[{index}]")
            else:
                check_object(item, field.items, f"{place}[{index}]")


def _check_text(value: str, field: Field, place: str) -> None:
    if field.values:
        assert value in field.values, f"{place}: {value}"
    if field.pattern:
        assert re.search(field.pattern, value), f"{place}: {value}"
    if field.format == "date-time":
        assert "T" in value, f"{place}: {value}"
        assert datetime.fromisoformat(value).tzinfo is not None, f"{place}: {value}"
    if field.format == "uri":
        assert re.match(r"^[a-z][a-z0-9+.-]*:\S+$", value), f"{place}: {value}"


# Schemas


def resolved(document: dict[str, Any], schema: dict[str, Any], fields: Sequence[Field] = ()) -> dict[str, Any]:
    """The schema that a reference leads to; of several alternatives the one with these fields, else the first."""
    names = {field.name for field in fields}
    while True:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        elif "oneOf" in schema:
            forms = [resolved(document, form) for form in schema["oneOf"]]
            schema = next((form for form in forms if set(form["properties"]) == names), forms[0])
        elif "anyOf" in schema and {"type": "null"} not in schema["anyOf"]:
            schema = schema["anyOf"][0]
        else:
            return schema


def check_schema(
    document: dict[str, Any], schema: dict[str, Any], fields: Sequence[Field], place: str = "$", *, exact: bool = True
) -> None:
    """Fail unless `schema` describes just these fields.

    Not `exact`: more of them may be required, and more may be null, as where the table does not say.
    """
    schema = resolved(document, schema, fields)
    assert schema["type"] == "object", place
    assert set(schema["properties"]) == {field.name for field in fields}, place
    required, expected = set(schema.get("required", ())), {field.name for field in fields if field.required}
    assert required == expected if exact else required >= expected, f"{place}: {required}"
    for member in fields:
        _check_property(document, schema["properties"][member.name], member, f"{place}.{member.name}", exact=exact)


def _check_property(document: dict[str, Any], schema: dict[str, Any], field: Field, place: str, *, exact: bool) -> None:
    alternatives = schema.get("anyOf", [schema])
    (described,) = [resolved(document, each) for each in alternatives if each != {"type": "null"}]
    nullable = {"type": "null"} in alternatives
    assert nullable == field.nullable if exact else nullable >= field.nullable, f"{place}: null"
    if not field.type:
        assert "type" not in described, place
        return
    assert described["type"] == field.type, place
    assert described.get("format", "") == field.format, place
    if field.values:
        assert tuple(described["enum"]) == field.values, place
    if field.pattern:
        assert described["pattern"] == field.pattern, place
    if field.texts:
        assert described["additionalProperties"] == {"type": "string"}, place
    if field.fields:
        check_schema(document, described, field.fields, place, exact=exact)
    if isinstance(field.items, tuple):
        check_schema(document, described["items"], field.items, f"{place}[]", exact=exact)
    elif field.items:
        assert described["items"]["type"] == field.items, place


def operation(document: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    described: dict[str, Any] = document["paths"][endpoint.path][endpoint.method.lower()]
    return described


def check_parameter(described: dict[str, Any], parameter: Parameter) -> None:
    """Fail unless a parameter is described as in its table, and with no limit that is not there."""
    assert described["in"] == parameter.place
    assert described.get("required", False) is parameter.required
    schema = described["schema"]
    for word, value in parameter.schema.items():
        assert schema.get(word) == value, f"{parameter.name}: {word}"
    more = {word: schema[word] for word in _LIMITS & set(schema) - set(parameter.schema)}
    if parameter.place == "query":
        assert more == {word: NARROWER.get((parameter.name, word)) for word in more}, parameter.name
