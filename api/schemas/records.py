"""Request and response bodies of the API, as msgspec Structs.

The Structs are the single source for encoding, validation and the OpenAPI document. A field without a value is omitted
(``UNSET``), and never null. ``schema_link`` is the ``$schema`` link of the outermost object; nested objects have none.
Names are snake_case here; ``rename`` sets the names on the wire.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from store.runs.phases import CAUSES, DUE_KINDS
from store.runs.writes import ANSWERS

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
FOLDED_REASON = {"succeeded": "success", "missed": "skipped", "start_failed": "failed"}
REASONS_FOLDED = tuple(dict.fromkeys(FOLDED_REASON.get(reason, reason) for reason in REASONS))
TRIGGERS = ("cron", "api", "cloud", "service", "startup")
TRIGGERS_FOLDED = ("cron", "api", "cloud")
SERVICE_STATES = ("stopped", "starting", "running", "backoff", "stopping", "exited", "fatal")

Int64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
DateTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Uri = Annotated[str, Meta(extra_json_schema={"format": "uri"})]
Ulid = Annotated[str, Meta(pattern="^[0-9A-HJKMNP-TV-Z]{26}$")]
# This type has no pattern, because generated Go clients cannot check the pattern of an absent field.
RetriedRun = Annotated[str, Meta(description="ULID of the run that this run retries.")]
Phase = Annotated[str, Meta(title="RunPhase", extra_json_schema={"enum": list(PHASES)})]
Reason = Annotated[str, Meta(title="EndReason", extra_json_schema={"enum": list(REASONS)})]
ReasonFolded = Annotated[str, Meta(title="EndReasonFolded", extra_json_schema={"enum": list(REASONS_FOLDED)})]
EndCause = Annotated[
    str,
    Meta(
        title="EndCause",
        description="What led to the end reason; absent if the end reason says it all.",
        extra_json_schema={"enum": sorted(cause for causes in CAUSES.values() for cause in causes)},
    ),
]
Trigger = Annotated[str, Meta(title="Trigger", extra_json_schema={"enum": list(TRIGGERS)})]
TriggerFolded = Annotated[str, Meta(title="TriggerFolded", extra_json_schema={"enum": list(TRIGGERS_FOLDED)})]
ServiceState = Annotated[str, Meta(title="ServiceState", extra_json_schema={"enum": list(SERVICE_STATES)})]
StreamName = Annotated[str, Meta(title="StreamName", extra_json_schema={"enum": ["stdout", "stderr", "system"]})]
SchemaLink = Annotated[Uri, Meta(description="URL of this document's JSON Schema.")]


class Document(Struct, kw_only=True):
    """Base of all objects that can be the body of a response."""

    schema_link: SchemaLink | UnsetType = field(name="$schema", default=UNSET)


class ErrorDetail(Struct):
    """One invalid value and its location."""

    location: Annotated[str, Meta(examples=["query.limit"])]
    message: str
    value: Any = UNSET


class Problem(Document, kw_only=True):
    """An error, as problem details (RFC 9457)."""

    type: Uri = "about:blank"
    title: str
    status: Int64
    detail: str
    instance: Annotated[Uri, Meta(description="Identifies this occurrence, also in the daemon's log.")]
    errors: list[ErrorDetail] | None = field(default_factory=list)


class RunCamel(Document, kw_only=True, rename="camel"):
    """A run in convention A, with its exact end reason and trigger."""

    id: Ulid
    task_name: str
    status: Phase
    end_reason: Reason | UnsetType = UNSET
    exit_code: Int64
    instance_index: Int64
    retry_attempt: Int64
    retry_of_run_id: RetriedRun | UnsetType = UNSET
    triggered_by: Trigger
    created_at: DateTime
    started_at: DateTime | UnsetType = UNSET
    ended_at: DateTime | UnsetType = UNSET
    execution_id: str | UnsetType = UNSET
    params: dict[str, str] | UnsetType = UNSET


class RunSnake(Document, kw_only=True):
    """A run in convention B, with its end reason and trigger folded into the shorter lists."""

    id: Ulid
    task_name: str
    status: Phase
    end_reason: ReasonFolded | UnsetType = UNSET
    exit_code: Int64
    instance_index: Int64
    retry_attempt: Int64
    retry_of_run_id: RetriedRun | UnsetType = UNSET
    triggered_by: TriggerFolded
    created_at: DateTime
    start_at: DateTime | UnsetType = UNSET
    end_at: DateTime | UnsetType = UNSET
    external_execution_id: str | UnsetType = UNSET


class RunSnakeWithParams(RunSnake, kw_only=True):
    """A run in convention B, with its parameters."""

    params: dict[str, str] | UnsetType = UNSET


class Run(RunSnake, kw_only=True):
    """A run in both conventions: camelCase names have the exact values, snake_case names the folded ones."""

    task_name_camel: str = field(name="taskName")
    end_reason_camel: Reason | UnsetType = field(name="endReason", default=UNSET)
    exit_code_camel: Int64 = field(name="exitCode")
    instance_index_camel: Int64 = field(name="instanceIndex")
    retry_attempt_camel: Int64 = field(name="retryAttempt")
    retry_of_run_id_camel: RetriedRun | UnsetType = field(name="retryOfRunId", default=UNSET)
    triggered_by_camel: Trigger = field(name="triggeredBy")
    created_at_camel: DateTime = field(name="createdAt")
    started_at: DateTime | UnsetType = field(name="startedAt", default=UNSET)
    ended_at: DateTime | UnsetType = field(name="endedAt", default=UNSET)
    execution_id: str | UnsetType = field(name="executionId", default=UNSET)
    params: dict[str, str] | UnsetType = UNSET


UnitKind = Annotated[str, Meta(title="UnitKind", extra_json_schema={"enum": ["task", "service"]})]

Obstacle = Annotated[
    str,
    Meta(
        title="Obstacle",
        description="slot; task: its max_concurrent; daemon: max_running; retry: its delay; at: the requested time;"
        " condition: that only_if says yes; delay: that of a step; gate: other tasks; approval: a person;"
        " paused: the end of a pause, for a run inside a flow.",
        extra_json_schema={"enum": ["slot", "task", "daemon", *DUE_KINDS]},
    ),
]


class Holder(Struct, kw_only=True, rename="camel"):
    """A run that another one waits for."""

    run_id: Ulid
    task_name: str


class WaitingFor(Struct, kw_only=True, rename="camel"):
    """One reason why a run waits."""

    kind: Obstacle
    name: Annotated[str, Meta(description="Name of the slot or the task.")] | UnsetType = UNSET
    size: Annotated[Int64, Meta(description="Number of places, or the limit.")] | UnsetType = UNSET
    held_by: (
        Annotated[list[Holder], Meta(description="Runs that hold places, then earlier waiting runs; at most 100.")]
        | UnsetType
    ) = UNSET
    until: Annotated[DateTime, Meta(description="End of a wait that has a time.")] | UnsetType = UNSET
    approvers: (
        Annotated[list[str], Meta(description="Who may approve the run; absent if every operator may.")] | UnsetType
    ) = UNSET


class AnsweredApproval(Struct, kw_only=True, rename="camel"):
    """The answer to the question whether a run may start."""

    answer: Annotated[
        str,
        Meta(
            title="ApprovalAnswer",
            description="withdrawn: the run was stopped while it waited.",
            extra_json_schema={"enum": list(ANSWERS)},
        ),
    ]
    by: Annotated[str, Meta(description="Who answered; absent if nobody did.")] | UnsetType = UNSET
    at: DateTime | UnsetType = UNSET
    note: str | UnsetType = UNSET


class RunDetails(Document, kw_only=True, rename="camel"):
    """Details of a run beyond its record. Values that are unknown are absent."""

    flow_run_id: Annotated[str, Meta(description="The run of the flow that it is part of.")] | UnsetType = UNSET
    step: Annotated[str, Meta(description="Its step in this flow.")] | UnsetType = UNSET
    item: Annotated[str, Meta(description="Its item, if the step has several.")] | UnsetType = UNSET
    by: (
        Annotated[
            str,
            Meta(
                description="Who started the run, or the run that it repeats; in brackets the way, if known.",
                examples=["user alice (dashboard)", "uid 0 (command line)", "token ci", "hook:deploy"],
            ),
        ]
        | UnsetType
    ) = UNSET
    scheduled_for: Annotated[DateTime, Meta(description="The scheduled time of the run.")] | UnsetType = UNSET
    definition_hash: (
        Annotated[
            str,
            Meta(
                description="Hash of the definition with which the run started, without secrets: equal hashes of a"
                " task's runs mean equal definitions. Absent for runs that are older than the recording of definitions."
            ),
        ]
        | UnsetType
    ) = UNSET
    end_cause: EndCause | UnsetType = UNSET
    slots: (
        Annotated[dict[str, Int64], Meta(description="Places that an unfinished run holds or needs, by slot.")]
        | UnsetType
    ) = UNSET
    waiting_for: (
        Annotated[list[WaitingFor], Meta(description="Reasons why the run waits; absent while the scheduler is away.")]
        | UnsetType
    ) = UNSET
    approval: Annotated[AnsweredApproval, Meta(description="The answer to a needed approval.")] | UnsetType = UNSET
    done_by: (
        Annotated[DateTime, Meta(description="When the work of the scheduled time is to be done (`finish_by`).")]
        | UnsetType
    ) = UNSET
    expected_end_at: (
        Annotated[DateTime, Meta(description="When the running run ends if it takes as long as usual.")] | UnsetType
    ) = UNSET
    last_output_at: (
        Annotated[DateTime, Meta(description="When the running run printed last; not in lists.")] | UnsetType
    ) = UNSET


class RunDefinition(Document, kw_only=True, rename="camel"):
    """The definition with which a run started."""

    hash: Annotated[str, Meta(description="The definitionHash of the run.")]
    kind: UnitKind
    definition: Annotated[
        dict[str, Any],
        Meta(
            description="The keys that differ from their defaults, as in the record of the task or service: without"
            " secrets; values of env are masked."
        ),
    ]


Details = (
    Annotated[dict[str, RunDetails], Meta(description="With extended=true: details of the runs, by id.")] | UnsetType
)


class TaskRuns(Document, kw_only=True):
    """A page of a task's runs."""

    items: list[RunCamel] | None
    total: Annotated[Int64, Meta(description="Number of matching runs.")]
    details: Details = UNSET


