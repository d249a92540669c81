"""The OpenAPI document, made from the declarations that validate requests and encode answers.

``python -I -m api.openapi`` prints it.
"""

import functools
import re
import sys
from typing import Any
from urllib.parse import urlsplit

import msgspec

from api.errors import MEDIA_TYPE, title
from api.openapi_components import describe_union_of_namings, either, with_named_enumerations
from api.operation_table import OPERATIONS
from api.operations import answer_headers
from api.operations.answer_headers import OF_REFUSALS
from api.operations.guard import PROBES
from api.operations.operation import Access, Content, Operation
from api.operations.parameters import PATH_PARAMS, Param
from api.schemas.records import Document, Problem

_REF = "#/components/schemas/{name}"
_COMMON = (400, 401, 403, 421, 422, 429, 500, 503)
_PUBLIC_COMMON = (400, 421, 422, 500, 503)
_OF_BODIES = (400, 408, 413, 415, 422)


def _structs(schema: Any) -> list[Any]:
    if isinstance(schema, tuple):
        return list(schema)
    if isinstance(schema, dict):
        return [value for value in schema.values() if isinstance(value, type)]
    return [schema]


def _types() -> list[Any]:
    found: list[Any] = [Problem]
    for operation in OPERATIONS:
        if operation.accepts is not None:
            found.append(operation.accepts)
        for content in operation.answers.values():
            if content is not None:
                found += _structs(content.schema)
    return [one for one in dict.fromkeys(found) if isinstance(one, type)]


@functools.cache
def _components() -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """The schema of each type, and of each union of them; the components that these refer to."""
    types = _types()
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    named: dict[str, Any] = {}
    components = {name: with_named_enumerations(schema, named) for name, schema in components.items()}
    components |= named
    describe_union_of_namings(components)
    found: dict[Any, dict[str, Any]] = dict(zip(types, schemas, strict=True))
    for union in dict.fromkeys(
        content.schema
        for operation in OPERATIONS
        for content in operation.answers.values()
        if content is not None and isinstance(content.schema, tuple)
    ):
        found[union] = either([one.__name__ for one in union], components)
    return found, components


def _schema(schema: Any) -> Any:
    if isinstance(schema, type | tuple):
        return _components()[0][schema]
    return schema


def _content(content: Content) -> dict[str, Any]:
    if content.media_type == "text/event-stream":
        # OpenAPI 3.1 has no word for a sequence: each event fits the schema, as readers of such descriptions expect.
        return {
            content.media_type: {"schema": {"oneOf": [_event(name, data) for name, data in content.schema.items()]}}
        }
    return {content.media_type: {"schema": _schema(content.schema)}}


def _event(name: str, data: Any) -> dict[str, Any]:
    return {
        "title": f"Event {name}",
        "type": "object",
        "properties": {
            "id": {"type": "integer", "description": "The event ID."},
            "event": {"type": "string", "const": name},
            "data": _schema(data),
            "retry": {"type": "integer", "description": "The retry time in milliseconds."},
        },
        "required": ["event", "data"],
    }


def _query_param(param: Param) -> dict[str, Any]:
    described: dict[str, Any] = {"name": param.name, "in": "query", "schema": param.schema}
    if param.schema.get("type") == "array":
        described |= {"style": "form", "explode": False}  # separated by commas
    if param.required:
        described["required"] = True
    else:
        # An empty parameter is an absent one.
        described["allowEmptyValue"] = True
    text = param.description
    if param.aliases:
        text = f"{text} Also accepted as {', '.join(param.aliases)}."
    if text:
        described["description"] = text
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in re.findall(r"{(\w+)}", operation.path):
        param = PATH_PARAMS[name]
        found.append(
            {"name": name, "in": "path", "required": True, "schema": param.schema, "description": param.description}
        )
    found += [_query_param(param) for param in operation.query]
    found += [
        {"name": name, "in": "header", "schema": schema, "description": text}
        for name, schema, text in operation.headers
    ]
    return found


def _headers(names: tuple[str, ...]) -> dict[str, Any]:
    return {"headers": answer_headers.described(names)} if names else {}


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {},
    }
    parameters = _parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.accepts is not None:
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {"application/json": {"schema": _schema(operation.accepts)}},
        }
    private = operation.access in (Access.PRIVATE, Access.METRICS)
    if not private:
        described["security"] = []
    for status, content in operation.answers.items():
        answer: dict[str, Any] = {"description": title(status), **_headers(operation.sends.get(status, ()))}
        if content is not None:
            answer["content"] = _content(content)
        described["responses"][str(status)] = answer
    common = {*(_COMMON if private else _PUBLIC_COMMON)}
    if operation.path in PROBES:
        common.remove(421)
    of_bodies = () if operation.accepts is None else _OF_BODIES
    for status in sorted({*common, *of_bodies, *operation.refusals}):
        described["responses"][str(status)] = {
            "description": title(status),
            **_headers(OF_REFUSALS.get(status, ())),
            "content": {MEDIA_TYPE: {"schema": _schema(Problem)}},
        }
    return described


def document() -> dict[str, Any]:
    """The document."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ringward",
            "version": "dev",
            "description": "Runs scheduled tasks and always-on services and keeps every line they print.",
        },
        "paths": paths,
        "components": {
            "schemas": _components()[1],
            "headers": answer_headers.components(),
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic", "description": "Any user name, and the password."},
                "token": {"type": "http", "scheme": "bearer", "description": "A token; HTTP Basic takes it, too."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "ringward_{daemonId}",
                    "description": "What POST /api/auth/login gives; its name has the daemon's id in lower case.",
                },
            },
        },
        "security": [{"password": []}, {"token": []}, {"session": []}],
    }


@functools.cache
def document_bytes() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document())


def served_bytes(base: str) -> bytes:
    """The document as JSON, with the address that its paths are relative to where that is not the host's root."""
    if not urlsplit(base).path.strip("/"):
        return document_bytes()
    return b'{"servers":[{"url":%b}],%b' % (msgspec.json.encode(base), document_bytes()[1:])


def schema_bytes(name: str) -> bytes | None:
    """The JSON Schema of one kind of document; None when there is no such."""
    for one in _types():
        if one.__name__ == name and issubclass(one, Document):
            return msgspec.json.encode(
                {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(one)}
            )
    return None


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.format(document_bytes(), indent=2).decode() + "\n")
