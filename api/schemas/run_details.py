"""Schemas of a run's details beyond its record: resources, deletions, endings, and the steps of a flow."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.schemas.records import (
    AnsweredApproval,
    DateTime,
    Document,
    EndCause,
    Int64,
    Line,
    Phase,
    Reason,
    RunCamel,
    StepDefinition,
    StreamName,
    Ulid,
    WaitingFor,
)


class DeletedRun(RunCamel, kw_only=True, rename="camel"):
    """A deleted run, with its exact end reason and trigger."""

    deleted_at: Annotated[DateTime, Meta(description="Time of the deletion; the same for all runs of one deletion.")]


class DeletedRuns(Document, kw_only=True):
    """A page of deleted runs, the latest deletion first."""

    runs: list[DeletedRun]
    total: Annotated[Int64, Meta(description="Number of matching deleted runs.")]


class ResourceSample(Struct, kw_only=True, rename="camel"):
    """Resources of all processes of a run in one interval."""

    t: Annotated[DateTime, Meta(description="End of the interval.")]
    cpu_percent: (
        Annotated[float, Meta(description="Average since the previous sample; 100 is one core.")] | UnsetType
    ) = UNSET
    rss_bytes: Annotated[Int64, Meta(description="Peak resident memory in the interval.")]
    processes: Annotated[Int64, Meta(description="Peak number of processes in the interval.")]


class Resources(Document, kw_only=True, rename="camel"):
    """Resources of a run. Values that are unknown, or not yet known, are absent."""

    cpu_user_ms: Annotated[Int64, Meta(description="CPU time in user mode.")] | UnsetType = UNSET
    cpu_system_ms: Annotated[Int64, Meta(description="CPU time in the kernel.")] | UnsetType = UNSET
    max_rss_bytes: (
        Annotated[
            Int64,
            Meta(
                description="Peak resident memory: of all processes in a sample, or of the largest process of a run"
                " that has ended."
            ),
        ]
        | UnsetType
    ) = UNSET
    read_bytes: Annotated[Int64, Meta(description="Bytes read from disks.")] | UnsetType = UNSET
    write_bytes: Annotated[Int64, Meta(description="Bytes written to disks.")] | UnsetType = UNSET
    samples: Annotated[
        list[ResourceSample], Meta(description="Samples, oldest first; older samples cover longer intervals.")
    ]


class RunningResources(Resources, kw_only=True, rename="camel"):
    """Resources of an active run."""

    run_id: Ulid
    task_name: str
    instance_index: Int64


class AllResources(Document, kw_only=True):
    """Resources of all active runs, oldest run first."""

    items: list[RunningResources]


class Took(Document, kw_only=True, rename="camel"):
    """Resources that runs used, counted when they used them. Values that this host does not provide are absent."""

    runs: Annotated[Int64, Meta(description="Number of runs that started and have ended.")]
    cpu_user_ms: Annotated[Int64, Meta(description="CPU time in user mode.")]
    cpu_system_ms: Annotated[Int64, Meta(description="CPU time in the kernel.")]
    max_rss_bytes: Annotated[Int64, Meta(description="Peak resident memory of a single run.")] | UnsetType = UNSET
    read_bytes: Annotated[Int64, Meta(description="Bytes read from disks.")] | UnsetType = UNSET
    write_bytes: Annotated[Int64, Meta(description="Bytes written to disks.")] | UnsetType = UNSET


_Start = Annotated[DateTime, Meta(description="Start of the window, rounded outwards to whole intervals.")]
_End = Annotated[DateTime, Meta(description="End of the window (exclusive).")]


class TaskUsage(Took, kw_only=True, rename="camel"):
    """Resources that the runs of a task or service used in a window."""

    start: _Start = field(name="from")
    end: _End = field(name="to")


class NamedTaskUsage(Took, kw_only=True, rename="camel"):
    """Resources that the runs of one task or service used."""

    task_name: str
    duration_ms: Annotated[
        Int64, Meta(description="Total duration of its runs that ended on the UTC days of the window.")
    ]


class AllTaskUsage(Document, kw_only=True, rename="camel"):
    """Resources of each task and service in a window, the greatest CPU time first."""

    start: _Start = field(name="from")
    end: _End = field(name="to")
    items: list[NamedTaskUsage]


class Cause(Struct):
    """The line of output that says why a run failed."""

    line: Annotated[Int64, Meta(description="Absolute line number, from 0.")]
    stream: StreamName
    text: Annotated[str, Meta(description="The line in one piece, without control characters, shortened.")]


class Failure(Struct):
    """A run that failed, and why."""

    run: RunCamel
    cause: Cause | UnsetType = UNSET


class Failures(Document, kw_only=True):
    """Runs that failed, and why."""

    items: Annotated[list[Failure], Meta(description="The newest first.")]
    total: Annotated[Int64, Meta(description="Number of these runs without `limit`.")]


class Ending(Document, kw_only=True, rename="camel"):
    """Why and how a run ended."""

    reason: Reason
    end_cause: EndCause | UnsetType = UNSET
    failed_step: Annotated[str, Meta(description="Of a flow: the step that failed first.")] | UnsetType = UNSET
    failed_run_id: (
        Annotated[str, Meta(description="Its run, to which the cause and the last lines belong.")] | UnsetType
    ) = UNSET
    passed_over: Annotated[list[str], Meta(description="Of a flow: the steps that were passed over.")] | UnsetType = (
        UNSET
    )
    exit_code: Annotated[Int64, Meta(description="As in the record of the run.")]
    signal: (
        Annotated[str, Meta(description="Name of the signal that ended the run.", examples=["SIGTERM"])] | UnsetType
    ) = UNSET
    core_dumped: (
        Annotated[bool, Meta(description="Whether the process dumped core; present if a signal ended it.")] | UnsetType
    ) = UNSET
    oom_killed: (
        Annotated[bool, Meta(description="Present if the kernel killed a process for lack of memory.")] | UnsetType
    ) = UNSET
    approval: Annotated[AnsweredApproval, Meta(description="The answer to a needed approval.")] | UnsetType = UNSET
    started_by: Annotated[str, Meta(description="The user who started the run, as in its details.")] | UnsetType = UNSET
    requested_by: (
        Annotated[str, Meta(description="The user who stopped the run, else the user who triggered it.")] | UnsetType
    ) = UNSET
    scheduled_for: Annotated[DateTime, Meta(description="The scheduled time of the run.")] | UnsetType = UNSET
    missed_count: (
        Annotated[Int64, Meta(description="Number of scheduled times that the run records.", ge=1)] | UnsetType
    ) = UNSET
    retry_at: Annotated[DateTime, Meta(description="Time of the pending retry.")] | UnsetType = UNSET
    killed_leftovers: (
        Annotated[
            list[str], Meta(description="Names and ids of processes that outlived the main process and were killed.")
        ]
        | UnsetType
    ) = UNSET
    failure_line: (
        Annotated[Int64, Meta(description="Number of the line that made the run fail (failure_output).", ge=0)]
        | UnsetType
    ) = UNSET
    hint: Annotated[str, Meta(description="The likely cause, if the last runs show a pattern.")] | UnsetType = UNSET
    cause: Cause | UnsetType = UNSET
    last_lines: Annotated[
        list[Line],
        Meta(description="The last lines of the log, at most 20. Lines of the stream `system` explain the reason."),
    ]


DECISIONS = ("succeeded", "failed", "passed_over", "stopped", "interrupted")

StepState = Annotated[
    str,
    Meta(
        title="StepState",
        description="waiting: for other steps; pending and running: its runs; else the decision about it.",
        extra_json_schema={"enum": ["waiting", "pending", "running", *DECISIONS]},
    ),
]


class StepRun(Struct, kw_only=True, rename="camel"):
    """A run of a step, with its exact end reason."""

    id: Ulid
    task_name: str
    item: Annotated[str, Meta(description="Its item, if the step has several.")] | UnsetType = UNSET
    retry_attempt: Int64
    status: Phase
    end_reason: Reason | UnsetType = UNSET
    end_cause: EndCause | UnsetType = UNSET
    exit_code: Int64
    created_at: DateTime
    started_at: DateTime | UnsetType = UNSET
    ended_at: DateTime | UnsetType = UNSET
    waiting_for: list[WaitingFor] | UnsetType = UNSET
    approval: AnsweredApproval | UnsetType = UNSET
    outputs: Annotated[dict[str, Any], Meta(description="The values that it wrote.")] | UnsetType = UNSET


class StepOfRun(StepDefinition, kw_only=True, rename="camel"):
    """A step in a run of its flow."""

    state: StepState
    cause: (
        Annotated[
            str,
            Meta(description="What decided it without a run of its own.", examples=["upstream", "timeout", "removed"]),
        ]
        | UnsetType
    ) = UNSET
    layer: Annotated[Int64, Meta(description="One more than that of the last step before it, from 0.")]
    began_at: DateTime | UnsetType = UNSET
    decided_at: DateTime | UnsetType = UNSET
    kept_from: Annotated[str, Meta(description="The run of an earlier attempt, whose result it keeps.")] | UnsetType = (
        UNSET
    )
    runs: Annotated[list[StepRun], Meta(description="The oldest first.")]


class StepsOfRun(Struct, kw_only=True):
    """The states of the steps in a run of a flow."""

    run: RunCamel
    steps: Annotated[dict[str, StepState], Meta(description="By step; without those that have not begun.")]


class RecentSteps(Document, kw_only=True):
    """The states of the steps in the newest runs of a flow."""

    steps: Annotated[list[str], Meta(description="The steps of the flow as configured, in their order.")]
    items: Annotated[list[StepsOfRun], Meta(description="The newest run first.")]


class FlowSteps(Document, kw_only=True, rename="camel"):
    """The steps of a run of a flow."""

    run: RunCamel
    failed_step: Annotated[str, Meta(description="The step that failed first.")] | UnsetType = UNSET
    failed_run_id: Annotated[str, Meta(description="Its run that failed.")] | UnsetType = UNSET
    steps: Annotated[list[StepOfRun], Meta(description="Each behind the steps before it.")]