class NewestOfTask(Struct, kw_only=True, rename="camel"):
    """The newest runs of a task."""

    task_name: str
    runs: Annotated[list[RunCamel], Meta(description="The newest first.")]


class NewestRuns(Document, kw_only=True):
    """The newest runs of some tasks."""

    items: Annotated[list[NewestOfTask], Meta(description="In the order of the request; without unknown tasks.")]


class TaskRunsSnake(Document, kw_only=True):
    """A page of a task's runs, for naming=snake."""

    items: list[RunSnakeWithParams] | None
    total: Int64
    details: Details = UNSET


class Runs(Document, kw_only=True):
    """A page of the runs of all tasks."""

    runs: list[RunSnake] | None
    total: Annotated[Int64, Meta(description="Number of matching runs.")]
    details: Details = UNSET


class RunsCamel(Document, kw_only=True):
    """A page of the runs of all tasks, for naming=camel."""

    runs: list[RunCamel] | None
    total: Int64
    details: Details = UNSET


class Affected(Document, kw_only=True, forbid_unknown_fields=True):
    """Result of a bulk operation."""

    affected: Annotated[Int64, Meta(description="Number of affected runs.")]


class Deleted(Affected, kw_only=True):
    """Result of a bulk deletion, with the time that identifies it."""

    deleted_at: Annotated[DateTime, Meta(description="Time of this deletion; unique among deletions.")]


