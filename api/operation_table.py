"""The table of all operations, in the order of the OpenAPI document."""

from api.operations.operation import Operation
from api.resources import (
    access,
    daemon,
    events,
    hooks,
    meta,
    notifications,
    prometheus,
    public_status,
    tasks,
    units,
)
from api.resources.runs import bulk, log_streams, logs, run_ending, runs, search, trigger

OPERATIONS: tuple[Operation, ...] = (
    *tasks.OPERATIONS,
    *units.OPERATIONS,
    *trigger.OPERATIONS,
    *hooks.OPERATIONS,
    *bulk.OPERATIONS,
    *runs.OPERATIONS,
    *run_ending.OPERATIONS,
    *logs.OPERATIONS,
    *log_streams.OPERATIONS,
    *search.OPERATIONS,
    *events.OPERATIONS,
    *notifications.OPERATIONS,
    *prometheus.OPERATIONS,
    *daemon.OPERATIONS,
    *access.OPERATIONS,
    *public_status.OPERATIONS,
    *meta.OPERATIONS,
)
