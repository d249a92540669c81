"""The kinds of notifications.

==========================  ========  ================================================================================
kind                        severity  when
==========================  ========  ================================================================================
``run.failed``              error     a run of a task failed, could not be started or printed too much
``run.timeout``             error     a run of a task exceeded its ``timeout``
``run.crashed``             error     a run of a task was lost because the daemon crashed
``run.missed``              warn      no run was created for a scheduled time
``run.succeeded``           info      a run of a task succeeded; sent only to routes that name this kind
``run.recovered``           info      a task succeeded after a failure
``run.slow``                warn      a run takes longer than ``max_duration_alert``
``run.silent``              warn      a run has printed nothing for ``silence_alert``
``service.fatal``           error     an instance of a service failed too often in a row and is no longer restarted
``service.recovered``       info      all instances of a service run again after ``service.fatal``
``service.flapping``        error     an instance of a service keeps failing and is restarted each time
``service.stable``          info      no instance has failed for ``flap_window`` after ``service.flapping``
``service.rolling``         error     a rolling restart of a service stopped before it was complete
``log.disk_pressure``       warn      the disk is full or failing: the output of a run is counted but not kept
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

RUN_FAILED = "run.failed"
RUN_TIMEOUT = "run.timeout"
RUN_CRASHED = "run.crashed"
RUN_MISSED = "run.missed"
RUN_SUCCEEDED = "run.succeeded"
RUN_RECOVERED = "run.recovered"
RUN_SLOW = "run.slow"
RUN_SILENT = "run.silent"
SERVICE_FATAL = "service.fatal"
SERVICE_RECOVERED = "service.recovered"
SERVICE_FLAPPING = "service.flapping"
SERVICE_STABLE = "service.stable"
SERVICE_ROLLING = "service.rolling"
LOG_DISK_PRESSURE = "log.disk_pressure"
CONFIG_STALE = "config.stale"
DATABASE_FAILING = "database.failing"
DATABASE_RESTORED = "database.restored"
DISK_FULL = "disk.full"
DISK_RECOVERED = "disk.recovered"
MEMORY_SHORT = "memory.short"
MEMORY_RECOVERED = "memory.recovered"
CLOCK_SET_BACK = "clock.set_back"
CLOCK_DOUBTED = "clock.doubted"
STARTS_WAITING = "starts.waiting"
STARTS_RECOVERED = "starts.recovered"
EXPORT_FAILING = "export.failing"
EXPORT_RECOVERED = "export.recovered"
DAEMON_RESTARTED = "daemon.restarted"
DELIVERY_FAILED = "notify.delivery_failed"

SEVERITIES = ("info", "warn", "error")
"""In ascending order."""

OF_KIND = {
    RUN_FAILED: "error",
    RUN_TIMEOUT: "error",
    RUN_CRASHED: "error",
    RUN_MISSED: "warn",
    RUN_SUCCEEDED: "info",
    RUN_RECOVERED: "info",
    RUN_SLOW: "warn",
    RUN_SILENT: "warn",
    SERVICE_FATAL: "error",
    SERVICE_RECOVERED: "info",
    SERVICE_FLAPPING: "error",
    SERVICE_STABLE: "info",
    SERVICE_ROLLING: "error",
    LOG_DISK_PRESSURE: "warn",
    CONFIG_STALE: "info",
    DATABASE_FAILING: "error",
    DATABASE_RESTORED: "error",
    DISK_FULL: "error",
    DISK_RECOVERED: "info",
    MEMORY_SHORT: "error",
    MEMORY_RECOVERED: "info",
    CLOCK_SET_BACK: "warn",
    CLOCK_DOUBTED: "warn",
    STARTS_WAITING: "error",
    STARTS_RECOVERED: "info",
    EXPORT_FAILING: "error",
    EXPORT_RECOVERED: "info",
    DAEMON_RESTARTED: "warn",
    DELIVERY_FAILED: "error",
}
"""The severity of each kind; that of ``daemon.restarted`` applies after a crash."""

KINDS = tuple(OF_KIND)

FAILURES = frozenset({RUN_FAILED, RUN_TIMEOUT, RUN_CRASHED})
"""Failed runs of tasks, which ``after`` counts."""

RECOVERIES = {
    RUN_RECOVERED: FAILURES,
    SERVICE_RECOVERED: frozenset({SERVICE_FATAL}),
    SERVICE_STABLE: frozenset({SERVICE_FLAPPING}),
    DISK_RECOVERED: frozenset({DISK_FULL}),
    MEMORY_RECOVERED: frozenset({MEMORY_SHORT}),
    STARTS_RECOVERED: frozenset({STARTS_WAITING}),
    EXPORT_RECOVERED: frozenset({EXPORT_FAILING}),
}
"""The kinds of trouble that each kind of recovery ends."""

ONLY_NAMED = frozenset({RUN_SUCCEEDED})
"""Kinds that a route receives only if it names them."""

OF_REASON = {"timeout": RUN_TIMEOUT, "crashed": RUN_CRASHED}
"""Kinds by end reason; all other failures are ``run.failed``."""
