"""Tasks and services as they are configured, and what they are doing."""

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.conditional import CONDITION
from api.operations.operation import Call, Operation, json_of
from api.schemas import records as schemas
from api.schemas.task_list import listed
from api.schemas.task_view import one
from api.worker_context import Context


def list_tasks(context: Context, call: Call) -> None:
    """All configured tasks and services."""
    call.answer_list(schemas.Tasks, *context.reads(listed, context.tasks, call.identity))


def get_task(context: Context, call: Call) -> None:
    """One of them."""
    name = call.path["taskName"]
    task = context.reads(one, name)
    if task is None:
        raise ApiError(404, f'No task named "{name}"')
    call.answer(task)
    call.tagged()


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/tasks",
        id="listTasks",
        role=Role.VIEWER,
        scoped=True,
        summary="List all tasks and services.",
        handler=list_tasks,
        headers=(CONDITION,),
        answers={200: json_of(schemas.Tasks), 304: None},
        sends={200: ("ETag",), 304: ("ETag",)},
        tag="tasks",
    ),
    Operation(
        method="GET",
        path="/api/tasks/{taskName}",
        id="getTask",
        role=Role.VIEWER,
        summary="Get one task or service.",
        handler=get_task,
        headers=(CONDITION,),
        answers={200: json_of(schemas.Task), 304: None},
        sends={200: ("ETag",), 304: ("ETag",)},
        refusals=(404, 422),
        tag="tasks",
    ),
)
