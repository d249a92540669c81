"""Whether the instances of services do their work: readiness, as it is waited for, and then liveness.

Each run that is looked at has a case here, and a line about how it stands, for people. What the probes
say comes from the watcher, what the run says of itself from the root.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

from logring.paths import log_path, ring_path
from supervisor.config.model import Probe, Service
from supervisor.config.value_types.durations import format_duration
from supervisor.config.value_types.probes import INSTANCE
from supervisor.ipc.probe_request import ProbeRequest
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.user_lookup import Identity
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.run_access import RunAccess
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.runs.spawn_requests import spawn_of
from supervisor.scheduler.services.watcher_client import OnAnswer

_ATTEMPT_MS = 5000
"""How long one attempt to find it ready may take."""
_RETAKEN_MS = 5000
"""What is left at least of its time when another scheduler takes it up: it may have become ready meanwhile."""
_TELL_MS = 1000
"""Between two changes of the line for people."""


class Watcher(Protocol):
    """Who carries out orders to watch something."""

    def watch(self, request: ProbeRequest, on_answer: OnAnswer) -> None:
        """Have something watched."""

    def forget(self, key: str) -> None:
        """Watch it no more."""


class HealthListener(Protocol):
    """Who hears of it."""

    def run_ready(self, run: LiveRun, line: str | None) -> None:
        """It is ready; `line` is how it stands, in words for people."""

    def run_unhealthy(self, run: LiveRun, why: str) -> None:
        """It has to end, and why."""

    def run_reports(self, run: LiveRun, line: str | None) -> None:
        """How it stands, in words for people."""


class _HealthCheck:
    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.deadline: Timer | None = None
        """Until when it has to be ready."""
        self.watchdog: tuple[Probe, Timer] | None = None
        """Until when it has to say that it is alive."""
        self.line: str | None = None
        self.report_timer: Timer | None = None


class HealthMonitor:
    """All runs that are looked at."""

    def __init__(self, loop: Loop, engine: RunEngine, watcher: Watcher, verdict_of: HealthListener) -> None:
        """`engine` has the users looked up whose commands are run."""
        self._loop = loop
        self._boot = engine.boot
        self._engine = engine
        self._watcher = watcher
        self._listener = verdict_of
        self._checks: dict[str, _HealthCheck] = {}

    def await_ready(self, run: LiveRun, probe: Probe, ran_ms: int, *, retaken: bool = False) -> None:
        """Wait until a run is ready, for as long as it may take; it has been running for `ran_ms` already.

        `retaken` says that a scheduler before waited for it already.
        """
        check = self._checks.setdefault(run.id, _HealthCheck(run))
        least = min(_RETAKEN_MS, probe.timeout_ms) if retaken else 0
        left = max(least, min(probe.timeout_ms, probe.timeout_ms - ran_ms))
        check.deadline = self._loop.after(left, lambda: self._ready_timed_out(check, probe))
        if probe.kind == "notify":
            return
        self._identified(check, probe, lambda: self._look_for_readiness(check, probe))

    def _look_for_readiness(self, check: _HealthCheck, probe: Probe) -> None:
        if check.deadline is None:  # it took too long to find out who makes the attempts
            return
        attempt_ms = min(_ATTEMPT_MS, probe.timeout_ms)
        request = self._probe_request(check.run, probe, _ready_key(check.run.id), timeout_ms=attempt_ms, times=0)
        self._watcher.watch(request, lambda answer: self._on_ready_answer(check, answer))

    def notified(self, run: LiveRun, news: dict[str, Any]) -> None:
        """What a run said by sd_notify; see ``notified`` in :mod:`supervisor.ipc.messages`."""
        check = self._checks.setdefault(run.id, _HealthCheck(run))
        if "status" in news:
            self._report(check, news["status"])
        probe = readiness(run)
        waited_for = check.deadline is not None and probe is not None and probe.kind == "notify"
        if news.get("ready_at") is not None and waited_for:
            self._ready(check)
        if news.get("alive") and check.watchdog is not None:
            self._reset_watchdog(check, check.watchdog[0])

    def watch_life(self, run: LiveRun, probe: Probe) -> None:
        """Look whether a run that is ready stays alive."""
        check = self._checks.setdefault(run.id, _HealthCheck(run))
        if probe.kind == "notify":
            self._reset_watchdog(check, probe)
            return
        self._identified(check, probe, lambda: self._look_for_life(check, probe))

    def _look_for_life(self, check: _HealthCheck, probe: Probe) -> None:
        request = self._probe_request(
            check.run, probe, _live_key(check.run.id), timeout_ms=probe.timeout_ms, times=probe.failures
        )
        self._watcher.watch(request, lambda answer: self._on_live_answer(check, answer))

    def forget(self, run_id: str) -> None:
        """A run has ended."""
        check = self._checks.pop(run_id, None)
        if check is None:
            return
        for timer in (check.deadline, check.report_timer, check.watchdog and check.watchdog[1]):
            if timer is not None:
                timer.cancel()
        self._watcher.forget(_ready_key(run_id))
        self._watcher.forget(_live_key(run_id))

    # Readiness.

    def _on_ready_answer(self, check: _HealthCheck, answer: dict[str, Any]) -> None:
        if answer["op"] == "passed":
            check.line = None
            self._ready(check)
        else:
            self._report(check, answer["why"])

    def _ready(self, check: _HealthCheck) -> None:
        if check.deadline is not None:
            check.deadline.cancel()
            check.deadline = None
        self._listener.run_ready(check.run, check.line)

    def _ready_timed_out(self, check: _HealthCheck, probe: Probe) -> None:
        check.deadline = None
        self._watcher.forget(_ready_key(check.run.id))
        why = f": {check.line}" if check.line else f": {_MISSED[probe.kind]}"
        self._listener.run_unhealthy(check.run, f"not ready within {format_duration(probe.timeout_ms)}{why}")

    # Liveness.

    def _on_live_answer(self, check: _HealthCheck, answer: dict[str, Any]) -> None:
        if answer["op"] == "failed":
            self._listener.run_unhealthy(check.run, f"not alive: {answer['why']}")
        else:
            self._report(check, answer.get("why"))

    def _reset_watchdog(self, check: _HealthCheck, probe: Probe) -> None:
        if check.watchdog is not None:
            check.watchdog[1].cancel()
        patience_ms = probe.every_ms * probe.failures
        why = f"not alive: no WATCHDOG=1 for {format_duration(patience_ms)}"
        check.watchdog = probe, self._loop.after(patience_ms, lambda: self._listener.run_unhealthy(check.run, why))

    # The line for people.

    def _report(self, check: _HealthCheck, line: str | None) -> None:
        """At once after quiet; of several within a second, the last one."""
        if line == check.line:
            return
        check.line = line
        if check.report_timer is None:
            self._listener.run_reports(check.run, line)
            check.report_timer = self._loop.after(_TELL_MS, lambda: self._may_report_again(check, line))

    def _may_report_again(self, check: _HealthCheck, line: str | None) -> None:
        check.report_timer = None
        if check.line != line:
            latest, check.line = check.line, line
            self._report(check, latest)

    # What the watcher is asked.

    def _identified(self, check: _HealthCheck, probe: Probe, then: Callable[[], None]) -> None:
        """Call `then` when it is known who runs a command; another scheduler has to find that out anew."""
        run = check.run

        def answered(identity: Identity) -> None:
            if self._checks.get(run.id) is not check:
                return
            if identity.refusal is None:
                run.identity = identity
                then()
            else:
                self._report(check, identity.refusal)
                self._loop.after(probe.every_ms, lambda: self._identified(check, probe, then))

        if probe.kind == "exec" and run.identity is None:
            self._engine.user_lookup.ask(run.definition, answered)
        else:
            then()

    def _probe_request(self, run: LiveRun, probe: Probe, key: str, *, timeout_ms: int, times: int) -> ProbeRequest:
        log = log_path(self._boot.data_dir, run.unit.name, run.id)
        target = probe.target if isinstance(probe.target, str) else ""
        request: dict[str, Any] = {
            "key": key,
            "kind": probe.kind,
            "every_ms": probe.every_ms,
            "timeout_ms": timeout_ms,
            "times": times,
            "ring": ring_path(self._boot.runtime_dir, run.id),
            "file": log,
        }
        if probe.kind == "exec":
            return ProbeRequest(**request, **self._command(run, probe, log))
        return ProbeRequest(
            **request, target=target if probe.kind == "log" else target.replace(INSTANCE, str(run.instance))
        )

    def _command(self, run: LiveRun, probe: Probe, log: str) -> dict[str, Any]:
        """A command has the environment, the user and the directory of the run."""
        spawn = spawn_of(run, self._boot.daemon_id, log, access=RunAccess.of(self._boot))
        hidden = {*self._boot.private_variables}
        base = {} if spawn.clean_env else {name: text for name, text in os.environ.items() if name not in hidden}
        definition = run.definition
        argv = [definition.shell, "-e", "-c", probe.target] if isinstance(probe.target, str) else list(probe.target)
        return {
            "argv": argv,
            "env": {**base, **spawn.env},
            "chosen": list(spawn.env),
            "secrets": spawn.secrets,
            "cwd": spawn.cwd,
            "uid": spawn.uid,
            "gid": spawn.gid,
            "groups": spawn.groups,
            "umask": spawn.umask,
        }


_MISSED = {
    "notify": "no READY=1 came",
    "log": "no line of its output matched",
    "http": "no answer came",
    "tcp": "no connection was made",
    "exec": "the command did not succeed",
}


def readiness(run: LiveRun) -> Probe | None:
    """By what a run is found to be ready; None: by having a process."""
    return run.definition.ready if isinstance(run.definition, Service) else None


def liveness(run: LiveRun) -> Probe | None:
    """By what a run is found to be alive; None: by having a process."""
    return run.definition.live if isinstance(run.definition, Service) else None


def _live_key(run_id: str) -> str:
    return f"{run_id}/live"


def _ready_key(run_id: str) -> str:
    return f"{run_id}/ready"
