"""One serialiser for both namings of a run, and the folding that goes with the shorter lists of convention B.

==============  =====================  ===========================
in the store    A (camelCase)          B (snake_case)
==============  =====================  ===========================
succeeded       succeeded              success
missed          missed                 skipped
start_failed    start_failed           failed
service         service                cron
startup         startup                cron
==============  =====================  ===========================

Everything else is the same in both. Filters follow what is shown: where runs are listed folded, a value selects
every run that is shown with it, and a name that B does not have is exact. A sort by status follows it in every list.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from api.schemas import records as schemas
from api.schemas.known_times import known_rfc3339
from api.schemas.wire_times import rfc3339
from store.runs.phases import END_REASONS
from store.runs.writes import Run

FOLDED_REASON = {"succeeded": "success", "missed": "skipped", "start_failed": "failed"}
SHOWN_ALIKE = {reason: shown for reason, shown in FOLDED_REASON.items() if shown in END_REASONS}
"""End reasons that convention B shows as another one that there is."""
FOLDED_TRIGGER = {"service": "cron", "startup": "cron"}


def _common(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "task_name": run.task_name,
        "status": run.status,
        "exit_code": run.exit_code,
        "instance_index": run.instance_index,
        "retry_attempt": run.retry_attempt,
        "retry_of_run_id": run.retry_of_run_id or UNSET,
        "created_at": rfc3339(run.created_at),
    }


def _params(run: Run) -> dict[str, str] | UnsetType:
    """Without those that are secret."""
    return {name: value for name, value in (run.params or {}).items() if value is not None} or UNSET


def camel(run: Run) -> schemas.RunCamel:
    """Convention A."""
    return schemas.RunCamel(
        **_common(run),
        end_reason=run.end_reason or UNSET,
        triggered_by=run.triggered_by,
        started_at=known_rfc3339(run.started_at),
        ended_at=known_rfc3339(run.ended_at),
        execution_id=run.execution_id or UNSET,
        params=_params(run),
    )


def _snake(run: Run) -> dict[str, Any]:
    return {
        **_common(run),
        "end_reason": FOLDED_REASON.get(run.end_reason, run.end_reason) if run.end_reason else UNSET,
        "triggered_by": FOLDED_TRIGGER.get(run.triggered_by, run.triggered_by),
        "start_at": known_rfc3339(run.started_at),
        "end_at": known_rfc3339(run.ended_at),
        "external_execution_id": run.execution_id or UNSET,
    }


def snake(run: Run) -> schemas.RunSnake:
    """Convention B as lists and the trigger response have it."""
    return schemas.RunSnake(**_snake(run))


def snake_with_params(run: Run) -> schemas.RunSnakeWithParams:
    """Convention B with parameters."""
    return schemas.RunSnakeWithParams(**_snake(run), params=_params(run))


def both(run: Run) -> schemas.Run:
    """The union of A and B."""
    return schemas.Run(
        **_snake(run),
        task_name_camel=run.task_name,
        end_reason_camel=run.end_reason or UNSET,
        exit_code_camel=run.exit_code,
        instance_index_camel=run.instance_index,
        retry_attempt_camel=run.retry_attempt,
        retry_of_run_id_camel=run.retry_of_run_id or UNSET,
        triggered_by_camel=run.triggered_by,
        created_at_camel=rfc3339(run.created_at),
        started_at=known_rfc3339(run.started_at),
        ended_at=known_rfc3339(run.ended_at),
        execution_id=run.execution_id or UNSET,
        params=_params(run),
    )


def split_status(words: Iterable[str], *, folded: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A status filter's words as (phases, end reasons as stored)."""
    phases: list[str] = []
    reasons: list[str] = []
    for word in words:
        if word in schemas.PHASES:
            phases.append(word)
        elif word == "success":
            reasons.append("succeeded")
        else:
            reasons.append(word)
            if folded:
                reasons += [exact for exact, shown in FOLDED_REASON.items() if shown == word]
    return tuple(phases), tuple(dict.fromkeys(reasons))


def split_trigger(trigger: str | None, *, folded: bool) -> tuple[str, ...]:
    """A trigger filter's value as the triggers that are stored."""
    if trigger is None:
        return ()
    if not folded:
        return (trigger,)
    return (trigger, *(exact for exact, shown in FOLDED_TRIGGER.items() if shown == trigger))
