"""What the API tells of a run beyond its record; see :mod:`api.schemas.records`."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.schemas.records import DateTime, Document, Int64, Line, Reason, RunCamel, Ulid


class DeletedRun(RunCamel, kw_only=True, rename="camel"):
    """A run that was deleted; exact end reason and trigger."""

    deleted_at: Annotated[DateTime, Meta(description="Time of the deletion; all runs of one deletion have the same.")]


class DeletedRuns(Document, kw_only=True):
    """Deleted runs, those deleted last first."""

    runs: list[DeletedRun]
    total: Annotated[Int64, Meta(description="Number of matching deleted runs.")]


class ResourceSample(Struct, kw_only=True, rename="camel"):
    """What the processes of a run took together around a time."""

    t: Annotated[DateTime, Meta(description="End of the interval.")]
    cpu_percent: Annotated[float, Meta(description="Mean since the previous sample; 100 is one core.")] | UnsetType = (
        UNSET
    )
    rss_bytes: Annotated[Int64, Meta(description="Peak of resident memory in the interval.")]
    processes: Annotated[Int64, Meta(description="Maximum in the interval.")]


class Resources(Document, kw_only=True, rename="camel"):
    """What a run takes, or took; what is not known, or not known yet, is absent."""

    cpu_user_ms: Annotated[Int64, Meta(description="Processor time in user mode.")] | UnsetType = UNSET
    cpu_system_ms: Annotated[Int64, Meta(description="Processor time in the kernel.")] | UnsetType = UNSET
    max_rss_bytes: (
        Annotated[
            Int64,
            Meta(
                description="Most resident memory: of all its processes in a sample, or of the largest process of a run"
                " that has ended."
            ),
        ]
        | UnsetType
    ) = UNSET
    read_bytes: Annotated[Int64, Meta(description="Read from disks.")] | UnsetType = UNSET
    write_bytes: Annotated[Int64, Meta(description="Written to disks.")] | UnsetType = UNSET
    samples: Annotated[list[ResourceSample], Meta(description="Oldest first; older ones cover longer intervals.")]


class RunningResources(Resources, kw_only=True, rename="camel"):
    """What a run takes that is running."""

    run_id: Ulid
    task_name: str
    instance_index: Int64


class AllResources(Document, kw_only=True):
    """What all running runs take, oldest run first."""

    items: list[RunningResources]


class Took(Document, kw_only=True, rename="camel"):
    """What runs took together, counted when they took it; what this host does not tell is absent."""

    runs: Annotated[Int64, Meta(description="Number of ended runs that had started.")]
    cpu_user_ms: Annotated[Int64, Meta(description="Processor time in user mode.")]
    cpu_system_ms: Annotated[Int64, Meta(description="Processor time in the kernel.")]
    max_rss_bytes: Annotated[Int64, Meta(description="Peak of resident memory of a run.")] | UnsetType = UNSET
    read_bytes: Annotated[Int64, Meta(description="Read from disks.")] | UnsetType = UNSET
    write_bytes: Annotated[Int64, Meta(description="Written to disks.")] | UnsetType = UNSET


class TaskUsage(Took, kw_only=True, rename="camel"):
    """What the runs of a task or service took in a window."""

    start: Annotated[DateTime, Meta(description="Start of the window, widened to whole spans.")] = field(name="from")
    end: Annotated[DateTime, Meta(description="End of the window, excluded.")] = field(name="to")


class NamedTaskUsage(Took, kw_only=True, rename="camel"):
    """The same of one of several."""

    task_name: str


class AllTaskUsage(Document, kw_only=True, rename="camel"):
    """What the runs of each task and service took in a window, those that took most processor time first."""

    start: Annotated[DateTime, Meta(description="Start of the window, widened to whole spans.")] = field(name="from")
    end: Annotated[DateTime, Meta(description="End of the window, excluded.")] = field(name="to")
    items: list[NamedTaskUsage]


class Ending(Document, kw_only=True, rename="camel"):
    """Why and how a run ended: everything that is known of that."""

    reason: Reason
    exit_code: Annotated[Int64, Meta(description="As in the record of the run.")]
    signal: Annotated[str, Meta(description="Name of the signal that ended it.", examples=["SIGTERM"])] | UnsetType = (
        UNSET
    )
    core_dumped: Annotated[bool, Meta(description="Present if a signal ended it.")] | UnsetType = UNSET
    oom_killed: (
        Annotated[bool, Meta(description="Present if the kernel killed a process for lack of memory.")] | UnsetType
    ) = UNSET
    requested_by: Annotated[str, Meta(description="The user who stopped it, or else who triggered it.")] | UnsetType = (
        UNSET
    )
    scheduled_for: Annotated[DateTime, Meta(description="The scheduled time of the run.")] | UnsetType = UNSET
    missed_count: Annotated[Int64, Meta(description="Number of missed times that it stands for.", ge=1)] | UnsetType = (
        UNSET
    )
    retry_at: Annotated[DateTime, Meta(description="Time of the retry, while it waits.")] | UnsetType = UNSET
    killed_leftovers: (
        Annotated[
            list[str], Meta(description="Killed processes that outlived the main process: names and process ids.")
        ]
        | UnsetType
    ) = UNSET
    failure_line: (
        Annotated[Int64, Meta(description="Number of the line that made it fail (failure_output).", ge=0)] | UnsetType
    ) = UNSET
    hint: Annotated[str, Meta(description="The likely cause, if the last runs show a pattern.")] | UnsetType = UNSET
    last_lines: Annotated[
        list[Line],
        Meta(description="The last lines of its log, at most 20; lines of system say more about the reason."),
    ]
