"""Jobs that launchers start in other engines: their names, their stop, and the search for those that remain.

The process of the run is the client of the engine; the root starts and stops it. The watcher process executes the two
other commands of a launcher, so an engine that does not answer blocks nothing:

* ``probe`` after the start, until it prints the name of the job in the engine (``executionId``);
* ``stop`` as soon as the root begins to stop the client, whatever the cause;
* both after the client exits with any status but 0, because the job may still run. The run ends only when its job is
  gone, so no later run overlaps with it. After the supervisor was killed, the search lasts until the engine answers.

Each launched run has a record of how to stop and find its job. It is a file (:mod:`..runs.private_data`), which
is written before the run starts, and removed after its end is stored. With it, a daemon can stop a job that a killed
predecessor started, even after the configuration changed. Records contain no secrets; these come from the
configuration.
"""

import itertools
import os
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from store.runs.writes import update_run
from supervisor.config.value_records import Launcher
from supervisor.config.value_types.durations import format_duration
from supervisor.config.value_types.launchers import PLACEHOLDER
from supervisor.host import unix_accounts
from supervisor.ipc.backoff import backoff
from supervisor.ipc.messages import Exited
from supervisor.ipc.probe_request import CommandAnswered, ProbeRequest, RequestFailed
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.launchers import launcher_commands
from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.procedures import Procedure, Wait, Waiter
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.loop.user_lookup import UserIdentity, UserLookup
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.private_data import PrivateFolder
from supervisor.scheduler.runs.run_observer import JobTracker, RunObserver
from supervisor.scheduler.runs.run_rows import event_body
from supervisor.scheduler.services.watcher_client import WatcherClient


class JobRecord(Struct, frozen=True):
    """How to stop and find the job of a run: the commands, their user and their environment."""

    daemon: str
    """Id of the data directory. In a copy of the directory it differs, and the job belongs to another daemon."""
    launcher: str
    """Name of the launcher."""
    stop: list[str]
    """The stop command; empty if the launcher has none."""
    probe: list[str]
    """The probe command; empty if the launcher has none."""
    env: dict[str, str]
    secrets: list[str]
    """Names of the variables whose values come from the configuration."""
    user: str | None
    clean_env: bool
    cwd: str | None
    umask: int | None

    def environment(self, run: LiveRun, identity: UserIdentity, private: Collection[str]) -> dict[str, str]:
        """Return all environment variables of a command; `private` lists variables of the daemon to omit."""
        base = {name: text for name, text in os.environ.items() if name not in private}
        secrets = run.definition.secrets
        return {
            **({"PATH": unix_accounts.CLEAN_PATH} if self.clean_env else base),
            **identity.variables,
            **self.env,
            **{name: secrets[name] for name in self.secrets if name in secrets},
        }


def job_record_of(launcher: Launcher, run: LiveRun, daemon_id: str) -> JobRecord:
    """Return the record of a run that is about to start."""
    definition = run.definition
    facts = launcher_commands.facts(definition, run.id, run.instance, run.attempt)
    named = {name for answer in launcher.start for name in PLACEHOLDER.findall(answer)}
    own = {"RINGWARD_RUN_ID": run.id, "RINGWARD_TASK": definition.name, "RINGWARD_INSTANCE": str(run.instance)}
    travels = launcher.feed == "script" or "working_dir" in named
    user = definition.user or "root"
    as_daemon = "user" in named and os.geteuid() == 0 and user.partition(":")[0] not in ("root", "0")
    return JobRecord(
        daemon=daemon_id,
        launcher=launcher.name,
        stop=launcher_commands.words(launcher.stop, facts),
        probe=launcher_commands.words(launcher.probe, facts),
        # Commands of the daemon's user must not see the variables of another user's run.
        env=own if as_daemon else {**definition.env, **own},
        secrets=[] if as_daemon else list(definition.secrets),
        user=None if "user" in named else definition.user,
        clean_env=definition.clean_env,
        cwd=None if travels else definition.working_dir,
        umask=definition.umask,
    )


