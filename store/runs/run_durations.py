"""How long runs take: buckets of durations, and what the last runs of a task let people expect of the next one.

The table `run_durations` counts by bucket: the first two digits, and the number of digits after them. Stored numbers
depend on these buckets, so the buckets must not change.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from store.runs.phases import END_REASONS, FIRST_ACTIVE
from store.runs.record import params_text

if TYPE_CHECKING:  # the database imports the migrations, which need the buckets
    from store.database import Database

_MOST_DIGITS = 13  # milliseconds: 300 years
_NEGATIVE = -(2**62)
LEARNED = "learned"
"""The value of ``expected_duration`` that means: from the runs."""
KEPT_DURATIONS = 50
_LEAST_DURATIONS = 10
_LEAST_EXCESS_MS = 60_000
_MOST_SEARCHED = 1000
_NEWEST_DURATIONS = f"""
SELECT duration FROM runs JOIN (
    SELECT seq AS newest FROM runs INDEXED BY runs_ended WHERE state < {FIRST_ACTIVE} AND task_name = ?
    ORDER BY end_number DESC, ended_at DESC LIMIT {_MOST_SEARCHED}) AS ends ON runs.seq = ends.newest
WHERE state = {END_REASONS["succeeded"]} AND triggered_by = 'cron' AND scheduled_at IS NOT NULL
    AND duration IS NOT NULL AND COALESCE(params, '') = ?
ORDER BY end_number DESC, ended_at DESC LIMIT {KEPT_DURATIONS}
"""  # noqa: S608 - constants


def bucket(duration: str) -> str:
    """Return the SQL expression for the bucket of a duration in ms. A bucket's name is its shortest duration."""
    cases = [f"WHEN {duration} < 0 THEN {_NEGATIVE}"]
    for digits in range(2, _MOST_DIGITS + 1):
        width = 10 ** (digits - 2)
        cases.append(f"WHEN {duration} < {100 * width} THEN {duration} / {width} * {width}")
    return f"(CASE {' '.join(cases)} ELSE {100 * width} END)"


class Expectation(NamedTuple):
    """How long the runs of a task usually take, and after which time one is slow, in milliseconds."""

    usual_ms: int
    slow_ms: int


def expectation(setting: int | str | None, durations: Sequence[int] | None) -> Expectation | None:
    """Return what ``expected_duration`` lets people expect; None for nothing, as with less than ten durations."""
    if setting is None:
        return None
    usual_ms, spread_ms = 0, 0
    if isinstance(setting, int):
        usual_ms = setting
    elif durations is None or len(durations) < _LEAST_DURATIONS:
        return None
    else:
        usual_ms = _median(durations)
        spread_ms = _median([abs(taken - usual_ms) for taken in durations])
    return Expectation(usual_ms, max(2 * usual_ms, usual_ms + 6 * spread_ms, usual_ms + _LEAST_EXCESS_MS))


def _median(values: Sequence[int]) -> int:
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) // 2


def newest_durations(db: "Database", task_name: str, params: dict[str, str | None] | None) -> tuple[int, ...]:
    """Return the durations of the last successes of a task's scheduled runs with these parameters, newest last.

    Only the newest thousand ended runs are searched.
    """
    rows = db.rows(_NEWEST_DURATIONS, [task_name, params_text(params) or ""])
    return tuple(taken for (taken,) in reversed(rows))
