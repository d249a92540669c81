"""An operation of the API: one method at one path, with everything that validates, carries out and documents it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import falcon
import msgspec

from api.errors import base_url
from api.params import Param
from api.schemas import Document

if TYPE_CHECKING:
    from api.auth import Identity
    from api.context import Context


class Access(Enum):
    """Who may call it."""

    PUBLIC = "public"
    """Everybody, from an accepted Host."""
    PROBE = "probe"
    """Everybody, with any Host: for health checks."""
    LOGIN = "login"
    """Everybody, but a browser only from our own pages."""
    LOCAL = "local"
    """A trusted peer of the Unix socket."""
    PRIVATE = "private"
    """Whoever is authenticated."""


@dataclass
class Call:
    """One request to an operation, validated."""

    req: falcon.Request
    resp: falcon.Response
    path: dict[str, str]
    query: dict[str, Any]
    body: Any = None
    identity: "Identity | None" = None

    def answer(self, document: Document, status: int = 200) -> None:
        """Send `document`."""
        document.schema_link = f"{base_url(self.req.env)}/schemas/{type(document).__name__}.json"
        self.resp.status = status
        self.resp.content_type = "application/json"
        self.resp.data = msgspec.json.encode(document)

    def no_content(self) -> None:
        """Say that it is done."""
        self.resp.status = 204


@dataclass(frozen=True)
class Content:
    """One kind of body of a response."""

    media_type: str
    schema: Any
    """A Struct, a union of Structs, or a JSON Schema as a dict."""


def json_of(schema: Any) -> Content:
    """A JSON body."""
    return Content("application/json", schema)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """See the module.

    Attributes:
        method: GET (answers HEAD too), POST or DELETE.
        path: Template; its names are those of :data:`api.params.PATH_PARAMS`.
        id: operationId.
        summary: One sentence.
        handler: Carries it out.
        query: Query parameters.
        headers: Header parameters, for the document only: name, schema, description.
        body: Struct of the request body; the body is optional unless `body_required`.
        answers: Status and body of success; None: no body.
        refusals: Statuses of errors that this operation has beyond the common ones.
        access: Who may call it.
        tag: Chapter in the document.
    """

    method: str
    path: str
    id: str
    summary: str
    handler: "Callable[[Context, Call], None]"
    query: tuple[Param, ...] = ()
    headers: tuple[tuple[str, dict[str, Any], str], ...] = ()
    body: Any = None
    body_required: bool = False
    answers: dict[int, Content | None] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()
    access: Access = Access.PRIVATE
    tag: str = "runs"
