"""Health checks: no details, no authentication, any Host."""

import os

from api.auth.identity import Role
from api.errors import unavailable
from api.host_info.database_problem import database_problem
from api.operations.operation import Access, Call, Operation, json_of
from api.schemas import records as schemas
from api.worker_context import Context


def health(_context: Context, call: Call) -> None:
    """This process answers."""
    call.answer(schemas.Health())


def ready(context: Context, call: Call) -> None:
    """The scheduler answers as well, and can store what it does."""
    info = context.scheduler.info(context)
    if not os.path.isdir(context.boot.runtime_dir):
        raise unavailable("Not ready: the runtime directory was removed")
    if info is None or not info.get("storing", True):
        problem = database_problem(context.boot)
        raise unavailable("Not ready" if problem is None else f"Not ready: {problem['summary']}")
    call.answer(schemas.Health(status="degraded" if info.get("degraded") else "ok"))


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        id="getHealth",
        role=Role.ANYBODY,
        summary="Check that the API server is up.",
        handler=health,
        answers={200: json_of(schemas.Health)},
        access=Access.PROBE,
        tag="health",
    ),
    Operation(
        method="GET",
        path="/readyz",
        id="getReadiness",
        role=Role.ANYBODY,
        summary="Check that commands are accepted and stored.",
        handler=ready,
        answers={200: json_of(schemas.Health)},
        refusals=(503,),
        access=Access.PROBE,
        tag="health",
    ),
)
