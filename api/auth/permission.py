"""The decision whether a request may be executed, by client, origin, role and task."""

from msgspec.structs import replace

from api.auth.identity import Identity, Role
from api.errors import ApiError
from api.operations.guard import check_origin
from api.operations.operation import Access, Call, Operation
from api.server.fair_semaphore import asking
from api.worker_context import Context
from store.runs import writes as store_runs
from supervisor.ipc import run_token

_VERBS = {
    "runTask": "run",
    "startService": "start",
    "stopService": "stop",
    "stopRun": "stop",
    "restartService": "restart",
    "pauseTask": "pause",
    "resumeTask": "resume",
}
"""The permission that a run needs for each operation."""
_OF_MANY_UNITS = frozenset(f"{verb}Units" for verb in ("start", "stop", "restart", "pause", "resume", "enable"))
"""Operations that affect only the units for which the run has the permission."""

UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def require(context: Context, operation: Operation, call: Call) -> None:
    """Authenticate the client, and check its origin and role.

    Raises:
        ApiError: 401 not authenticated; 403 not permitted; 429 too many wrong passwords.
    """
    auth, req = context.auth, call.req
    if operation.access in (Access.PUBLIC, Access.PROBE, Access.HOOK):
        return
    if operation.access is Access.METRICS and context.settings.metrics_open:
        return
    if operation.access is Access.LOGIN:
        check_origin(req)
        return
    if operation.access is Access.LOCAL and not auth.trusted_peer(req):
        raise ApiError(403, f"Permitted only to the daemon's own user, over the Unix socket{auth.distrust(req)}")
    asking.set(req.auth or req.get_header("Cookie"))  # queues the client by its credential until it is identified
    identity = call.identity = auth.identify(req)
    if identity is None:
        raise auth.refusal(req, f"Not authenticated{auth.distrust(req)}")
    asking.set(identity.credential or identity.name)
    if req.method in UNSAFE and identity.by_browser:
        check_origin(req)
    if identity.role < operation.role:
        raise ApiError(403, f"The role {identity.role_name} does not permit this operation")


def check_scope(context: Context, operation: Operation, call: Call) -> None:
    """Hide other tasks from a token or an account that is limited to some tasks.

    Raises:
        ApiError: 404 the request concerns another task; 403 it concerns the whole daemon.
    """
    identity = call.identity
    if identity is not None and identity.may is not None:
        call.identity = _of_a_run(context, operation, call, identity, identity.may)
        return
    if identity is None or identity.tasks is None:
        return
    name, run_id = call.path.get("taskName"), call.path.get("runId")
    if name is not None:
        if not identity.sees(name):
            raise ApiError(404, f'No task named "{name}"')
    elif run_id is not None:
        run = context.reads(store_runs.get_run, run_id, include_deleted=True)
        if run is None or not identity.sees(run.task_name):
            raise ApiError(404, f'No run with the id "{run_id}"')
    elif not operation.scoped:
        raise ApiError(
            403, f"This {'account' if identity.user else 'token'} is limited to tasks that match '{identity.tasks}'"
        )


def _of_a_run(context: Context, operation: Operation, call: Call, identity: Identity, may: tuple[str, ...]) -> Identity:
    """Return the identity of a run, limited to the one task or service that the request is about.

    Raises:
        ApiError: 403 the run lacks the permission; 404 there is no such run.
    """
    if operation.id in _OF_MANY_UNITS:  # the handler checks the names
        return identity
    name, run_id = call.path.get("taskName"), call.path.get("runId")
    if name is None and run_id is not None:
        run = context.reads(store_runs.get_run, run_id, include_deleted=True)
        if run is None or not run_token.concerns(may, run.task_name):
            raise ApiError(404, f'No run with the id "{run_id}"')
        name = run.task_name
    verb = _VERBS.get(operation.id)
    reads = operation.role <= Role.VIEWER and operation.method == "GET"
    if name is None or not (run_token.permits(may, verb, name) if verb else reads and run_token.concerns(may, name)):
        raise not_permitted(verb, name)
    return replace(identity, tasks=name)


def not_permitted(verb: str | None, name: str | None) -> ApiError:
    """Return a 403 for an operation that the run's ``may`` does not list."""
    needed = (
        f'add "{verb}:{name}" to its may' if verb and name else "a run may only use operations that its may key lists"
    )
    return ApiError(403, f"This run lacks a permission: {needed}")