def read_record(folder: PrivateFolder, run_id: str, daemon_id: str) -> JobRecord | None:
    """Return the record of a run; None if there is none, or another daemon or version wrote it."""
    stored: Any = folder.read(run_id)
    try:
        record = None if stored is None else JobRecord(**stored)
    except TypeError:
        return None
    return record if record is not None and record.daemon == daemon_id else None


_TIME_MS = 30_000
"""Time limit of a command; ``stop`` gets ``graceful_stop`` in addition."""
_NAME_FOR_MS = 600_000
"""How long after the start to ask for the name of a job."""
_NAME_EACH_MS = (250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000)
_POLL_MS = (100, 200, 400, 800, 1600, 3200, 5000)
"""Delays between attempts, in milliseconds."""
_PATIENCE_MS = 30_000
"""How long the end of a run waits for its job, in addition to ``graceful_stop``."""
_MAX_NAME = 200


class _Job:
    def __init__(self, run: LiveRun, record: JobRecord) -> None:
        self.run = run
        self.record = record
        self.refusal: str | None = None
        """The reason why the run cannot start."""
        self.stopping = False
        """Whether the stop command is running."""
        self.too_early = False
        """Whether the stop command may have finished before the engine knew the job."""
        self.activities: dict[str, Waiter] = {}
        """The latest procedures that ask for its name (``name``), stop it with its client (``stop``), or wait until it
        is gone (``search``)."""
        self.end: Waiter | None = None
        """The procedure that waits until the job is gone, to end the run."""
        self.patience: Timer | None = None
        self.last_error: str | None = None
        """The last error that was logged."""

    @property
    def can_be_searched(self) -> bool:
        """Whether the launcher has a command that finds or stops the job."""
        return bool(self.record.stop or self.record.probe)

    def close(self, activity: str) -> None:
        """End an activity, if it goes on."""
        waiter = self.activities.pop(activity, None)
        if waiter is not None:
            waiter.close()


