"""The OpenAPI document, generated from the declarations that validate requests and encode responses.

``python -I -m ringward api-document`` prints it. Its components suit generators of client code:

* Each enumeration is a component, named by its title. Generators name inline enumerations after their position, and
  these names collide.
* No component has two properties that differ only in spelling, such as taskName and task_name: generators convert
  both to the style of their language. So each naming of a run has its own component.
* A response with several forms uses oneOf: exactly one form matches. With anyOf, some generators merge the fields.
"""

import functools
import re
import sys
from collections.abc import Sequence
from types import GenericAlias
from typing import Any, get_args

import msgspec

from api.errors import MEDIA_TYPE, title
from api.operation_table import OPERATIONS
from api.operations.guard import DEADLINE, PROBES
from api.operations.operation import Access, Content, Operation
from api.operations.parameters import PATH_PARAMS, Deprecation, QueryParameter
from api.schemas.records import Document, Problem
from supervisor.version import VERSION

_TEXT = {"type": "string"}
_SECONDS = {"type": "integer", "minimum": 0}

HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "Accept-Encoding": (_TEXT, "Accepted codings of the body."),
    "Accept-Ranges": (_TEXT, "`bytes` if the log supports range requests, that is, if the run has ended."),
    "Content-Disposition": (_TEXT, "Suggested file name."),
    "Content-Range": (_TEXT, "The range of the sent bytes, and the total size."),
    "Deprecation": (_TEXT, "Date since which the operation or a given parameter is deprecated (RFC 9745)."),
    "ETag": (_TEXT, "Identifies the current content, for If-None-Match."),
    "Location": (_TEXT, "URL of the created resource."),
    "Retry-After": (_SECONDS, "Seconds after which to retry."),
    "Set-Cookie": (_TEXT, "Sets or clears the session cookie."),
    "WWW-Authenticate": (_TEXT, "How to authenticate; omitted for pages of the dashboard."),
}
"""Headers by name: schema and description."""

