"""Errors of the API, all as problem documents (RFC 9457).

    ApiError             any rejection: status, detail, single errors, headers

Handlers turn all other failures into an ApiError: Falcon's errors (unknown path, wrong method), refusals of the
scheduler, a scheduler that is down, a database that cannot be read, and bugs. A bug yields a 500 without details; the
log has the traceback under the same ``instance``. Requests that cannot be parsed never reach the application: the
server answers them with :func:`write_error`.
"""

import logging
import re
import socket
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import falcon
import msgspec

from api.schemas.records import ErrorDetail, Problem
from store.errors import QueryTimeout, StoreError
from store.runs.ids import new_ulid
from supervisor.host.shortage import is_of_memory, is_shortage, reason_of

log = logging.getLogger("gunicorn.error")

MEDIA_TYPE = "application/problem+json"

_TITLES = {
    413: "Content Too Large",
    416: "Range Not Satisfiable",
    421: "Misdirected Request",
    422: "Unprocessable Content",
}
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_PING = re.compile("(/api/pings/)[^/?]+")
_RETRY_AFTER_S = 2
_NAMED = 20
_LONGEST_VALUE_BYTES = 1000
"""Maximum length of a value in an error, as JSON."""


class ApiError(Exception):
    """A request that is rejected."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[ErrorDetail] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})


def invalid(errors: Sequence[ErrorDetail]) -> ApiError:
    """Return a 422 that lists every invalid parameter."""
    names = ", ".join(error.location[:100] for error in errors[:_NAMED])
    more = f" and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
    return ApiError(422, f"Invalid: {names}{more}", [_without_long_value(error) for error in errors])


def _without_long_value(error: ErrorDetail) -> ErrorDetail:
    """Return an error without its value if it is long: the client has it, and a body may have megabytes."""
    value = error.value
    if isinstance(value, (str, list, dict)) and len(msgspec.json.encode(value)) > _LONGEST_VALUE_BYTES:
        return ErrorDetail(error.location, error.message)
    return error


def unavailable(detail: str) -> ApiError:
    """Return a 503 for a request that had no effect and can be repeated."""
    return ApiError(503, detail, headers={"Retry-After": str(_RETRY_AFTER_S)})


def unreadable(error: StoreError) -> ApiError:
    """Return a 503 for a request whose read of the database failed."""
    late = isinstance(error, QueryTimeout)
    return unavailable("Reading the database took too long" if late else "The database cannot be read")


def shortage(action: str, error: BaseException) -> ApiError:
    """Return a 503 for a request that failed because this process lacks memory, threads or descriptors."""
    message = "Out of memory" if is_of_memory(error) else reason_of(error)
    log.error("%s: %s", action, message)
    return unavailable(f"{message}; try again later")


def title(status: int) -> str:
    """Return the title of a status, which is the same for all problems with this status."""
    try:
        return _TITLES.get(status) or HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def origin_of(environ: Mapping[str, Any]) -> str:
    """Return the scheme and host that the client used; an invalid Host is not echoed."""
    host = environ.get("HTTP_HOST", "")
    return f"{environ['wsgi.url_scheme']}://{host if HOST.fullmatch(host) else 'localhost'}"


def base_url(environ: Mapping[str, Any]) -> str:
    """Return the prefix of absolute links: the configured URL, otherwise the URL that the client used."""
    external: str | None = environ.get("ringward.external_url")
    return external or f"{origin_of(environ)}{environ.get('SCRIPT_NAME', '')}"


def problem(status: int, detail: str, errors: Sequence[ErrorDetail] = (), base: str | None = None) -> Problem:
    """Build the problem document; `base` is the prefix of its schema link."""
    document = Problem(
        title=title(status), status=status, detail=detail, instance=f"urn:ulid:{new_ulid()}", errors=list(errors)
    )
    if base is not None:
        document.schema_link = f"{base}/schemas/Problem.json"
    return document


def answer(req: falcon.Request, resp: falcon.Response, error: ApiError) -> Problem:
    """Write an error into the response, and return its document."""
    document = problem(error.status, error.detail, error.errors, base_url(req.env))
    resp.status = f"{error.status} {document.title}"
    resp.content_type = MEDIA_TYPE
    for name, value in error.headers.items():
        resp.set_header(name, value)
    resp.stream = None
    resp.text = None
    try:
        resp.data = msgspec.json.encode(document)
    except RecursionError:  # a quoted value is too deeply nested; it was decoded in a thread with an empty stack
        document.errors = [ErrorDetail(detail.location, detail.message) for detail in error.errors]
        resp.data = msgspec.json.encode(document)
    return document


def shown_path(path: str) -> str:
    """Return a path for logs, without the token of a job."""
    return _PING.sub(r"\1...", path)


def on_api_error(req: falcon.Request, resp: falcon.Response, error: ApiError, _params: dict[str, object]) -> None:
    """Handle `ApiError`, as Falcon's error handler."""
    document = answer(req, resp, error)
    log.debug("%s: %s %s: %d %s", document.instance, req.method, shown_path(req.path), error.status, error.detail)


def on_http_error(
    req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, _params: dict[str, object]
) -> None:
    """Handle `falcon.HTTPError`, as Falcon's error handler."""
    headers = error.headers.items() if isinstance(error.headers, Mapping) else error.headers or []
    detail = error.description
    if isinstance(error, falcon.HTTPNotFound):
        detail = f"No resource at {req.path}"
    elif isinstance(error, falcon.HTTPMethodNotAllowed):
        detail = f"Method {req.method} is not allowed at {req.path}"
    answer(req, resp, ApiError(error.status_code, detail or title(error.status_code), headers=dict(headers)))


def on_failure(req: falcon.Request, resp: falcon.Response, error: Exception, _params: dict[str, object]) -> None:
    """Handle all other exceptions: log everything, and reveal nothing. A shortage is not a bug and yields a 503."""
    if is_shortage(error):
        answer(req, resp, shortage(f"{req.method} {shown_path(req.path)}", error))
        return
    document = answer(req, resp, ApiError(500, "Internal error; see the daemon's log."))
    log.error("%s: %s %s failed", document.instance, req.method, shown_path(req.path), exc_info=error)


def write_error(sock: socket.socket, status: int, detail: str) -> None:
    """Send a problem document in response to a request that does not reach the application."""
    document = problem(status, detail or HTTPStatus(status).phrase)
    level = logging.ERROR if status == 500 else logging.DEBUG  # a 501 is the client's fault
    log.log(level, "%s: rejected a request with %d", document.instance, status)
    body = msgspec.json.encode(document)
    head = (
        f"HTTP/1.1 {status} {document.title}\r\nConnection: close\r\nContent-Type: {MEDIA_TYPE}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sock.sendall(head.encode("latin-1") + body)
