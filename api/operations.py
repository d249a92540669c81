"""The table of all operations, in the order of the OpenAPI document."""

from api.operation import Operation
from api.resources import daemon, events, log_streams, login, logs, meta, probes, runs, search, tasks, trigger

OPERATIONS: tuple[Operation, ...] = (
    *tasks.OPERATIONS,
    *trigger.OPERATIONS,
    *runs.OPERATIONS,
    *logs.OPERATIONS,
    *log_streams.OPERATIONS,
    *search.OPERATIONS,
    *events.OPERATIONS,
    *daemon.OPERATIONS,
    *login.OPERATIONS,
    *probes.OPERATIONS,
    *meta.OPERATIONS,
)