class TriggeredRun(Struct):
    """A new run."""

    run_id: Ulid
    task_name: str


class Triggered(Document, kw_only=True):
    """New runs, one per task."""

    triggered: list[TriggeredRun] | None


class Summary(Document, kw_only=True, rename="camel"):
    """Counts of runs by outcome."""

    total: Annotated[Int64, Meta(description="Number of matching runs.")]
    success: Annotated[Int64, Meta(description="Number of runs that succeeded.")]
    failed: Annotated[
        Int64, Meta(description="Number of runs that ended as failed, timeout, crashed, start_failed or log_overflow.")
    ]
    missed: Annotated[Int64, Meta(description="Number of runs that record missed times.")]
    last_failure: Annotated[RunCamel, Meta(description="The newest failed run.")] | UnsetType = UNSET


class Active(Struct):
    """Numbers of a task's active runs."""

    running: Int64
    pending: Int64


class Instance(Struct, kw_only=True, rename="camel"):
    """One instance of a service."""

    index: Int64
    state: ServiceState
    run_id: Ulid | UnsetType = UNSET
    since: DateTime | UnsetType = UNSET
    failures: Annotated[Int64, Meta(description="Consecutive failures.")] = 0
    ready: Annotated[bool, Meta(description="True if the instance is ready.")] = False
    detail: (
        Annotated[str, Meta(description="The dependency that the instance waits for, or the status that it reports.")]
        | UnsetType
    ) = UNSET


