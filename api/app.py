"""The Falcon application: routes from the table of operations, error handling, and the guard."""

import contextlib
import functools
import ipaddress
from collections import defaultdict

import falcon
from falcon.routing import CompiledRouter
from gevent.event import Event

from api import openapi
from api.auth import permission
from api.auth.auditor import Auditor, reason_of
from api.auth.authentication import Authenticator, address_of
from api.errors import ApiError, on_api_error, on_failure, on_http_error, shortage, unavailable, unreadable
from api.host_info.host_facts import System
from api.operation_table import OPERATIONS
from api.operations import body
from api.operations.body import KNOWN, STRANGERS
from api.operations.guard import Guard, check_deadline
from api.operations.operation import Call, Operation
from api.operations.parameters import parse_path, parse_query, raise_all
from api.read_threads import DamageReport, DatabaseReads, LogFileReads
from api.resources.pages import Site
from api.server.client_address import Exposure
from api.server.memory_watch import MemoryWatch
from api.server.thread_pool import Threads
from api.streams.ring_follower import Feeds
from api.worker_context import Context
from store.database import load_driver
from store.errors import StoreError
from supervisor.host.shortage import is_shortage
from supervisor.ipc.control_client import CommandEntry, ControlClient, NotSent
from supervisor.ipc.messages import STARTING, DaemonSettings


class PathRoute:
    """All operations of one path."""

    def __init__(self, application: "Application", operations: list[Operation]) -> None:
        self._application = application
        self.allow: list[str] = ["OPTIONS"]
        for operation in operations:
            methods = ["GET", "HEAD"] if operation.method == "GET" else [operation.method]
            self.allow += methods
            for method in methods:
                setattr(self, f"on_{method.lower()}", functools.partial(self._run, operation))
        self.allow.sort()

    def on_options(self, _req: falcon.Request, resp: falcon.Response, **_path: str) -> None:
        """Send the methods that the path allows."""
        resp.status = 204
        resp.set_header("Allow", ", ".join(self.allow))

    def _run(self, operation: Operation, req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        call = Call(req, resp, path, {})
        call.on_done = functools.partial(self._record, operation, call, reason="")
        if req.method in permission.UNSAFE:
            call.new_entry = functools.partial(self._entry, operation, call, next(iter(operation.answers)))
        try:
            self._carry_out(operation, call)
        except ApiError as err:
            # `NotSent`: the scheduler does not listen yet, so the request certainly had no effect.
            starting = isinstance(err.__cause__, NotSent) and self._application.context.starting
            refusal = unavailable(STARTING) if starting else err
            self._record(operation, call, refusal.status, reason_of(refusal))
            raise refusal from err.__cause__
        except StoreError as err:
            self._application.context.reads.log_unreadable(operation.id, err)
            refusal = unavailable(STARTING) if self._application.context.starting else unreadable(err)
            self._record(operation, call, refusal.status, refusal.detail)
            raise refusal from err
        except Exception as err:
            if not is_shortage(err):
                self._record(operation, call, 500, "internal error of the daemon")
                raise
            refusal = shortage(operation.id, err)
            self._record(operation, call, refusal.status, refusal.detail)
            raise refusal from err
        self._record(operation, call, resp.status_code, "")

    def _carry_out(self, operation: Operation, call: Call) -> None:
        misnamed = parse_path(call.path)
        if not misnamed:
            call.target = " ".join(call.path.values())
        permission.require(self._application.context, operation, call)
        call.query, errors = parse_query(operation.query, call.req.query_string)
        if (deprecated := operation.deprecation(call.req.query_string)) is not None:
            call.resp.set_header("Deprecation", deprecated.header)
        errors = misnamed + errors
        if not errors:
            permission.check_scope(self._application.context, operation, call)
        budget = STRANGERS if call.identity is None else KNOWN
        with budget.holding() as take:
            if operation.media and not errors:
                call.body = body.read(call.req, operation.body_limit_bytes, take)
            elif operation.accepts is not None:
                try:
                    call.body = body.decode(
                        call.req,
                        operation.accepts,
                        required=operation.body_required,
                        limit_bytes=operation.body_limit_bytes,
                        take=take,
                        thread=budget.thread,
                    )
                except ApiError as err:
                    if not errors:
                        raise
                    errors += err.errors
            raise_all(errors)
            if call.req.method in permission.UNSAFE:
                check_deadline(call.req)
            operation.handler(self._application.context, call)

    def _record(self, operation: Operation, call: Call, status: int, reason: str) -> None:
        """Record a response for the memory watch, and an unsafe request of a known client for the audit log.

        Wrong passwords are recorded where they are checked.
        """
        self._application.memory.record(operation.id, status)
        if call.audited or call.identity is None or call.req.method not in permission.UNSAFE:
            return
        call.audited = True
        sent = call.sent_entry
        if sent is None or not sent.stored:
            entry = self._entry(operation, call, status, reason or call.result)
            if sent is not None:
                entry.key = sent.key  # the scheduler may have stored it without an answer
            self._application.context.auditor.record(entry)

    def _entry(self, operation: Operation, call: Call, status: int, reason: str | None = None) -> CommandEntry:
        return self._application.context.auditor.entry(
            operation.id,
            who=call.by,
            address=address_of(call.req),
            status=status,
            target=call.target,
            reason=call.result if reason is None else reason,
        )


def open_context(settings: DaemonSettings, daemon_pid: int) -> Context:
    """Create the context of one worker. Call this after the fork."""
    with contextlib.suppress(StoreError):  # the first read reports the error
        load_driver(settings.database)
    control = ControlClient(settings.control_socket, settings.token)
    report = DamageReport(control).send
    reads, pages = DatabaseReads(settings.database, report), DatabaseReads(settings.database, report)
    threads = Threads(1)
    auditor = Auditor(control, settings.audit_dir)
    auth = Authenticator(settings, reads, threads, control, auditor)
    feeds = Feeds(settings, reads, auth.valid)
    files, stopping, system = LogFileReads(), Event(), System()
    return Context(
        settings, reads, pages, files, threads, control, auth, auditor, feeds, stopping, daemon_pid, system, openapi
    )


class Application:
    """The Falcon application. The arbiter builds it before it forks, so that workers share its memory."""

    context: Context
    """The context of this worker."""
    memory: MemoryWatch

    def __init__(self) -> None:
        self._router = CompiledRouter()
        self._app = falcon.App(router=self._router)
        self._app.add_error_handler(Exception, on_failure)
        self._app.add_error_handler(falcon.HTTPError, on_http_error)
        self._app.add_error_handler(ApiError, on_api_error)
        paths: defaultdict[str, list[Operation]] = defaultdict(list)
        for operation in OPERATIONS:
            paths[operation.path].append(operation)
        for path, operations in paths.items():
            self._app.add_route(path, PathRoute(self, operations))
        site = Site()
        for path in (*site.paths, "/static/{digest}/{name:path}"):
            self._app.add_route(path, site)
        # This compiles the routes now: without memory for that, the server must fail before it serves.
        self._router.find("/")

    def connect(self, context: Context, memory: MemoryWatch) -> falcon.App[falcon.Request, falcon.Response]:
        """Return the application with the context of this worker. Call this once, after the fork."""
        self.context, self.memory = context, memory
        settings = context.settings
        # 0.0.0.0 is not a name of this host, although browsers can reach it that way. Connections have the real
        # address.
        bound = [host for host, _ in settings.listen if not ipaddress.ip_address(host).is_unspecified]
        self._app.add_middleware(Guard([*bound, *settings.hosts], Exposure(settings), self._router))
        return self._app
