"""The health of service instances: readiness after a start, then liveness.

The watcher reports results of probes. The root passes on the sd_notify(3) messages of runs.
"""

from typing import Any, Protocol

from logring.log_paths import log_path, ring_path
from supervisor.config.model import Service
from supervisor.config.value_records import Probe
from supervisor.config.value_types.durations import format_duration
from supervisor.config.value_types.probes import INSTANCE
from supervisor.ipc.messages import DaemonSettings
from supervisor.ipc.probe_request import AttemptFailed, AttemptPassed, ProbeRequest, RequestFailed
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.procedures import Procedure, Procedures
from supervisor.scheduler.loop.user_lookup import UserIdentity, UserLookup
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_access import RunAccess
from supervisor.scheduler.runs.spawn_requests import command_as_run
from supervisor.scheduler.services.watcher_client import WatcherClient

_ATTEMPT_MS = 5000
"""Time limit of each readiness probe, unless the limit for readiness is shorter."""
_RETAKEN_MS = 5000
"""Minimum time left for readiness after a takeover: the run may have become ready while no scheduler was there."""
_TELL_MS = 1000
"""Minimum interval between two reports of details."""


class HealthListener(Protocol):
    """Receives the results of health checks."""

    def run_ready(self, run: LiveRun, line: str | None) -> None:
        """Handle a run that became ready; `line` has details that users see."""

    def run_unhealthy(self, run: LiveRun, reason: str) -> None:
        """Handle an unhealthy run, which must be stopped."""

    def run_reports(self, run: LiveRun, line: str | None) -> None:
        """Handle new details that users see."""


class _HealthCheck:
    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.deadline: Timer | None = None
        """The time limit for readiness; None once the run is ready or has missed it."""
        self.watchdog: tuple[Probe, Timer] | None = None
        """The liveness probe, and the time limit for the next WATCHDOG=1."""
        self.exit_deadline: Timer | None = None
        """The time limit for the exit after STOPPING=1; None: the run has not sent it."""
        self.line: str | None = None
        self.report_timer: Timer | None = None