class Rolling(Struct, kw_only=True):
    """Progress of a rolling restart."""

    done: Annotated[Int64, Meta(description="Restarted instances that are ready.")]
    total: Annotated[Int64, Meta(description="Instances to restart.")]


class Acknowledged(Struct, kw_only=True, rename="camel"):
    """The acknowledgement of the present failure of a task or service."""

    by: Annotated[str, Meta(description="The user.")]
    at: DateTime
    until: Annotated[DateTime, Meta(description="Its end; without one it ends with the next failure.")] | UnsetType = (
        UNSET
    )
    note: str | UnsetType = UNSET


class Withholding(Struct, kw_only=True, rename="camel"):
    """Who disabled a service or paused a task, when and why."""

    by: Annotated[str, Meta(description="The user.")]
    at: DateTime
    until: Annotated[DateTime, Meta(description="The end of a pause that has one.")] | UnsetType = UNSET
    note: str | UnsetType = UNSET


When = Annotated[str, Meta(title="StepCondition", extra_json_schema={"enum": ["success", "failure", "end"]})]


class StepDefinition(Struct, kw_only=True, rename="camel"):
    """A step of a flow."""

    name: str
    task: Annotated[str, Meta(description="The task of its runs.")]
    after: Annotated[list[str], Meta(description="The steps that are decided first.")]
    when: Annotated[When, Meta(description="The results of these steps after which it begins.")]
    optional: Annotated[bool, Meta(description="Whether its failure counts as a success.")] | UnsetType = UNSET
    delay_ms: Annotated[Int64, Meta(description="How long it waits once it may begin.")] | UnsetType = UNSET
    params: Annotated[dict[str, str], Meta(description="Values for the task that it names.")] | UnsetType = UNSET


