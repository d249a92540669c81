"""The stream of what happens to runs and services."""

from typing import Any

from api.context import Context
from api.follow import EventsStream
from api.identity import Role
from api.operation import Call, Content, Operation
from api.params import event_types
from api.resources import notifications
from api.resources.log_streams import LAST_EVENT_ID, send_events
from api.schemas import Dropped
from api.schemas_informing import Sample

_BODY: dict[str, Any] = {
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
    "service.state",
    "config.reloaded",
    "config.stale",
)


def stream_events(context: Context, call: Call) -> None:
    """Events from now on, or after Last-Event-ID."""
    types = frozenset(call.query["types"])
    send_events(call, lambda: EventsStream(context, call, types))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/events/stream",
        id="streamEvents",
        role=Role.VIEWER,
        scoped=True,
        summary="Stream live application events; each is named by its kind.",
        handler=stream_events,
        query=(event_types("types", "Comma-separated kinds; all when absent."),),
        headers=(LAST_EVENT_ID,),
        answers={
            200: Content(
                "text/event-stream",
                {
                    **dict.fromkeys(_KINDS, _BODY),
                    **notifications.EVENTS,
                    "system": Sample,
                    "ping": {"type": "object"},
                    "dropped": Dropped,
                },
            )
        },
        refusals=(422,),
        tag="daemon",
    ),
)
