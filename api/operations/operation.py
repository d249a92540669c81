"""An operation of the API: one method at one path, with everything that validates, executes and documents it."""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

import falcon
import msgspec
from msgspec import Struct

from api.auth.identity import Identity, Role
from api.errors import base_url
from api.operations.conditional import tag_of
from api.operations.parameters import Deprecation, QueryParameter
from api.schemas.records import Body, Document
from api.worker_context import Context
from supervisor.ipc.control_client import CommandEntry

COMMAND_LINE = "ringward/"
"""The beginning of the command line's User-Agent."""


class Access(Enum):
    """How a client must authenticate."""

    PUBLIC = "public"
    """Any client, with an accepted Host."""
    PROBE = "probe"
    """Any client with any Host: for health checks."""
    LOGIN = "login"
    """Any client, but browsers only from the server's own pages."""
    HOOK = "hook"
    """Programs with the secret of a webhook, or with the token of a job, which the handler checks."""
    LOCAL = "local"
    """A trusted peer of the Unix socket."""
    METRICS = "metrics"
    """Authenticated clients; all clients if the configuration allows it."""
    PRIVATE = "private"
    """Authenticated clients."""


@dataclasses.dataclass
class Call:
    """A validated request to an operation."""

    req: falcon.Request
    resp: falcon.Response
    path: dict[str, str]
    query: dict[str, Any]
    body: Any = None
    identity: Identity | None = None
    target: str = ""
    """Object of the request, for the audit log: the name in the path unless the operation sets another one."""
    result: str = ""
    """Effect of the request, for the audit log: for example the number of changed runs, and the first of them."""
    audited: bool = False
    """Whether the audit log already has this request."""
    on_done: "Callable[[int], None]" = field(default=lambda _status: None)
    """Records the request and its status in the audit log; called before a response that takes long."""
    new_entry: Callable[[], CommandEntry] | None = None
    """Returns an entry of the audit log for the case that the request succeeds; None if requests are not recorded."""
    sent_entry: CommandEntry | None = None
    """The entry that the request's commands carry."""

    def entry(self) -> CommandEntry | None:
        """Return the entry of the audit log for a command, with which the scheduler stores it.

        `target` must be set before, and `result` if it does not depend on the scheduler's answer.
        """
        if self.sent_entry is None and self.new_entry is not None:
            self.sent_entry = self.new_entry()
        return self.sent_entry

    @property
    def by(self) -> str:
        """The client's name, for records of actions; empty without authentication."""
        return "" if self.identity is None else self.identity.name

    @property
    def by_way(self) -> str:
        """The client's name, with the way in which it sent the request: a page of ours, or the command line."""
        identity = self.identity
        if identity is not None and identity.by_browser and self.req.get_header("Origin"):
            return f"{identity.name} (dashboard)"
        if (self.req.user_agent or "").startswith(COMMAND_LINE):
            return f"{self.by} (command line)"
        return self.by

    @property
    def tasks(self) -> str | None:
        """Glob pattern of the tasks that the client may see; None for all tasks."""
        return None if self.identity is None else self.identity.tasks

    def sees(self, task: str) -> bool:
        """Return whether the client may see a task or service."""
        return self.identity is None or self.identity.sees(task)

    def answer(self, document: Document, status: int = 200) -> None:
        """Send `document` as JSON, with a link to its schema."""
        document.schema_link = f"{base_url(self.req.env)}/schemas/{type(document).__name__}.json"
        self.resp.status = status
        self.resp.content_type = "application/json"
        self.resp.data = msgspec.json.encode(document)

    def answer_list(self, document: type[Document], items: bytes, digest: bytes) -> None:
        """Send a `document` whose only field is `items`, with an entity tag.

        `items` is the inside of a JSON array, already encoded. `digest` must change whenever the items do.
        """
        link = msgspec.json.encode(f"{base_url(self.req.env)}/schemas/{document.__name__}.json")
        self.resp.content_type = "application/json"
        self.resp.data = b'{"$schema":%b,"items":[%b]}' % (link, items)
        self.resp.set_header("ETag", tag_of(link + digest))

    def tagged(self) -> None:
        """Add an entity tag to the response, so that a client with the current body gets a 304."""
        self.resp.set_header("ETag", tag_of(self.resp.data or b""))

    def no_content(self) -> None:
        """Send a response without a body."""
        self.resp.status = 204