class Task(Document, kw_only=True, rename="camel"):
    """A task or a service."""

    name: str
    kind: UnitKind
    description: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    tags: list[str]
    cron: list[str]
    timezone: str | UnsetType = UNSET
    done_by: (
        Annotated[DateTime, Meta(description="The first deadline (`finish_by`) of a scheduled time that has passed.")]
        | UnsetType
    ) = UNSET
    late_since: (
        Annotated[DateTime, Meta(description="The deadline that the task missed, until its work is done.")] | UnsetType
    ) = UNSET
    failing_since: (
        Annotated[DateTime, Meta(description="When so many of the last runs had failed as `failure_rate` says.")]
        | UnsetType
    ) = UNSET
    usual_ms: (
        Annotated[Int64, Meta(description="How long a run usually takes, if `expected_duration` tells it.")] | UnsetType
    ) = UNSET
    slow_after_ms: (
        Annotated[Int64, Meta(description="After this time, a run is reported because it usually takes less.")]
        | UnsetType
    ) = UNSET
    next_run_at: DateTime | UnsetType = UNSET
    last_run: RunCamel | UnsetType = UNSET
    active: Active
    state: ServiceState | UnsetType = UNSET
    flapping: Annotated[bool, Meta(description="Only of a service: an instance fails again and again.")] | UnsetType = (
        UNSET
    )
    instances: list[Instance] | UnsetType = UNSET
    rolling: Annotated[Rolling, Meta(description="Only during a rolling restart.")] | UnsetType = UNSET
    paused: bool
    withheld: (
        Annotated[
            Withholding, Meta(description="Of a paused task, or of a service that stays stopped until it is enabled.")
        ]
        | UnsetType
    ) = UNSET
    acknowledged: (
        Annotated[Acknowledged, Meta(description="Present while an acknowledgement of the present failure holds.")]
        | UnsetType
    ) = UNSET
    steps: Annotated[list[StepDefinition], Meta(description="Only of a flow.")] | UnsetType = UNSET
    flow: Annotated[str, Meta(description="Only of a step: its flow.")] | UnsetType = UNSET
    step: Annotated[str, Meta(description="Only of a step: its name in the flow.")] | UnsetType = UNSET
    definition: Annotated[
        dict[str, Any], Meta(description="The configured keys, without secrets; values of env are masked.")
    ]


