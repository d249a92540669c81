"""The configuration as the daemon uses it, and the keys of tasks and services. Durations are in ms, sizes in bytes.

:func:`supervisor.config.keys.key` declares a field that is a key of the file. It has the type of the value, the
default, the text for documentation and JSON Schema, and the effect of a change. A ClassVar is a key that only the
loader reads. :mod:`supervisor.config.key_tables` collects the keys.
"""

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from supervisor.config.calendar_files import CALENDAR_NAME, MAX_CALENDARS, BusinessDay
from supervisor.config.daemon_tables import Daemon, Export, Hook, Http, Notifier, Notify, Route, Storage
from supervisor.config.keys import REQUIRED, Effect, key
from supervisor.config.problems import Problem
from supervisor.config.value_records import (
    Backoff,
    Command,
    CronEntry,
    Dependency,
    FailureRate,
    HeldSocket,
    HostCheck,
    Launcher,
    LogOnFull,
    OnOverlap,
    Param,
    Probe,
    Restart,
    RestartOrder,
    Stamp,
    Step,
    StopSignal,
    StopTarget,
    Template,
)
from supervisor.config.value_types import process
from supervisor.config.value_types.dependencies import DependencyEntry
from supervisor.config.value_types.launchers import LOCAL
from supervisor.config.value_types.listen import Sockets
from supervisor.config.value_types.notify_targets import PingUrl, notifiers
from supervisor.config.value_types.params import CronValue, Params
from supervisor.config.value_types.patterns import LINE_PATTERN
from supervisor.config.value_types.permissions import Approvers, Permission
from supervisor.config.value_types.probes import LIVE, READY, Condition
from supervisor.config.value_types.process import USER, Limits, Stdin, Umask
from supervisor.config.value_types.slots import SlotUses
from supervisor.config.value_types.timing import (
    Attempts,
    Deadline,
    ExpectedDuration,
    OnStart,
    Rate,
    RetryCause,
    Timestamp,
)
from supervisor.config.value_types.values import (
    Choice,
    CommandLine,
    Duration,
    Environment,
    FileGlob,
    FilePath,
    Flag,
    Integer,
    ListOf,
    Name,
    Secrets,
    Size,
    Text,
    TextOf,
    TimeZone,
    VariableName,
    choice,
)
from supervisor.schedule.calendars import Calendar, Shift
from supervisor.schedule.clock_changes import DstGap, DstOverlap
from supervisor.schedule.deadlines import FinishBy
from supervisor.schedule.windows import WindowDefinition

_KB, _TB = 1 << 10, 1 << 40
_OUTPUT_KEY = TextOf(
    "a name of at most 40 ASCII letters, digits, _ and -, other than exit_code",
    re.compile("(?!exit_code$)[A-Za-z_][A-Za-z0-9_-]{0,39}"),
)
_BACKOFF = choice("constant", "linear", "exponential")

NEXT_RUN, NEXT_START, SCHEDULE, RESTART = Effect.NEXT_RUN, Effect.NEXT_START, Effect.SCHEDULE, Effect.RESTART
INSTANCES = Effect.INSTANCES
PROCESS = (NEXT_RUN, RESTART)
"""The effects of a change of a key that affects processes: the next run of a task has it, and a service restarts."""


