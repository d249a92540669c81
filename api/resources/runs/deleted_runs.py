"""Deleted runs, as long as they can be restored."""

import time
from typing import Any

from api.auth.identity import Role
from api.operations.operation import Call, Operation, json_of
from api.resources.daemon.daemon import META_KEY as INFO_KEY
from api.resources.runs.runs import filter_of, list_params
from api.schemas import run_view
from api.schemas.run_details import DeletedRun, DeletedRuns
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store.database import Database
from store.meta import get_meta
from store.runs.deleted import list_deleted
from store.runs.filter import RunFilter
from store.runs.writes import Run

_OF_OTHER_LISTS = {"sort_field", "sort_direction", "naming"}


def _shown(run: Run) -> DeletedRun:
    shown = run_view.camel(run)
    fields: dict[str, Any] = {name: getattr(shown, name) for name in shown.__struct_fields__}
    return DeletedRun(**fields, deleted_at=rfc3339(run.deleted_at or 0))


def _deleted(db: Database, wanted: RunFilter, limit: int, offset: int) -> tuple[list[Run], int]:
    """Without those whose time is over and that are still to be removed."""
    info: dict[str, Any] = get_meta(db, INFO_KEY) or {}
    window_ms = info.get("undo_window_ms")  # a scheduler of the release before does not tell
    after = 0 if window_ms is None else time.time_ns() // 1_000_000 - window_ms
    return list_deleted(db, wanted, limit, offset, after)


def list_runs(context: Context, call: Call) -> None:
    """Deleted runs, the last deletion first."""
    wanted = filter_of(call, camel=False, folded=False, task=None)
    found, total = context.pages(_deleted, wanted, call.query["limit"], call.query["offset"])
    call.answer(DeletedRuns(runs=[_shown(run) for run in found], total=total))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs/deleted",
        id="listDeletedRuns",
        role=Role.VIEWER,
        scoped=True,
        summary="List the deleted runs that can be restored, the last deletion first.",
        handler=list_runs,
        query=tuple(param for param in list_params(camel=False) if param.name not in _OF_OTHER_LISTS),
        answers={200: json_of(DeletedRuns)},
        refusals=(422,),
    ),
)
