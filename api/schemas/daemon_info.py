"""Schemas of the daemon and the host, slots, daily totals, schedules, windows and notifications."""
# ruff: noqa: RUF012 - Document is a Struct, which copies the lists

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.schemas.records import DateTime, Document, Int64, ServiceState, Ulid, Withholding
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

    # The fields are in the order of store.metrics.MetricSample.
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


InstantNote = Annotated[
    str,
    Meta(
        title="InstantNote",
        description="gap: the clocks skip this time, so it runs at the end of the gap;"
        " repeated: the clocks show it twice.",
        extra_json_schema={"enum": ["gap", "repeated"]},
    ),
]


class Instant(Struct, kw_only=True, rename="camel"):
    """One scheduled time of a task."""

    at: DateTime
    local: Annotated[str, Meta(description="The time in the task's time zone.")]
    note: InstantNote | UnsetType = UNSET
    starts_at: Annotated[DateTime, Meta(description="Start of the run, if jitter delays it.")] | UnsetType = UNSET
    done_by: Annotated[DateTime, Meta(description="When its work is to be done (`finish_by`).")] | UnsetType = UNSET
    calendar: (
        Annotated[
            str,
            Meta(
                description="The closed days whose times moved to this one, or the closed days just before it, with the"
                " names of their calendars and holidays.",
                examples=["moved from 2026-12-25: bank (Christmas Day)"],
            ),
        ]
        | UnsetType
    ) = UNSET
    params: (
        Annotated[dict[str, str], Meta(description="Values of parameters that only this time gives to its run.")]
        | UnsetType
    ) = UNSET
    run_id: (
        Annotated[str, Meta(description="The run that was requested for this time; absent for a time of the schedule.")]
        | UnsetType
    ) = UNSET
    window: (
        Annotated[
            str,
            Meta(
                description="The window that deferred times to this one, or the windows that skip times before it.",
                examples=["after the window release"],
            ),
        ]
        | UnsetType
    ) = UNSET


class CalendarDay(Struct, kw_only=True):
    """A day on which tasks with the calendar do not run."""

    date: Annotated[str, Meta(extra_json_schema={"format": "date"})]
    name: Annotated[str, Meta(description="Name of the holiday, or the summary in the file.")] | UnsetType = UNSET


class CalendarYear(Struct, kw_only=True):
    """A calendar, with its closed days in a year."""

    name: str
    country: Annotated[str, Meta(description="The country whose public holidays it has.")] | UnsetType = UNSET
    subdivision: str | UnsetType = UNSET
    days: list[CalendarDay]


class Calendars(Document, kw_only=True):
    """The calendars of the configuration, and the built-in one."""

    year: Int64
    items: list[CalendarYear]


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


class ChangedUnit(Struct):
    """A changed task, service or table of the configuration."""

    name: Annotated[str, Meta(description="Name of a task or service, or of a table of the file, in brackets.")]
    reasons: Annotated[list[str], Meta(description="Changed keys and their effects.")]


class Reloaded(Document, kw_only=True):
    """Changes that a reload made, or would make."""

    added: list[str]
    changed: list[ChangedUnit]
    removed: list[str]
    warnings: list[str]


class WindowOpening(Struct, kw_only=True):
    """A time in which a window is open."""

    since: DateTime
    until: Annotated[DateTime, Meta(description="Absent: until someone ends it.")] | UnsetType = UNSET
    by: Annotated[str, Meta(description="The user who opened it; absent: it opens by its times.")] | UnsetType = UNSET
    note: str | UnsetType = UNSET


class OpenWindow(WindowOpening, kw_only=True):
    """An open window."""

    name: str


class WindowMatch(Struct, kw_only=True, omit_defaults=True):
    """The tasks and services of a window: those that meet all conditions."""

    tasks: Annotated[list[str], Meta(description="Globs for names.")] = []
    groups: list[str] = []
    tags: list[str] = []


class WindowRecord(Struct, kw_only=True):
    """A window of the configuration."""

    name: str
    cron: list[str]
    duration: Annotated[str, Meta(description="How long it stays open each time.")] | UnsetType = UNSET
    match: WindowMatch
    instants: Annotated[str, Meta(title="WindowInstants", extra_json_schema={"enum": ["skip", "defer"]})]
    running: Annotated[str, Meta(title="WindowRunning", extra_json_schema={"enum": ["continue", "stop"]})]
    alarms: Annotated[str, Meta(title="WindowAlarms", extra_json_schema={"enum": ["hold", "send"]})]
    open: Annotated[WindowOpening, Meta(description="Only of an open window.")] | UnsetType = UNSET
    next: Annotated[WindowOpening, Meta(description="When a closed window opens by its times.")] | UnsetType = UNSET


class WindowList(Document, kw_only=True):
    """All windows."""

    items: list[WindowRecord]


