"""The run selector: which runs a bulk operation is about."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType

from api.operations.parameters import INT64_MAX, INT64_MIN, STATUSES, choice, instant, statuses
from api.schemas import run_view
from api.schemas.records import TRIGGERS, Body, DateTime, Int64
from store.runs.ids import is_ulid

BODY_LIMIT_BYTES = 16 << 20

_STATUS = statuses("status", "")
_TRIGGER = choice("triggered_by", "", TRIGGERS)
_AFTER = instant("created_after", "", up=True)
_BEFORE = instant("created_before", "", up=False)


def _int64(value: int) -> None:
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"must be between {INT64_MIN} and {INT64_MAX}")


def _unless_empty(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: parse(text) if text else None


class SelectorFilter(Struct, kw_only=True, forbid_unknown_fields=True):
    """What the selected runs have to be like; all of it. An empty text is no condition."""

    created_after: Annotated[DateTime, Meta(description="Created at this time or after.")] | UnsetType = UNSET
    created_before: Annotated[DateTime, Meta(description="Created at this time or before.")] | UnsetType = UNSET
    exit_code_min: Annotated[Int64, Meta(description="Exit code at least this.")] | UnsetType = UNSET
    exit_code_max: Annotated[Int64, Meta(description="Exit code at most this.")] | UnsetType = UNSET
    retries_only: Annotated[bool, Meta(description="Only retries.")] | UnsetType = UNSET
    search: Annotated[str, Meta(description="Part of the task's name or of the id, in any case.")] | UnsetType = UNSET
    status: (
        Annotated[
            str,
            Meta(
                description="Comma-separated phases and end reasons; any of them.",
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
    """Which runs: those that match a filter, or those with these ids."""

    match_all: (
        Annotated[bool, Meta(description="True: every run that matches the filter; else those of ids.")]
        | UnsetType
        | None
    ) = UNSET
    filter: SelectorFilter | UnsetType = UNSET
    except_ids: Annotated[list[str], Meta(description="Left out; with match_all.")] | UnsetType | None = UNSET
    ids: Annotated[list[str], Meta(description="Exactly these; without match_all.")] | UnsetType | None = UNSET


def arguments_of(selector: RunSelector, tasks: str | None) -> dict[str, Any]:
    """The selector as the scheduler takes it, within the `tasks` (a glob; None: all) that there are for the caller.

    What the other way of selecting would need is left out, and so is what can be no id.
    """
    match_all = bool(selector.match_all)
    return {
        "match_all": match_all,
        "filter": {"tasks": tasks, **(_conditions(selector.filter or SelectorFilter()) if match_all else {})},
        "except_ids": _packed(selector.except_ids) if match_all else "",
        "ids": "" if match_all else _packed(selector.ids),
    }


def _packed(ids: list[str] | UnsetType | None) -> str:
    """Ids are of one length: without anything between them they are the smallest."""
    return "".join(one for one in dict.fromkeys(ids or ()) if is_ulid(one))


def _conditions(wanted: SelectorFilter) -> dict[str, Any]:
    found: dict[str, Any] = {"retries_only": wanted.retries_only is True}
    if wanted.status:
        found["phases"], found["reasons"] = run_view.split_status(_STATUS.parse(wanted.status), folded=False)
    if wanted.triggered_by:
        found["triggers"] = (wanted.triggered_by,)
    if wanted.task_name:
        found["task_name"] = wanted.task_name
    if wanted.search:
        found["search"] = wanted.search
    if wanted.created_after is not UNSET:
        found["created_after"] = _AFTER.parse(wanted.created_after)
    if wanted.created_before is not UNSET:
        found["created_before"] = _BEFORE.parse(wanted.created_before)
    for name in ("exit_code_min", "exit_code_max"):
        code = getattr(wanted, name)
        if code is not UNSET:
            found[name] = code
    return found
