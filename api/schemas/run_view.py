"""Serialisation of runs in either naming, and folding of values into the shorter lists of convention B.

==============  =====================  ===========================
in the store    A (camelCase)          B (snake_case)
==============  =====================  ===========================
succeeded       succeeded              success
missed          missed                 skipped
start_failed    start_failed           failed
service         service                cron
startup         startup                cron
==============  =====================  ===========================

All other values are the same in both. In a folded list, a filter value selects every run that is shown with it; a value
that only exists in A is exact. In every list, sorting by status follows the shown values.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from api.schemas import records as schemas
from api.schemas.wire_times import known_rfc3339, rfc3339
from store.runs.phases import END_REASONS
from store.runs.writes import Run

SHOWN_ALIKE = {reason: shown for reason, shown in schemas.FOLDED_REASON.items() if shown in END_REASONS}
"""End reasons that convention B shows as another existing end reason."""
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
    """Return the parameters without the secret ones."""
    return {name: value for name, value in (run.params or {}).items() if value is not None} or UNSET


def camel(run: Run) -> schemas.RunCamel:
    """Return the run in convention A."""
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
        "end_reason": schemas.FOLDED_REASON.get(run.end_reason, run.end_reason) if run.end_reason else UNSET,
        "triggered_by": FOLDED_TRIGGER.get(run.triggered_by, run.triggered_by),
        "start_at": known_rfc3339(run.started_at),
        "end_at": known_rfc3339(run.ended_at),
        "external_execution_id": run.execution_id or UNSET,
    }


def snake(run: Run) -> schemas.RunSnake:
    """Return the run in convention B, as in lists and the response to a trigger."""
    return schemas.RunSnake(**_snake(run))


def snake_with_params(run: Run) -> schemas.RunSnakeWithParams:
    """Return the run in convention B, with its parameters."""
    return schemas.RunSnakeWithParams(**_snake(run), params=_params(run))


def both(run: Run) -> schemas.Run:
    """Return the run with the fields of both conventions."""
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
    """Split the words of a status filter into phases and stored end reasons.

    If `folded`, a word selects every end reason that convention B shows as this word.
    """
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
                reasons += [exact for exact, shown in schemas.FOLDED_REASON.items() if shown == word]
    return tuple(phases), tuple(dict.fromkeys(reasons))


def split_trigger(trigger: str | None, *, folded: bool) -> tuple[str, ...]:
    """Return the stored triggers that the value of a trigger filter selects."""
    if trigger is None:
        return ()
    if not folded:
        return (trigger,)
    return (trigger, *(exact for exact, shown in FOLDED_TRIGGER.items() if shown == trigger))
