"""Handlers of requests from other programs: webhooks, which start a task, and pings, which report runs elsewhere.

No part of a webhook is interpreted before the sender has proved that it has the hook's secret. The token at the end of
a ping's address is its only proof, and is as secret as a password: it is in no log and no entry of the audit log, and
the scheduler gets its hash.
"""

import hashlib
import os
import time
from urllib.parse import parse_qs

import msgspec

from api.auth import webhook_proof
from api.auth.identity import Identity, Role
from api.auth.webhook_proof import Proof
from api.errors import ApiError, invalid
from api.operations.body import is_json, parsed_json
from api.operations.operation import Access, Call, Operation, json_of
from api.resources.runs.trigger import IDEMPOTENCY_KEY, create_run, idempotency_key, key_of, stored
from api.schemas import records as schemas
from api.schemas import run_view
from api.schemas.records import ErrorDetail
from api.worker_context import Context
from store.runs.ids import new_ulid
from store.runs.writes import Run

_JsonPath = list[str | int]
_EVENT_HEADERS = {"github": "X-GitHub-Event", "gitlab": "X-Gitlab-Event"}
_FORM = "application/x-www-form-urlencoded"
_MOST_OUTPUT_BYTES = 64 << 10
_START, _FAIL = "start", "fail"
_OUTPUT: dict[str, dict[str, object]] = {"application/octet-stream": {"type": "string", "format": "binary"}}


class _Hook(msgspec.Struct):
    """A hook as the scheduler sends it."""

    kind: str
    secret: str
    task: str = ""
    events: list[str] = []
    when: list[tuple[_JsonPath, list[str]]] = []
    params: dict[str, _JsonPath] = {}


_UNKNOWN = _Hook("generic", os.urandom(32).hex())
"""Used in place of a hook that does not exist. Its secret is random, so no proof is valid."""


_TEXT: dict[str, object] = {"type": "string"}


@Operation(
    "POST",
    "/api/hooks/{hookName}",
    role=Role.ANYBODY,
    headers=(
        ("X-Hub-Signature-256", _TEXT, "`sha256=` and the hexadecimal HMAC-SHA256 of the body."),
        ("X-GitHub-Event", _TEXT, "The event, of hooks of kind `github`."),
        ("X-Gitlab-Token", _TEXT, "The secret, of hooks of kind `gitlab`."),
        ("X-Gitlab-Event", _TEXT, "The event, of hooks of kind `gitlab`."),
        ("webhook-id", _TEXT, "Standard Webhooks: identifies the message."),
        ("webhook-timestamp", _TEXT, "Standard Webhooks: when the message was signed, in Unix seconds."),
        ("webhook-signature", _TEXT, "Standard Webhooks: `v1,` and the Base64 HMAC-SHA256 of `ID.TIMESTAMP.BODY`."),
        IDEMPOTENCY_KEY,
    ),
    media={"application/json": {}, _FORM: {}},
    answers={202: json_of(schemas.RunSnake), 204: None},
    sends={202: ("Location",)},
    refusals=(401, 404, 429),
    access=Access.HOOK,
)
def receive_hook(context: Context, call: Call) -> None:
    """Receive a webhook: run the hook's task, unless a filter excludes the event or the body."""
    name = call.path["hookName"]
    answer = context.command("hook", name=name)["hook"]
    hook = _UNKNOWN if answer is None else msgspec.convert(answer, _Hook)
    proof = _proof(context, call, name, hook)
    call.identity = Identity("hook", f"hook:{name}", Role.ANYBODY, "hook", key=f"hook:{name}")
    if not proof.is_current(time.time()):
        raise ApiError(
            401, f"The signed time is not within {webhook_proof.TOLERANCE_S // 60} minutes of the clock here"
        )
    document: object = None
    starts = _event_starts(call, hook)
    if starts:
        document = _document(context, call, hook.kind)
        starts = all(_text(_value(document, path)) in accepted for path, accepted in hook.when)
    if not starts:
        call.audited = True  # not recorded: a sender may send any number of filtered events
        call.no_content()
        return
    call.target = hook.task
    run, is_row = _triggered(context, call, hook, proof, _params(document, hook.params))
    call.resp.set_header("Location", f"{call.req.env['SCRIPT_NAME']}/api/runs/{run.id}")
    call.answer(run_view.snake(run if is_row else stored(context, run, is_row=False)), 202)


def _proof(context: Context, call: Call, name: str, hook: _Hook) -> Proof:
    """Return the proof that the sender has the secret.

    Raises:
        ApiError: 401 it is missing or wrong; 429 too many such requests of this client.
    """
    proofs: list[Proof] = []

    def matches() -> bool:
        proof = webhook_proof.find(hook.kind, hook.secret, call.req.get_header, call.body)
        proofs.extend([] if proof is None else [proof])
        return proof is not None

    context.auth.check_hook(call.req, name, matches)
    return proofs[0]


