"""The tables of the specified interface, as data: names, types and limits.

Nothing here is taken from the code under test, so neither the answers nor their description can drift unnoticed.
"""

from dataclasses import dataclass, field, replace
from typing import Any

ULID = "^[0-9A-HJKMNP-TV-Z]{26}$"
TASK_NAME = "^[a-zA-Z0-9._:-]+$"
INTEGER_TEXT = "^-?[0-9]+$"

PHASES = ("pending", "running", "ended")
REASONS = (
    "succeeded",
    "failed",
    "stopped",
    "timeout",
    "crashed",
    "skipped",
    "log_overflow",
    "queue_full",
    "dst_skipped",
    "daemon_stopped",
    "missed",
    "start_failed",
)
REASONS_IN_SNAKE = (
    "success",
    "failed",
    "stopped",
    "timeout",
    "crashed",
    "skipped",
    "log_overflow",
    "queue_full",
    "dst_skipped",
    "daemon_stopped",
)
TRIGGERS = ("cron", "api", "cloud", "service", "startup")
TRIGGERS_IN_SNAKE = ("cron", "api", "cloud")


# Fields


@dataclass(frozen=True)
class Field:
    """One field of a JSON object.

    Attributes:
        name: Its name on the wire.
        type: Type of JSON Schema; "" for any.
        format: Format of JSON Schema.
        required: Whether it is always there.
        nullable: Whether null stands for no value.
        values: All values that it may have; empty when they are not listed.
        pattern: The pattern that a text matches.
        items: Type of an array's items: a type of JSON Schema, or the fields of an object.
        fields: Fields of an object.
        texts: An object whose values are all strings.
    """

    name: str
    type: str = "string"
    format: str = ""
    required: bool = False
    nullable: bool = False
    values: tuple[str, ...] = ()
    pattern: str = ""
    items: "str | tuple[Field, ...]" = ""
    fields: "tuple[Field, ...]" = ()
    texts: bool = False


def _integer(name: str, *, required: bool = False) -> Field:
    return Field(name, "integer", "int64", required=required)


def _time(name: str, *, required: bool = False) -> Field:
    return Field(name, format="date-time", required=required)


SCHEMA_LINK = Field("$schema", format="uri")

_RUN: tuple[tuple[str, str, Field], ...] = (
    # Convention A, convention B, and what holds in both.
    ("$schema", "$schema", SCHEMA_LINK),
    ("id", "id", Field("", required=True, pattern=ULID)),
    ("taskName", "task_name", Field("", required=True)),
    ("status", "status", Field("", required=True, values=PHASES)),
    ("endReason", "end_reason", Field("")),
    ("exitCode", "exit_code", _integer("", required=True)),
    ("instanceIndex", "instance_index", _integer("", required=True)),
    ("retryAttempt", "retry_attempt", _integer("", required=True)),
    ("retryOfRunId", "retry_of_run_id", Field("")),
    ("triggeredBy", "triggered_by", Field("", required=True)),
    ("createdAt", "created_at", _time("", required=True)),
    ("startedAt", "start_at", _time("")),
    ("endedAt", "end_at", _time("")),
    ("executionId", "external_execution_id", Field("")),
    ("params", "params", Field("", "object", texts=True)),
)
_VALUES = {
    "endReason": REASONS,
    "end_reason": REASONS_IN_SNAKE,
    "triggeredBy": TRIGGERS,
    "triggered_by": TRIGGERS_IN_SNAKE,
}
NAMES = {camel: snake for camel, snake, _ in _RUN}


def _named(name: str, member: Field) -> Field:
    return replace(member, name=name, values=_VALUES.get(name, member.values))


CAMEL = tuple(_named(camel, field_name) for camel, _, field_name in _RUN)
SNAKE_WITH_PARAMS = tuple(_named(snake, field_name) for _, snake, field_name in _RUN)
SNAKE = tuple(param for param in SNAKE_WITH_PARAMS if param.name != "params")
BOTH = tuple({member.name: member for member in (*CAMEL, *SNAKE_WITH_PARAMS)}.values())

FILTER = (
    _time("created_after"),
    _time("created_before"),
    _integer("exit_code_min"),
    _integer("exit_code_max"),
    Field("retries_only", "boolean"),
    Field("search"),
    Field("status"),
    Field("task_name"),
    Field("triggered_by"),
)
SELECTOR = (
    SCHEMA_LINK,
    Field("match_all", "boolean"),
    Field("filter", "object", fields=FILTER),
    Field("except_ids", "array", nullable=True, items="string"),
    Field("ids", "array", nullable=True, items="string"),
)
AFFECTED = (SCHEMA_LINK, _integer("affected", required=True))
TRIGGERED = (
    SCHEMA_LINK,
    Field(
        "triggered",
        "array",
        required=True,
        nullable=True,
        items=(Field("run_id", required=True), Field("task_name", required=True)),
    ),
)
TASK_RUNS = (
    SCHEMA_LINK,
    Field("items", "array", required=True, nullable=True, items=CAMEL),
    _integer("total", required=True),
)
RUNS = (
    SCHEMA_LINK,
    Field("runs", "array", required=True, nullable=True, items=SNAKE),
    _integer("total", required=True),
)
DETAILS = Field("details", "object")
"""Only with extended=true."""
DONE = (_integer("finalLine", required=True), Field("status", required=True))
PROBLEM = (
    SCHEMA_LINK,
    Field("type", format="uri"),
    Field("title"),
    _integer("status"),
    Field("detail"),
    Field("instance", format="uri"),
    Field(
        "errors",
        "array",
        nullable=True,
        items=(Field("location"), Field("message"), Field("value", "")),
    ),
)