class HealthMonitor:
    """Checks the health of runs whose services set ``ready`` or ``live``."""

    def __init__(
        self,
        loop: Loop,
        procedures: Procedures,
        settings: DaemonSettings,
        user_lookup: UserLookup,
        watcher: WatcherClient,
        listener: HealthListener,
    ) -> None:
        """`user_lookup` finds the users of probe commands."""
        self._loop = loop
        self._procedures = procedures
        self._settings = settings
        self._user_lookup = user_lookup
        self._watcher = watcher
        self._listener = listener
        self._checks: dict[str, _HealthCheck] = {}

    def await_ready(self, run: LiveRun, probe: Probe, ran_ms: int, *, retaken: bool = False) -> None:
        """Wait until a run is ready or the time limit of its probe passes; it has already run for `ran_ms`.

        `retaken`: the previous scheduler already waited for this.
        """
        check = self._checks.setdefault(run.id, _HealthCheck(run))
        least = min(_RETAKEN_MS, probe.timeout_ms) if retaken else 0
        delay_ms = max(least, min(probe.timeout_ms, probe.timeout_ms - ran_ms))
        check.deadline = self._loop.after(delay_ms, self._ready_timed_out, check, probe)
        if probe.kind != "notify":
            self._procedures.start(self._probe_readiness(check, probe))

    def _probe_readiness(self, check: _HealthCheck, probe: Probe) -> Procedure[None]:
        identified = yield from self._identify(check, probe)
        if not identified or check.deadline is None:  # the lookup of the user took longer than the limit
            return
        attempt_ms = min(_ATTEMPT_MS, probe.timeout_ms)
        request = self._probe_request(check.run, probe, _ready_key(check.run.id), timeout_ms=attempt_ms, times=0)
        self._watcher.watch(request, lambda answer: self._on_ready_answer(check, answer))

    def notified(self, run: LiveRun, news: dict[str, Any]) -> None:
        """Handle a ``notified`` message (:mod:`supervisor.ipc.messages`) about sd_notify(3) messages of a run."""
        check = self._checks.setdefault(run.id, _HealthCheck(run))
        if "status" in news:
            self._report(check, news["status"])
        probe = readiness(run)
        waited_for = check.deadline is not None and probe is not None and probe.kind == "notify"
        if news.get("ready_at") is not None and waited_for:
            self._ready(check)
        if news.get("stopping_at") is not None:
            self._await_exit(check, news["stopping_at"])
        if news.get("triggered"):
            self._listener.run_unhealthy(run, "not alive: WATCHDOG=trigger")
        elif news.get("alive") and check.watchdog is not None:
            self._reset_watchdog(check, check.watchdog[0])

    def _await_exit(self, check: _HealthCheck, stopping_at: int) -> None:
        """Instead of the health of a run that stops by itself, check that it exits in time, as systemd does."""
        self._end_checks(check)
        grace_ms = check.run.definition.stop_ms
        reason = f"still running {format_duration(grace_ms)} after STOPPING=1"
        # A clock that was set back must not prolong the wait.
        remaining_ms = min(grace_ms, max(0, stopping_at + grace_ms - self._loop.now_ms()))
        check.exit_deadline = self._loop.after(remaining_ms, self._listener.run_unhealthy, check.run, reason)

    def watch_life(self, run: LiveRun, probe: Probe) -> None:
        """Check the liveness of a ready run until it ends."""
        check = self._checks.setdefault(run.id, _HealthCheck(run))
        if probe.kind == "notify":
            self._reset_watchdog(check, probe)
        else:
            self._procedures.start(self._probe_liveness(check, probe))

    def _probe_liveness(self, check: _HealthCheck, probe: Probe) -> Procedure[None]:
        if not (yield from self._identify(check, probe)):
            return
        request = self._probe_request(
            check.run, probe, _live_key(check.run.id), timeout_ms=probe.timeout_ms, times=probe.failures
        )
        self._watcher.watch(request, lambda answer: self._on_live_answer(check, answer))

    def forget(self, run_id: str) -> None:
        """Stop all checks of a run that has ended."""
        check = self._checks.pop(run_id, None)
        if check is None:
            return
        self._end_checks(check)
        for timer in (check.exit_deadline, check.report_timer):
            if timer is not None:
                timer.cancel()

    def _end_checks(self, check: _HealthCheck) -> None:
        for timer in (check.deadline, check.watchdog and check.watchdog[1]):
            if timer is not None:
                timer.cancel()
        check.deadline = check.watchdog = None
        self._watcher.forget(_ready_key(check.run.id))
        self._watcher.forget(_live_key(check.run.id))

    # Readiness.

    def _on_ready_answer(self, check: _HealthCheck, answer: AttemptPassed | AttemptFailed) -> None:
        if isinstance(answer, AttemptPassed):
            check.line = None
            self._ready(check)
        else:
            self._report(check, answer.why)

    def _ready(self, check: _HealthCheck) -> None:
        if check.deadline is not None:
            check.deadline.cancel()
            check.deadline = None
        self._listener.run_ready(check.run, check.line)

    def _ready_timed_out(self, check: _HealthCheck, probe: Probe) -> None:
        check.deadline = None
        self._watcher.forget(_ready_key(check.run.id))
        reason = f": {check.line}" if check.line else f": {_MISSED[probe.kind]}"
        self._listener.run_unhealthy(check.run, f"not ready within {format_duration(probe.timeout_ms)}{reason}")

    # Liveness.

    def _on_live_answer(self, check: _HealthCheck, answer: AttemptPassed | AttemptFailed | RequestFailed) -> None:
        if isinstance(answer, RequestFailed):
            self._listener.run_unhealthy(check.run, f"not alive: {answer.why}")
        else:
            self._report(check, answer.why if isinstance(answer, AttemptFailed) else None)

    def _reset_watchdog(self, check: _HealthCheck, probe: Probe) -> None:
        if check.watchdog is not None:
            check.watchdog[1].cancel()
        patience_ms = probe.every_ms * probe.failures
        reason = f"not alive: no WATCHDOG=1 for {format_duration(patience_ms)}"
        check.watchdog = probe, self._loop.after(patience_ms, self._listener.run_unhealthy, check.run, reason)

    # Details for users.

    def _report(self, check: _HealthCheck, line: str | None) -> None:
        """Report new details at once, but at most once a second; intermediate ones are dropped."""
        if line == check.line:
            return
        check.line = line
        if check.report_timer is None:
            self._listener.run_reports(check.run, line)
            check.report_timer = self._loop.after(_TELL_MS, self._may_report_again, check, line)

    def _may_report_again(self, check: _HealthCheck, line: str | None) -> None:
        check.report_timer = None
        if check.line != line:
            latest, check.line = check.line, line
            self._report(check, latest)

    # Requests to the watcher.

    def _identify(self, check: _HealthCheck, probe: Probe) -> Procedure[bool]:
        """Find the user of a probe command; return whether the run is still to be probed.

        The lookup is needed only after a takeover, because the previous scheduler did not store its result.
        """
        run = check.run
        while probe.kind == "exec" and run.identity is None:
            identity: UserIdentity = yield self._user_lookup.identity_of(run.definition)
            if self._checks.get(run.id) is not check or check.exit_deadline is not None:
                return False
            if identity.refusal is None:
                run.identity = identity
            else:
                self._report(check, identity.refusal)
                yield self._loop.pause(probe.every_ms)
        return True

    def _probe_request(self, run: LiveRun, probe: Probe, key: str, *, timeout_ms: int, times: int) -> ProbeRequest:
        log = log_path(self._settings.data_dir, run.unit.name, run.id)
        target = probe.target if isinstance(probe.target, str) else ""
        request: dict[str, Any] = {
            "key": key,
            "kind": probe.kind,
            "every_ms": probe.every_ms,
            "timeout_ms": timeout_ms,
            "times": times,
            "ring": ring_path(self._settings.runtime_dir, run.id),
            "file": log,
        }
        if probe.kind == "exec":
            return ProbeRequest(
                **request, **command_as_run(run, probe.target, self._settings, RunAccess.of(self._settings))
            )
        return ProbeRequest(
            **request, target=target if probe.kind == "log" else target.replace(INSTANCE, str(run.instance))
        )


_MISSED = {
    "notify": "no READY=1 received",
    "log": "no output line matched",
    "http": "no answer",
    "tcp": "no connection",
    "exec": "the command did not succeed",
}


def readiness(run: LiveRun) -> Probe | None:
    """Return the readiness probe of a run; None if it is ready once it has a process."""
    return run.definition.ready if isinstance(run.definition, Service) else None


def liveness(run: LiveRun) -> Probe | None:
    """Return the liveness probe of a run; None if it is alive while it has a process."""
    return run.definition.live if isinstance(run.definition, Service) else None


def _live_key(run_id: str) -> str:
    return f"{run_id}/live"


def _ready_key(run_id: str) -> str:
    return f"{run_id}/ready"
