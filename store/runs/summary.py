"""Runs in a few numbers."""

from dataclasses import replace
from typing import NamedTuple

from store.database import Database
from store.runs.filter import RunFilter, resolve
from store.runs.phases import END_REASONS
from store.runs.record import Run
from store.runs.run_pages import newest_run
from store.runs.totals import tally

FAILURES = frozenset({"failed", "timeout", "crashed", "start_failed", "log_overflow"})
"""End reasons of runs that were to succeed and did not."""

_FAILED = frozenset(END_REASONS[reason] for reason in FAILURES)


class Summary(NamedTuple):
    """Numbers of visible runs.

    Attributes:
        total: All of them, whatever became of them.
        failed: Runs with a reason of `FAILURES`.
        missed: Runs with the reason `missed`.
        last_failure: The one of `failed` that was created last.
    """

    total: int
    success: int
    failed: int
    missed: int
    last_failure: Run | None


def summarize(db: Database, wanted: RunFilter) -> Summary:
    """Return the summary of the visible runs that match, all of it from the same state of the database.

    Raises:
        ValueError: No such phase or end reason.
        StoreError: See store.errors.
    """
    with db.snapshot() as view:
        selection = resolve(view, wanted)
        numbers = tally(view, selection, "state")
        failed = _FAILED if selection.states is None else _FAILED & selection.states
        return Summary(
            total=sum(numbers.values()),
            success=numbers[END_REASONS["succeeded"]],
            failed=sum(numbers[state] for state in _FAILED),
            missed=numbers[END_REASONS["missed"]],
            last_failure=newest_run(view, replace(selection, states=failed)),
        )