@dataclass(frozen=True, kw_only=True)
class _StartKeys:
    """Keys of tasks and services: the command, and how its processes start."""

    __slots__ = ()

    run: Command = key(
        CommandLine(),
        REQUIRED,
        "the command: a string runs as shell -e -c STRING, a list runs without a shell",
        PROCESS,
        example="pg_dump shop > /var/backups/shop.sql",
    )
    shell: str = key(Text(empty=False), "/bin/sh", "the shell for a run that is a string", PROCESS)
    working_dir: str | None = key(
        FilePath(), None, "working directory; default: the daemon's", PROCESS, example="/srv/shop"
    )
    """Absolute path; None: the daemon's working directory."""
    env: dict[str, str] = key(
        Environment(), {}, "environment variables, added to the daemon's and to env of [defaults]", PROCESS
    )
    env_file: ClassVar[object] = key(
        ListOf(FilePath(), 16, single=True),
        [],
        "files with environment variables; env overrides them",
        example=["web.env"],
    )
    clean_env: bool = key(
        Choice({"inherit": False, "clean": True}),
        "inherit",
        "clean: without the daemon's environment",
        PROCESS,
        name="env_base",
    )
    env_public: tuple[str, ...] = key(
        ListOf(VariableName(), 1000), [], "variables of env whose values are shown", example=["LANG"]
    )
    """Names of variables in `env` whose values are not secret."""
    secrets: dict[str, str] = key(Secrets(), {}, "environment variables whose values are masked in the output", PROCESS)
    secrets_file: ClassVar[object] = key(
        ListOf(FilePath(), 16, single=True),
        [],
        "files with secrets; secrets overrides them",
        example=["web.secrets"],
    )
    user: str | None = key(USER, None, "user, or user and group, of the run; default: the daemon's user", PROCESS)
    """``user`` or ``user:group``; None: the daemon's user."""
    umask: int | None = key(
        Umask(), None, "permissions that new files do not get; default: the daemon's umask", PROCESS
    )
    limits: dict[str, float] = key(Limits(), {}, "resource limits", PROCESS)
    """Sizes in bytes, times in seconds; -1: unlimited."""
    launcher: Launcher | None = key(
        Name('the name of a launcher, or "local"'),
        LOCAL,
        "where it runs: on this host, or through another engine",
        PROCESS,
        resolved=True,
    )
    """The launcher of its runs; None: they run on this host."""
    stdin: str = key(Stdin(), "null", "standard input: empty, a pipe that never ends (open), or a file", PROCESS)
    """``null`` (empty), ``open`` (a pipe that never ends), or the absolute path of a file."""
    may: tuple[str, ...] = key(
        ListOf(Permission(), 100),
        [],
        "operations that a run may request from the daemon, such as restart:web; names may be globs",
        PROCESS,
    )
    """Requests that its runs may send to the daemon: a verb, a colon, and a glob for names.

    :mod:`supervisor.ipc.run_token` checks them.
    """
    description: str | None = key(Text(), None, "text for display", example="Dumps the database of the shop")
    group: str | None = key(Text(limit=100), None, "group for display", example="shop")
    tags: tuple[str, ...] = key(ListOf(Text(limit=100, empty=False), 64), [], "tags for display", example=["nightly"])


