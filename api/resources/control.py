"""What is asked of a task or a service as a whole: start, stop, restart, pause, resume."""

import os
from typing import Any

from api.auth import asked
from api.context import Context
from api.identity import Role
from api.operation import Call, Operation
from api.params import flag

_REFUSALS = (404, 409, 422, 503)


def _ask(context: Context, call: Call, operation: str, **arguments: Any) -> None:
    asked(lambda: context.control.call(operation, task=call.path["taskName"], by=call.by, **arguments))
    call.no_content()


def start(context: Context, call: Call) -> None:
    """Start what of a service does not run."""
    _ask(context, call, "service_start")


def stop(context: Context, call: Call) -> None:
    """Stop a service; it stays down until it is started, or the daemon is."""
    _ask(context, call, "service_stop")


def restart(context: Context, call: Call) -> None:
    """Restart a service; started, too, when it is down."""
    # Its own id, which is stored: a scheduler that is asked again knows that it was carried out.
    _ask(context, call, "service_restart", rolling=bool(call.query["rolling"]), command=os.urandom(16).hex())


def pause(context: Context, call: Call) -> None:
    """Let the schedule of a task rest."""
    _ask(context, call, "task_pause")


def resume(context: Context, call: Call) -> None:
    """Let the schedule of a task go on, from now."""
    _ask(context, call, "task_resume")


OPERATIONS = (
    Operation(
        method="POST",
        path="/api/tasks/{taskName}/start",
        id="startService",
        role=Role.OPERATOR,
        summary="Start a service; what of it runs goes on.",
        handler=start,
        answers={204: None},
        refusals=_REFUSALS,
        tag="tasks",
    ),
    Operation(
        method="POST",
        path="/api/tasks/{taskName}/stop",
        id="stopService",
        role=Role.OPERATOR,
        summary="Stop a service; it stays down until it is started, or the daemon is.",
        handler=stop,
        answers={204: None},
        refusals=_REFUSALS,
        tag="tasks",
    ),
    Operation(
        method="POST",
        path="/api/tasks/{taskName}/restart",
        id="restartService",
        role=Role.OPERATOR,
        summary="Restart a service; one that is down starts.",
        handler=restart,
        query=(flag("rolling", "One instance after the other, each when the one before is ready."),),
        answers={204: None},
        refusals=_REFUSALS,
        tag="tasks",
    ),
    Operation(
        method="POST",
        path="/api/tasks/{taskName}/pause",
        id="pauseTask",
        role=Role.OPERATOR,
        summary="Let the schedule of a task rest until it is resumed.",
        handler=pause,
        answers={204: None},
        refusals=_REFUSALS,
        tag="tasks",
    ),
    Operation(
        method="POST",
        path="/api/tasks/{taskName}/resume",
        id="resumeTask",
        role=Role.OPERATOR,
        summary="Let the schedule of a task go on, from now.",
        handler=resume,
        answers={204: None},
        refusals=_REFUSALS,
        tag="tasks",
    ),
)
