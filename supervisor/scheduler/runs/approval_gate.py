"""Approvals of runs (``needs_approval``): a run that needs one waits until a person approves or rejects it.

The approval is stored with the run, its answer before the run goes on. So a scheduler that dies at any time neither
asks twice nor starts a run without its approval.
"""

from functools import partial
from typing import Protocol

import msgspec

from store.runs.writes import APPROVED, REJECTED, TIMED_OUT, WITHDRAWN, Approval, put_approval, update_run
from supervisor.config.model import Task
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import Due, LiveRun
from supervisor.scheduler.runs.run_observer import RunObserver
from supervisor.scheduler.runs.run_rows import event_body

_AGAIN_MS = 1000


class ApprovedRuns(Protocol):
    """Ends runs, and lets them wait."""

    def stop(self, run: LiveRun, change: Change, *, cause: str, by: str | None = None) -> None:
        """End a run."""

    def wait(self, run: LiveRun, due: Due) -> None:
        """Let a run wait."""

    def end_wait(self, run: LiveRun) -> None:
        """Queue a run that waits."""


def approval_of(run_id: str, task: Task, needed: bool | tuple[str, ...]) -> Approval | None:
    """Return the approval that a run of a task needs; None if it needs none.

    Args:
        run_id: id of the run.
        task: its task.
        needed: the value of ``needs_approval``.
    """
    if not needed:
        return None
    approvers = None if isinstance(needed, bool) else msgspec.json.encode(needed).decode()
    return Approval(run_id, approvers, task.not_by_starter, task.approval_timeout_ms)


class Approvals(RunObserver):
    """Asks for the approvals of runs, and carries out the answers."""

    def __init__(self, core: Core, runs: ApprovedRuns, notifications: Notifications) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._log = core.log
        self._runs = runs
        self._notifications = notifications
        self._answered: set[str] = set()
        """The waiting runs whose approval is being stored."""

    def awaits(self, run: LiveRun) -> bool:
        """Return whether a run waits for an answer."""
        return run.due is not None and run.due.kind == "approval" and run.id not in self._answered

    def ask(self, run: LiveRun, approval: Approval, change: Change) -> None:
        """Let a run wait for an approval, and report it."""
        due = Due("approval", change.now_ms + approval.timeout_ms)
        self._runs.wait(run, due)
        change.write(update_run, run.id, due_at=due.at, due_kind=due.kind)
        change.announce("run.updated", event_body(run, "pending", waiting={"reason": "needs an approval"}))
        self._notifications.approval_needed(run, approval.names, due.at, change)
        self._log.info(f"{run.unit.name} {run.id}: waits for an approval")

    def run_waits(self, run: LiveRun) -> None:
        """Set the time limit of an approval."""
        if run.due is not None and run.due.kind == "approval":
            run.timer = self._loop.after(max(0, run.due.at - self._loop.now_ms()), partial(self._out_of_time, run))

    def approve(self, run: LiveRun, approval: Approval, change: Change) -> Procedure[None]:
        """Store an answer that approves a run, with `change`; then let the run go on."""
        change.write(put_approval, approval._replace(answer=APPROVED, answered_at=change.now_ms))
        change.write(update_run, run.id, due_at=change.now_ms, due_kind=None)
        self._answered.add(run.id)
        try:
            yield self._committer.stored_or_refused(change)
        finally:
            self._answered.discard(run.id)
        run.approval = None
        if self.awaits(run):  # else it was stopped meanwhile
            self._log.info(f"{run.unit.name} {run.id}: approved by {approval.answered_by}")
            self._runs.end_wait(run)

    def reject(self, run: LiveRun, approval: Approval, change: Change) -> None:
        """End a run that was rejected."""
        self._end(run, approval, REJECTED, approval.answered_by or "", change)

    def _out_of_time(self, run: LiveRun) -> None:
        if run.id in self._answered:  # the answer may not be stored
            run.timer = self._loop.after(_AGAIN_MS, partial(self._out_of_time, run))
            return
        if self._daemon.ending or not self.awaits(run) or run.approval is None:
            return
        with self._committer.changing() as change:
            self._end(run, run.approval, TIMED_OUT, "approval_timeout", change)

    def _end(self, run: LiveRun, approval: Approval, answer: str, by: str, change: Change) -> None:
        run.approval = None
        change.write(put_approval, approval._replace(answer=answer, answered_at=change.now_ms))
        self._runs.stop(run, change, cause=answer, by=by)

    def run_ended(
        self,
        run: LiveRun,
        verdict: Verdict,  # noqa: ARG002 - the signature of them all
        change: Change,
        *,
        will_retry: bool,  # noqa: ARG002
        ran_ms: int | None,  # noqa: ARG002
    ) -> None:
        """Withdraw the approval of a run that was stopped while it waited."""
        if run.approval is not None and run.id not in self._answered:
            change.write(put_approval, run.approval._replace(answer=WITHDRAWN, answered_at=change.now_ms))
            run.approval = None
