"""The table of all operations, in the order of the OpenAPI document."""

from api.operations.operation import Operation
from api.resources import (
    access,
    audit,
    daemon,
    events,
    flows,
    hooks,
    meta,
    notifications,
    prometheus,
    public_status,
    tasks,
    units,
    upcoming,
)
from api.resources.runs import bulk, log_streams, logs, run_ending, runs, search, trigger

_MODULES = (
    tasks,
    units,
    upcoming,
    trigger,
    hooks,
    bulk,
    runs,
    run_ending,
    flows,
    logs,
    log_streams,
    search,
    events,
    notifications,
    prometheus,
    daemon,
    access,
    audit,
    public_status,
    meta,
)

OPERATIONS: tuple[Operation, ...] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Operation)
)
"""The handlers that an :class:`Operation` decorates in these modules."""
