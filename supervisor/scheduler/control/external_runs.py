"""Runs that jobs elsewhere report (``external = true``): they have a row and a log here, but no process.

A job reports with requests to an address of its own, at whose end stands the task's token: that it has begun, and how
it ended. A run that was begun goes on until its end is reported, its time limit, a stop, or the next beginning; a
scheduler that starts takes it over. If nothing is reported within ``grace`` after a scheduled time, the time is missed
(:mod:`supervisor.scheduler.runs.scheduled_starts`).
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from msgspec import Meta

from logring.errors import LogError
from logring.log_paths import log_path, ring_path
from logring.sealed_log import write_sealed_log
from store import idempotency
from store.database import Database
from store.runs.writes import Run, update_run
from supervisor.config.model import Config, Task
from supervisor.ipc.messages import Exited
from supervisor.scheduler.control.control_socket import (
    Answer,
    Arguments,
    RequestEntry,
    done,
    operation,
    refused,
    refused_for_now,
    shutting_down,
)
from supervisor.scheduler.control.rate_limit import RateLimit
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.runs.live_units import LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.run_observer import OtherExecutor, StopRequest
from supervisor.scheduler.services.service_controller import NOT_CONFIGURED

_EACH_MINUTE = 60
"""How many reports a job may send in a minute."""
_BY = "its job elsewhere"
_UNREPORTED = "its end was not reported before the next run began"


class _Report(Arguments):
    """A report: of the beginning of a run, or of its end."""

    token: str
    """SHA-256 of the token, hexadecimal."""
    run: str
    """The id of the run that the report may create; it identifies the report."""
    exit_code: Annotated[int, Meta(ge=0, le=255)] | None
    """None: the run has begun."""
    output: str = ""


class _RunKeeper(Protocol):
    """Creates and ends runs."""

    @property
    def live(self) -> Mapping[str, LiveRun]:
        """All unfinished runs by id."""

    def create_task_run(self, unit: Unit, task: Task, change: Change, request: RunRequest) -> LiveRun:
        """Create the first attempt of a run."""

    def started(self, run_id: str, at: int, change: Change) -> None:
        """Note that a run is active since `at` (ms since the epoch)."""

    def ended_elsewhere(self, run: LiveRun, exited: Exited, why: str | None, change: Change) -> None:
        """End a run that has no process here."""


class ExternalRuns(OtherExecutor):
    """Creates and ends runs as jobs elsewhere report them."""

    def __init__(self, core: Core, engine: _RunKeeper, units: Mapping[str, Unit], config: Config) -> None:
        """`units` are all configured units; shared, not copied."""
        self._loop = core.loop
        self._committer = core.committer
        self._daemon = core.daemon
        self._log = core.log
        self._engine = engine
        self._units = units
        self._limit = RateLimit(core.loop.now_s, _EACH_MINUTE)
        self._started_at: dict[str, int] = {}
        """When the open runs began, in milliseconds since the epoch, by run id."""
        self._timers: dict[str, Timer] = {}
        """The timers of their time limits."""
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a new configuration, and end runs whose task has left it."""
        tasks = (task for task in config.tasks.values() if task.ping_token is not None)
        self._names = {hashlib.sha256((task.ping_token or "").encode()).hexdigest(): task.name for task in tasks}
        gone = [run for run in map(self._engine.live.get, self._started_at) if run and not run.unit.configured]
        if gone:
            with self._committer.changing() as change:
                for run in gone:
                    self._end(run, change, cause="stop", by=NOT_CONFIGURED)

    # As an executor.

    def executes(self, run: LiveRun) -> bool:
        """Return whether a job elsewhere reports a run."""
        return run.id in self._started_at or (isinstance(run.definition, Task) and run.definition.external)

    def stop(self, run: LiveRun, request: StopRequest, change: Change) -> None:
        """End a run here; its job is not told. When the daemon shuts down, the run goes on."""
        if request.cause != "shutdown":
            self._end(run, change, cause=request.cause, by=request.by)

    def snapshot(self, row: Run) -> dict[str, Any] | None:
        """Return the state of a run that its job has begun; None for another run."""
        unit = self._units.get(row.task_name)
        if row.status != "running" or unit is None or unit.task is None or not unit.task.external:
            return None
        self._started_at[row.id] = row.started_at or row.created_at
        return {"started_at": self._started_at[row.id], "cause": None, "by": None}

    def adopt(self, run: LiveRun) -> None:
        """Set the time limit of a run that is taken over."""
        if run.id in self._started_at:
            self._limit_time(run)

    # Reports.

    @operation(_Report)
    def report(self, request: _Report, _entry: RequestEntry) -> Procedure[Answer]:
        """Begin or end the run that a job reports; the answer follows once that is stored."""
        unit = self._units.get(self._names.get(request.token, ""))
        if unit is None or unit.task is None:
            return refused(404, "No job has this address")
        if self._daemon.ending:
            return shutting_down()
        wait_s = self._limit.blocked_s(request.token)
        if wait_s:
            return refused_for_now(f"{unit.name} was reported more than {_EACH_MINUTE} times in a minute", wait_s)
        self._limit.count(request.token)
        look = self._committer.change()
        key = f"report {request.run}"
        known = look.read(idempotency.find, key, look.now_ms)
        yield self._committer.stored_or_refused(look)
        if known.result is None:
            change = self._committer.change()
            change.write(idempotency.claim, key, request.run, "", change.now_ms)
            self._apply(unit, unit.task, request, change)
            yield self._committer.stored(change)  # not refused: the end of a run in memory cannot be undone
        return done()

    def _apply(self, unit: Unit, task: Task, request: _Report, change: Change) -> None:
        run = next(iter(unit.active.values()), None)
        if request.exit_code is None and run is not None:
            self._end(run, change, why=_UNREPORTED)
            run = None
        if run is None:
            self._started_at[request.run] = change.now_ms
            new = RunRequest(trigger="api", run_id=request.run, by=_BY)
            run = self._engine.create_task_run(unit, task, change, new)
            self._engine.started(run.id, change.now_ms, change)
            self._limit_time(run)
        unit.reported_at = change.now_ms
        if request.exit_code is not None:
            output = request.output.encode()
            self._end(run, change, status=request.exit_code << 8)
            if output:
                change.write(self._write_log, run, output, change.now_ms)

    def _end(
        self,
        run: LiveRun,
        change: Change,
        *,
        status: int | None = None,
        cause: str | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> None:
        started_at = self._started_at.pop(run.id, None)
        timer = self._timers.pop(run.id, None)
        if timer is not None:
            timer.cancel()
        exited = Exited(
            run=run.id,
            status=status,
            unknown=why is not None,
            cause=cause,
            by=by,
            started_at=started_at,
            ended_at=change.now_ms,
        )
        self._engine.ended_elsewhere(run, exited, why, change)

    def _limit_time(self, run: LiveRun) -> None:
        limit_ms = run.definition.timeout_ms
        if limit_ms is not None:
            left_ms = self._started_at[run.id] + limit_ms - self._loop.now_ms()
            self._timers[run.id] = self._loop.after(max(0, left_ms), self._out_of_time, run)

    def _out_of_time(self, run: LiveRun) -> None:
        if run.id in self._started_at:
            with self._committer.changing() as change:
                self._end(run, change, cause="timeout")

    def _write_log(self, db: Database, run: LiveRun, output: bytes, now_ms: int) -> None:
        """Write the output that was reported with the end of a run; runs in the store thread."""
        settings = self._daemon.settings
        path = log_path(settings.data_dir, run.unit.name, run.id)
        with contextlib.suppress(FileNotFoundError):  # of a transaction that is repeated
            os.unlink(path)
        try:
            lines = write_sealed_log(path, ring_path(settings.runtime_dir, run.id), run.id, output, now_ms)
        except (OSError, LogError) as err:
            self._log.error(f"{run.unit.name} {run.id}: cannot write the reported output: {err}")
        else:
            update_run(db, run.id, lines=lines)
