"""Schemas of the host, slots, daily totals, schedules and notifications."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.schemas.records import DateTime, Document, Int64, ServiceState, Ulid
from supervisor.ipc.notification_kinds import KINDS, SEVERITIES

PROCESSES = (
    "supervisor",
    "spawner",
    "spare",
    "scheduler",
    "gunicorn",
    "worker",
    "janitor",
    "watcher",
    "filewatcher",
    "notifier",
    "exporter",
)

Severity = Annotated[str, Meta(title="Severity", extra_json_schema={"enum": list(SEVERITIES)})]
Kind = Annotated[str, Meta(title="NotificationKind", extra_json_schema={"enum": list(KINDS)})]


class Notification(Struct, kw_only=True, rename="camel"):
    """A notification in the dashboard."""

    id: Ulid
    kind: Kind
    severity: Severity
    title: str
    body: str
    task_name: str | UnsetType = UNSET
    run_id: Annotated[Ulid, Meta(description="The run of the latest occurrence.")] | UnsetType = UNSET
    count: Annotated[Int64, Meta(description="Number of occurrences.")]
    created_at: DateTime
    last_occurred_at: DateTime
    read_at: Annotated[DateTime, Meta(description="Absent: unread.")] | UnsetType = UNSET


class Notifications(Document, kw_only=True, rename="camel"):
    """Notifications, newest first."""

    items: list[Notification]
    next_cursor: Annotated[str, Meta(description="`before` of the next page; absent on the last page.")] | (
        UnsetType
    ) = UNSET


class UnreadCount(Document, kw_only=True):
    """Number of unread notifications."""

    count: Int64


class Notifier(Struct, kw_only=True, rename="camel"):
    """A configured notifier, without its secrets."""

    name: str
    waiting: Annotated[Int64, Meta(description="Number of messages waiting for delivery.")]
    given_up: Annotated[Int64, Meta(description="Number of messages that could not be delivered.")]
    delivered_at: Annotated[DateTime, Meta(description="Time of the last delivery.")] | UnsetType = UNSET
    failed_at: Annotated[DateTime, Meta(description="Time of the last failed attempt.")] | UnsetType = UNSET
    error: Annotated[str, Meta(description="Reason of the last failure.")] | UnsetType = UNSET


class Notifiers(Document, kw_only=True):
    """The configured notifiers, by name."""

    items: list[Notifier]


class Tried(Document, kw_only=True):
    """Result of a test message."""

    delivered: bool
    error: Annotated[str, Meta(description="Why it was not delivered.")] | UnsetType = UNSET


class NotificationEvent(Struct, kw_only=True):
    """A notification was created, occurred again, or was marked as read or unread."""

    seq: Int64
    kind: str
    notification: Notification


class UnreadCountEvent(Struct, kw_only=True):
    """The number of unread notifications changed."""

    seq: Int64
    kind: str
    count: Int64


class Sample(Struct, kw_only=True, rename="camel"):
    """Measurements of one interval. Values that this host does not provide are absent."""

    # The fields are in the order of store.metrics.Sample.
    t: Annotated[DateTime, Meta(description="Start of the interval.")]
    cpu_percent: Annotated[float, Meta(description="Average of all cores, 0 to 100.")] | UnsetType = UNSET
    load1: float | UnsetType = UNSET
    memory_used_bytes: Int64 | UnsetType = UNSET
    swap_used_bytes: Int64 | UnsetType = UNSET
    disk_used_bytes: (
        Annotated[Int64, Meta(description="Used space of the data directory's file system.")] | UnsetType
    ) = UNSET
    disk_read_bytes_per_second: float | UnsetType = UNSET
    disk_written_bytes_per_second: float | UnsetType = UNSET
    received_bytes_per_second: Annotated[float, Meta(description="All interfaces except loopback.")] | UnsetType = UNSET
    sent_bytes_per_second: float | UnsetType = UNSET
    cpu_pressure_percent: (
        Annotated[float, Meta(description="Percentage of the last 10 s in which some process was stalled.")] | UnsetType
    ) = UNSET
    memory_pressure_percent: float | UnsetType = UNSET
    io_pressure_percent: float | UnsetType = UNSET
    running_runs: float | UnsetType = UNSET
    scheduler_lag_ms: Annotated[float, Meta(description="Delay of the scheduler's event loop.")] | UnsetType = UNSET


class SystemMetrics(Document, kw_only=True):
    """Samples, oldest first. Intervals without measurements have no sample."""

    items: list[Sample]
    step: Annotated[Int64, Meta(description="Seconds between two samples.")]


class Cpu(Struct, kw_only=True, rename="camel"):
    """The processor."""

    cores: Int64
    percent: Annotated[float, Meta(description="Average of all cores, 0 to 100.")]
    per_core: Annotated[list[float], Meta(description="Percentage of each core.")]
    load: Annotated[list[float], Meta(description="Load averages of the last 1, 5 and 15 minutes.")]


class Memory(Struct, kw_only=True, rename="camel"):
    """Main memory."""

    total_bytes: Int64
    used_bytes: Annotated[Int64, Meta(description="Total minus available memory.")]
    available_bytes: Int64


class Swap(Struct, kw_only=True, rename="camel"):
    """Swap space."""

    total_bytes: Int64
    used_bytes: Int64


class Disk(Struct, kw_only=True, rename="camel"):
    """A mounted file system. Rates cover the time since the previous request."""

    mount_point: str
    device: str
    file_system: str
    total_bytes: Int64
    used_bytes: Int64
    free_bytes: Annotated[Int64, Meta(description="Space available to ordinary users.")]
    read_bytes_per_second: Annotated[float, Meta(description="Read rate of its device; absent if unknown.")] | (
        UnsetType
    ) = UNSET
    written_bytes_per_second: float | UnsetType = UNSET


class Network(Struct, kw_only=True, rename="camel"):
    """A network interface. Totals count since the interface exists; rates cover the time since the previous request."""

    name: str
    received_bytes: Int64
    sent_bytes: Int64
    received_bytes_per_second: float | UnsetType = UNSET
    sent_bytes_per_second: float | UnsetType = UNSET
    up: bool


class Temperature(Struct, kw_only=True):
    """A temperature sensor."""

    sensor: str
    celsius: float


class Pressure(Struct, kw_only=True):
    """Percentage of the last 10 s, 60 s and 300 s in which some, or all, processes were stalled."""

    some: list[float]
    full: list[float] | UnsetType = UNSET


class Pressures(Struct, kw_only=True):
    """Pressure stall information; absent if the kernel provides none."""

    cpu: Pressure | UnsetType = UNSET
    memory: Pressure | UnsetType = UNSET
    io: Pressure | UnsetType = UNSET


class Process(Struct, kw_only=True, rename="camel"):
    """A process of the daemon."""

    name: Annotated[str, Meta(title="ProcessName", extra_json_schema={"enum": list(PROCESSES)})]
    pid: Int64
    cpu_ms: Annotated[Int64, Meta(description="CPU time since its start.")]
    cpu_percent: Annotated[float, Meta(description="Percentage of one core.")]
    rss_bytes: Int64
    pss_bytes: (
        Annotated[
            Int64, Meta(description="Resident memory; shared pages are divided among the processes that share them.")
        ]
        | UnsetType
    ) = UNSET


class System(Document, kw_only=True, rename="camel"):
    """The host, and the daemon's own processes."""

    hostname: str
    os: str
    kernel: str
    arch: str
    booted_at: DateTime
    cpu: Cpu
    memory: Memory
    swap: Swap
    disks: list[Disk]
    network: list[Network]
    temperatures: list[Temperature]
    pressure: Pressures
    processes: list[Process]


