"""The host: now, and as it was."""

import time

from msgspec import structs

from api.auth.identity import Role
from api.host_info import sample_events
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import instant, integer
from api.schemas.daemon_info import System, SystemMetrics
from api.worker_context import Context
from store import metrics

_HOUR_MS = 3_600_000
_MAX_STEP_S = 86_400


def get_system(context: Context, call: Call) -> None:
    """The host and the daemon's own processes, now."""
    info = context.scheduler.info(context) or {}
    found = context.system(context.daemon_pid, info.get("pid"))
    # A copy, since several requests share it, and each puts a link of its own into it.
    call.answer(structs.replace(found))


def get_metrics(context: Context, call: Call) -> None:
    """Samples of a span, by default of the last hour."""
    now_ms = time.time_ns() // 1_000_000
    end: int = now_ms if call.query["to"] is None else call.query["to"]
    start: int = end - _HOUR_MS if call.query["from"] is None else call.query["from"]
    end = max(start, end)
    wished: int | None = call.query["step"]
    step = metrics.resolution(start, end, now_ms, None if wished is None else wished * 1000)
    found = context.reads(metrics.samples, start, end, step)
    call.answer(SystemMetrics(items=[sample_events.shown(one) for one in found], step=step // 1000))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/system",
        id="getSystem",
        summary="Get the current state of the host and of the daemon's processes.",
        handler=get_system,
        answers={200: json_of(System)},
        role=Role.VIEWER,
        tag="system",
    ),
    Operation(
        method="GET",
        path="/api/system/metrics",
        id="listSystemMetrics",
        summary="Get the history of the host: every 5 seconds for a day, every minute for two weeks.",
        handler=get_metrics,
        query=(
            instant("from", "Start of the window; default: an hour before `to`.", up=False),
            instant("to", "End of the window, excluded; default: now.", up=True),
            integer(
                "step",
                "Seconds between two samples; longer if finer ones are not stored or there would be more than 2000.",
                minimum=1,
                maximum=_MAX_STEP_S,
            ),
        ),
        answers={200: json_of(SystemMetrics)},
        refusals=(422,),
        role=Role.VIEWER,
        tag="system",
    ),
)
