"""Handlers for commands to several tasks and services at once, chosen by a selector."""

import os
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from api.auth.identity import Role
from api.auth.permission import not_permitted
from api.errors import invalid
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import QueryParameter, flag
from api.schemas.pauses import noted, pause_of
from api.schemas.records import Body, Document, ErrorDetail, Int64, PauseEnd, PauseNote, Ulid
from api.worker_context import Context
from supervisor.ipc import run_token
from supervisor.ipc.plural import counted_with_names

_MOST_GLOBS = 32
"""Maximum number of globs: the scheduler matches each with the names of all units."""
_GLOB = frozenset("*?[")

Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[a-zA-Z0-9._:*?\[\]!^-]+$")]
Label = Annotated[str, Meta(min_length=1, max_length=1000)]


class UnitSelector(Body, kw_only=True):
    """A choice of tasks and services: by names, narrowed by group and tag; or all. An empty selector is invalid."""

    names: (
        Annotated[list[Name], Meta(min_length=1, max_length=1000, description="Names and globs; any of them.")]
        | UnsetType
        | None
    ) = UNSET
    group: Annotated[Label, Meta(description="Only units of this group.")] | UnsetType | None = UNSET
    tag: Annotated[Label, Meta(description="Only units with this tag.")] | UnsetType | None = UNSET
    all: Annotated[bool, Meta(description="All units that the command fits; without other fields.")] | UnsetType = UNSET


class UnitStart(UnitSelector, kw_only=True):
    """The services to start."""

    enable: Annotated[bool, Meta(description="Also start disabled services, and enable them.")] | UnsetType = UNSET


class UnitStop(UnitSelector, kw_only=True):
    """The tasks and services to stop."""

    disable: (
        Annotated[
            bool,
            Meta(
                description="Only services: they stay stopped until they are enabled, also when the daemon or the host "
                "restarts."
            ),
        ]
        | UnsetType
    ) = UNSET
    note: (
        Annotated[str, Meta(max_length=1000, description="Why, for others; only together with `disable`.")]
        | UnsetType
        | None
    ) = UNSET


class UnitPause(UnitSelector, kw_only=True):
    """The tasks to pause."""

    until: PauseEnd | UnsetType | None = UNSET
    note: PauseNote | UnsetType | None = UNSET


UNAFFECTED = ("unchanged", "busy", "disabled")
RESULTS = ("started", "stopped", "restarted", "paused", "resumed", "enabled", *UNAFFECTED)


class UnitResult(Struct, kw_only=True, rename="camel"):
    """The result for one task or service."""

    name: str
    result: Annotated[
        str,
        Meta(
            title="UnitOutcome",
            description="`busy`: a rolling restart is in progress, so it is not restarted. `disabled`: a person "
            "disabled it, so it is not started.",
            extra_json_schema={"enum": list(RESULTS)},
        ),
    ]
    run_ids: Annotated[list[Ulid], Meta(description="Of stop and restart: the runs that end.")] | UnsetType = UNSET


class UnitResults(Document, kw_only=True):
    """The results for all selected units."""

    affected: Annotated[Int64, Meta(description="Number of changed units.")]
    units: Annotated[list[UnitResult], Meta(description="All selected units.")]


def _command(verb: str, query: tuple[QueryParameter, ...] = (), body: type[UnitSelector] = UnitSelector) -> Operation:
    return Operation(
        "POST",
        f"/api/units/{verb}",
        role=Role.OPERATOR,
        scoped=True,
        query=query,
        body=body,
        body_required=True,
        answers={200: json_of(UnitResults)},
        refusals=(404,),
        tag="tasks",
    )


@_command("start", body=UnitStart)
def start_units(context: Context, call: Call) -> None:
    """Start all selected services; running instances continue."""
    options = {"enable": True} if call.body.enable is True else {}
    _act(context, call, "start", **options)


