"""The kinds of notifications.

==========================  ========  ================================================================================
kind                        severity  when
==========================  ========  ================================================================================
``run.failed``              error     a run of a task failed, could not be started or printed too much
``run.timeout``             error     a run of a task exceeded its ``timeout``
``run.crashed``             error     a run of a task was lost because the daemon crashed
``run.missed``              warn      no run was created for a scheduled time
``run.skipped``             info      an overlap skipped a scheduled time; sent only to routes that name this kind
``run.succeeded``           info      a run of a task succeeded; sent only to routes that name this kind
``run.recovered``           info      a task succeeded after a failure
``run.short``               warn      a run succeeded sooner than ``min_duration``, with ``too_short = "warn"``
``run.gate_closed``         warn      a scheduled run was skipped, because the tasks in ``requires`` had not succeeded
``run.approval``            warn      a run waits for an approval (``needs_approval``)
``run.slow``                warn      a run takes longer than ``max_duration_alert``, or than usual
``run.silent``              warn      a run has printed nothing for ``silence_alert``
``task.late``               error     the work of a scheduled time was not done by ``finish_by``
``task.on_time``            info      the work of that or of a later time is done after ``task.late``
``task.failing``            error     so many of the last runs failed as ``failure_rate`` says
``task.steady``             info      fewer of the last runs failed after ``task.failing``
``service.fatal``           error     an instance of a service failed too often in a row and is no longer restarted
``service.recovered``       info      all instances of a service run again after ``service.fatal``
``service.flapping``        error     an instance of a service keeps failing and is restarted each time
``service.stable``          info      no instance has failed for ``flap_window`` after ``service.flapping``
``service.restart_failed``  error     the next process of a service did not become ready, so the present one goes on
``service.rolling``         error     a rolling restart of a service stopped before it was complete
``log.disk_pressure``       warn      the log of a run cannot be written: output waits, or is counted but not kept
``config.stale``            info      a configuration file changed and was not reloaded
``database.failing``        error     the database cannot store anything; this is stored once it can again
``database.restored``       error     the database was damaged or missing, and was restored
``disk.full``               error     the disk has no room for the reserve of the database
``disk.recovered``          info      the reserve was allocated again after ``disk.full``
``memory.short``            error     the daemon gets no more memory, and starts nothing
``memory.recovered``        info      the daemon gets memory again after ``memory.short``
``clock.set_back``          warn      the wall clock was set back: schedules wait until it has caught up
``clock.doubted``           warn      the clock was set by more than a day: for an hour, nothing is removed by age
``starts.waiting``          error     runs have waited for a minute because descriptors, processes or memory ran out
``starts.recovered``        info      no run waits for these any more after ``starts.waiting``
``export.failing``          error     the deliveries of an export have failed for ``alert_after``
``export.recovered``        info      an export delivers again after ``export.failing``
``daemon.restarted``        warn      the daemon started after a crash; ``info`` after a shutdown
``notify.delivery_failed``  error     a notifier could not deliver messages and gave up
==========================  ========  ================================================================================
"""

SEVERITIES = ("info", "warn", "error")
"""In ascending order."""

OF_KIND: dict[str, str] = {}
"""The severity of each kind; that of ``daemon.restarted`` applies after a crash."""


def _kind(name: str, severity: str) -> str:
    OF_KIND[name] = severity
    return name


RUN_FAILED = _kind("run.failed", "error")
RUN_TIMEOUT = _kind("run.timeout", "error")
RUN_CRASHED = _kind("run.crashed", "error")
RUN_MISSED = _kind("run.missed", "warn")
RUN_SKIPPED = _kind("run.skipped", "info")
RUN_SUCCEEDED = _kind("run.succeeded", "info")
RUN_RECOVERED = _kind("run.recovered", "info")
RUN_SHORT = _kind("run.short", "warn")
RUN_GATE_CLOSED = _kind("run.gate_closed", "warn")
RUN_APPROVAL = _kind("run.approval", "warn")
RUN_SLOW = _kind("run.slow", "warn")
RUN_SILENT = _kind("run.silent", "warn")
TASK_LATE = _kind("task.late", "error")
TASK_ON_TIME = _kind("task.on_time", "info")
TASK_FAILING = _kind("task.failing", "error")
TASK_STEADY = _kind("task.steady", "info")
SERVICE_FATAL = _kind("service.fatal", "error")
SERVICE_RECOVERED = _kind("service.recovered", "info")
SERVICE_FLAPPING = _kind("service.flapping", "error")
SERVICE_STABLE = _kind("service.stable", "info")
SERVICE_RESTART_FAILED = _kind("service.restart_failed", "error")
SERVICE_ROLLING = _kind("service.rolling", "error")
LOG_DISK_PRESSURE = _kind("log.disk_pressure", "warn")
CONFIG_STALE = _kind("config.stale", "info")
DATABASE_FAILING = _kind("database.failing", "error")
DATABASE_RESTORED = _kind("database.restored", "error")
DISK_FULL = _kind("disk.full", "error")
DISK_RECOVERED = _kind("disk.recovered", "info")
MEMORY_SHORT = _kind("memory.short", "error")
MEMORY_RECOVERED = _kind("memory.recovered", "info")
CLOCK_SET_BACK = _kind("clock.set_back", "warn")
CLOCK_DOUBTED = _kind("clock.doubted", "warn")
STARTS_WAITING = _kind("starts.waiting", "error")
STARTS_RECOVERED = _kind("starts.recovered", "info")
EXPORT_FAILING = _kind("export.failing", "error")
EXPORT_RECOVERED = _kind("export.recovered", "info")
DAEMON_RESTARTED = _kind("daemon.restarted", "warn")
DELIVERY_FAILED = _kind("notify.delivery_failed", "error")

KINDS = tuple(OF_KIND)

FAILURES = frozenset({RUN_FAILED, RUN_TIMEOUT, RUN_CRASHED})
"""Failed runs of tasks, which ``after`` counts."""

RECOVERIES = {
    RUN_RECOVERED: FAILURES,
    TASK_ON_TIME: frozenset({TASK_LATE}),
    TASK_STEADY: frozenset({TASK_FAILING}),
    SERVICE_RECOVERED: frozenset({SERVICE_FATAL}),
    SERVICE_STABLE: frozenset({SERVICE_FLAPPING}),
    DISK_RECOVERED: frozenset({DISK_FULL}),
    MEMORY_RECOVERED: frozenset({MEMORY_SHORT}),
    STARTS_RECOVERED: frozenset({STARTS_WAITING}),
    EXPORT_RECOVERED: frozenset({EXPORT_FAILING}),
}
"""The kinds of trouble that each kind of recovery ends."""

ENDED_WITH = {kind: kinds for kinds in RECOVERIES.values() for kind in kinds}
"""All kinds of trouble that end together with each kind of trouble."""

ONLY_NAMED = frozenset({RUN_SKIPPED, RUN_SUCCEEDED})
"""Kinds that a route receives only if it names them."""

OF_REASON = {"timeout": RUN_TIMEOUT, "crashed": RUN_CRASHED}
"""Kinds by end reason; all other failures are ``run.failed``."""