class Counts(Struct, kw_only=True):
    """Numbers of runs by end reason. Reasons without runs are absent."""

    succeeded: Int64 | UnsetType = UNSET
    failed: Int64 | UnsetType = UNSET
    stopped: Int64 | UnsetType = UNSET
    timeout: Int64 | UnsetType = UNSET
    crashed: Int64 | UnsetType = UNSET
    skipped: Int64 | UnsetType = UNSET
    log_overflow: Int64 | UnsetType = UNSET
    queue_full: Int64 | UnsetType = UNSET
    dst_skipped: Int64 | UnsetType = UNSET
    daemon_stopped: Int64 | UnsetType = UNSET
    missed: Int64 | UnsetType = UNSET
    start_failed: Int64 | UnsetType = UNSET


class TaskDay(Struct, kw_only=True, rename="camel"):
    """Totals of a task's runs that ended on one day."""

    day: Annotated[str, Meta(description="The UTC day on which the runs ended.", examples=["2026-11-21"])]
    total: Int64
    counts: Counts
    duration_ms: Annotated[Int64, Meta(description="Total duration of the runs that started.")]
    mean_ms: Annotated[Int64, Meta(description="Mean duration; absent if no run started.")] | UnsetType = UNSET
    longest_ms: Int64 | UnsetType = UNSET