class Tasks(Document, kw_only=True):
    """All tasks and services."""

    items: list[Task]


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of all request bodies."""

    schema_link: SchemaLink | UnsetType = field(name="$schema", default=UNSET)


class AcknowledgeBody(Body, kw_only=True, rename="camel"):
    """Body of an acknowledgement."""

    for_ms: (
        Annotated[
            int, Meta(ge=1000, le=31_622_400_000, description="How long it holds; default: until the next failure.")
        ]
        | UnsetType
        | None
    ) = UNSET
    note: Annotated[str, Meta(max_length=1000)] | UnsetType | None = UNSET
    public: (
        Annotated[bool, Meta(description="Whether the public status page shows the note as an incident.")]
        | UnsetType
        | None
    ) = UNSET


class ApprovalBody(Body, kw_only=True):
    """Body of an answer to the question whether a run may start."""

    note: Annotated[str, Meta(max_length=1000, description="Why, for others.")] | UnsetType | None = UNSET


PauseEnd = Annotated[DateTime, Meta(description="When the pause ends; default: when someone ends it.")]
PauseNote = Annotated[str, Meta(max_length=1000, description="Why, for others.")]


class PauseBody(Body, kw_only=True):
    """Body of a pause."""

    until: PauseEnd | UnsetType | None = UNSET
    note: PauseNote | UnsetType | None = UNSET


class TriggerBody(Body, kw_only=True):
    """Body of a trigger request."""

    params: (
        Annotated[
            dict[str, str], Meta(max_length=100, description="Values of the task's parameters by name, all as text.")
        ]
        | UnsetType
        | None
    ) = UNSET
    run_at: (
        Annotated[DateTime, Meta(description="When the run is to start; it waits until then.")] | UnsetType | None
    ) = UNSET
    force: Annotated[bool, Meta(description="Start it whatever the task's only_if says.")] = False


class DaemonIdentity(Document, kw_only=True, rename="camel"):
    """Identity of the daemon, for programs on the same host."""

    app: str = "ringward"
    version: str
    pid: Int64
    config_path: str
    data_dir: str
    socket_path: str
    fingerprint: Annotated[str, Meta(description="SHA-256 that identifies this start of the daemon.")]


class Line(Struct, rename="camel"):
    """One line of a log."""

    n: Annotated[Int64, Meta(description="Absolute line number, from 0.")]
    ts: Annotated[Int64, Meta(description="Unix time, ms.")]
    stream: StreamName
    text: str
    continued: Annotated[bool, Meta(description="True if it continues the previous line.")] | UnsetType = UNSET
    frame_count: (
        Annotated[Int64, Meta(description="Number of kept frames, if the line was redrawn.", ge=1)] | UnsetType
    ) = UNSET


class LineBatch(Struct, rename="camel"):
    """Consecutive lines of one stream that were read together."""

    n: Annotated[Int64, Meta(description="Absolute number of the first line, from 0.")]
    count: Annotated[Int64, Meta(description="Number of lines.", ge=1)]
    ts: Annotated[Int64, Meta(description="Unix time of all lines, ms.")]
    stream: StreamName
    text: Annotated[str, Meta(description="The lines, separated by newlines.")]


class LogPage(Document, kw_only=True, rename="camel"):
    """A page of a log."""

    first_available: Annotated[Int64, Meta(description="Number of the first line that is still kept.")]
    total_lines: Annotated[Int64, Meta(description="Number of lines so far; the next line gets this number.")]
    truncated: Annotated[bool, Meta(description="True if this log lacks lines.")]
    finalized: Annotated[bool, Meta(description="True if the log is complete.")]
    lines: list[Line]


class History(Document, kw_only=True):
    """The frames of a redrawn line."""

    frames: Annotated[list[list[str]], Meta(description="Frames, oldest first, each a list of rows.")]


class SearchHit(Struct, kw_only=True, rename="camel"):
    """A line that matches the search."""

    run_id: Ulid
    n: Annotated[Int64, Meta(description="Absolute line number within the run's log, from 0.")]
    ts: Annotated[Int64, Meta(description="Unix time, ms.")]
    stream: StreamName
    text: str


class LogSearchHit(SearchHit, kw_only=True, rename="camel"):
    """A line of any task or service that matches the search."""

    task_name: str
    instance_index: Int64


SearchCursor = Annotated[str, Meta(description="Cursor that continues the search; absent if the search is exhausted.")]


class SearchPage(Document, kw_only=True, rename="camel"):
    """Hits of a search so far. A page can be empty although the search is not exhausted."""

    items: list[SearchHit]
    next_cursor: SearchCursor | UnsetType = UNSET
    exhausted: Annotated[bool, Meta(description="True if all runs were searched, active runs up to now.")]
    scanned_runs: Annotated[Int64, Meta(description="Number of runs that this call searched.")]
    scanned_bytes: Annotated[Int64, Meta(description="Bytes of log text that this call searched.")]


class LogSearchPage(Document, kw_only=True, rename="camel"):
    """Hits of a search in all logs so far. A page can be empty although the search is not exhausted."""

    items: list[LogSearchHit]
    next_cursor: SearchCursor | UnsetType = UNSET
    searched_back_to: (
        Annotated[
            str,
            Meta(
                description="All runs that were created later are searched; absent if the search is exhausted.",
                extra_json_schema={"format": "date-time"},
            ),
        ]
        | UnsetType
    ) = UNSET
    exhausted: Annotated[bool, Meta(description="True if all runs were searched, active runs up to now.")]
    scanned_runs: Annotated[Int64, Meta(description="Number of runs that this call searched.")]
    scanned_bytes: Annotated[Int64, Meta(description="Bytes of log text that this call searched.")]


class Dropped(Struct):
    """A gap: lines that the stream does not send."""

    after: Annotated[
        Int64, Meta(description="Number of the line before the gap; -1 if the gap is at the start of the log.")
    ]
    count: Int64


class Region(Struct):
    """The current drawing of a stream: an unfinished line or several rows; none if it draws nothing."""

    epoch: Int64
    rows: list[str]
    stream: StreamName


class Rotated(Struct, rename="camel"):
    """Older lines were removed."""

    first_available: Int64


class Done(Struct, rename="camel"):
    """The stream is complete."""

    final_line: Annotated[Int64, Meta(description="Number of the last line; -1 if there is none.")]
    status: Annotated[str, Meta(title="StreamEnd", extra_json_schema={"enum": ["ended", "deleted"]})]


class Health(Document, kw_only=True):
    """Result of a health check."""

    status: str = "ok"
