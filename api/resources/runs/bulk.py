"""Handlers for bulk operations on selected runs: delete, restore, stop, run again."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import gevent
from msgspec import UNSET, Meta, Struct, UnsetType

from api.auth.authentication import execute_command
from api.auth.identity import Role
from api.errors import unavailable
from api.operations.operation import Call, Content, Operation, json_of
from api.operations.parameters import (
    INT64_MAX,
    INT64_MIN,
    STATUSES,
    QueryParameter,
    choice,
    flag,
    instant,
    raise_all,
    statuses,
    text,
)
from api.schemas import records as schemas
from api.schemas import run_view
from api.schemas.records import TRIGGERS, Body, DateTime, ErrorDetail, Int64
from api.schemas.wire_times import rfc3339
from api.server.thread_pool import run_in
from api.worker_context import Context
from store.runs.ids import is_ulid, new_ulid
from supervisor.ipc.control_client import NotSent, TemporarilyUnavailable, Unavailable
from supervisor.ipc.plural import NAMED, counted_with_names

BODY_LIMIT_BYTES = 16 << 20
_ID_CHARACTERS = 26

_STATUS = statuses("status", "")
_TRIGGER = choice("triggered_by", "", TRIGGERS)
_AFTER = instant("created_after", "", up=True)
_BEFORE = instant("created_before", "", up=False)


def _int64(value: int) -> None:
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"must be between {INT64_MIN} and {INT64_MAX}")


def _unless_empty(parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: parse(text) if text else None


class SelectorFilter(Struct, kw_only=True, forbid_unknown_fields=True):
    """Conditions that a selected run must all meet. An empty string sets no condition."""

    created_after: Annotated[DateTime, Meta(description="Created at this time or after.")] | UnsetType = UNSET
    created_before: Annotated[DateTime, Meta(description="Created at this time or before.")] | UnsetType = UNSET
    exit_code_min: Annotated[Int64, Meta(description="Exit code at least this.")] | UnsetType = UNSET
    exit_code_max: Annotated[Int64, Meta(description="Exit code at most this.")] | UnsetType = UNSET
    retries_only: Annotated[bool, Meta(description="Only retries.")] | UnsetType = UNSET
    search: Annotated[str, Meta(description="Part of the task's name or of the id; case-insensitive.")] | UnsetType = (
        UNSET
    )
    status: (
        Annotated[
            str,
            Meta(
                description="Comma-separated phases and end reasons; a run matches any of them.",
                extra_json_schema={"pattern": STATUSES},
            ),
        ]
        | UnsetType
    ) = UNSET
    task_name: Annotated[str, Meta(description="Only this task's runs.")] | UnsetType = UNSET
    triggered_by: (
        Annotated[str, Meta(title="TriggerFilter", extra_json_schema={"enum": [*TRIGGERS, ""]})] | UnsetType
    ) = UNSET

    checks: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "created_after": _AFTER.parse,
        "created_before": _BEFORE.parse,
        "exit_code_min": _int64,
        "exit_code_max": _int64,
        "status": _STATUS.parse,
        "triggered_by": _unless_empty(_TRIGGER.parse),
    }


class RunSelector(Body, kw_only=True):
    """A selection of runs, by filter or by id."""

    match_all: (
        Annotated[bool, Meta(description="True: every run that matches the filter. Else: the runs in ids.")]
        | UnsetType
        | None
    ) = UNSET
    filter: SelectorFilter | UnsetType = UNSET
    except_ids: Annotated[list[str], Meta(description="Ids to exclude; only with match_all.")] | UnsetType | None = (
        UNSET
    )
    ids: Annotated[list[str], Meta(description="Ids to select; only without match_all.")] | UnsetType | None = UNSET


def arguments_of(selector: RunSelector, tasks: str | None) -> dict[str, Any]:
    """Return the selector as arguments of the scheduler's command, limited to `tasks` (a glob; None for all tasks).

    Fields of the other kind of selection are left empty. Strings that cannot be ids are removed.
    """
    match_all = bool(selector.match_all)
    return {
        "match_all": match_all,
        "filter": {"tasks": tasks, **(_conditions(selector.filter or SelectorFilter()) if match_all else {})},
        "except_ids": _packed(selector.except_ids) if match_all else "",
        "ids": "" if match_all else _packed(selector.ids),
    }


def _packed(ids: list[str] | UnsetType | None) -> str:
    """Join the valid ids without separators; each is 26 characters long."""
    return "".join(run_id for run_id in dict.fromkeys(ids or ()) if is_ulid(run_id))


def _conditions(run_filter: SelectorFilter) -> dict[str, object]:
    conditions: dict[str, object] = {"retries_only": run_filter.retries_only is True}
    if run_filter.status:
        conditions["phases"], conditions["reasons"] = run_view.split_status(
            _STATUS.parse(run_filter.status), folded=False
        )
    if run_filter.triggered_by:
        conditions["triggers"] = (run_filter.triggered_by,)
    if run_filter.task_name:
        conditions["task_name"] = run_filter.task_name
    if run_filter.search:
        conditions["search"] = run_filter.search
    if run_filter.created_after is not UNSET:
        conditions["created_after"] = _AFTER.parse(run_filter.created_after)
    if run_filter.created_before is not UNSET:
        conditions["created_before"] = _BEFORE.parse(run_filter.created_before)
    for name in ("exit_code_min", "exit_code_max"):
        code = getattr(run_filter, name)
        if code is not UNSET:
            conditions[name] = code
    return conditions


def text_of(selector: RunSelector, ids: str, except_ids: str, deleted_at: int | None) -> str:
    """Describe a selection for the audit log: its conditions, or its number of ids and the first of them."""
    if not selector.match_all:
        return ids if len(ids) == _ID_CHARACTERS else _counted(ids)
    run_filter = selector.filter or SelectorFilter()
    texts = (
        ("task", run_filter.task_name),
        ("status", run_filter.status),
        ("trigger", run_filter.triggered_by),
        ("search", run_filter.search),
        ("created after", run_filter.created_after),
        ("created before", run_filter.created_before),
        ("exit code from", run_filter.exit_code_min),
        ("exit code to", run_filter.exit_code_max),
        ("deleted at", UNSET if deleted_at is None else rfc3339(deleted_at)),
    )
    parts = [f"{name} {value}" for name, value in texts if value is not UNSET and value != ""]
    if run_filter.retries_only is True:
        parts.append("retries only")
    if except_ids:
        parts.append(f"without {_counted(except_ids)}")
    return f"runs with {', '.join(parts)}" if parts else "all runs"


def _counted(ids: str) -> str:
    first = [ids[at : at + _ID_CHARACTERS] for at in range(0, min(len(ids), NAMED * _ID_CHARACTERS), _ID_CHARACTERS)]
    return counted_with_names(first, "run", len(ids) // _ID_CHARACTERS)


def _ask(context: Context, call: Call, operation: str, **more: Any) -> dict[str, Any]:
    # Use a thread, because half a million ids take a second.
    selected = run_in(gevent.get_hub().threadpool, arguments_of, call.body, call.tasks)
    call.target = text_of(call.body, selected["ids"], selected["except_ids"], more.get("deleted_at"))
    call.body = None  # it uses several times the memory of the arguments

    def command() -> dict[str, object]:
        try:
            arguments = {"by": call.by, **selected, **more}
            return context.control.call_patiently(operation, call.entry(), command=new_ulid(), **arguments)
        except Unavailable as err:
            if operation == "bulk_rerun":  # a repetition would run all tasks twice
                if isinstance(err, TemporarilyUnavailable | NotSent):
                    raise
                message = "The scheduler is down; check whether the tasks have run before you repeat this"
                raise unavailable(message) from err
            reason = str(err).partition(" (")[0]  # the rest contains paths
            raise unavailable(f"The operation may be incomplete; repeat it to finish the rest: {reason}") from err

    return execute_command(command)


def _result(answer: dict[str, Any]) -> str:
    """Return the number of changed runs and the first of them, for the audit log."""
    return counted_with_names(answer.get("first", []), "run", answer["affected"])


def _operation(name: str, answer: Content, *, query: tuple[QueryParameter, ...] = ()) -> Operation:
    return Operation(
        "POST",
        f"/api/runs/bulk/{name}",
        role=Role.OPERATOR,
        scoped=True,
        query=query,
        body=RunSelector,
        body_required=True,
        body_limit_bytes=BODY_LIMIT_BYTES,
        answers={200: answer},
    )


@_operation(
    "delete",
    json_of((schemas.Deleted, schemas.Affected)),
    query=(flag("undo", "Add deleted_at to the response; it identifies this deletion when restoring."),),
)
def bulk_delete_runs(context: Context, call: Call) -> None:
    """Delete all selected ended runs; they can be restored within the undo window."""
    answer = _ask(context, call, "bulk_delete")
    affected: int = answer["affected"]
    call.result = _result(answer)
    if call.query["undo"]:
        call.answer(schemas.Deleted(affected=affected, deleted_at=rfc3339(answer["deleted_at"])))
    else:
        call.answer(schemas.Affected(affected=affected))


@_operation(
    "restore",
    json_of(schemas.Affected),
    query=(instant("deleted_at", "Only runs of the deletion that returned this time.", up=False),),
)
def bulk_restore_runs(context: Context, call: Call) -> None:
    """Restore all selected deleted runs within the undo window."""
    answer = _ask(context, call, "bulk_restore", deleted_at=call.query["deleted_at"])
    call.result = _result(answer)
    call.answer(schemas.Affected(affected=answer["affected"]))


@_operation("stop", json_of(schemas.Affected))
def bulk_stop_runs(context: Context, call: Call) -> None:
    """Stop all selected runs that have not ended."""
    answer = _ask(context, call, "bulk_stop")
    call.result = _result(answer)
    call.answer(schemas.Affected(affected=answer["affected"]))


@_operation(
    "rerun",
    json_of(schemas.Triggered),
    query=(
        flag("failed", "Let flows continue: the next attempt repeats only what did not succeed."),
        text("from_step", "Let flows continue: the next attempt repeats this step and all behind it, too."),
    ),
)
def bulk_rerun_runs(context: Context, call: Call) -> None:
    """Run the tasks of the selected runs again, each once, with the parameters of its newest selected run."""
    who = {"by": call.by_way} if call.identity is None else {"by": call.by_way, "credential": call.identity.counted_as}
    trigger = "api" if call.identity is None else call.identity.trigger
    how = {name: call.query[name] for name in ("failed", "from_step") if call.query[name]}
    if len(how) > 1:
        raise_all([ErrorDetail("query.from_step", "cannot be combined with failed", call.query["from_step"])])
    triggered = _ask(context, call, "bulk_rerun", triggered_by=trigger, **who, **how)["triggered"]
    call.result = counted_with_names([f"{run['task_name']} {run['run_id']}" for run in triggered], "run")
    call.answer(schemas.Triggered(triggered=[schemas.TriggeredRun(**run) for run in triggered]))
