"""Logs that stayed with a former daemon, from which this one took over the database."""

from api.errors import ApiError
from api.worker_context import Context
from logring.reader import Head
from store.daemon_values import former_host_of
from store.runs.writes import Run


def require_log(context: Context, run: Run, head: Head) -> None:
    """Check that the log of a run is not missing because another host has it.

    A run that certainly printed nothing has no log anywhere. A crashed one may have printed something.

    Raises:
        ApiError: 503 with the name of the host that has the log.
    """
    if head.lines or run.status != "ended" or not (run.lines or run.end_reason == "crashed"):
        return
    host = context.reads(former_host_of, run.id)
    if host is not None:
        raise ApiError(503, f"The log of run {run.id} is on {host}, the host from which this daemon took over")