class UpcomingEntry(Struct, kw_only=True, rename="camel"):
    """A run of a task, many runs, or a time in which its schedule starts none."""

    kind: Annotated[
        str,
        Meta(
            title="UpcomingKind",
            description="runs: more than 24 on a local day, as one entry; closed: a calendar or a window;"
            " paused: a person paused the task.",
            extra_json_schema={"enum": ["run", "runs", "closed", "paused"]},
        ),
    ]
    task_name: str
    at: Annotated[DateTime, Meta(description="The scheduled time, or the first one.")]
    local: Annotated[str, Meta(description="The same time in the task's time zone.")] | UnsetType = UNSET
    starts_at: Annotated[DateTime, Meta(description="Start of the run, if jitter delays it.")] | UnsetType = UNSET
    until: (
        Annotated[DateTime, Meta(description="The last time of many runs, or the end of a closed or paused time.")]
        | UnsetType
    ) = UNSET
    count: Annotated[Int64, Meta(description="Number of runs, of many runs.")] | UnsetType = UNSET
    note: InstantNote | UnsetType = UNSET
    cause: Annotated[str, Meta(description="Why, in words, such as `calendar: bank (Christmas Day)`.")] | UnsetType = (
        UNSET
    )
    run_id: Annotated[str, Meta(description="The run that was requested for this time.")] | UnsetType = UNSET
    params: (
        Annotated[dict[str, str], Meta(description="Values of parameters that only this time gives to its run.")]
        | UnsetType
    ) = UNSET
    done_by: Annotated[DateTime, Meta(description="When its work is to be done (`finish_by`).")] | UnsetType = UNSET
    usual_ms: Annotated[Int64, Meta(description="How long a run usually takes.")] | UnsetType = UNSET


class ClockChange(Struct, kw_only=True, rename="camel"):
    """A change of the local time in the daemon's time zone."""

    at: DateTime
    before_s: Annotated[Int64, Meta(description="Seconds from UTC before it.")]
    after_s: Annotated[Int64, Meta(description="Seconds from UTC after it.")]


class Upcoming(Document, kw_only=True, rename="camel"):
    """What schedules do in a span of time."""

    start: DateTime = field(name="from")
    end: DateTime = field(name="to")
    items: Annotated[list[UpcomingEntry], Meta(description="In the order of their times.")]
    windows: Annotated[list[OpenWindow], Meta(description="When windows are open, in the order of their times.")]
    pause: Annotated[Withholding, Meta(description="Only while all schedules are paused together.")] | UnsetType = UNSET
    clock_changes: list[ClockChange]
    next_from: Annotated[DateTime, Meta(description="Present if there is more: `from` for it.")] | UnsetType = UNSET


class LeftRunning(Struct, kw_only=True, rename="camel"):
    """Processes that outlived a run with ``leftovers = "leave"``."""

    run_id: str
    task_name: str
    processes: Annotated[list[str], Meta(description="Name and process id of each process, such as `sleep (4711)`.")]


class Export(Struct, kw_only=True, rename="camel"):
    """State of an export, as its process reported it last."""

    name: str
    type: Annotated[
        str, Meta(title="ExportType", extra_json_schema={"enum": ["file", "syslog", "journald", "loki", "otlp"]})
    ]
    behind_lines: Annotated[Int64, Meta(description="Lines that are not delivered yet.")]
    behind_runs: Annotated[Int64, Meta(description="Runs with such lines.")]
    delivered_lines: Int64
    skipped_lines: Annotated[Int64, Meta(description="Lines that were gone before they could be delivered.")]
    lost_runs: Annotated[
        Int64,
        Meta(description="Runs, also of other units, that were removed before the export could read their logs."),
    ]
    delivered_at: Annotated[DateTime, Meta(description="Time of the last delivery.")] | UnsetType = UNSET
    error: Annotated[str, Meta(description="Why deliveries fail; absent while they succeed.")] | UnsetType = UNSET
    failing_since: DateTime | UnsetType = UNSET


class SilentTask(Struct, rename="camel"):
    """A task that does not run until the clock, which was set back, has caught up."""

    name: str
    runs_again_at: DateTime


class DaemonInfo(Document, kw_only=True, rename="camel"):
    """State of the daemon."""

    version: str
    started_at: DateTime
    uptime_ms: Int64
    config_path: str
    config_loaded_at: DateTime | UnsetType = UNSET
    config_stale: Annotated[
        bool, Meta(description="True if a file or the host's time zone changed after the last load.")
    ]
    config_warnings: Annotated[
        list[str], Meta(description="All that ``ringward validate`` warned of at the last load.")
    ]
    config_advice: Annotated[
        list[str],
        Meta(
            description="Those warnings that may be out of date, such as a missing program, or are a matter of choice, "
            "such as a short retention; none needs attention by itself."
        ),
    ] = []
    timezone: str | UnsetType = UNSET
    public_units: Annotated[
        list[str], Meta(description="The units whose incidents the public status page can show.")
    ] = []
    scheduler_active: bool
    starting: Annotated[bool, Meta(description="True until the daemon has started and accepts commands.")] = False
    database_problem: Annotated[
        str | UnsetType,
        Meta(description="Why the daemon cannot store anything until an administrator acts, and the remedy."),
    ] = UNSET
    store: str
    hostname: str
    tasks: Int64
    services: Int64
    exports: Annotated[list[Export], Meta(description="The exports; empty while the scheduler is down.")] = []
    left_running: Annotated[list[LeftRunning], Meta(description="Live processes that ended runs left behind.")]
    silent_task_count: Annotated[
        Int64, Meta(description="Number of tasks that are silent because the clock was set back.")
    ] = 0
    silent_tasks: Annotated[
        list[SilentTask], Meta(description="The first 20 silent tasks, in the order in which they run again.")
    ] = []
    pause: Annotated[Withholding, Meta(description="Present while all schedules are paused together.")] | UnsetType = (
        UNSET
    )
    windows: Annotated[list[OpenWindow], Meta(description="The open windows.")] = []
    removals_held_until: (
        Annotated[DateTime, Meta(description="When removals by age resume after the clock was set by more than a day.")]
        | UnsetType
    ) = UNSET
    inotify_problems: Annotated[
        list[str],
        Meta(description="Why inotify does not watch directories of `on_change`, and the remedy for each reason."),
    ] = []
    log_problems: Annotated[
        list[str],
        Meta(description="Runs whose output waits or is dropped because of their logs, each with the reason."),
    ] = []