class Content(Struct, frozen=True):
    """A response body: its media type and schema."""

    media_type: str
    schema: Any
    """A Struct, a union of Structs, or a JSON Schema as a dict. For a stream, Structs or lists of them by event."""
    event_id: str = "integer"
    """JSON type of a stream's event ids."""


def json_of(schema: object) -> Content:
    """Return JSON content with this schema."""
    return Content("application/json", schema)


Handler = Callable[[Context, Call], None]


def _undecorated(_context: Context, _call: Call) -> None:
    raise TypeError("the declaration of the operation decorates no handler")


@dataclass(frozen=True)
class Operation:
    """The declaration of one operation, which decorates the handler.

    Attributes:
        method: GET (answers HEAD too), POST or DELETE.
        path: Template with names from :data:`api.operations.parameters.PATH_PARAMS`.
        query: Query parameters.
        headers: Header parameters, for the document only: name, schema, description.
        body: Struct of the request body, if it has one; the body is optional unless `body_required`.
        body_limit_bytes: Maximum size of the body.
        media: Schemas by media type of a body that the handler decodes itself; the handler gets the bytes.
        answers: Bodies of successful responses by status; None for no body. Default: 204, without a body.
        sends: Headers of successful responses by status: names of :data:`api.openapi.HEADERS`.
        refusals: Error statuses of this operation in addition to the common ones in :mod:`api.openapi`.
        access: How the client must authenticate.
        role: The least role that the client needs.
        scoped: Whether the handler respects :attr:`Call.tasks`. Operations on one task or run need not, because their
            path is checked first. Tokens limited to some tasks may not use any other operation without it.
        tag: Chapter in the document.
        deprecated: Set if clients are to stop using it.
        handler: The decorated function, which executes the operation. Its name, in camel case, is the operationId; the
            first paragraph of its docstring is the summary.
    """

    method: str
    path: str
    _: KW_ONLY
    query: tuple[QueryParameter, ...] = ()
    headers: tuple[tuple[str, dict[str, Any], str], ...] = ()
    body: Any = None
    body_required: bool = False
    body_limit_bytes: int = 1 << 20
    media: dict[str, dict[str, object]] = field(default_factory=dict)
    answers: dict[int, Content | None] = field(default_factory=lambda: {204: None})
    sends: dict[int, tuple[str, ...]] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()
    access: Access = Access.PRIVATE
    role: Role
    scoped: bool = False
    tag: str = "runs"
    deprecated: Deprecation | None = None
    handler: Handler = _undecorated

    def __call__(self, handler: Handler) -> "Operation":
        """Return the operation with `handler` as its handler; makes the declaration a decorator."""
        return replace(self, handler=handler)

    @cached_property
    def id(self) -> str:
        """The operationId: the handler's name in camel case."""
        first, *others = self.handler.__name__.split("_")
        return first + "".join(word.capitalize() for word in others)

    @property
    def summary(self) -> str:
        """One sentence that describes the operation: the first paragraph of the handler's docstring."""
        return " ".join((inspect.getdoc(self.handler) or "").partition("\n\n")[0].split())

    @cached_property
    def deprecated_params(self) -> dict[str, Deprecation]:
        """Return the deprecated query parameters by all of their names."""
        return {
            name: param.deprecated for param in self.query if param.deprecated for name in (param.name, *param.aliases)
        }

    def deprecation(self, query_string: str) -> Deprecation | None:
        """Return the deprecation that concerns a request: of the operation, or of a parameter that it uses."""
        if self.deprecated is not None or not self.deprecated_params:
            return self.deprecated
        given = (name for name, _ in parse_qsl(query_string))
        return next((self.deprecated_params[name] for name in given if name in self.deprecated_params), None)

    @property
    def accepts(self) -> type[msgspec.Struct] | None:
        """Type of the request body; None if the body of a GET is ignored, or the handler decodes the body.

        Operations without a request body only accept an empty one, so that ``{"force": true}`` is rejected rather than
        ignored.
        """
        schema: type[msgspec.Struct] | None = self.body
        return Body if schema is None and self.method != "GET" and not self.media else schema