# Parameters


@dataclass(frozen=True)
class Parameter:
    """One parameter: where it is, and what JSON Schema says of it."""

    name: str
    place: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


def _query(name: str, kind: str = "string", **schema: Any) -> Parameter:
    return Parameter(name, "query", {"type": kind, **({"format": "int64"} if kind == "integer" else {}), **schema})


_TASK_IN_PATH = Parameter(
    "taskName", "path", {"type": "string", "minLength": 1, "maxLength": 100, "pattern": TASK_NAME}, required=True
)
_RUN_IN_PATH = Parameter(
    "runId", "path", {"type": "string", "minLength": 26, "maxLength": 26, "pattern": ULID}, required=True
)
_LIMIT = _query("limit", "integer", default=50, minimum=1, maximum=1000)
_OFFSET = _query("offset", "integer", default=0)

OF_TASK_RUNS = (
    _TASK_IN_PATH,
    _LIMIT,
    _OFFSET,
    _query("status"),
    _query("taskName"),
    _query("triggeredBy", enum=[*TRIGGERS, ""]),
    _query("createdAfter", format="date-time"),
    _query("createdBefore", format="date-time"),
    _query("exitCodeMin", pattern=INTEGER_TEXT),
    _query("exitCodeMax", pattern=INTEGER_TEXT),
    _query("retriesOnly", "boolean"),
    _query("sortField", enum=["taskName", "status", "startedAt", "exitCode", "duration", "createdAt", ""]),
    _query("sortDirection", enum=["asc", "desc", ""]),
    _query("search"),
)
OF_RUNS = (
    _LIMIT,
    _OFFSET,
    _query("status"),
    _query("task_name"),
    _query("sort_field", enum=["task_name", "status", "start_at", "exit_code", "duration", "created_at", ""]),
    _query("sort_direction", enum=["asc", "desc", ""]),
    _query("search"),
)
OF_LOG_STREAM = (
    _RUN_IN_PATH,
    _query("from", "integer", default=-1000),
    _query("replayLimit", "integer", default=5000, minimum=1, maximum=50_000),
    Parameter("Last-Event-ID", "header"),
)

NARROWER = {
    ("offset", "minimum"): 0,
    ("status", "pattern"): "^[, \\t]*(({words})([ \\t]*,[, \\t]*({words}))*[, \\t]*)?$".format(
        words="|".join(dict.fromkeys((*PHASES, *REASONS, *REASONS_IN_SNAKE)))
    ),
}
"""Where the interface says nothing of a limit and there has to be one; of a status it is what its words say."""


# Operations


@dataclass(frozen=True)
class Endpoint:
    """One operation whose shapes are given.

    Attributes:
        method: Of HTTP.
        path: With path parameters by their names.
        parameters: All of its parameters.
        body: Fields of the request's body; empty when there is none.
        status: Of success.
        media_type: Of success.
        answer: Fields of the answer; empty for a stream.
        described: Fields that the document gives for it, where it allows the others beside them.
    """

    method: str
    path: str
    parameters: tuple[Parameter, ...] = ()
    body: tuple[Field, ...] = ()
    status: int = 200
    media_type: str = "application/json"
    answer: tuple[Field, ...] = ()
    described: tuple[Field, ...] = ()


ENDPOINTS = (
    Endpoint("POST", "/api/runs/bulk/delete", body=SELECTOR, answer=AFFECTED),
    Endpoint("POST", "/api/runs/bulk/rerun", body=SELECTOR, answer=TRIGGERED),
    Endpoint("POST", "/api/runs/bulk/restore", body=SELECTOR, answer=AFFECTED),
    Endpoint("GET", "/api/tasks/{taskName}/runs", OF_TASK_RUNS, answer=TASK_RUNS, described=(*TASK_RUNS, DETAILS)),
    Endpoint("GET", "/api/runs", OF_RUNS, answer=RUNS, described=(*RUNS, DETAILS)),
    Endpoint(
        "GET",
        "/api/runs/{runId}",
        (Parameter("runId", "path", {"type": "string"}, required=True),),
        answer=BOTH,
        described=CAMEL,
    ),
    Endpoint(
        "POST",
        "/api/tasks/{taskName}/run",
        (Parameter("taskName", "path", {"type": "string"}, required=True),),
        status=201,
        answer=SNAKE,
    ),
    Endpoint("GET", "/api/runs/{runId}/log/stream", OF_LOG_STREAM, media_type="text/event-stream"),
)

