"""The Falcon application: routes made from the table of operations, error handling, the guard."""

import functools
import logging
from collections import defaultdict

import falcon
from falcon.routing import CompiledRouter

from api import body
from api.auth import Identity
from api.context import Context
from api.errors import ApiError, on_api_error, on_failure, on_http_error, unavailable
from api.guard import Guard, check_origin
from api.operation import Access, Call, Operation
from api.operations import OPERATIONS
from api.params import parse_path, parse_query, raise_all
from api.resources.pages import Site
from store.errors import StoreError

log = logging.getLogger("gunicorn.error")

_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Route:
    """All operations of one path."""

    def __init__(self, context: Context, operations: list[Operation]) -> None:
        self._context = context
        self.allow: list[str] = ["OPTIONS"]
        for operation in operations:
            methods = ["GET", "HEAD"] if operation.method == "GET" else [operation.method]
            self.allow += methods
            for method in methods:
                setattr(self, f"on_{method.lower()}", functools.partial(self._run, operation))
        self.allow.sort()

    def on_options(self, _req: falcon.Request, resp: falcon.Response, **_path: str) -> None:
        """What can be done here."""
        resp.status = 204
        resp.set_header("Allow", ", ".join(self.allow))

    def _run(self, operation: Operation, req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        try:
            identity = self._authorize(operation, req)
            query, errors = parse_query(operation.query, req.query_string)
            raise_all(parse_path(path) + errors)
            call = Call(req, resp, path, query, identity=identity)
            if operation.body is not None:
                call.body = body.decode(req, operation.body, required=operation.body_required)
            operation.handler(self._context, call)
        except StoreError as err:
            log.error("%s: the database could not be read: %s", operation.id, err)
            raise unavailable("The database could not be read") from err

    def _authorize(self, operation: Operation, req: falcon.Request) -> Identity | None:
        auth = self._context.auth
        if operation.access in (Access.PUBLIC, Access.PROBE):
            return None
        if operation.access is Access.LOGIN:
            check_origin(req)
            return None
        if operation.access is Access.LOCAL:
            if not auth.trusted_peer(req):
                raise ApiError(403, "Only for the daemon's own user, over the Unix socket")
            return None
        identity = auth.identify(req)
        if identity is None:
            raise auth.refusal(req, "Not authenticated")
        if req.method in _UNSAFE and identity.method != "peer":
            check_origin(req)
        return identity


def build(context: Context) -> falcon.App[falcon.Request, falcon.Response]:
    """The application of one worker."""
    router = CompiledRouter()
    app = falcon.App(router=router, middleware=[Guard([host for host, _ in context.boot.listen], router)])
    app.add_error_handler(Exception, on_failure)
    app.add_error_handler(falcon.HTTPError, on_http_error)
    app.add_error_handler(ApiError, on_api_error)
    paths: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in OPERATIONS:
        paths[operation.path].append(operation)
    for path, operations in paths.items():
        app.add_route(path, Route(context, operations))
    site = Site()
    for path in site.paths:
        app.add_route(path, site)
    return app
