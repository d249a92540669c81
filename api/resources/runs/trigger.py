"""Handler that triggers a run, and the steps that webhooks share with it."""

import contextlib
import functools
import hashlib
import hmac
import logging
import re
from typing import Any

import gevent
import msgspec

from api.auth.identity import Role
from api.errors import ApiError, invalid
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import integer
from api.resources.runs.runs import NAMING
from api.schemas import records as schemas
from api.schemas import run_view
from api.schemas.pauses import future_time
from api.schemas.records import ErrorDetail
from api.server.disconnect_watch import DisconnectWatch
from api.worker_context import Context
from store.errors import StoreError
from store.runs import writes as store_runs
from store.runs.ids import new_ulid, time_of
from store.runs.writes import Run
from supervisor.ipc.control_client import NotSent, TemporarilyUnavailable

log = logging.getLogger("gunicorn.error")

_MAX_WAIT_S = 240
_KEY = re.compile("[!-~]([ -~]{0,253}[!-~])?")
IDEMPOTENCY_KEY: tuple[str, dict[str, Any], str] = (
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": f"^{_KEY.pattern}$"},
    "For 24 hours, the same key returns the same run. With another task or other parameters it is rejected.",
)


@Operation(
    "POST",
    "/api/tasks/{taskName}/run",
    role=Role.OPERATOR,
    query=(
        integer(
            "wait",
            "Respond when the run has ended, but at the latest after this many seconds.",
            minimum=0,
            maximum=_MAX_WAIT_S,
        ),
        NAMING,
    ),
    headers=(IDEMPOTENCY_KEY,),
    body=schemas.TriggerBody,
    answers={201: json_of((schemas.RunSnake, schemas.RunCamel))},
    sends={201: ("Location",)},
    refusals=(404,),
)
def run_task(context: Context, call: Call) -> None:
    """Trigger a new run of the task, with values for its parameters.

    The task's definition decides whether it starts, queues or is skipped; with `run_at` it does so at that time.
    """
    wait_s = call.query["wait"]
    run, is_row = _trigger(context, call)
    if wait_s:
        call.on_done(201)  # record it now: this worker may be gone when the run ends
        with context.feeds.ends.watch(run.id) as watch, gevent.Timeout(wait_s, False) as limit:
            watch.seen = True
            # If the client disconnects, stop waiting as if the time had passed.
            end = functools.partial(gevent.getcurrent().throw, limit)
            with contextlib.closing(DisconnectWatch(call.req.env["gunicorn.socket"], end)):
                watch.wait(context.stopping)
    if wait_s or not is_row:
        run = stored(context, run, is_row=is_row)
    call.resp.set_header("Location", f"{call.req.env['SCRIPT_NAME']}/api/runs/{run.id}")
    call.answer(run_view.camel(run) if call.query["naming"] == "camel" else run_view.snake(run), 201)


def _trigger(context: Context, call: Call) -> tuple[Run, bool]:
    """Trigger the run; return what :func:`create_run` does."""
    params: dict[str, str] = call.body.params or {}
    run_at = future_time("run_at", call.body.run_at) if call.body.run_at else None
    run_id, task = new_ulid(), call.path["taskName"]
    arguments: dict[str, object] = {"run": run_id, "task": task, "triggered_by": "api", "by": call.by_way}
    if params:
        arguments["params"] = params
    if run_at is not None:
        arguments["run_at"] = run_at
    if call.body.force:
        arguments["force"] = True
    if call.identity is not None:
        arguments["triggered_by"] = call.identity.trigger
        arguments["credential"] = call.identity.counted_as
        if call.identity.method == "run":
            arguments["from_run"] = call.identity.key
    process = context.auth.peer_pid(call.req)
    if process is not None:
        arguments["from_process"] = process
    text = idempotency_key(call)
    if text is not None:
        arguments["key"] = key_of(call.identity.key if call.identity else "", text)
        # Parameters may be secret. The key is not stored, so the hash cannot be used to guess them.
        content = msgspec.json.encode(
            [task, params, *([] if run_at is None else [run_at]), *(["force"] * call.body.force)], order="sorted"
        )
        arguments["request"] = hmac.digest(text.encode(), content, "sha256").hex()
    return create_run(context, call, arguments)


def create_run(context: Context, call: Call, arguments: dict[str, Any]) -> tuple[Run, bool]:
    """Ask the scheduler for a run; return it, and whether it is the stored row. It becomes the result of the call.

    If the idempotency key was used before, it is the earlier run. Without the row, :func:`stored` reads it.

    Raises:
        ApiError: the scheduler's refusal; 503 it is down, and the run was not created.
    """
    run_id = arguments["run"]
    call.result = f"run {run_id}"
    try:
        result = context.command("trigger", call.entry(), **arguments)
    except ApiError as err:
        # The scheduler may have stored the run and died before it answered. The run will then start.
        if (
            err.status != 503
            or isinstance(err.__cause__, TemporarilyUnavailable | NotSent)
            or not _was_stored(context, run_id)
        ):
            raise
        result = {}
    row = result.get("row")
    if row is not None:
        return Run(**row), True
    run_id = result.get("run", run_id)
    call.result = f"run {run_id}"
    created = Run(
        id=run_id,
        task_name=arguments["task"],
        kind="task",
        status="pending",
        end_reason=None,
        exit_code=-1,
        instance_index=0,
        retry_attempt=0,
        retry_of_run_id=None,
        triggered_by=arguments["triggered_by"],
        created_at=time_of(run_id),
        requested_by=arguments["by"],
    )
    return created, False


def idempotency_key(call: Call) -> str | None:
    """Return the request's idempotency key; None if it has none.

    Raises:
        ApiError: 422 the header is not a valid key.
    """
    text = call.req.get_header("Idempotency-Key")
    if text is None:
        return None
    if not _KEY.fullmatch(text):
        raise invalid([ErrorDetail("header.Idempotency-Key", "must have 1 to 255 printable ASCII characters")])
    return text


def key_of(owner: str, text: str) -> str:
    """Return the stored form of a key. It depends on the owner, so clients do not share keys."""
    return hashlib.sha256(f"{owner}\0{text}".encode()).hexdigest()


def stored(context: Context, created: Run, *, is_row: bool) -> Run:
    """Read a created run, even if it was deleted. If it was removed, return it as it was created.

    If the database cannot be read, a run that `is_row` is returned as it is.

    Raises:
        ApiError: 500 the database cannot be read, and there is no row.
    """
    try:
        return context.reads(store_runs.get_run, created.id, include_deleted=True) or created
    except StoreError as err:
        log.error("cannot read the triggered run %s: %s", created.id, err)
        if is_row:
            return created
        # Not 503: a client would trigger the run again.
        raise ApiError(500, f"The run {created.id} was triggered, but the database cannot be read") from err


def _was_stored(context: Context, run_id: str) -> bool:
    """Return whether the run was stored, although the scheduler did not answer."""
    try:
        return context.reads(store_runs.get_run, run_id, include_deleted=True) is not None
    except StoreError as err:
        log.error("cannot tell whether the run %s was triggered: %s", run_id, err)
        # Not 503: that would mean that the run was not triggered.
        message = f"The scheduler stopped and the database cannot be read; the run {run_id} may have been triggered"
        raise ApiError(500, message) from err