class TaskDays(Document, kw_only=True):
    """Days on which runs of the task ended, oldest first."""

    items: list[TaskDay]


class UptimeDay(Struct, kw_only=True, rename="camel"):
    """How long the instances of a service were up on one day, added up."""

    day: Annotated[str, Meta(description="The UTC day.", examples=["2026-11-21"])]
    up_ms: Annotated[Int64, Meta(description="State `running`.")]
    down_ms: Annotated[Int64, Meta(description="State `starting`, `backoff`, `stopping` or `fatal`.")]
    stopped_ms: Annotated[Int64, Meta(description="State `stopped` or `exited`.")]


class InstanceChange(Struct, kw_only=True, rename="camel"):
    """One change of an instance's state."""

    at: DateTime
    state: ServiceState
    run_id: str | UnsetType = UNSET


class InstanceUptime(Struct, kw_only=True, rename="camel"):
    """The uptime of one instance over all requested days."""

    index: int
    up_ms: Int64
    down_ms: Int64
    stopped_ms: Int64
    changes: Annotated[list[InstanceChange], Meta(description="The newest changes of its state, newest first.")]


class ServiceUptime(Document, kw_only=True, rename="camel"):
    """The uptime of a service: each day with data, oldest first, and each instance."""

    items: list[UptimeDay]
    instances: list[InstanceUptime]
    restarts_24h: Annotated[Int64, Meta(description="Restarts of all instances in the last 24 hours.")] = field(
        name="restarts24h"
    )


class Instant(Struct, kw_only=True, rename="camel"):
    """One scheduled time of a task."""

    at: DateTime
    local: Annotated[str, Meta(description="The time in the task's time zone.")]
    note: (
        Annotated[
            str,
            Meta(
                title="InstantNote",
                description="gap: the clocks skip this time, so it runs at the end of the gap;"
                " repeated: the clocks show it twice.",
                extra_json_schema={"enum": ["gap", "repeated"]},
            ),
        ]
        | UnsetType
    ) = UNSET
    starts_at: Annotated[DateTime, Meta(description="Start of the run, if jitter delays it.")] | UnsetType = UNSET


class Schedule(Document, kw_only=True):
    """The next scheduled times of a task."""

    items: list[Instant]


class SlotRun(Struct, kw_only=True, rename="camel"):
    """A run that holds or needs places in a slot."""

    run_id: Ulid
    task_name: str
    places: Int64


class Slot(Struct, kw_only=True, rename="camel"):
    """The present use of a slot."""

    name: str
    size: Annotated[Int64, Meta(description="Number of places.")]
    used: Annotated[
        Int64, Meta(description="Places that runs hold; more than `size` after a reload with a smaller size.")
    ]
    waiting: Annotated[Int64, Meta(description="Number of queued runs that need the slot.")]
    held_by: Annotated[list[SlotRun], Meta(description="Runs that hold places; at most 20.")]
    next_runs: Annotated[list[SlotRun], Meta(description="The first queued runs that need the slot; at most 20.")]


class MaxRunning(Struct, kw_only=True, rename="camel"):
    """The limit `max_running` of the daemon, and the runs of tasks that it counts."""

    limit: Annotated[Int64, Meta(description="Absent: no limit.")] | UnsetType = UNSET
    running: Annotated[Int64, Meta(description="Number of active runs of tasks.")]


class Slots(Document, kw_only=True, rename="camel"):
    """The slots by name, and the limit of the daemon."""

    items: list[Slot]
    max_running: MaxRunning
