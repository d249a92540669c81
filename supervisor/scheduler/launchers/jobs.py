"""Jobs of other engines, as far as their clients do not do it: what they are called, ending them, looking for them.

The client is a process as that of any run; the root starts and ends it. Here are the two other commands of a launcher,
executed by the watcher, so that nobody waits for an engine that does not answer:

* ``probe``, after the start, until it says what the engine calls the job (``executionId``);
* ``stop``, as soon as the root tells that it has begun to end the client, for whatever cause;
* both, when the client is gone and the job may not be: after any end but one with exit status 0. Only when there is no
  job any more is the end taken to be the run's, so nothing that follows runs beside it. A run that nobody saw ending,
  because the supervisor was killed, is looked for until its engine answers.
"""

import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from store.runs.writes import update_run
from supervisor.config.model import Launcher
from supervisor.config.value_types.durations import format_duration
from supervisor.config.value_types.launchers import PLACEHOLDER
from supervisor.host import users
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Exited
from supervisor.ipc.probe_request import ProbeRequest
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.launchers import launcher_commands
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.loop.user_lookup import Identity
from supervisor.scheduler.runs import unstored_files
from supervisor.scheduler.runs.end_reason import Verdict
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.runs.run_observer import RunObserver
from supervisor.scheduler.runs.run_rows import event_body
from supervisor.scheduler.services.health import Watcher

_FOLDER = "launches"


@dataclass(frozen=True)
class JobRecord:
    """How the job of one run is ended and looked for: commands of the launcher, and who executes them where."""

    daemon: str
    """Id of the data directory; in a copy of that, it is another one's job."""
    launcher: str
    """Its name."""
    stop: list[str]
    """Empty: there is no such command; the same holds for `probe`."""
    probe: list[str]
    env: dict[str, str]
    secrets: list[str]
    """Names of further variables."""
    user: str | None
    clean_env: bool
    cwd: str | None
    umask: int | None

    def environment(self, run: LiveRun, identity: Identity, private: Collection[str]) -> dict[str, str]:
        """All variables of a command; `private`: those of the daemon that it does not get."""
        base = {name: text for name, text in os.environ.items() if name not in private}
        known = run.definition.secrets
        return {
            **({"PATH": users.CLEAN_PATH} if self.clean_env else base),
            **identity.variables,
            **self.env,
            **{name: known[name] for name in self.secrets if name in known},
        }


def job_record_of(launcher: Launcher, run: LiveRun, daemon_id: str) -> JobRecord:
    """What has to be kept of a run that is about to be started."""
    definition = run.definition
    known = launcher_commands.facts(definition, run.id, run.instance, run.attempt)
    named = {name for answer in launcher.start for name in PLACEHOLDER.findall(answer)}
    own = {"RINGWARD_RUN_ID": run.id, "RINGWARD_TASK": definition.name, "RINGWARD_INSTANCE": str(run.instance)}
    travels = launcher.feed == "script" or "working_dir" in named
    return JobRecord(
        daemon=daemon_id,
        launcher=launcher.name,
        stop=launcher_commands.words(launcher.stop, known),
        probe=launcher_commands.words(launcher.probe, known),
        env={**definition.env, **own},
        secrets=list(definition.secrets),
        user=None if "user" in named else definition.user,
        clean_env=definition.clean_env,
        cwd=None if travels else definition.working_dir,
        umask=definition.umask,
    )


def keep_record(data_dir: str, run_id: str, record: JobRecord) -> None:
    """Write it.

    Raises:
        OSError: it cannot be written.
    """
    unstored_files.keep(f"{data_dir}/{_FOLDER}", run_id, asdict(record))


def read_record(data_dir: str, run_id: str, daemon_id: str) -> JobRecord | None:
    """What is kept of a run; None when nothing is, or another daemon or version kept it."""
    found: Any = unstored_files.read(f"{data_dir}/{_FOLDER}", run_id)
    try:
        record = None if found is None else JobRecord(**found)
    except TypeError:
        return None
    return record if record is not None and record.daemon == daemon_id else None


