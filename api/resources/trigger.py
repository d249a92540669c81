"""Triggering a run."""

import logging

import gevent

from api import runs_view, schemas
from api.auth import asked
from api.context import Context
from api.errors import ApiError, invalid
from api.operation import Call, Operation, json_of
from api.params import integer
from api.resources.runs import NAMING
from api.schemas import ErrorDetail
from store import runs as store_runs
from store.errors import StoreError
from store.ids import new_ulid
from store.runs import Run

log = logging.getLogger("gunicorn.error")

_MAX_WAIT_S = 240


def run_task(context: Context, call: Call) -> None:
    """Start a run, or queue it, or skip it: as the task's definition says."""
    params: dict[str, str] = call.body.params or {}
    if params:
        raise invalid(
            [ErrorDetail(f"body.params.{name}", "is no parameter of this task", params[name]) for name in params]
        )
    run_id = new_ulid()
    wait_s = call.query["wait"]
    by = call.identity.name if call.identity else ""

    def trigger() -> None:
        try:
            asked(
                lambda: context.control.call(
                    "trigger", run=run_id, task=call.path["taskName"], triggered_by="api", by=by
                )
            )
        except ApiError as err:
            # A scheduler that stored the run and died before it could answer: the run will come.
            if err.status != 503 or _read(context, run_id) is None:
                raise

    if wait_s:
        # The watch begins before the run exists, so that its end cannot be missed.
        with context.hub.ends.watch(run_id) as watch:
            trigger()
            with gevent.Timeout(wait_s, False):
                watch.wait(context.stopping)
    else:
        trigger()
    run = _stored(context, run_id)
    call.resp.set_header("Location", f"/api/runs/{run_id}")
    call.answer(runs_view.camel(run) if call.query["naming"] == "camel" else runs_view.snake(run), 201)


def _stored(context: Context, run_id: str) -> Run:
    run = _read(context, run_id)
    if run is None:
        raise ApiError(404, f"The run {run_id} was deleted")
    return run


def _read(context: Context, run_id: str) -> Run | None:
    try:
        return context.reads(store_runs.get_run, run_id)
    except StoreError as err:
        # No 503, which would invite to trigger it again.
        log.error("the run %s, which was triggered, could not be read: %s", run_id, err)
        raise ApiError(500, f"The run {run_id} was triggered, but the database could not be read") from err


OPERATIONS = (
    Operation(
        method="POST",
        path="/api/tasks/{taskName}/run",
        id="runTask",
        summary="Trigger a new run of the task.",
        handler=run_task,
        query=(
            integer(
                "wait", "Answer when the run has ended, or after this many seconds.", minimum=0, maximum=_MAX_WAIT_S
            ),
            NAMING,
        ),
        body=schemas.TriggerBody,
        answers={201: json_of((schemas.RunSnake, schemas.RunCamel))},
        refusals=(400, 403, 404, 409, 413, 415, 422, 503),
    ),
)
