"""The table of all operations, in the order of the OpenAPI document."""

from api.operations.operation import Operation
from api.resources.access import audit, login, tokens
from api.resources.daemon import (
    daemon,
    daemon_identity,
    events,
    meta,
    notifications,
    notifiers,
    probes,
    prometheus,
    system,
)
from api.resources.runs import bulk, deleted_runs, log_streams, logs, run_ending, run_resources, runs, search, trigger
from api.resources.tasks import control, history, reload, task_times, task_usage, tasks

OPERATIONS: tuple[Operation, ...] = (
    *tasks.OPERATIONS,
    *task_times.OPERATIONS,
    *task_usage.OPERATIONS,
    *trigger.OPERATIONS,
    *control.OPERATIONS,
    *bulk.OPERATIONS,
    *runs.OPERATIONS,
    *deleted_runs.OPERATIONS,
    *run_ending.OPERATIONS,
    *run_resources.OPERATIONS,
    *logs.OPERATIONS,
    *history.OPERATIONS,
    *log_streams.OPERATIONS,
    *search.OPERATIONS,
    *events.OPERATIONS,
    *notifications.OPERATIONS,
    *notifiers.OPERATIONS,
    *system.OPERATIONS,
    *prometheus.OPERATIONS,
    *daemon.OPERATIONS,
    *daemon_identity.OPERATIONS,
    *reload.OPERATIONS,
    *login.OPERATIONS,
    *tokens.OPERATIONS,
    *audit.OPERATIONS,
    *probes.OPERATIONS,
    *meta.OPERATIONS,
)
