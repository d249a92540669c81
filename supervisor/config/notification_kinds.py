"""The kinds of notifications.

==========================  ========  ================================================================================
kind                        severity  when
==========================  ========  ================================================================================
``run.failed``              error     a run of a task failed, could not be started or printed too much
``run.timeout``             error     a run of a task ran longer than it may
``run.crashed``             error     a run of a task ended with the supervisor that died under it
``run.missed``              warn      an instant of a schedule did not become a run
``run.succeeded``           info      a run of a task succeeded, and somebody wants to hear of that
``run.recovered``           info      a task that had failed has succeeded
``run.slow``                warn      a run takes longer than ``max_duration_alert``
``run.silent``              warn      a run has printed nothing for ``silence_alert``
``service.fatal``           error     a service is given up: an instance of it failed too often in a row
``service.recovered``       info      after that, all instances of it are well again
``service.flapping``        error     an instance of a service fails again and again, and is restarted each time
``service.stable``          info      after that, none has failed for ``flap_window``
``service.rolling``         error     a rolling restart of a service ended before it was done
``log.disk_pressure``       warn      the output of a run is counted and not kept: the disk is full or failing
``config.stale``            info      a file of the configuration has changed and was not reloaded
``database.failing``        error     nothing can be stored; stored itself when that is possible again
``database.restored``       error     it was damaged or gone, and was put back
``disk.full``               error     the disk has no room for the reserve of the database
``disk.recovered``          info      after that, it has again
``memory.short``            error     the supervisor gets no more memory, and starts nothing
``memory.recovered``        info      after that, it does again
``clock.set_back``          warn      the wall clock was set back: tasks are silent until it has caught up
``clock.doubted``           warn      it was set by more than a day: nothing is removed by its age for an hour
``starts.waiting``          error     runs have waited for a minute since descriptors, processes or memory have run out
``starts.recovered``        info      after that, none waits any more
``export.failing``          error     an export has delivered nothing for ``alert_after``, because its deliveries fail
``export.recovered``        info      after that, it delivers again
``daemon.restarted``        warn      the daemon runs again, and had not been shut down; ``info`` when it had
``notify.delivery_failed``  error     a notifier could not deliver messages, and they are given up
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
"""From the least to the worst."""

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
"""The severity of each; that of ``daemon.restarted`` when it is bad news."""

KINDS = tuple(OF_KIND)

FAILURES = frozenset({RUN_FAILED, RUN_TIMEOUT, RUN_CRASHED})
"""Ends of runs of tasks; they are counted, see ``after``."""

RECOVERIES = {
    RUN_RECOVERED: FAILURES,
    SERVICE_RECOVERED: frozenset({SERVICE_FATAL}),
    SERVICE_STABLE: frozenset({SERVICE_FLAPPING}),
    DISK_RECOVERED: frozenset({DISK_FULL}),
    MEMORY_RECOVERED: frozenset({MEMORY_SHORT}),
    STARTS_RECOVERED: frozenset({STARTS_WAITING}),
    EXPORT_RECOVERED: frozenset({EXPORT_FAILING}),
}
"""The kinds that each kind ends."""

ONLY_NAMED = frozenset({RUN_SUCCEEDED})
"""A route has them only when it names them."""

OF_REASON = {"timeout": RUN_TIMEOUT, "crashed": RUN_CRASHED}
"""Kinds by end reason; all others that are failures are ``run.failed``."""
