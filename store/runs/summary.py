"""Counts of runs by outcome."""

from dataclasses import replace
from typing import NamedTuple

from store.database import Database
from store.runs.filter import RunFilter, resolve
from store.runs.phases import END_REASONS, FAILURES
from store.runs.record import Run
from store.runs.run_pages import newest_run
from store.runs.totals import tally

_FAILED = frozenset(END_REASONS[reason] for reason in FAILURES)


class RunSummary(NamedTuple):
    """Numbers of visible runs.

    Attributes:
        total: All runs, whatever their state.
        failed: Runs with an end reason in `FAILURES`.
        missed: Runs with the end reason `missed`.
        last_failure: The failed run that was created last; None if there is none.
    """

    total: int
    success: int
    failed: int
    missed: int
    last_failure: Run | None


def summarize(db: Database, run_filter: RunFilter) -> RunSummary:
    """Return the summary of the matching visible runs, all from the same state of the database.

    Raises:
        ValueError: Unknown phase or end reason.
        StoreError: See store.errors.
    """
    with db.snapshot() as view:
        selection = resolve(view, run_filter)
        numbers = tally(view, selection, "state")
        failed = _FAILED if selection.states is None else _FAILED & selection.states
        return RunSummary(
            total=sum(numbers.values()),
            success=numbers[END_REASONS["succeeded"]],
            failed=sum(numbers[state] for state in _FAILED),
            missed=numbers[END_REASONS["missed"]],
            last_failure=newest_run(view, replace(selection, states=failed)),
        )