def forget_record(data_dir: str, run_id: str) -> None:
    """Remove what is kept of a run."""
    unstored_files.forget(f"{data_dir}/{_FOLDER}", run_id)


def sweep_records(data_dir: str, living: Collection[str]) -> None:
    """Remove what is kept of all runs but these."""
    unstored_files.sweep(f"{data_dir}/{_FOLDER}", living)


_TIME_MS = 30_000
"""For one command; ``stop`` has ``graceful_stop`` besides."""
_NAME_FOR_MS = 600_000
"""How long it is tried to find out what the engine calls a job."""
_NAME_EACH_MS = (250, 30_000)
_LOOK_EACH_MS = (100, 5_000)
"""Between two attempts: the first time, and at most."""
_PATIENCE_MS = 30_000
"""How long an end waits for the job's, or for an engine that does not answer; `graceful_stop` besides."""
_MAX_NAME = 200

Then = Callable[[], None]


class _Job:
    def __init__(self, run: LiveRun, record: JobRecord) -> None:
        self.run = run
        self.record = record
        self.refusal: str | None = None
        """Why it cannot be started."""
        self.stopping = False
        """The command `stop` is under way."""
        self.too_early = False
        """It was over before the engine knew of the job, perhaps."""
        self.then: Then | None = None
        """What to do when there is no job any more; None: nobody waits for that."""
        self.timer: Timer | None = None
        """Until the next attempt."""
        self.patience: Timer | None = None
        self.delay_ms = 0
        self.why: str | None = None
        """What the last attempt met, as far as it was told."""

    def cancel(self) -> None:
        """Wait for nothing."""
        for timer in (self.timer, self.patience):
            if timer is not None:
                timer.cancel()