def _event_starts(call: Call, hook: _Hook) -> bool:
    """Return whether the request's event starts a run.

    Raises:
        ApiError: 422 the header with the event is missing.
    """
    header = _EVENT_HEADERS.get(hook.kind)
    if header is None:
        return True
    event = call.req.get_header(header)
    if event is None:
        raise invalid([ErrorDetail(f"header.{header}", "is missing")])
    return event in hook.events


def _document(context: Context, call: Call, kind: str) -> object:
    """Return the JSON document in the body; an empty body counts as ``{}``.

    Raises:
        ApiError: 400 it is not JSON; 415 another media type, or compressed; 422 it has values that cannot be used.
    """
    raw: bytes = call.body
    content_type = call.req.content_type or ""
    if (call.req.get_header("Content-Encoding") or "identity").strip().lower() != "identity":
        raise ApiError(415, "The body must not be compressed", headers={"Accept-Encoding": "identity"})
    if kind == "github" and content_type.partition(";")[0].strip().lower() == _FORM:
        fields = parse_qs(raw.decode("utf-8", "replace"))
        if "payload" not in fields:
            raise invalid([ErrorDetail("body.payload", "is missing")])
        raw = fields["payload"][0].encode()
    elif raw and not is_json(content_type):
        raise ApiError(415, "The body must be application/json")
    return context.in_thread(parsed_json, raw or b"{}")


def _params(document: object, paths: dict[str, _JsonPath]) -> dict[str, str]:
    """Return the values of the task's parameters. Absent and null values are left out and get their defaults.

    Raises:
        ApiError: 422 a value is an object or an array.
    """
    values = {name: _value(document, path) for name, path in paths.items()}
    errors = [
        ErrorDetail(f"params.{name}", "must be a string, a number or a boolean, not an object or an array")
        for name, value in values.items()
        if isinstance(value, dict | list)
    ]
    if errors:
        raise invalid(errors)
    return {name: text for name, value in values.items() if (text := _text(value)) is not None}


def _value(document: object, path: _JsonPath) -> object:
    """Return the value at a path; None if there is none."""
    for step in path:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            return None
    return document


def _text(value: object) -> str | None:
    """Return a value as text: a string unchanged, a number or boolean in JSON; None for any other value."""
    if value is None or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _triggered(context: Context, call: Call, hook: _Hook, proof: Proof, params: dict[str, str]) -> tuple[Run, bool]:
    """Trigger the run. If the same request was received within the last day, return the run of that request.

    Raises:
        ApiError: 422 a parameter is invalid; 503 the scheduler is down; other refusals of the scheduler.
    """
    arguments: dict[str, object] = {
        "run": new_ulid(),
        "task": hook.task,
        "triggered_by": "api",
        "by": call.by,
        "credential": call.by,
        "params": params,
    }
    key = idempotency_key(call)
    if proof.message:
        arguments |= {"key": key_of(call.by, f"message {proof.message}"), "request": hook.kind}
    elif key is not None:
        arguments |= {"key": key_of(call.by, f"key {key}"), "request": hashlib.sha256(call.body).hexdigest()}
    try:
        return create_run(context, call, arguments)
    except ApiError as err:
        for error in err.errors:  # the body has no field "params": the values come from other places in it
            error.location = error.location.removeprefix("body.")
        raise


@Operation(
    "POST",
    "/api/pings/{pingToken}",
    role=Role.ANYBODY,
    media=_OUTPUT,
    body_limit_bytes=_MOST_OUTPUT_BYTES,
    refusals=(404, 429),
    access=Access.HOOK,
)
def ping(context: Context, call: Call) -> None:
    """Report that a job elsewhere has succeeded; the body is its output.

    It ends the run whose beginning was reported, or else is the report of a whole run.
    """
    _report(context, call, 0)


@Operation(
    "POST",
    "/api/pings/{pingToken}/{pingEvent}",
    role=Role.ANYBODY,
    media=_OUTPUT,
    body_limit_bytes=_MOST_OUTPUT_BYTES,
    refusals=(404, 429),
    access=Access.HOOK,
)
def report_ping(context: Context, call: Call) -> None:
    """Report the beginning of a run of a job elsewhere, or its end with an exit code; the body is its output."""
    event = call.path["pingEvent"]
    if event == _START and call.body:
        raise invalid([ErrorDetail("path.pingEvent", "takes no body: the output comes with the end of the run")])
    _report(context, call, None if event == _START else 1 if event == _FAIL else int(event))


def _report(context: Context, call: Call, exit_code: int | None) -> None:
    token = hashlib.sha256(call.path["pingToken"].encode()).hexdigest()
    output = call.body.decode("utf-8", "replace")
    try:
        context.command("report", token=token, run=new_ulid(), exit_code=exit_code, output=output)
    except ApiError as err:
        err.errors = []
        raise
    call.no_content()
