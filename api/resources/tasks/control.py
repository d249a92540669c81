"""What is asked of a task or a service as a whole: start, stop, restart, pause, resume."""

import os
from collections.abc import Callable
from typing import Any

from api.auth.authentication import asked
from api.auth.identity import Role
from api.operations.operation import Call, Operation
from api.operations.parameters import Param, flag
from api.worker_context import Context


def _ask(context: Context, call: Call, operation: str, **arguments: Any) -> None:
    asked(lambda: context.control.call(operation, task=call.path["taskName"], by=call.by, **arguments))
    call.no_content()


def start(context: Context, call: Call) -> None:
    """Start what of a service does not run."""
    _ask(context, call, "service_start")


def stop(context: Context, call: Call) -> None:
    """Stop a service until it is started or the daemon restarts."""
    _ask(context, call, "service_stop")


def restart(context: Context, call: Call) -> None:
    """Restart a service; started, too, when it is down."""
    # Its own id, which is stored: a scheduler that is asked again knows that it was carried out.
    _ask(context, call, "service_restart", rolling=bool(call.query["rolling"]), command=os.urandom(16).hex())


def pause(context: Context, call: Call) -> None:
    """Let the schedule of a task rest."""
    _ask(context, call, "task_pause")


def resume(context: Context, call: Call) -> None:
    """Resume a task's schedule from now on."""
    _ask(context, call, "task_resume")


def _command(
    verb: str, kind: str, handler: Callable[[Context, Call], None], summary: str, query: tuple[Param, ...] = ()
) -> Operation:
    return Operation(
        method="POST",
        path=f"/api/tasks/{{taskName}}/{verb}",
        id=f"{verb}{kind}",
        role=Role.OPERATOR,
        summary=summary,
        handler=handler,
        query=query,
        answers={204: None},
        refusals=(404, 409, 422, 503),
        tag="tasks",
    )


OPERATIONS = (
    _command("start", "Service", start, "Start a service; running instances continue."),
    _command("stop", "Service", stop, "Stop a service until it is started or the daemon restarts."),
    _command(
        "restart",
        "Service",
        restart,
        "Restart a service; a stopped service starts.",
        (flag("rolling", "Restart one instance after the other, each when the previous one is ready."),),
    ),
    _command("pause", "Task", pause, "Pause a task's schedule until it is resumed."),
    _command("resume", "Task", resume, "Resume a task's schedule from now on."),
)
