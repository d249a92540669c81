"""Schemas of a run's details beyond its record: resources, deletions and endings."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.schemas.records import DateTime, Document, Int64, Line, Reason, RunCamel, StreamName, Ulid


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


class Ending(Document, kw_only=True, rename="camel"):
    """Why and how a run ended."""

    reason: Reason
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
    started_by: Annotated[str, Meta(description="The user who started the run, as in its details.")] | UnsetType = UNSET
    requested_by: (
        Annotated[str, Meta(description="The user who stopped the run, else the user who triggered it.")] | UnsetType
    ) = UNSET
    scheduled_for: Annotated[DateTime, Meta(description="The scheduled time of the run.")] | UnsetType = UNSET
    missed_count: (
        Annotated[Int64, Meta(description="Number of missed times that the run records.", ge=1)] | UnsetType
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
