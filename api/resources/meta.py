"""Handlers for the API's own description."""

from api.auth.identity import Role
from api.errors import ApiError, base_url
from api.operations.conditional import CONDITION
from api.operations.operation import Access, Call, Content, Operation
from api.worker_context import Context

_FREE = {"type": "object"}


@Operation(
    "GET",
    "/openapi.json",
    role=Role.ANYBODY,
    headers=(CONDITION,),
    answers={200: Content("application/json", _FREE), 304: None},
    sends={200: ("ETag",), 304: ("ETag",)},
    access=Access.PUBLIC,
    tag="interface",
)
def get_openapi(context: Context, call: Call) -> None:
    """Get this document."""
    call.resp.content_type = "application/json"
    call.resp.set_header("Cache-Control", "no-cache")
    call.resp.data = context.interface.served_bytes(base_url(call.req.env))
    call.tagged()


@Operation(
    "GET",
    "/schemas/{schemaName}",
    role=Role.ANYBODY,
    headers=(CONDITION,),
    answers={200: Content("application/schema+json", _FREE), 304: None},
    sends={200: ("ETag",), 304: ("ETag",)},
    refusals=(404,),
    access=Access.PUBLIC,
    tag="interface",
)
def get_schema(context: Context, call: Call) -> None:
    """Get the JSON Schema that a document's $schema links to."""
    schema = context.interface.schema_bytes(call.path["schemaName"].removesuffix(".json"))
    if schema is None:
        raise ApiError(404, f"No schema named {call.path['schemaName']}")
    call.resp.content_type = "application/schema+json"
    call.resp.set_header("Cache-Control", "no-cache")
    call.resp.data = schema
    call.tagged()
