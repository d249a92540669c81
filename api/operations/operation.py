"""An operation of the API: one method at one path, with everything that validates, carries out and documents it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import falcon
import msgspec

from api.auth.identity import Identity, Role
from api.errors import base_url
from api.operations.conditional import tag_of
from api.operations.parameters import Param
from api.schemas.records import Body, Document
from api.worker_context import Context


class Access(Enum):
    """How a caller is known."""

    PUBLIC = "public"
    """Everybody, from an accepted Host."""
    PROBE = "probe"
    """Everybody, with any Host: for health checks."""
    LOGIN = "login"
    """Everybody, but a browser only from our own pages."""
    LOCAL = "local"
    """A trusted peer of the Unix socket."""
    METRICS = "metrics"
    """Authenticated clients; all clients if the configuration allows it."""
    PRIVATE = "private"
    """Whoever is authenticated."""


@dataclasses.dataclass
class Call:
    """One request to an operation, validated."""

    req: falcon.Request
    resp: falcon.Response
    path: dict[str, str]
    query: dict[str, Any]
    body: Any = None
    identity: Identity | None = None
    target: str = ""
    """Subject of the request, for the audit: the name in the path, unless the operation knows a better one."""
    audited: bool = False
    """Whether it is in the audit, where each is once."""
    on_done: "Callable[[int], None]" = field(default=lambda _status: None)
    """Puts into the audit that it is done, and with which status, before an answer that takes its time."""

    @property
    def by(self) -> str:
        """Who asks, for records of who did something."""
        return "" if self.identity is None else self.identity.name

    @property
    def tasks(self) -> str | None:
        """Glob of the only tasks that there are for who asks; None: all."""
        return None if self.identity is None else self.identity.tasks

    def answer(self, document: Document, status: int = 200) -> None:
        """Send `document`."""
        document.schema_link = f"{base_url(self.req.env)}/schemas/{type(document).__name__}.json"
        self.resp.status = status
        self.resp.content_type = "application/json"
        self.resp.data = msgspec.json.encode(document)

    def answer_list(self, document: type[Document], items: bytes, digest: bytes) -> None:
        """Send a `document` that has nothing but `items`, the inside of a JSON array, with an entity tag.

        `digest` changes when the items do.
        """
        link = msgspec.json.encode(f"{base_url(self.req.env)}/schemas/{document.__name__}.json")
        self.resp.content_type = "application/json"
        self.resp.data = b'{"$schema":%b,"items":[%b]}' % (link, items)
        self.resp.set_header("ETag", tag_of(link + digest))

    def tagged(self) -> None:
        """Put an entity tag to the answer; only that is sent when the client has the rest."""
        self.resp.set_header("ETag", tag_of(self.resp.data or b""))

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
        path: Template; its names are those of :data:`api.operations.parameters.PATH_PARAMS`.
        id: operationId.
        summary: One sentence.
        handler: Carries it out.
        query: Query parameters.
        headers: Header parameters, for the document only: name, schema, description.
        body: Struct of the request body, if it may say anything; the body is optional unless `body_required`.
        body_limit_bytes: How large it may be.
        answers: Status and body of success; None: no body.
        sends: Headers of success, by status: names of :data:`api.openapi.HEADERS`.
        refusals: Statuses of errors that this operation has beyond the common ones.
        access: How the caller is known.
        role: What the caller must at least be.
        scoped: Whether it heeds :attr:`Call.tasks`. An operation on one task or run need not, its path is checked
            before; any other that does not is refused to tokens that are limited to some tasks.
        tag: Chapter in the document.
    """

    method: str
    path: str
    id: str
    summary: str
    handler: Callable[[Context, Call], None]
    query: tuple[Param, ...] = ()
    headers: tuple[tuple[str, dict[str, Any], str], ...] = ()
    body: Any = None
    body_required: bool = False
    body_limit_bytes: int = 1 << 20
    answers: dict[int, Content | None] = field(default_factory=dict)
    sends: dict[int, tuple[str, ...]] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()
    access: Access = Access.PRIVATE
    role: Role
    scoped: bool = False
    tag: str = "runs"

    @property
    def accepts(self) -> type[msgspec.Struct] | None:
        """Type of the request body; None: the body of a GET is ignored.

        Where a body has nothing to say it is empty: who writes ``{"force": true}`` there hears that nobody listens.
        """
        schema: type[msgspec.Struct] | None = self.body
        return Body if schema is None and self.method != "GET" else schema
