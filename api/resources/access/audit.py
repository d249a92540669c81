"""Who did what."""

from msgspec import UNSET

from api.auth.identity import Role
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import integer
from api.schemas import records as schemas
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store import audit
from store.audit import StoredEntry


def _shown(stored: StoredEntry) -> schemas.AuditEntry:
    entry = stored.entry
    return schemas.AuditEntry(
        id=stored.id,
        at=rfc3339(entry.at),
        who=entry.who or UNSET,
        from_=entry.address,
        operation=entry.operation,
        target=entry.target or UNSET,
        status=entry.status,
        reason=entry.reason or UNSET,
    )


def list_audit(context: Context, call: Call) -> None:
    """A page of entries, newest first."""
    limit: int = call.query["limit"]
    found = context.reads(audit.entries, call.query["before"], limit)
    cursor = found[-1].id if len(found) == limit else UNSET
    call.answer(schemas.Audit(items=[_shown(entry) for entry in found], next_cursor=cursor))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/audit",
        id="listAudit",
        role=Role.ADMIN,
        summary="List who did what, newest first.",
        handler=list_audit,
        query=(
            integer("before", "Only entries before this one: nextCursor of the previous page.", minimum=1),
            integer("limit", "Page size.", 50, minimum=1, maximum=500),
        ),
        answers={200: json_of(schemas.Audit)},
        refusals=(422,),
        tag="daemon",
    ),
)