@dataclass(frozen=True, kw_only=True)
class _ScheduleKeys:
    """Keys of tasks: when they run, and how many runs are allowed."""

    __slots__ = ()

    cron: tuple[CronEntry, ...] = key(
        ListOf(CronValue(), 100, single=True),
        [],
        "cron expressions: five fields, six with seconds first, or a macro",
        SCHEDULE,
    )
    every_ms: int | None = key(
        Duration(low_ms=1000), None, "fixed interval, independent of the wall clock", SCHEDULE, name="every"
    )
    at_ms: int | None = key(Timestamp(), None, "runs once, at this time", SCHEDULE, name="at")
    """Milliseconds since the epoch. At most one of `cron`, `every_ms` and `at_ms` is set."""
    on_change: tuple[str, ...] = key(
        ListOf(FileGlob(), 20, single=True),
        [],
        "files whose changes start a run, with wildcards in the last part of the path",
    )
    """Absolute paths, with wildcards in the last component, of the files whose changes start a run."""
    settle_ms: int = key(
        Duration(high_ms=3_600_000),
        "1s",
        "the run of on_change starts after this time without a further change",
        name="settle",
    )
    """How long the files must be unchanged before a run starts for all that had changed."""
    timezone: str = key(TimeZone(), None, "time zone of the schedule; default: the daemon's", SCHEDULE)
    dst_gap: DstGap = key(
        choice("run", "skip"), "run", "effect of a local time that does not exist; run: at the end of the gap", SCHEDULE
    )
    dst_overlap: DstOverlap = key(
        choice("first", "both", "second"), "first", "which occurrences run when a local time comes twice", SCHEDULE
    )
    skip_on: tuple[Calendar, ...] = key(
        ListOf(CALENDAR_NAME, MAX_CALENDARS, single=True),
        [],
        "calendars on whose days no scheduled time runs; weekend is built in",
        SCHEDULE,
        example=["bank", "weekend"],
    )
    shift: Shift | None = key(
        choice("next", "previous"),
        None,
        "where a time on a closed day moves: to the nearest open day after or before it",
        SCHEDULE,
        example="next",
    )
    business_day: int | None = key(
        BusinessDay(),
        None,
        "runs only on this open day of the month: 1 to 10 from its start, -1 to -10 from its end",
        SCHEDULE,
        example=-1,
    )
    jitter_ms: int = key(
        Duration(),
        "0s",
        "runs start within this time after their scheduled time; the offset of a task is constant",
        name="jitter",
    )
    """Maximum delay of a run after its instant; each task has its own fixed part of it."""
    catch_up: int = key(Integer(0, 1000), 1, "number of the newest missed times that run")
    catch_up_window_ms: int = key(Duration(), "1d", "maximum age of a missed time that runs", name="catch_up_window")
    run_on_start: bool | Literal["boot"] = key(
        OnStart(), False, "true: run at every start of the daemon; boot: once per boot of the host", NEXT_START
    )
    max_concurrent: int = key(Integer(1, 10_000), 1, "number of runs at the same time")
    on_overlap: OnOverlap = key(
        choice("queue", "skip", "terminate"), "queue", "effect on a new run while max_concurrent runs are active"
    )
    queue_max: int = key(Integer(0, 100_000), 100, "maximum number of waiting runs")
    queue_priority: int = key(Integer(-100, 100), 0, "rank of a waiting run; each minute of waiting adds a point")
    coalesce: bool = key(Flag(), True, "at most one scheduled run waits")
    """Whether at most one scheduled run waits; others are skipped."""

    @property
    def crons(self) -> tuple[str, ...]:
        """The cron expressions."""
        return tuple(entry.expression for entry in self.cron)

    @property
    def cron_params(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The values of parameters that each cron expression gives to its runs, as pairs of name and value."""
        return tuple(entry.params for entry in self.cron)


@dataclass(frozen=True, kw_only=True)
class _AdmissionKeys:
    """Keys of tasks and services: the slots that a run takes, and its time limit."""

    __slots__ = ()

    uses: dict[str, int] = key(
        SlotUses(), {}, "slots that a run holds while it runs, and the number of places in each", NEXT_RUN
    )
    """Number of places that a run takes, by slot."""
    timeout_ms: int | None = key(Duration(low_ms=1), None, "maximum duration of a run", PROCESS, name="timeout")


@dataclass(frozen=True, kw_only=True)
class _RetryKeys:
    """Keys of tasks: retries, and runs on request."""

    __slots__ = ()

    retry_attempts: int = key(Integer(0, 10_000), 0, "number of retries after a failure", NEXT_RUN)
    retry_delay_ms: int = key(Duration(), "5s", "delay before the first retry", NEXT_RUN, name="retry_delay")
    retry_backoff: Backoff = key(_BACKOFF, "exponential", "growth of the delay", NEXT_RUN)
    retry_max_delay_ms: int = key(Duration(), "5m", "maximum delay", NEXT_RUN, name="retry_max_delay")
    retry_on: tuple[str | int, ...] = key(
        ListOf(RetryCause(), 300, empty=False),
        ["failed", "timeout", "crashed", "start_failed", "log_overflow"],
        "end reasons and exit codes that lead to a retry",
        NEXT_RUN,
    )
    """End reasons and exit codes after which a retry follows."""
    retry_superseded: bool | None = key(
        Flag(),
        None,
        "whether a retry still runs after a newer scheduled time has succeeded; default: only if catch_up or"
        " max_concurrent is more than 1, or coalesce is false",
        example=True,
    )
    """Whether a retry runs although a newer instant succeeded; None: if `catch_up` and others make instants matter."""
    api_trigger: bool = key(Flag(), True, "false: only the schedule starts runs")
    params: tuple[Param, ...] = key(Params(), [], "parameters that a caller may set for a run", NEXT_RUN)


@dataclass(frozen=True, kw_only=True)
class _SupervisionKeys:
    """Keys of services: instances, restarts, probes and dependencies."""

    __slots__ = ()

    instances: int = key(Integer(1, 64), 1, "number of instances", INSTANCES)
    restart: Restart = key(
        choice("always", "on_failure", "never"), "always", "when the daemon restarts an instance that ended"
    )
    restart_order: RestartOrder = key(
        choice("old_first", "new_first"),
        "old_first",
        "new_first: a restart starts the next process, and stops the present one once the next one is ready",
    )
    restart_delay_ms: int = key(Duration(), "1s", "delay before the first restart", name="restart_delay")
    restart_backoff: Backoff = key(_BACKOFF, "exponential", "growth of the delay")
    restart_max_delay_ms: int = key(Duration(), "60s", "maximum delay", name="restart_max_delay")
    restart_attempts: float = key(
        Attempts(),
        3,
        "quick failures in a row that lead to a restart; after one more it is fatal; unlimited: never fatal",
    )
    """Number of consecutive quick failures after which one more makes an instance fatal; infinity: never."""
    healthy_after_ms: int = key(
        Duration(), "10s", "an end later than this after readiness is not a quick failure", name="healthy_after"
    )
    fatal_retry_ms: int | None = key(
        Duration(low_ms=1), None, "time after which a fatal instance is tried again, once", name="fatal_retry"
    )
    """Time after which a fatal instance starts again; None: never."""
    flap_restarts: float = key(
        Attempts(), 5, "an instance that fails more often than this within flap_window is flapping; unlimited: never"
    )
    """Number of failures within `flap_window_ms` after which one more counts as flapping; infinity: never."""
    flap_window_ms: int = key(Duration(low_ms=1000), "10m", "the period for flap_restarts", name="flap_window")
    ready: Probe | None = key(READY, None, "readiness probe: notify, http, tcp, exec or log", RESTART)
    """The readiness probe of an instance; None: it is ready as soon as it has a process."""
    live: Probe | None = key(
        LIVE, None, "liveness probe: notify, http, tcp or exec; an instance that fails it is restarted", RESTART
    )
    """The liveness probe of a ready instance; None: it is alive while it has a process."""
    depends_on: tuple[Dependency, ...] = key(
        ListOf(DependencyEntry(), 100),
        [],
        "services and tasks that must be up before it starts",
    )
    sockets: tuple[HeldSocket, ...] = key(
        Sockets(),
        {},
        "listening sockets that the daemon holds for it, so that no connection is refused while it restarts",
        RESTART,
        example={"http": "tcp:127.0.0.1:8080"},
    )
    autostart: bool = key(Flag(), True, "false: it is stopped at the start of the daemon", NEXT_START)
    priority: int = key(Integer(0, 1000), 100, "services with a lower number start earlier and stop later")
    """Services with a lower priority start earlier and stop later."""


@dataclass(frozen=True, kw_only=True)
class _EndKeys:
    """Keys of tasks and services: how a run stops, when it succeeds, its log, its retention and notifications."""

    __slots__ = ()

    stop_signal: StopSignal = key(
        process.StopSignal(),
        "SIGTERM",
        "signal that asks a run to end; or several signals, each with its time",
        PROCESS,
    )
    stop_target: StopTarget = key(
        choice("tree", "main"),
        "tree",
        "receivers of stop_signal: all processes, or only the main process; SIGKILL goes to all",
        PROCESS,
    )
    grace_ms: int = key(Duration(), "5s", "time from stop_signal to SIGKILL", PROCESS, name="graceful_stop")
    """Time from `stop_signal`, if it is a single signal, to SIGKILL."""
    leave_leftovers: bool = key(
        Choice({"kill": False, "leave": True}),
        "kill",
        "treatment of processes that outlive the main process",
        PROCESS,
        name="leftovers",
    )
    """Whether processes that outlive the main process are left running."""
    exit_codes: tuple[int, ...] = key(
        ListOf(Integer(0, 255), 256, empty=False), [0], "exit codes that mean success", (NEXT_RUN, Effect.AT_ONCE)
    )
    """The exit codes that count as success."""
    failure_output: str | None = key(LINE_PATTERN, None, "a line of output that makes a run fail", PROCESS)
    """A regular expression; a matching line of output turns a success into a failure."""
    tty: bool = key(Flag(), False, "run under a pseudo-terminal, with colours and progress bars", PROCESS)
    merge_stderr: bool = key(
        Choice({"separate": False, "merge": True}),
        "separate",
        "merge: one pipe for standard output and standard error, in exact order",
        PROCESS,
        name="stderr",
    )
    redraw: bool = key(
        Choice({"auto": True, "off": False}),
        "auto",
        "auto: a progress bar is one line with its history; off: keep every byte",
        PROCESS,
    )
    log_max_bytes: int = key(Size(512 * _KB, _TB), "100mb", "maximum size of a run's log", PROCESS, name="log_max_size")
    log_on_full: LogOnFull = key(
        choice("drop_old", "drop_new", "kill"),
        "drop_old",
        "effect of log_max_size: drop the oldest lines, drop new lines, or stop the run",
        PROCESS,
    )
    keep_runs: int = key(Integer(0, 1_000_000_000), 1000, "number of ended runs to keep")
    keep_for_ms: int = key(Duration(), "30d", "time to keep a run after its end", name="keep_for")
    keep_refused: int = key(
        Integer(0, 1_000_000_000),
        100,
        "number of runs to keep that never ran: queue_full, skipped, missed and dst_skipped",
    )
    """Number of refused runs to keep, in addition to `keep_runs`."""
    notify_on_failure: tuple[str, ...] = key(notifiers(), [], "notifiers for failures and recoveries", example=["ops"])
    """Names of notifiers."""
    notify_on_success: tuple[str, ...] = key(notifiers(), [], "notifiers for each success", example=["ops"])
    notify_on_missed: tuple[str, ...] = key(
        notifiers(), [], "notifiers for scheduled times without a run", example=["ops"]
    )
    max_duration_alert_ms: int | None = key(
        Duration(low_ms=1),
        None,
        "sends run.slow when a run takes longer; the run continues",
        NEXT_RUN,
        name="max_duration_alert",
    )
    """Duration of a run after which a notification is sent; the run continues."""
    silence_alert_ms: int | None = key(
        Duration(low_ms=1000),
        None,
        "sends run.silent when a run prints nothing for this time; the run continues",
        NEXT_RUN,
        name="silence_alert",
    )
    """How long a run must print nothing before a notification is sent; the run continues."""

    @property
    def stop_ladder(self) -> tuple[tuple[int, int], ...]:
        """Return the signals before SIGKILL, each with the milliseconds until the next one."""
        steps = self.stop_signal
        return ((steps, self.grace_ms),) if isinstance(steps, int) else steps

    @property
    def stop_ms(self) -> int:
        """Return the milliseconds from the first signal to SIGKILL."""
        return sum(wait_ms for _number, wait_ms in self.stop_ladder)


@dataclass(frozen=True, kw_only=True)
class _PromiseKeys:
    """Keys of tasks: what people are promised about their runs."""

    __slots__ = ()

    min_duration_ms: int | None = key(
        Duration(low_ms=1), None, "a success that took less time is too short", NEXT_RUN, name="min_duration"
    )
    """The least duration of a run that succeeds; a shorter success is a failure, as `too_short` says."""
    too_short: Literal["fail", "warn"] = key(
        choice("fail", "warn"),
        "fail",
        "effect of a success that is too short: the run fails, or run.short is sent",
        NEXT_RUN,
    )
    expected_duration_ms: int | Literal["learned"] | None = key(
        ExpectedDuration(),
        None,
        "how long a run usually takes; run.slow is sent when one takes much longer",
        NEXT_RUN,
        name="expected_duration",
        example="learned",
    )
    """How long a run usually takes; ``learned``: what the last runs took. One that takes much longer is reported."""
    finish_by: FinishBy | None = key(
        Deadline(),
        None,
        "when the work of a scheduled time is to be done: at a local time, or a time after it; else task.late is sent",
        example="06:00",
    )
    failure_rate: FailureRate | None = key(
        Rate(), None, "task.failing is sent when so many of the last runs failed", example="3 in 10"
    )


@dataclass(frozen=True, kw_only=True)
class _ConditionKeys:
    """Keys of tasks: what must be true when a run is about to start."""

    __slots__ = ()

    only_if: Command | HostCheck | None = key(
        Condition(),
        None,
        "condition of each run: it starts if the command exits with 0, and is skipped if it exits with 1",
        NEXT_RUN,
        example="mountpoint -q /srv/backup",
    )
    only_if_timeout_ms: int = key(
        Duration(low_ms=1, high_ms=30_000), "30s", "time limit of the condition", NEXT_RUN, name="only_if_timeout"
    )
    only_if_retry_ms: int | None = key(
        Duration(low_ms=1000),
        None,
        "time after which a condition that said no is asked again",
        NEXT_RUN,
        name="only_if_retry",
        example="5m",
    )
    only_if_for_ms: int | None = key(
        Duration(low_ms=1000), None, "how long a condition is asked again", NEXT_RUN, name="only_if_for", example="2h"
    )
    requires: tuple[str, ...] = key(
        ListOf(Text(), 100),
        [],
        "tasks whose newest scheduled times must have succeeded before a scheduled run starts",
        NEXT_RUN,
        example=["extract"],
    )
    gate_wait_ms: int = key(
        Duration(low_ms=1000), "1h", "how long a scheduled run waits for the tasks in requires", name="gate_wait"
    )
    needs_approval: bool | tuple[str, ...] = key(
        Approvers(),
        False,
        "whether an operator must approve each run before it starts; a list: who may approve",
        NEXT_RUN,
        example=["alice", "bob"],
    )
    """Whether each run needs an approval; names: the people who may give it."""
    not_by_starter: bool = key(Flag(), False, "whether the person who started a run may not approve it", NEXT_RUN)
    approval_timeout_ms: int = key(
        Duration(low_ms=1000),
        "7d",
        "how long a run waits for its approval; then it is rejected",
        NEXT_RUN,
        name="approval_timeout",
    )


@dataclass(frozen=True, kw_only=True)
class _PingKeys:
    """Keys of tasks that run elsewhere."""

    __slots__ = ()

    grace_period_ms: int = key(
        Duration(low_ms=1000),
        "5m",
        "with external = true: time after a scheduled time within which its job must report",
        SCHEDULE,
        name="grace",
    )
    ping_token: str | None = key(
        FilePath(),
        None,
        "with external = true: file with the secret at the end of the address to which its job reports",
        shown=False,
        name="token_file",
        example="/etc/ringward/offsite.token",
    )
    """The content of ``token_file``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(_PingKeys, _ConditionKeys, _PromiseKeys, _EndKeys, _RetryKeys, _AdmissionKeys, _ScheduleKeys, _StartKeys):
    """``[tasks.NAME]``: runs until it exits, on a schedule or on demand. The keys of the last base come first.

    ``[flows.NAME]`` is one too: a task with steps and without a command.
    """

    kind: ClassVar[Literal["task"]] = "task"
    name: str
    heartbeat: str | None = key(
        PingUrl(), None, "URL that the daemon requests at the start and the end of runs", shown=False
    )
    """URL that is requested when runs start and end."""
    outputs: bool = key(
        Flag(), False, "true: the run can write values to $RINGWARD_OUTPUT; steps of flows always can", NEXT_RUN
    )
    output_required: tuple[str, ...] = key(
        ListOf(_OUTPUT_KEY, 100, single=True),
        [],
        "values that a run must write to $RINGWARD_OUTPUT; otherwise it fails",
        NEXT_RUN,
        example=["path"],
    )
    external: bool = key(Flag(), False, "true: it runs elsewhere, and its job reports its runs")
    """Whether its runs have no process here: a job elsewhere reports them."""
    steps: tuple[Step, ...] = ()
    """The steps of a flow, in the order of the file; empty for other tasks."""
    flow: str | None = None
    """The flow that has this task as the command of a step; None for other tasks."""
    step: str | None = None
    """The name of that step."""
    references: tuple[tuple[str | int, Template], ...] = ()
    """The values that are known only when a run begins: items of `run` by index, variables of `env` by name."""

    @property
    def has_outputs(self) -> bool:
        """Whether its runs can write values, also outside flows."""
        return self.outputs or bool(self.output_required) or self.step is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Service(_EndKeys, _SupervisionKeys, _AdmissionKeys, _StartKeys):
    """``[services.NAME]``: instances that should always run."""

    kind: ClassVar[Literal["service"]] = "service"
    flow: ClassVar[None] = None
    name: str


ENDLESS = ("restart_attempts", "flap_restarts")
"""The keys of services whose values can be infinity, which JSON cannot express."""
UNIT_KEYS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (_StartKeys, ("task", "service")),
    (_ScheduleKeys, ("task",)),
    (_AdmissionKeys, ("task", "service")),
    (_RetryKeys, ("task",)),
    (_SupervisionKeys, ("service",)),
    (_EndKeys, ("task", "service")),
    (_PromiseKeys, ("task",)),
    (_ConditionKeys, ("task",)),
    (_PingKeys, ("task",)),
    (Task, ("task",)),
)
"""The records with the keys of tasks and services, in the order of the documentation, and the kinds that have them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """A configuration that is valid as a whole."""

    path: str
    """Absolute path of the main file."""
    files: tuple[str, ...]
    """Absolute paths of all configuration files, the main file first."""
    daemon: Daemon
    http: Http
    storage: Storage
    notify: Notify
    keep_runs: int
    """``keep_runs`` for tasks and services that are no longer configured."""
    keep_for_ms: int
    """``keep_for`` for these."""
    keep_refused: int
    """``keep_refused`` for these."""
    include: tuple[str, ...] = ()
    """Globs for files to include."""
    host_zone: str | None = None
    """The host's time zone if schedules follow it, because the file sets no ``timezone``; else None."""
    read: dict[str, Stamp] = field(default_factory=dict)
    """The states of all files when they were read, by path, including files that values refer to."""
    tasks: dict[str, Task] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    notifiers: dict[str, Notifier] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    hooks: dict[str, Hook] = field(default_factory=dict)
    exports: dict[str, Export] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    """Sizes of the slots by name."""
    calendars: dict[str, Calendar] = field(default_factory=dict)
    """The calendars by name, without ``weekend``."""
    windows: dict[str, WindowDefinition] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    """Warnings about valid settings that are probably not intended."""
