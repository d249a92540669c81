"""Many runs at once: delete, restore, stop, run again."""

from typing import Any

import gevent

from api.auth.authentication import asked
from api.auth.identity import Role
from api.errors import unavailable
from api.operations import run_selector
from api.operations.operation import Call, Content, Operation, json_of
from api.operations.parameters import Param, flag, instant
from api.schemas import records as schemas
from api.schemas.wire_times import rfc3339
from api.server.thread_pool import run_in
from api.worker_context import Context
from store.runs.ids import new_ulid
from supervisor.ipc.control_client import CannotNow, NotSent, Unavailable


def _ask(context: Context, call: Call, operation: str, **more: Any) -> dict[str, Any]:
    # In a thread: to go through half a million ids takes a second.
    selected = run_in(gevent.get_hub().threadpool, run_selector.arguments_of, call.body, call.tasks)
    call.body = None  # which takes several times as much memory

    def command() -> dict[str, Any]:
        try:
            return context.control.call_patiently(operation, command=new_ulid(), by=call.by, **selected, **more)
        except Unavailable as err:
            if operation == "bulk_rerun":  # which is done as a whole, and would be done twice
                if isinstance(err, CannotNow | NotSent):
                    raise
                told = "The scheduler is away; see whether the tasks have run before they run again"
                raise unavailable(told) from err
            why = str(err).partition(". (")[0]  # behind it are paths
            raise unavailable(f"Perhaps only part of it was done; asked again, the rest is: {why}") from err

    return asked(command)


def delete(context: Context, call: Call) -> None:
    """Delete what has ended."""
    found = _ask(context, call, "bulk_delete")
    affected: int = found["affected"]
    if call.query["undo"]:
        call.answer(schemas.Deleted(affected=affected, deleted_at=rfc3339(found["deleted_at"])))
    else:
        call.answer(schemas.Affected(affected=affected))


def restore(context: Context, call: Call) -> None:
    """Restore what was deleted."""
    found = _ask(context, call, "bulk_restore", deleted_at=call.query["deleted_at"])
    call.answer(schemas.Affected(affected=found["affected"]))


def stop(context: Context, call: Call) -> None:
    """Stop what has not ended."""
    call.answer(schemas.Affected(affected=_ask(context, call, "bulk_stop")["affected"]))


def rerun(context: Context, call: Call) -> None:
    """Run each task behind the runs once."""
    who = {} if call.identity is None else {"credential": call.identity.counted_as}
    trigger = "api" if call.identity is None else call.identity.trigger
    triggered = _ask(context, call, "bulk_rerun", triggered_by=trigger, **who)["triggered"]
    call.answer(schemas.Triggered(triggered=[schemas.TriggeredRun(**one) for one in triggered]))


def _operation(
    name: str,
    summary: str,
    handler: Any,
    answer: Content,
    *,
    query: tuple[Param, ...] = (),
    refusals: tuple[int, ...] = (422, 503),
) -> Operation:
    return Operation(
        method="POST",
        path=f"/api/runs/bulk/{name}",
        id=f"bulk{name.capitalize()}Runs",
        role=Role.OPERATOR,
        scoped=True,
        summary=summary,
        handler=handler,
        query=query,
        body=run_selector.RunSelector,
        body_required=True,
        body_limit_bytes=run_selector.BODY_LIMIT_BYTES,
        answers={200: answer},
        refusals=refusals,
    )


OPERATIONS = (
    _operation(
        "delete",
        "Delete all selected ended runs; they can be restored within the undo window.",
        delete,
        json_of((schemas.Deleted, schemas.Affected)),
        query=(flag("undo", "Add deleted_at to the response, with which exactly these runs can be restored."),),
    ),
    _operation(
        "rerun",
        "Run the tasks of the selected runs again, each once, with the parameters of its newest run.",
        rerun,
        json_of(schemas.Triggered),
        refusals=(409, 422, 503),
    ),
    _operation(
        "restore",
        "Restore all selected deleted runs within the undo window.",
        restore,
        json_of(schemas.Affected),
        query=(instant("deleted_at", "Only runs of the deletion that returned this time.", up=False),),
    ),
    _operation(
        "stop",
        "Stop all selected runs that have not ended.",
        stop,
        json_of(schemas.Affected),
    ),
)
