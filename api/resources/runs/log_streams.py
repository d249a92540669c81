"""Handlers for live logs: of a run, of tasks and services, and of the daemon."""

from collections.abc import Callable
from typing import Any

from api.auth.identity import Role
from api.operations.operation import Call, Content, Operation
from api.operations.parameters import choice, flag, instant, integer
from api.operations.parameters import text as text_param
from api.operations.unit_selector import UNIT_PARAMS, units_of
from api.resources.runs.runs import the_run
from api.schemas import records as schemas
from api.schemas import unit_logs
from api.streams.log_merge import MAX_CURSOR
from api.streams.sse_response import EventStream
from api.streams.stream_content import DaemonLogStream, RunLogStream
from api.streams.unit_stream import LAST_LINES, UnitStream
from api.worker_context import Context
from logring.layout import STREAM_NAMES

LAST_EVENT_ID = (
    "Last-Event-ID",
    {"type": "string"},
    "Resume after this event; takes precedence over `from`. Ignored unless it is an integer of at least -1.",
)


def send_events(call: Call, make: Callable[[], EventStream]) -> None:
    """Answer with the stream that `make` returns. A HEAD request opens no stream."""
    call.resp.content_type = "text/event-stream"
    call.resp.set_header("X-Accel-Buffering", "no")
    if call.req.method == "HEAD":
        call.resp.stream = ()
        return
    stream = make()
    stream.open()
    call.resp.stream = stream


def _params(start: int) -> tuple[Any, ...]:
    return (
        integer(
            "from", "First line to return; 0 is the first of the log, and negative numbers count from the end.", start
        ),
        integer("replayLimit", "Maximum number of lines to replay.", 5000, minimum=1, maximum=50000),
        flag("batch", "Send lines that were read together as one `lines` event instead of one `line` event each."),
    )


LOG_EVENTS: dict[str, object] = {
    "line": schemas.Line,
    "lines": schemas.LineBatch,
    "region": schemas.Region,
    "dropped": schemas.Dropped,
    "rotated": schemas.Rotated,
}

UNIT_EVENTS: dict[str, object] = {
    "run": unit_logs.UnitRun,
    "lines": list[unit_logs.UnitLine],
    "gap": unit_logs.UnitGap,
    "end": unit_logs.UnitEnd,
    "done": unit_logs.UnitDone,
}

_CURSOR = (
    "Last-Event-ID",
    {"type": "string", "maxLength": MAX_CURSOR},
    "Resume after this event; takes precedence over from and since.",
)

_UNIT_PARAMS = (
    integer(
        "from",
        "-N: begin with the last N lines of all runs together, counted before stream and grep apply."
        " 0: begin with the first kept line. 1: begin with new lines only."
        f" Default: -{LAST_LINES}, or 0 with since.",
        minimum=-50_000,
        maximum=1,
    ),
    flag("follow", "false: end with done once all present lines are sent; default: true."),
    instant("since", "Only lines read at this time or later.", up=True),
    instant(
        "until", "Only lines read at this time or earlier; the stream ends with done when all were sent.", up=False
    ),
    choice("stream", "Only lines of this stream.", STREAM_NAMES),
    text_param("grep", "Only lines that match this regular expression, in RE2 syntax."),
)


@Operation(
    "GET",
    "/api/runs/{runId}/log/stream",
    role=Role.VIEWER,
    query=_params(-1000),
    headers=(LAST_EVENT_ID,),
    answers={200: Content("text/event-stream", {**LOG_EVENTS, "done": schemas.Done})},
    refusals=(404,),
    tag="logs",
)
def stream_run_log(context: Context, call: Call) -> None:
    """Stream a run's log: history from the anchor on, then live output until the run has ended."""
    run_id = call.path["runId"]
    with context.feeds.ends.watch(run_id, urgent=False):
        run = the_run(context, run_id)
        send_events(call, lambda: RunLogStream(context, call, run))


@Operation(
    "GET",
    "/api/daemon/log/stream",
    role=Role.ADMIN,
    query=_params(-100),
    headers=(LAST_EVENT_ID,),
    answers={200: Content("text/event-stream", LOG_EVENTS)},
    tag="daemon",
)
def stream_daemon_log(context: Context, call: Call) -> None:
    """Stream the daemon's recent log output."""
    send_events(call, lambda: DaemonLogStream(context, call))


@Operation(
    "GET",
    "/api/tasks/{taskName}/log/stream",
    role=Role.VIEWER,
    query=_UNIT_PARAMS,
    headers=(_CURSOR,),
    answers={200: Content("text/event-stream", UNIT_EVENTS, "string")},
    refusals=(404, 409),
    tag="logs",
)
def stream_task_log(context: Context, call: Call) -> None:
    """Stream the log of a task or service: the last lines of its runs, then all its runs to come."""
    _stream_units(context, call)


@Operation(
    "GET",
    "/api/logs/stream",
    role=Role.VIEWER,
    scoped=True,
    query=(*UNIT_PARAMS, *_UNIT_PARAMS),
    headers=(_CURSOR,),
    answers={200: Content("text/event-stream", UNIT_EVENTS, "string")},
    refusals=(404, 409),
    tag="logs",
)
def stream_logs(context: Context, call: Call) -> None:
    """Stream the logs of several tasks and services as one, in the order of time."""
    _stream_units(context, call)


def _stream_units(context: Context, call: Call) -> None:
    stream = UnitStream(context, call, units_of(call))  # rejects unknown units, also for HEAD
    send_events(call, lambda: stream)