WITHOUT_SHAPES = (
    ("GET", "/api/daemon"),
    ("GET", "/api/daemon/identity"),
    ("GET", "/api/daemon/log/stream"),
    ("POST", "/api/daemon/reload"),
    ("GET", "/api/local/credentials"),
    ("GET", "/api/system"),
    ("GET", "/api/system/metrics"),
    ("GET", "/api/events/stream"),
    ("POST", "/api/runs/bulk/stop"),
    ("GET", "/api/runs/summary"),
    ("DELETE", "/api/runs/{runId}"),
    ("POST", "/api/runs/{runId}/stop"),
    ("POST", "/api/tasks/{taskName}/restart"),
    ("POST", "/api/tasks/{taskName}/stop"),
    ("GET", "/api/notifications"),
    ("POST", "/api/notifications/read"),
    ("GET", "/api/notifications/stream"),
    ("GET", "/api/notifications/unreadCount"),
    ("POST", "/api/notifications/{notificationId}/read"),
    ("POST", "/api/notifications/{notificationId}/unread"),
    ("GET", "/api/runs/{runId}/log"),
    ("GET", "/api/runs/{runId}/log/line/{lineNumber}/history"),
    ("GET", "/api/runs/{runId}/log/raw"),
    ("GET", "/api/tasks/{taskName}/log/search"),
    ("GET", "/api/tasks"),
    ("GET", "/api/tasks/{taskName}"),
)

OUR_OWN = (
    ("GET", "/api/calendars"),
    ("GET", "/api/upcoming"),
    ("GET", "/api/windows"),
    ("GET", "/api/runs/newest"),
    ("POST", "/api/tasks/{taskName}/acknowledge"),
    ("POST", "/api/tasks/{taskName}/unacknowledge"),
    ("POST", "/api/runs/{runId}/acknowledge"),
    ("POST", "/api/runs/{runId}/approve"),
    ("POST", "/api/runs/{runId}/reject"),
    ("GET", "/api/runs/failures"),
    ("GET", "/api/logs/stream"),
    ("GET", "/api/logs/search"),
    ("GET", "/api/tasks/{taskName}/log/stream"),
    ("POST", "/api/daemon/trust-clock"),
    ("POST", "/api/daemon/pause"),
    ("POST", "/api/daemon/resume"),
    ("GET", "/api/tasks/{taskName}/schedule"),
    ("GET", "/api/tasks/{taskName}/days"),
    ("GET", "/api/tasks/{taskName}/changes"),
    ("GET", "/api/tasks/{taskName}/uptime"),
    ("GET", "/api/tasks/{taskName}/resources"),
    ("GET", "/api/resources/totals"),
    ("POST", "/api/tasks/{taskName}/start"),
    ("POST", "/api/tasks/{taskName}/pause"),
    ("POST", "/api/tasks/{taskName}/resume"),
    ("POST", "/api/units/start"),
    ("POST", "/api/units/stop"),
    ("POST", "/api/units/restart"),
    ("POST", "/api/units/enable"),
    ("POST", "/api/units/pause"),
    ("POST", "/api/windows/{windowName}/end"),
    ("POST", "/api/windows/{windowName}/start"),
    ("POST", "/api/units/resume"),
    ("POST", "/api/hooks/{hookName}"),
    ("POST", "/api/pings/{pingToken}"),
    ("POST", "/api/pings/{pingToken}/{pingEvent}"),
    ("GET", "/api/slots"),
    ("GET", "/api/runs/deleted"),
    ("GET", "/api/runs/{runId}/details"),
    ("GET", "/api/runs/{runId}/definition"),
    ("GET", "/api/runs/{runId}/steps"),
    ("GET", "/api/tasks/{taskName}/steps"),
    ("GET", "/api/runs/{runId}/ending"),
    ("GET", "/api/runs/{runId}/resources"),
    ("GET", "/api/resources"),
    ("GET", "/api/notifiers"),
    ("POST", "/api/notifiers/{notifierName}/test"),
    ("GET", "/metrics"),
    ("POST", "/api/auth/login"),
    ("POST", "/api/auth/logout"),
    ("GET", "/api/auth/status"),
    ("GET", "/api/tokens"),
    ("POST", "/api/tokens"),
    ("DELETE", "/api/tokens/{tokenName}"),
    ("GET", "/api/users"),
    ("POST", "/api/users"),
    ("POST", "/api/users/{userName}/password"),
    ("DELETE", "/api/users/{userName}"),
    ("GET", "/api/audit"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/openapi.json"),
    ("GET", "/schemas/{schemaName}"),
    ("GET", "/status"),
    ("GET", "/badge/{badgeFile}"),
)
"""What there is beyond the interface that was asked for."""