class LaunchedJobs(RunObserver):
    """All runs that have a launcher."""

    def __init__(self, loop: Loop, engine: RunEngine, watcher: Watcher, root: RootConnection, log: Log) -> None:
        self._loop = loop
        self._engine = engine
        self._watcher = watcher
        self._root = root
        self._log = log
        self._jobs_by_run: dict[str, _Job] = {}
        self.lost: set[str] = set()
        """Runs of which the root knows nothing, and that are looked for."""

    # Before it runs.

    def decided(self, run: LiveRun, change: Change) -> None:
        """A run is going to be started: keep how it is ended."""
        launcher = run.definition.launcher
        if launcher is None:
            return
        job = self._jobs_by_run[run.id] = _Job(run, job_record_of(launcher, run, self._engine.boot.daemon_id))
        change.write(lambda _db: self._keep(job))

    def _keep(self, job: _Job) -> None:
        """In the thread of the store."""
        try:
            keep_record(self._engine.boot.data_dir, job.run.id, job.record)
        except OSError as err:  # ENOSPC: a job that nobody could end is not started
            job.refusal = f"how it is to be ended cannot be written down: {err.strerror or err}"

    def refusal(self, run: LiveRun) -> str | None:
        """Why a run that was decided cannot be started; None: it can."""
        job = self._jobs_by_run.get(run.id)
        return None if job is None else job.refusal

    def adopt(self, run: LiveRun) -> bool:
        """Take over a run of the scheduler before; returns whether it was started through a launcher, or may be."""
        record = read_record(self._engine.boot.data_dir, run.id, self._engine.boot.daemon_id)
        if record is not None:
            self._jobs_by_run[run.id] = _Job(run, record)
        return record is not None

    def forget_others(self, living: Collection[str]) -> None:
        """Everything was adopted: forget what is kept of other runs."""
        sweep_records(self._engine.boot.data_dir, living)

    # While it runs.

    def run_is_running(self, run: LiveRun, started_at: int) -> None:
        """See :class:`RunObserver`."""
        job = self._jobs_by_run.get(run.id)
        if job is not None and job.record.probe and run.execution_id is None:
            until_ms = min(self._loop.now_ms(), started_at) + _NAME_FOR_MS
            self._ask_name(job, until_ms, _NAME_EACH_MS[0])

    def _ask_name(self, job: _Job, until_ms: int, delay_ms: int) -> None:
        def answered(text: str | None, _why: str | None) -> None:
            words = "".join(char for char in text or "" if char.isprintable() or char.isspace()).split(None, 1)
            if words:
                self._named(job.run, words[0][:_MAX_NAME])
            elif self._loop.now_ms() < until_ms:
                later = min(2 * delay_ms, _NAME_EACH_MS[1])
                job.timer = self._loop.after(delay_ms, lambda: self._ask_name(job, until_ms, later))

        self._ask(job, "probe", job.record.probe, _TIME_MS, answered)

    def _named(self, run: LiveRun, name: str) -> None:
        run.execution_id = name
        change = self._engine.change()
        change.write(lambda db: update_run(db, run.id, execution_id=name))
        change.announce("run.updated", event_body(run, "running", executionId=name))
        self._engine.commit(change)
        if self._jobs_by_run[run.id].too_early:
            self.stopping(run.id)

    def stopping(self, run_id: str) -> None:
        """The root has begun to end the client."""
        job = self._jobs_by_run.get(run_id)
        if job is None or not job.record.stop:
            return
        known = job.run.execution_id is not None or not job.record.probe
        job.too_early = False

        def ended(_text: str | None, why: str | None) -> None:
            if not known and job.run.execution_id is not None:
                self.stopping(run_id)
            elif known and why is not None:
                self._root.send({"op": "note", "run": run_id, "text": f"the job could not be stopped: {why}"})
            else:
                job.too_early = not known

        self._stop(job, ended)

    def _stop(self, job: _Job, then: Callable[[str | None, str | None], None]) -> None:
        def ended(text: str | None, why: str | None) -> None:
            job.stopping = False
            then(text, why)

        job.stopping = True
        _, grace_ms = launcher_commands.stopping(job.run.definition)
        self._ask(job, "stop", job.record.stop, grace_ms + _TIME_MS, ended)

    # When its client is gone.

    def must_wait_for_job(self, run: LiveRun, exited: Exited, then: Then) -> bool:
        """Whether an end has to wait for the job's; if so, `then` is called, once, when there is no job any more."""
        job = self._jobs_by_run.get(run.id)
        if job is None or exited.cause == "start_failed" or (exited.status is None and not exited.unknown):
            return False
        by_itself = exited.cause is None
        if by_itself and (exited.status == 0 or run.definition.leave_leftovers):
            return False
        return self._look_for(job, then, _patience_ms(job))

    def search(self, run: LiveRun, then: Then) -> bool:
        """The same for a run of which the root knows nothing; for as long as it takes, if anybody can be asked."""
        job = self._jobs_by_run.get(run.id)
        if job is None or run.definition.leave_leftovers:
            return False
        if not self._look_for(job, then, None if job.record.probe else _patience_ms(job)):
            return False
        where = job.record.launcher
        self._log.warning(f"{run.unit.name} {run.id}: looking for what an earlier supervisor left at {where}")
        self.lost.add(run.id)
        return True

    def give_up(self, run: LiveRun) -> None:
        """Wait no longer for the end of a job: somebody says that it is not there, or does not matter."""
        job = self._jobs_by_run.get(run.id)
        if job is not None and job.then is not None:
            self._over(job)

    def _look_for(self, job: _Job, then: Then, patience_ms: int | None) -> bool:
        if not (job.record.stop or job.record.probe):
            return False
        job.cancel()
        job.then, job.delay_ms = then, _LOOK_EACH_MS[0]
        if patience_ms is not None:
            job.patience = self._loop.after(patience_ms, lambda: self._out_of_patience(job))
        self._look(job)
        return True

    def _look(self, job: _Job) -> None:
        """One step: ask for the job, or end it where nobody can be asked."""
        if job.record.probe:
            self._ask(job, "probe", job.record.probe, _TIME_MS, lambda text, why: self._seen(job, text, why))
        elif not job.stopping:
            self._stop(job, lambda _text, why: self._seen(job, "" if why is None else None, why))
        else:
            self._later(job)

    def _seen(self, job: _Job, text: str | None, why: str | None) -> None:
        if text is not None and not text.split():
            self._over(job)
        elif text is None:
            self._log_unknown(job, why)
            self._later(job)
        elif job.record.stop and not job.stopping:
            self._stop(job, lambda _text, why: self._stopped(job, why))
        else:
            self._later(job)

    def _stopped(self, job: _Job, why: str | None) -> None:
        self._log_unknown(job, why)
        if job.then is not None:
            self._later(job)

    def _later(self, job: _Job) -> None:
        job.timer = self._loop.after(job.delay_ms, lambda: self._look(job))
        job.delay_ms = min(2 * job.delay_ms, _LOOK_EACH_MS[1])

    def _log_unknown(self, job: _Job, why: str | None) -> None:
        if why is not None and why != job.why:
            job.why = why
            self._log.warning(f"{job.run.unit.name} {job.run.id}: whether its job has ended is not known: {why}")

    def _out_of_patience(self, job: _Job) -> None:
        if self._engine.ending:  # the next daemon looks for it
            return
        waited = format_duration(_patience_ms(job))
        self._log.error(f"{job.run.unit.name} {job.run.id}: its job may still run, waited for {waited}")
        self._over(job)

    def _over(self, job: _Job) -> None:
        job.cancel()
        self._forget_requests(job)
        self.lost.discard(job.run.id)
        then, job.then = job.then, None
        if then is not None:
            then()

    # When it is over.

    def run_ended(self, run: LiveRun, verdict: Verdict, *, will_retry: bool) -> None:  # noqa: ARG002 - the signature of them all
        """See :class:`RunObserver`."""
        self.dropped(run)

    def dropped(self, run: LiveRun) -> None:
        """A run has ended, or its creation could not be stored."""
        job = self._jobs_by_run.pop(run.id, None)
        if job is None:
            return
        job.cancel()
        self.lost.discard(run.id)
        self._forget_requests(job)
        self._loop.after(0, lambda: self._forget(run.id))  # what is being stored now comes first

    def _forget(self, run_id: str) -> None:
        change = self._engine.change()
        change.write(lambda _db: forget_record(self._engine.boot.data_dir, run_id))
        self._engine.commit(change)

    def _forget_requests(self, job: _Job) -> None:
        for what in ("probe", "stop"):
            self._watcher.forget(_key(job, what))
        job.stopping = False

    # What the watcher is asked.

    def _ask(
        self,
        job: _Job,
        what: str,
        argv: list[str],
        timeout_ms: int,
        then: Callable[[str | None, str | None], None],
    ) -> None:
        """Have a command executed; `then` gets what it printed, or why it has failed."""

        def answered(answer: dict[str, Any]) -> None:
            then(answer.get("text"), answer.get("why"))

        def identified(identity: Identity) -> None:
            if self._jobs_by_run.get(job.run.id) is not job:
                return
            if identity.refusal is not None:
                refusal = identity.refusal
                self._loop.after(_LOOK_EACH_MS[1], lambda: then(None, refusal))
                return
            self._watcher.watch(self._probe_request(job, what, argv, timeout_ms, identity), answered)

        record = job.record
        as_then = replace(job.run.definition, user=record.user, clean_env=record.clean_env)
        self._engine.user_lookup.ask(as_then, identified)

    def _probe_request(
        self, job: _Job, what: str, argv: list[str], timeout_ms: int, identity: Identity
    ) -> ProbeRequest:
        record, account = job.record, identity.account
        env = record.environment(job.run, identity, self._engine.boot.private_variables)
        other = account is not None and not account.ours
        return ProbeRequest(
            key=_key(job, what),
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
    _, grace_ms = launcher_commands.stopping(job.run.definition)
    return grace_ms + _PATIENCE_MS


def _key(job: _Job, what: str) -> str:
    return f"{job.run.id}/{what}"
