"""Reading the configuration again."""

from api.auth.authentication import asked
from api.auth.identity import Role
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import flag
from api.schemas import records as schemas
from api.worker_context import Context


def reload(context: Context, call: Call) -> None:
    """Check everything, then apply what differs; or only say what would be done."""
    call.target = "dry run" if call.query["dry_run"] else ""
    arguments = {"by": call.by, "dry_run": bool(call.query["dry_run"])}
    found = asked(lambda: context.control.call_patiently("reload", **arguments))
    context.scheduler.forget()
    call.answer(
        schemas.Reloaded(
            added=found["added"],
            changed=[schemas.ChangedUnit(**one) for one in found["changed"]],
            removed=found["removed"],
            warnings=found["warnings"],
        )
    )


OPERATIONS = (
    Operation(
        method="POST",
        path="/api/daemon/reload",
        id="reloadDaemon",
        role=Role.ADMIN,
        summary="Reload the configuration and apply the differences.",
        handler=reload,
        query=(flag("dry_run", "Only show the changes."),),
        answers={200: json_of(schemas.Reloaded)},
        refusals=(409, 422, 503),
        tag="daemon",
    ),
)
