"""Handlers for what clients did: the audit log, and the changes of one task or service."""

import fnmatch

from msgspec import UNSET

from api.auth.identity import Role
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import RUN_ID, instant, integer
from api.operations.parameters import text as text_param
from api.resources.tasks import the_unit
from api.schemas import access as schemas
from api.schemas.records import Task
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store import audit
from store.audit import AuditEntry, ChosenEntries, StoredEntry
from store.runs import definitions, runs_by_unit

_REJECTED = 400
_CHANGES = (
    *("startService", "stopService", "restartService", "pauseTask", "resumeTask"),
    *("acknowledgeTask", "acknowledgeRun", "unacknowledgeTask"),
    *("startUnits", "stopUnits", "restartUnits", "enableUnits", "pauseUnits", "resumeUnits"),
)
"""Operations that change a task or service."""
_READ = 2000
"""Number of changes of all units that are searched for those of one."""
_RELOAD_MS = 60_000
"""Maximum time between the request of a reload and its effect."""


def _shown(stored: StoredEntry, tasks: dict[str, str]) -> schemas.AuditEntry:
    entry = stored.entry
    rejected = entry.status >= _REJECTED
    return schemas.AuditEntry(
        id=stored.id,
        at=rfc3339(entry.at),
        who=entry.who or UNSET,
        from_=entry.address,
        operation=entry.operation,
        target=entry.target or UNSET,
        task_name=tasks.get(entry.target, UNSET),
        status=entry.status,
        result=UNSET if rejected else entry.reason or UNSET,
        reason=entry.reason or UNSET if rejected else UNSET,
    )


@Operation(
    "GET",
    "/api/audit",
    role=Role.ADMIN,
    query=(
        text_param("who", "Only requests of clients whose names contain this text, in any case."),
        text_param("operation", "Only requests of this operation: its `operationId`."),
        text_param("target", "Only requests whose target contains this text, in any case."),
        instant("since", "Only requests at this time or later.", up=True),
        instant("until", "Only requests at this time or earlier.", up=False),
        integer("before", "Only entries older than this one: nextCursor of the previous page.", minimum=1),
        integer("limit", "Page size.", 50, minimum=1, maximum=500),
    ),
    answers={200: json_of(schemas.Audit)},
    tag="daemon",
)
def list_audit(context: Context, call: Call) -> None:
    """List who did what, newest first."""
    query = call.query
    limit: int = query["limit"]
    chosen = ChosenEntries(
        who=query["who"],
        operations=None if query["operation"] is None else (query["operation"],),
        target=query["target"],
        since=query["since"],
        until=query["until"],
    )
    entries = context.reads(audit.entries, query["before"], limit + 1, chosen)
    cursor = entries[limit - 1].id if len(entries) > limit else UNSET
    ids = {stored.entry.target for stored in entries if RUN_ID.pattern.match(stored.entry.target)}
    tasks = {run.id: run.task_name for run in context.reads(runs_by_unit.runs_by_id, ids)}
    call.answer(schemas.Audit(items=[_shown(entry, tasks) for entry in entries[:limit]], next_cursor=cursor))


@Operation(
    "GET",
    "/api/tasks/{taskName}/changes",
    role=Role.VIEWER,
    query=(integer("limit", "Maximum number of changes.", 50, minimum=1, maximum=200),),
    answers={200: json_of(schemas.UnitHistory)},
    refusals=(404,),
    tag="tasks",
)
def list_unit_changes(context: Context, call: Call) -> None:
    """List who started, stopped, paused, acknowledged or edited a task or service, newest first."""
    unit = the_unit(context, call.path["taskName"])
    limit: int = call.query["limit"]
    done = context.reads(audit.entries, None, _READ, ChosenEntries(operations=_CHANGES, done=True))
    concerned = [stored.entry for stored in done if _concerns(stored.entry.target, unit)][:limit]
    changes = [
        (
            entry.at,
            schemas.HistoryEntry(
                at=rfc3339(entry.at), by=entry.who or UNSET, operation=entry.operation, note=_note(entry) or UNSET
            ),
        )
        for entry in concerned
    ]
    for at in context.reads(definitions.replaced_times, unit.name, limit):
        chosen = ChosenEntries(operations=("reloadDaemon",), since=at - _RELOAD_MS, until=at, done=True)
        reloads = [stored.entry for stored in context.reads(audit.entries, None, 1, chosen) if not stored.entry.target]
        by = reloads[0].who if reloads else UNSET
        changes.append((at, schemas.HistoryEntry(at=rfc3339(at), by=by, operation="edited")))
    changes.sort(key=_time_of, reverse=True)
    call.answer(schemas.UnitHistory(items=[change for _, change in changes[:limit]]))


def _time_of(change: tuple[int, schemas.HistoryEntry]) -> int:
    return change[0]


def _note(entry: AuditEntry) -> str:
    """Return the end and the note of a change, without the names of other units that it changed too."""
    return entry.reason.partition("; ")[2] if entry.operation.endswith("Units") else entry.reason


def _concerns(target: str, unit: Task) -> bool:
    """Return whether a target, as the audit describes a selector, includes a unit by its present group and tags."""
    parts = target.split(", ")
    names = [part for part in parts if not part.startswith(("group ", "tag ")) and part != "all"]
    if names and not any(fnmatch.fnmatchcase(unit.name, name) for name in names):
        return False
    group = "" if unit.group is UNSET else unit.group
    of_unit = {f"group {group}", *(f"tag {tag}" for tag in unit.tags)}
    return all(part in of_unit for part in parts if part not in names and part != "all")