OF_REFUSALS: dict[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    415: ("Accept-Encoding",),
    416: ("Content-Range",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
"""Names of headers by status."""


def _header_references(names: tuple[str, ...]) -> dict[str, object]:
    """Return references for the ``headers`` of a response; none of them is required."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


Schemas = dict[str, Any]

_REF = "#/components/schemas/"
_BOTH_NAMINGS = (
    "A run by camelCase names, with its exact end reason and trigger. Without `naming` the answer has, beside these,"
    " all fields of RunSnakeWithParams, whose end reason and trigger are folded into the shorter lists."
)


def reference(name: str) -> Schemas:
    """Return a reference to the component schema `name`."""
    return {"$ref": _REF + name}


def describe_union_of_namings(components: Schemas) -> None:
    """Describe the run in both namings by its camelCase fields, and permit additional fields."""
    components["Run"] = {
        **components["RunCamel"],
        "title": "Run",
        "description": _BOTH_NAMINGS,
        "additionalProperties": True,
    }


def either(names: Sequence[str], components: Schemas) -> Schemas:
    """Return the schema of a document with several forms; add the required components to `components`.

    Lists that only differ in their items become one list whose items have either form, because an empty list would
    match both schemas.
    """
    forms = [components[name] for name in names]
    if all(set(form["properties"]) == set(forms[0]["properties"]) for form in forms):
        components[names[0]] = _merged(forms, components)
        for name in names[1:]:
            del components[name]
        return reference(names[0])
    return _one_of(names, components)


def _one_of(names: Sequence[str], components: Schemas) -> Schemas:
    name = "Or".join(names)
    components[name] = {
        "title": name,
        "description": f"Either {' or '.join(names)}, depending on the parameters.",
        "oneOf": [reference(schema_name) for schema_name in names],
    }
    return reference(name)


def _merged(forms: Sequence[Any], components: Schemas) -> Any:
    first = forms[0]
    if all(form == first for form in forms):
        return first
    if isinstance(first, list):
        return [_merged(items, components) for items in zip(*forms, strict=True)]
    if not isinstance(first, dict):
        return first
    if "$ref" in first:
        return _one_of([form["$ref"].removeprefix(_REF) for form in forms], components)
    return {key: _merged([form[key] for form in forms if key in form], components) for key in first}


def with_named_enumerations(schema: Any, components: Schemas) -> Any:
    """Return `schema` with references in place of titled enumerations, which become components.

    Raises:
        ValueError: two different enumerations have the same title.
    """
    if isinstance(schema, list):
        return [with_named_enumerations(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "enum" not in schema or "title" not in schema:
        return {key: with_named_enumerations(value, components) for key, value in schema.items()}
    title = schema["title"]
    named = {
        "title": title,
        "type": schema["type"],
        "enum": schema["enum"],
        # Go has one namespace for the values of all enumerations.
        "x-enum-varnames": [_constant(title, value) for value in schema["enum"]],
    }
    if components.setdefault(title, named) != named:
        raise ValueError(f"two different enumerations have the title {title}")
    others = {key: value for key, value in schema.items() if key not in named}
    return {**reference(title), **others}


def _constant(title: str, value: str) -> str:
    """Return the constant name of an enumeration value, such as END_REASON_FAILED."""
    words = [*re.findall("[A-Z][a-z]+", title), value or "any"]
    return re.sub("[^A-Z0-9]", "_", "_".join(words).upper())


_COMMON = (400, 401, 403, 421, 422, 429, 500, 503)
_PUBLIC_COMMON = (400, 421, 422, 500, 503)
_OF_BODIES = (400, 408, 413, 415, 422)


def _structs(schema: object) -> list[object]:
    if isinstance(schema, tuple):
        return list(schema)
    if isinstance(schema, dict):
        values = [get_args(value)[0] if isinstance(value, GenericAlias) else value for value in schema.values()]
        return [value for value in values if isinstance(value, type)]
    return [schema]


def _types() -> list[Any]:
    candidates: list[Any] = [Problem]
    for operation in OPERATIONS:
        if operation.accepts is not None:
            candidates.append(operation.accepts)
        for content in operation.answers.values():
            if content is not None:
                candidates += _structs(content.schema)
    return [kind for kind in dict.fromkeys(candidates) if isinstance(kind, type)]


@functools.cache
def _components() -> tuple[dict[object, dict[str, object]], dict[str, object]]:
    """Return the schema of each type and of each union of types, and the components that they refer to."""
    types = _types()
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF + "{name}")
    named: dict[str, object] = {}
    components = {name: with_named_enumerations(schema, named) for name, schema in components.items()}
    components |= named
    describe_union_of_namings(components)
    schema_of: dict[object, dict[str, object]] = dict(zip(types, schemas, strict=True))
    for union in dict.fromkeys(
        content.schema
        for operation in OPERATIONS
        for content in operation.answers.values()
        if content is not None and isinstance(content.schema, tuple)
    ):
        schema_of[union] = either([member.__name__ for member in union], components)
    return schema_of, components


def _schema(schema: object) -> object:
    if isinstance(schema, GenericAlias):
        return {"type": "array", "items": _schema(get_args(schema)[0])}
    if isinstance(schema, type | tuple):
        return _components()[0][schema]
    return schema


def _content(content: Content) -> dict[str, object]:
    if content.media_type == "text/event-stream":
        # OpenAPI 3.1 cannot describe a sequence of events. By convention, the schema describes a single event.
        return {
            content.media_type: {
                "schema": {"oneOf": [_event(name, data, content.event_id) for name, data in content.schema.items()]}
            }
        }
    return {content.media_type: {"schema": _schema(content.schema)}}


def _event(name: str, data: object, id_type: str) -> dict[str, object]:
    return {
        "title": f"Event {name}",
        "type": "object",
        "properties": {
            "id": {"type": id_type, "description": "Position in the stream, for Last-Event-ID; not `seq` of the data."},
            "event": {"type": "string", "const": name},
            "data": _schema(data),
            "retry": {"type": "integer", "description": "The retry time in milliseconds."},
        },
        "required": ["event", "data"],
    }


def _query_param(param: QueryParameter) -> dict[str, object]:
    described: dict[str, object] = {"name": param.name, "in": "query", "schema": param.schema}
    if param.schema.get("type") == "array":
        described |= {"style": "form", "explode": False}  # comma-separated
    if param.required:
        described["required"] = True
    else:
        # An empty parameter counts as absent.
        described["allowEmptyValue"] = True
    text = param.description
    if param.aliases:
        text = f"{text} Also accepted as {', '.join(param.aliases)}."
    if text:
        described["description"] = text
    return described | _deprecated(param.deprecated, text)


def _deprecated(deprecated: Deprecation | None, text: str = "") -> dict[str, object]:
    """Return the fields of a deprecated parameter or operation with the description `text`."""
    if deprecated is None:
        return {}
    return {
        "deprecated": True,
        "description": f"{text} Deprecated since {deprecated.since}. {deprecated.remedy}".strip(),
    }


def _parameters(operation: Operation) -> list[dict[str, object]]:
    parameters: list[dict[str, object]] = []
    for name in re.findall(r"{(\w+)}", operation.path):
        param = PATH_PARAMS[name]
        parameters.append(
            {"name": name, "in": "path", "required": True, "schema": param.schema, "description": param.description}
        )
    parameters += [_query_param(param) for param in operation.query]
    parameters += [
        {"name": name, "in": "header", "schema": schema, "description": text}
        for name, schema, text in (*operation.headers, *((DEADLINE,) if operation.method != "GET" else ()))
    ]
    return parameters


def _headers(names: tuple[str, ...]) -> dict[str, object]:
    return {"headers": _header_references(names)} if names else {}


def _operation(operation: Operation) -> dict[str, object]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {},
        **_deprecated(operation.deprecated),
    }
    parameters = _parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.accepts is not None:
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {"application/json": {"schema": _schema(operation.accepts)}},
        }
    if operation.media:
        described["requestBody"] = {
            "required": False,
            "content": {media_type: {"schema": schema} for media_type, schema in operation.media.items()},
        }
    private = operation.access in (Access.PRIVATE, Access.METRICS)
    if not private:
        described["security"] = []
    for status, content in operation.answers.items():
        sent = operation.sends.get(status, ())
        if operation.deprecated or operation.deprecated_params:
            sent = (*sent, "Deprecation")
        answer: dict[str, object] = {"description": title(status), **_headers(sent)}
        if content is not None:
            answer["content"] = _content(content)
        described["responses"][str(status)] = answer
    common = {*(_COMMON if private else _PUBLIC_COMMON)}
    if operation.path in PROBES:
        common.remove(421)
    late = () if operation.method == "GET" else (409,)
    of_bodies = () if operation.accepts is None and not operation.media else _OF_BODIES
    for status in sorted({*common, *late, *of_bodies, *operation.refusals}):
        described["responses"][str(status)] = {
            "description": title(status),
            **_headers(OF_REFUSALS.get(status, ())),
            "content": {MEDIA_TYPE: {"schema": _schema(Problem)}},
        }
    return described


def document() -> dict[str, Any]:
    """Build the OpenAPI document."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    used = str(paths)
    return {
        "servers": [{"url": "/"}],
        "openapi": "3.1.0",
        "info": {
            "title": "Ringward",
            "version": "dev",
            "x-product-version": VERSION,
            "description": "Runs scheduled tasks and always-on services and keeps every line they print.",
        },
        "paths": paths,
        "components": {
            "schemas": _components()[1],
            "headers": {
                name: {"schema": schema, "description": text}
                for name, (schema, text) in HEADERS.items()
                if f"#/components/headers/{name}'" in used
            },
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic", "description": "Any user name, with the password."},
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token; it is also accepted as the password of HTTP Basic.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "ringward_{daemonId}",
                    "description": "Session cookie of POST /api/auth/login; its name ends in the daemon's id.",
                },
            },
        },
        "security": [{"password": []}, {"token": []}, {"session": []}],
    }


_WITHOUT_URL = b'{"servers":[{"url":"/"}],'


@functools.cache
def document_bytes() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(document())


def served_bytes(base: str) -> bytes:
    """Return the document as JSON, with the URL at which the client reached the API."""
    return b'{"servers":[{"url":%b}],%b' % (msgspec.json.encode(base), document_bytes().removeprefix(_WITHOUT_URL))


def schema_bytes(name: str) -> bytes | None:
    """Return the JSON Schema of the document type `name`; None if there is no such type."""
    for kind in _types():
        if kind.__name__ == name and issubclass(kind, Document):
            return msgspec.json.encode(
                {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
            )
    return None


def main() -> None:
    """Print the document, indented."""
    sys.stdout.write(msgspec.json.format(document_bytes(), indent=2).decode() + "\n")