@_command("stop", (flag("force", "Kill at once, without a graceful stop."),), UnitStop)
def stop_units(context: Context, call: Call) -> None:
    """Stop all selected services, dependents first, and all unfinished runs of selected tasks."""
    disable, note = call.body.disable is True, call.body.note or None
    if note is not None and not disable:
        raise invalid([ErrorDetail("body.note", 'needs "disable": true')])
    options: dict[str, Any] = {"disable": True, "note": note} if disable else {}
    _act(context, call, "stop", force=bool(call.query["force"]), **options)


@_command("enable")
def enable_units(context: Context, call: Call) -> None:
    """Let all selected services be started again after a stop with `disable`; they stay stopped until then."""
    _act(context, call, "enable")


@_command(
    "restart",
    (flag("rolling", "Restart one instance of a service after the other, each when the previous one is ready."),),
)
def restart_units(context: Context, call: Call) -> None:
    """Restart all selected services; stopped services start."""
    _act(context, call, "restart", rolling=bool(call.query["rolling"]))


@_command("pause", body=UnitPause)
def pause_units(context: Context, call: Call) -> None:
    """Pause the schedules of all selected tasks until a time, or until they are resumed."""
    options = pause_of(call.body)
    _act(context, call, "pause", **options)


@_command("resume")
def resume_units(context: Context, call: Call) -> None:
    """Resume the schedules of all selected tasks from now on."""
    _act(context, call, "resume")


def _act(
    context: Context, call: Call, verb: str, *, rolling: bool = False, force: bool = False, **options: object
) -> None:
    selector: UnitSelector = call.body
    selected = _selected(selector)
    call.target = _text(selected)
    identity = call.identity
    permission = "start" if verb == "enable" else verb
    if identity is not None and identity.may is not None:
        for name in selected["names"] or ():
            if _GLOB.isdisjoint(name) and not run_token.permits(identity.may, permission, name):
                raise not_permitted(permission, name)
        if not identity.reach(permission):
            raise not_permitted(permission, None)
    answer = context.command(
        "units",
        call.entry(),
        verb=verb,
        **selected,
        reach=None if identity is None else identity.reach(permission),
        command=os.urandom(16).hex(),  # stored with the effect, so a repeated command changes nothing twice
        by=call.by,
        rolling=rolling,
        force=force,
        **options,
    )
    ends = verb in ("stop", "restart")
    units = [
        UnitResult(name=name, result=result, run_ids=ids if ends else UNSET) for name, result, ids in answer["units"]
    ]
    changed = [unit.name for unit in units if unit.result not in UNAFFECTED]
    call.result = "; ".join(filter(None, (counted_with_names(changed, "unit"), noted(options))))
    call.answer(UnitResults(affected=len(changed), units=units))


def _selected(selector: UnitSelector) -> dict[str, Any]:
    """Return the selector as arguments of the scheduler's command.

    Raises:
        ApiError: 422 it selects nothing, contradicts itself, or has too many globs.
    """
    selected: dict[str, Any] = {
        name: None if (value := getattr(selector, name)) is UNSET else value for name in ("names", "group", "tag")
    }
    narrowed = any(value is not None for value in selected.values())
    if narrowed == (selector.all is True):
        message = (
            "cannot be combined with names, group or tag" if narrowed else 'needs names, group or tag, or "all": true'
        )
        raise invalid([ErrorDetail("body.all" if narrowed else "body", message)])
    if sum(not _GLOB.isdisjoint(name) for name in selected["names"] or ()) > _MOST_GLOBS:
        raise invalid([ErrorDetail("body.names", f"must have at most {_MOST_GLOBS} globs")])
    return selected


def _text(selected: dict[str, Any]) -> str:
    """Describe a selector for the audit log."""
    parts = [*(selected["names"] or ())]
    parts += [f"{key} {selected[key]}" for key in ("group", "tag") if selected[key] is not None]
    return ", ".join(parts) or "all"
