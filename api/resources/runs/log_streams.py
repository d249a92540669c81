"""Handlers for live logs: of a run, and of the daemon."""

from collections.abc import Callable
from typing import Any

from api.auth.identity import Role
from api.operations.operation import Call, Content, Operation
from api.operations.parameters import flag, integer
from api.resources.runs.runs import the_run
from api.schemas import records as schemas
from api.streams.sse_response import EventStream
from api.streams.stream_content import DaemonLogStream, RunLogStream
from api.worker_context import Context

LAST_EVENT_ID = (
    "Last-Event-ID",
    {"type": "string"},
    "Resume after this event; takes precedence over `from`. Ignored unless it is an integer of at least -1.",
)


def send_events(call: Call, make: Callable[[], EventStream]) -> None:
    """Answer with the stream that `make` returns; a HEAD request opens none."""
    call.resp.content_type = "text/event-stream"
    call.resp.set_header("X-Accel-Buffering", "no")
    if call.req.method == "HEAD":
        call.resp.stream = ()
        return
    stream = make()
    stream.open()
    call.resp.stream = stream


def stream_run_log(context: Context, call: Call) -> None:
    """Replay the log from the anchor, then follow it until the run has ended."""
    run_id = call.path["runId"]
    with context.hub.ends.watch(run_id, urgent=False):
        run = the_run(context, run_id)
        send_events(call, lambda: RunLogStream(context, call, run))


def stream_daemon_log(context: Context, call: Call) -> None:
    """Stream the daemon's own log; the stream has no end."""
    send_events(call, lambda: DaemonLogStream(context, call))


def _params(start: int) -> tuple[Any, ...]:
    return (
        integer(
            "from", "First line to return; 0 is the first of the log, and negative numbers count from the end.", start
        ),
        integer("replayLimit", "Maximum number of lines to replay.", 5000, minimum=1, maximum=50000),
        flag("batch", "Send lines that were read together as one `lines` event instead of one `line` event each."),
    )


LOG_EVENTS: dict[str, Any] = {
    "line": schemas.Line,
    "lines": schemas.LineBatch,
    "region": schemas.Region,
    "dropped": schemas.Dropped,
    "rotated": schemas.Rotated,
}

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs/{runId}/log/stream",
        id="streamRunLog",
        role=Role.VIEWER,
        summary="Stream a run's log: history from the anchor on, then live output until the run has ended.",
        handler=stream_run_log,
        query=_params(-1000),
        headers=(LAST_EVENT_ID,),
        answers={200: Content("text/event-stream", {**LOG_EVENTS, "done": schemas.Done})},
        refusals=(404, 422),
        tag="logs",
    ),
    Operation(
        method="GET",
        path="/api/daemon/log/stream",
        id="streamDaemonLog",
        role=Role.ADMIN,
        summary="Stream the daemon's recent log output.",
        handler=stream_daemon_log,
        query=_params(-100),
        headers=(LAST_EVENT_ID,),
        answers={200: Content("text/event-stream", LOG_EVENTS)},
        refusals=(422,),
        tag="daemon",
    ),
)
