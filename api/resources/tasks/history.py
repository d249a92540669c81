"""How a redrawn line came to be."""

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import INT64_MAX
from api.resources.runs.runs import the_run
from api.schemas import records as schemas
from api.streams.ring_follower import unreadable
from api.worker_context import Context
from logring.errors import LogError
from logring.reader import LogReader


def get_history(context: Context, call: Call) -> None:
    """The frames of a line, oldest first."""
    run = the_run(context, call.path["runId"])
    number = int(call.path["lineNumber"])
    reader = LogReader(*context.hub.paths(run))

    def read() -> list[list[bytes]] | None:
        try:
            return reader.history(number) if number <= INT64_MAX else None
        finally:
            reader.close()

    try:
        frames = context.files(read)
    except (LogError, OSError) as err:
        raise unreadable(run.id, err) from err
    if frames is None:
        raise ApiError(404, f"The log of run {run.id} has no line {number}")
    call.answer(schemas.History(frames=[[row.decode("utf-8", "replace") for row in rows] for rows in frames]))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs/{runId}/log/line/{lineNumber}/history",
        id="getLineHistory",
        role=Role.VIEWER,
        summary="Get the frame history of a settled progress bar or redraw line.",
        handler=get_history,
        answers={200: json_of(schemas.History)},
        refusals=(404, 422),
        tag="logs",
    ),
)
