"""Handler for the stream of events about runs, services and the configuration."""

from api.auth.identity import Role
from api.operations.operation import Call, Content, Operation
from api.operations.parameters import words
from api.resources import notifications
from api.resources.runs.log_streams import LAST_EVENT_ID, send_events
from api.schemas.daemon_info import Sample
from api.schemas.records import Dropped
from api.streams.stream_content import EventsStream
from api.worker_context import Context

_BODY: dict[str, object] = {
    "type": "object",
    "properties": {"seq": {"type": "integer", "format": "int64"}, "kind": {"type": "string"}},
    "required": ["seq", "kind"],
}
_KINDS = (
    "run.created",
    "run.started",
    "run.updated",
    "run.ended",
    "run.deleted",
    "run.restored",
    "flow.step",
    "service.state",
    "service.flapping",
    "config.reloaded",
    "config.stale",
)
_EVENTS: dict[str, object] = {
    **dict.fromkeys(_KINDS, _BODY),
    **notifications.EVENTS,
    "system": Sample,
    "ping": {
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date-time", "description": "The time of the server."}},
        "required": ["at"],
    },
    "dropped": Dropped,
}


@Operation(
    "GET",
    "/api/events/stream",
    role=Role.VIEWER,
    scoped=True,
    query=(words("types", "Comma-separated kinds; default: all. dropped is always sent.", tuple(_EVENTS)),),
    headers=(LAST_EVENT_ID,),
    answers={200: Content("text/event-stream", _EVENTS)},
    tag="daemon",
)
def stream_events(context: Context, call: Call) -> None:
    """Stream live application events; each is named by its kind."""
    types = frozenset(call.query["types"])
    send_events(call, lambda: EventsStream(context, call, types))