class LaunchedJobs(RunObserver, JobTracker):
    """Tracks the jobs of all runs with a launcher."""

    def __init__(self, core: Core, user_lookup: UserLookup, watcher: WatcherClient, root: RootConnection) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._procedures = core.procedures
        self._daemon = core.daemon
        self._log = core.log
        self._user_lookup = user_lookup
        self._watcher = watcher
        self._root = root
        self._folder = PrivateFolder(f"{core.daemon.settings.data_dir}/launches")
        """Where the records are."""
        self._jobs_by_run: dict[str, _Job] = {}
        self.lost: set[str] = set()
        """Ids of runs that the root does not know, and whose jobs are being searched for."""

    # Before the start.

    def prepare_start(self, run: LiveRun, change: Change) -> None:
        """Write the record of a run that is about to start."""
        launcher = run.definition.launcher
        if launcher is None:
            return
        job = self._jobs_by_run[run.id] = _Job(run, job_record_of(launcher, run, self._daemon.settings.daemon_id))
        change.write(lambda _db: self._write_record(job))

    def _write_record(self, job: _Job) -> None:
        """Write the record; runs in the store thread."""
        try:
            self._folder.keep(job.run.id, asdict(job.record))
        except OSError as err:  # such as ENOSPC; without its record the job could not be stopped
            job.refusal = f"cannot write the record of its job: {err.strerror or err}"

    def refusal(self, run: LiveRun) -> str | None:
        """Return the reason why a run cannot start; None if it can."""
        job = self._jobs_by_run.get(run.id)
        return None if job is None else job.refusal

    def adopt(self, run: LiveRun) -> bool:
        """Take over a run of the previous scheduler; return whether it has a record."""
        record = read_record(self._folder, run.id, self._daemon.settings.daemon_id)
        if record is not None:
            self._jobs_by_run[run.id] = _Job(run, record)
        return record is not None

    def forget_others(self, living: Collection[str]) -> None:
        """Remove the records of all runs except `living`; call this after all runs were adopted."""
        self._folder.sweep(living)

    # While the run is active.

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """Begin to ask for the name of the job."""
        job = self._jobs_by_run.get(run.id)
        if job is not None and job.record.probe and run.execution_id is None:
            until_ms = min(self._loop.now_ms(), started_at) + _NAME_FOR_MS
            self._begin(job, "name", self._ask_name(job, until_ms))

    def _ask_name(self, job: _Job, until_ms: int) -> Procedure[None]:
        for failures in itertools.count():
            answer = yield from self._execute(job, "probe", job.record.probe, _TIME_MS)
            text = answer.text if isinstance(answer, CommandAnswered) else ""
            words = "".join(char for char in text if char.isprintable() or char.isspace()).split(None, 1)
            if words:
                self._set_name(job.run, words[0][:_MAX_NAME])
            if words or self._loop.now_ms() >= until_ms:
                return
            yield self._loop.pause(backoff(_NAME_EACH_MS, failures))

    def _set_name(self, run: LiveRun, name: str) -> None:
        run.execution_id = name
        with self._committer.changing() as change:
            change.write(update_run, run.id, execution_id=name)
            change.announce("run.updated", event_body(run, "running", executionId=name))
        if self._jobs_by_run[run.id].too_early:
            self.stop_job(run.id)

    def stop_job(self, run_id: str) -> None:
        """Stop the job, because the root has begun to stop the client.

        If the job has no name yet, the engine may not know it. Then the stop is repeated when the name is known.
        """
        job = self._jobs_by_run.get(run_id)
        if job is not None and job.record.stop:
            self._begin(job, "stop", self._stop_with_client(job))

    def _stop_with_client(self, job: _Job) -> Procedure[None]:
        while True:
            stoppable = job.run.execution_id is not None or not job.record.probe
            job.too_early = False
            answer = yield from self._stop(job)
            if stoppable:
                if isinstance(answer, RequestFailed):
                    text = f"could not stop the job: {answer.why}"
                    self._root.send({"op": "note", "run": job.run.id, "text": text})
                return
            if job.run.execution_id is None:
                job.too_early = True
                return

    def _stop(self, job: _Job) -> Procedure[CommandAnswered | RequestFailed]:
        job.stopping = True
        try:
            return (yield from self._execute(job, "stop", job.record.stop, job.run.definition.stop_ms + _TIME_MS))
        finally:
            job.stopping = False

    # After the client exits.

    def end_of_job(self, run: LiveRun, exited: Exited) -> Wait | None:
        """Return the wait until the job of a run is gone; None if the end of the run need not wait for that."""
        job = self._jobs_by_run.get(run.id)
        if job is None or exited.cause == "start_failed" or (exited.status is None and not exited.unknown):
            return None
        by_itself = exited.cause is None
        if by_itself and (exited.status == 0 or run.definition.leave_leftovers):
            return None
        return partial(self._search_for, job, _patience_ms(job)) if job.can_be_searched else None

    def search(self, run: LiveRun) -> Wait | None:
        """Return the wait until the job of a run that the root does not know is found, stopped and gone.

        With ``probe`` the search has no time limit. None: there is nothing to search for.
        """
        job = self._jobs_by_run.get(run.id)
        if job is None or run.definition.leave_leftovers or not job.can_be_searched:
            return None
        where = job.record.launcher
        self._log.warning(f"{run.unit.name} {run.id}: searching for the job that an earlier supervisor left at {where}")
        self.lost.add(run.id)
        return partial(self._search_for, job, None if job.record.probe else _patience_ms(job))

    def give_up(self, run: LiveRun) -> None:
        """Stop waiting for the job of a run, after a forced stop."""
        job = self._jobs_by_run.get(run.id)
        if job is not None and job.end is not None:
            self._end_wait(job)

    def _search_for(self, job: _Job, patience_ms: int | None, waiter: Waiter) -> None:
        job.close("name")
        job.end = waiter
        if patience_ms is not None:
            job.patience = self._loop.after(patience_ms, self._out_of_patience, job)
        self._begin(job, "search", self._search(job))

    def _search(self, job: _Job) -> Procedure[None]:
        """Probe for the job, and stop it, until it is gone."""
        for polls in itertools.count():
            if (yield from self._is_gone(job)):
                break
            yield self._loop.pause(backoff(_POLL_MS, polls))
        job.activities.pop("search", None)  # because this procedure ends by itself
        self._end_wait(job)

    def _is_gone(self, job: _Job) -> Procedure[bool]:
        """Stop the job if there is one, or if the launcher has no ``probe``; return whether there was none."""
        if job.record.probe:
            answer = yield from self._execute(job, "probe", job.record.probe, _TIME_MS)
            if isinstance(answer, RequestFailed):
                self._log_unknown(job, answer.why)
                return False
            if not answer.text.split():
                return True
        if job.stopping or not job.record.stop:
            return False
        answer = yield from self._stop(job)
        if isinstance(answer, RequestFailed):
            self._log_unknown(job, answer.why)
        return isinstance(answer, CommandAnswered) and not job.record.probe

    def _log_unknown(self, job: _Job, error: str) -> None:
        if error != job.last_error:
            job.last_error = error
            self._log.warning(f"{job.run.unit.name} {job.run.id}: cannot tell whether its job has ended: {error}")

    def _out_of_patience(self, job: _Job) -> None:
        if self._daemon.ending:  # the next daemon searches for the job
            return
        waited = format_duration(_patience_ms(job))
        self._log.error(
            f"{job.run.unit.name} {job.run.id}: stopped waiting for its job after {waited}; the job may still run"
        )
        self._end_wait(job)

    def _end_wait(self, job: _Job) -> None:
        self._end_activities(job)
        waiter, job.end = job.end, None
        if waiter is not None:
            waiter.resume()

    # After the end.

    def run_ended(self, run: LiveRun, *_: object, **_facts: object) -> None:
        """Forget the job of a run that ended."""
        self.forget(run)

    def forget(self, run: LiveRun) -> None:
        """Forget a run that ended or could not be stored."""
        job = self._jobs_by_run.pop(run.id, None)
        if job is None:
            return
        if job.end is not None:
            job.end.close()
        self._end_activities(job)
        self._loop.after(0, self._remove_record, run.id)  # in a later change than the end of the run

    def _remove_record(self, run_id: str) -> None:
        with self._committer.changing() as change:
            change.write(lambda _db: self._folder.forget(run_id))

    # Activities.

    def _begin(self, job: _Job, activity: str, procedure: Procedure[None]) -> None:
        """Begin an activity in the place of an earlier one of its kind."""
        job.close(activity)
        job.activities[activity] = self._procedures.start(procedure)

    def _end_activities(self, job: _Job) -> None:
        for activity in list(job.activities):
            job.close(activity)
        for purpose in ("probe", "stop"):
            self._watcher.forget(_key(job, purpose))
        if job.patience is not None:
            job.patience.cancel()
        self.lost.discard(job.run.id)

    def _execute(
        self, job: _Job, purpose: str, argv: list[str], timeout_ms: int
    ) -> Procedure[CommandAnswered | RequestFailed]:
        """Execute a command in the watcher; return its output, or the reason why it failed."""
        record = job.record
        as_then = replace(job.run.definition, user=record.user, clean_env=record.clean_env)
        identity: UserIdentity = yield self._user_lookup.identity_of(as_then)
        if identity.refusal is not None:
            yield self._loop.pause(_POLL_MS[-1])
            return RequestFailed(_key(job, purpose), identity.refusal)
        answer: CommandAnswered | RequestFailed = yield self._watcher.answer(
            self._probe_request(job, purpose, argv, timeout_ms, identity)
        )
        return answer

    def _probe_request(
        self, job: _Job, purpose: str, argv: list[str], timeout_ms: int, identity: UserIdentity
    ) -> ProbeRequest:
        record, account = job.record, identity.account
        env = record.environment(job.run, identity, self._daemon.settings.private_variables)
        other = account is not None and not account.is_own
        return ProbeRequest(
            key=_key(job, purpose),
            kind="ask",
            timeout_ms=timeout_ms,
            argv=argv,
            env=env,
            chosen=[*record.env, *record.secrets],
            secrets=[name for name in record.secrets if name in env],
            cwd=record.cwd,
            uid=account.uid if account is not None and other else None,
            gid=account.gid if account is not None else None,
            groups=list(account.groups) if account is not None else [],
            umask=record.umask,
        )


def _patience_ms(job: _Job) -> int:
    return job.run.definition.stop_ms + _PATIENCE_MS


def _key(job: _Job, purpose: str) -> str:
    return f"{job.run.id}/{purpose}"
