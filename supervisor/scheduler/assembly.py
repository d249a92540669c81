"""Assembly of the scheduler: one builder per subject, and the dispatch of messages from the root."""

import contextlib
import os
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from store.daemon_values import get_meta, set_meta
from store.database import Database
from store.errors import DatabaseDamaged, DatabaseUnusable, HistoryLost, StoreError
from store.events import Draft
from store.recovery.replaced_files import File
from store.runs.bulk import forget_purged
from store.runs.definitions import set_current
from store.runs.samples import Usage, of_running, store_passes
from store.service_uptime import close_earlier
from store.store_thread import StoreListener, StoreThread
from store.tasks import drop_instances, ended_since, forget_missing, update_task, upsert_task
from supervisor.config.public_definition import definition_text
from supervisor.host.osport import current_boot
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.messages import DaemonSettings, Exited, Message, ProtocolError
from supervisor.ipc.recent_starts import read_run_ids
from supervisor.scheduler.control.access_operations import FAMILIAR, AccessOperations, CertificateReader, HookOperations
from supervisor.scheduler.control.agenda_operations import AgendaOperations
from supervisor.scheduler.control.bulk_jobs import BulkJobs, Progress, last_job
from supervisor.scheduler.control.bulk_operations import BulkOperations
from supervisor.scheduler.control.control_socket import ControlServer, Operations, RequestEntry
from supervisor.scheduler.control.external_runs import ExternalRuns
from supervisor.scheduler.control.rate_limit import TriggerLimit
from supervisor.scheduler.control.run_operations import ApprovalOperations, RunOperations
from supervisor.scheduler.control.unit_operations import PAUSE, DaemonPause, UnitOperations
from supervisor.scheduler.control.window_operations import WINDOWS, WindowOperations, windows_of
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change, CommitListener, Committer
from supervisor.scheduler.database.damage import DamageMonitor
from supervisor.scheduler.database.database_file import DatabaseWatch, forget_all, note_file
from supervisor.scheduler.database.disk_reserve import DiskReserve
from supervisor.scheduler.database.janitor_client import JanitorClient
from supervisor.scheduler.database.opening import TAKEN_UP, Restoration, restored, tell_restored
from supervisor.scheduler.database.removal_clock import STATE, RemovalClock
from supervisor.scheduler.database.retention import RetentionChecks
from supervisor.scheduler.database.samplers import HostSampler, RunSampler
from supervisor.scheduler.export_processes import Exports
from supervisor.scheduler.flows.executor import Flows
from supervisor.scheduler.flows.open_flows import StoredFlows, read_open_flows
from supervisor.scheduler.launchers.jobs import LaunchedJobs
from supervisor.scheduler.loop.daemon_state import DaemonState
from supervisor.scheduler.loop.event_log import EventLog, left_over
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop, RoundLog
from supervisor.scheduler.loop.procedures import Procedure, Procedures, Refused
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.loop.user_lookup import UserLookup
from supervisor.scheduler.notifications.clock_report import ClockReport
from supervisor.scheduler.notifications.heartbeat_urls import Heartbeats
from supervisor.scheduler.notifications.notifications import NotificationOperations, Notifications
from supervisor.scheduler.notifications.notifier_client import NotifierClient
from supervisor.scheduler.notifications.outbox import Outbox
from supervisor.scheduler.notifications.run_alerts import LogReport, RunAlerts
from supervisor.scheduler.notifications.task_promises import TaskPromises
from supervisor.scheduler.reload import last_good
from supervisor.scheduler.reload.active_config import INFO, ActiveConfig, ResolvedConfig
from supervisor.scheduler.reload.config_files import ConfigFiles
from supervisor.scheduler.reload.config_reload import ConfigApplier, Configurable, Reloader, ReloadRequest
from supervisor.scheduler.reload.unit_changes import UnitChanges
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.conditions import TaskConditions
from supervisor.scheduler.runs.failure_output import OutputSearches
from supervisor.scheduler.runs.file_changes import FileChanges
from supervisor.scheduler.runs.gates import Gates
from supervisor.scheduler.runs.live_units import RunRequest, Unit
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.rolling_restart import stored_text
from supervisor.scheduler.services.service_controller import ServiceController
from supervisor.scheduler.services.start_order import start_order
from supervisor.scheduler.services.watcher_client import WatcherClient
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns, read
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown
from supervisor.scheduler.startup_shutdown.take_over import TakeOver, make_units, save_leftover_rings
from supervisor.startup.orphans import end_orphans

_SHUT_DOWN = "shut_down"
"""Name in the store of the start time of the latest daemon that was shut down in order."""


class StartConfig(Struct, frozen=True):
    """The configuration with which a scheduler starts."""

    resolved: ResolvedConfig
    warnings: list[str]
    """A text for each setting of the configuration that could not be applied."""
    applied: bool
    """Whether the root has its settings."""
    read_again: bool
    """Whether it was read from the files, because there was no copy of the active one."""


class StoredState(Struct, frozen=True):
    """The state of the store and the root, read before the store thread takes over the database."""

    known: KnownRuns
    restoration: Restoration | None
    units: dict[str, Unit]
    first: bool
    """Whether no earlier scheduler of this daemon has taken over."""
    earlier: int | None
    """Start time of the daemon whose scheduler took over last; None if there was none."""
    orderly: bool
    """Whether that daemon was shut down."""
    first_event: int
    events: list[Draft]
    """The events with which the ring begins; `first_event` is the number of the first."""
    bulk_job: Progress | None
    clock: dict[str, object] | None
    """State of the removal clock."""
    info: dict[str, object]
    """Facts about the active configuration; empty if it has just become active."""
    familiar: dict[str, int]
    """Clients that have sent an account's right password."""
    ended: dict[str, bool]
    """Whether the latest run of a task succeeded, by name; only tasks that ended since the daemon started."""
    usages: dict[str, Usage]
    flows: StoredFlows
    pause: object
    """The pause of all schedules; None if there is none."""
    windows: object
    """How people opened and closed windows."""


def read_state(
    root: RootConnection, settings: DaemonSettings, start: StartConfig, database: Database, log: RoundLog
) -> StoredState:
    """Read the state of the store and the root; the first scheduler of a daemon also kills orphans."""
    root.ask({"op": "snapshot"})
    restoration = restored(database)
    waiting = frozenset[str]() if restoration is None else restoration.waiting
    known_runs = read(database, root.wait("snapshot"), again=restoration is not None, waiting=waiting)
    # Not the epoch of the root: its earlier schedulers may have exited before they took over.
    earlier = get_meta(database, TAKEN_UP)
    first = earlier != settings.started_at
    orderly = get_meta(database, _SHUT_DOWN) == earlier
    units = make_units(database, start.resolved.config, first=first, running_names=known_runs.running_names)
    if first:
        with database.transaction():
            close_earlier(database, settings.started_at, known_runs.running_names)
        end_orphans(database, settings.daemon_id, known_runs.lost(database), known_runs.cgroups, log)
        save_leftover_rings(database, settings, known_runs, log)
        known_runs = replace(known_runs, first=True, recent_starts=read_run_ids(settings.runtime_dir))
    first_event, events = left_over(database, settings.runtime_dir)
    return StoredState(
        known=known_runs,
        restoration=restoration,
        units=units,
        first=first,
        earlier=earlier,
        orderly=orderly,
        first_event=first_event,
        events=events,
        bulk_job=last_job(database),
        clock=get_meta(database, STATE),
        info={} if first or start.read_again else get_meta(database, INFO, {}),
        familiar=get_meta(database, FAMILIAR, {}),
        ended={} if first else ended_since(database, settings.started_at),
        usages=of_running(database, known_runs.running),
        flows=read_open_flows(database),
        pause=get_meta(database, PAUSE),
        windows=get_meta(database, WINDOWS),
    )


class Scheduler(CommitListener, StoreListener):
    """Builds all parts of the scheduler, connects them, and runs them."""

    def __init__(
        self, root: RootConnection, settings: DaemonSettings, start: StartConfig, log: RoundLog, database: Database
    ) -> None:
        self._root, self._settings, self._log = root, settings, log
        self._config = start.resolved.config
        self._loop = Loop(on_clock_step=self._clock_stepped)
        log.attach(self._loop)
        self._daemon = DaemonState(settings)
        self._end_reported = False
        state = read_state(root, settings, start, database, log)
        self._units = state.units
        self._windows = windows_of(self._config, state.windows)
        self._reserve: DiskReserve | None = None
        self._database_watch: DatabaseWatch | None = None
        self._build_store(database, state)
        self._build_notifications()
        self._build_runs(state)
        self._build_database_monitors()
        self._build_schedules(state)
        self._info = self._information(start, state)
        take_over = self._take_over(state)
        self._start_schedules(state)
        self._exports = Exports(self._loop, settings, self._committer, self._notifications, self._info, log)
        self._exports.configure(self._config)
        self._build_operations(start, state, take_over)
        root.attach(self._loop, self._on_message)
        self._config_applier.settings(start.resolved.settings)
        if not start.applied:
            self._active_config.applied()
        self._active_config.advise()
        root.send({"op": "ready"})

    def _build_store(self, database: Database, state: StoredState) -> None:
        settings = self._settings
        self._store = StoreThread(database, self)
        bell = DoorbellServer(settings.scheduler_bell, settings.token, settings.api_account)
        self._event_log = EventLog(self._loop, settings.runtime_dir, settings.daemon_id, bell, state.first_event)
        self._event_log.announce(state.first_event, state.events)
        self._event_log.ring_at_round_end()
        self._committer = Committer(self._loop, self._store, self._event_log, self._log, self)
        self._core = Core(self._loop, self._daemon, self._committer, self._log, Procedures())

    def _build_notifications(self) -> None:
        config = self._config
        self._notifications = Notifications(config, self._deliver, self._windows)
        self._notifier_client = NotifierClient(self._loop, self._log)
        on_lost = self._notifications.deliveries_lost
        self._outbox = Outbox(self._core, self._notifier_client, on_lost=on_lost)
        self._heartbeats = Heartbeats(self._core, self._notifier_client, config)

    def _build_runs(self, state: StoredState) -> None:
        loop, settings, log, notifications = self._loop, self._settings, self._log, self._notifications
        core, user_lookup = self._core, UserLookup(loop)
        self._engine = engine = RunEngine(core, self._root, notifications, user_lookup)
        self._watcher = watcher = WatcherClient(loop, settings, log)
        self._controller = ServiceController(core, engine, user_lookup, watcher, notifications, self._root)
        self._controller.sockets.know(state.known.sockets)
        self._controller.dependency_gate.know(self._units, state.ended)
        self._jobs = LaunchedJobs(core, user_lookup, watcher, self._root)
        self._promises = TaskPromises(core, notifications, engine.obstacles)
        conditions = TaskConditions(core, engine, user_lookup, watcher)
        gates = Gates(core, engine, self._units, notifications)
        alerts = RunAlerts(core, notifications)
        engine.observers += [alerts, self._heartbeats, self._jobs, self._promises, conditions, gates]
        flows = Flows(core, engine, self._units, state.flows)
        self._external = ExternalRuns(core, engine, self._units, self._config)
        outputs = OutputSearches(loop, settings, watcher, log)
        engine.connect(self._controller, outputs, self._jobs, flows, conditions, self._external)
        engine.configure(self._config)
        self._daemon.ending, self._daemon.first = state.known.ending, state.first
        self._run_sampler = RunSampler(loop, self._committer.commit, os.getppid(), state.known.running, state.usages)
        self._shutdown = Shutdown(
            core, self._root, engine.live, engine.stop, self._controller, settings.shutdown_timeout_ms
        )

    def _build_database_monitors(self) -> None:
        loop, settings, log = self._loop, self._settings, self._log
        self._long_reads = LongReads(loop, settings.database, self._damage_found)
        self._janitor = JanitorClient(loop, settings, self._config.storage, log, self)
        self._damage = DamageMonitor(loop, settings, self._long_reads, log, self)
        if settings.database_url is None:
            self._reserve = DiskReserve(loop, settings.data_dir, self._notifications, log, self._committer)
            self._database_watch = DatabaseWatch(loop, settings, self._committer, self._notifications, log, self.leave)

    def _build_schedules(self, state: StoredState) -> None:
        loop, core, engine, log = self._loop, self._core, self._engine, self._log
        self._bulk = BulkJobs(self._core, self._long_reads, state.bulk_job)
        clock = RemovalClock(loop, current_boot(), state.clock, self._clock_doubted)
        self._retention = RetentionChecks(self._core, self._bulk, self._janitor, self._config, clock)
        self._scheduled_starts = starts = ScheduledStarts(core, engine, self._windows, self._promises)
        self._window_operations = WindowOperations(
            core, self._windows, self._units, starts, engine.stop, self._outbox.send_due
        )
        self._daemon_pause = DaemonPause(core, self._scheduled_starts, self._units, state.pause)
        self._file_changes = FileChanges(core, engine.create_task_run, self._units, self._config)
        self._clock_report = ClockReport(
            self._committer, self._scheduled_starts, self._units, self._notifications, clock, log
        )
        self._log_report = LogReport(engine.live, self._notifications, log)
        self._sampler = HostSampler(loop, clock, self._settings.data_dir, self._running, self._committer.commit)

    def _information(self, start: StartConfig, state: StoredState) -> dict[str, object]:
        """Return the facts about the configuration; if it comes from the copy, stored facts such as its age stay."""
        config = self._config
        unconfirmed = start.read_again or bool(state.info.get("config_unconfirmed"))
        return {
            "pid": os.getpid(),
            "config_path": config.path,
            "config_loaded_at": state.info.get("config_loaded_at", self._loop.now_ms()),
            "config_warnings": [
                *start.warnings,
                *map(str, config.warnings),
                *([last_good.UNCONFIRMED] if unconfirmed else []),
            ],
            "config_advice": state.info.get("config_advice", []),
            "config_unconfirmed": unconfirmed,
            "config_stale": bool(state.info.get("config_stale")),
            "timezone": config.daemon.timezone,
            "tasks": len(config.tasks),
            "services": len(config.services),
            "undo_window_ms": config.storage.undo_window_ms,
            "left_running": state.known.left_running,
        }

    def _take_over(self, state: StoredState) -> TakeOver:
        """Reconcile memory, store and root in one transaction.

        A scheduler that dies before the commit leaves the store as it was, and the next one starts over.
        """
        with self._committer.changing() as change:
            tell_restored(state.restoration, change, self._notifications)
            self._store_configuration(change)
            change.write(store_passes, [run.id for run in state.known.unfinished])
            take_over = TakeOver(self._core, self._engine, self._controller, self._root, self._units, self._jobs)
            take_over.reconcile(state.known, change)
            change.write(set_meta, TAKEN_UP, self._settings.started_at)
            self._bulk.announce_unreported(change)
            for unit in self._units.values():
                self._scheduled_starts.lift_pause(unit)
            self._daemon_pause.lift()
            self._start_units(change, first=state.first)
            self._complete_reload(take_over, change)
            self._controller.sockets.settle(self._units)
            if state.first and state.earlier is not None:
                self._notifications.daemon_restarted(change, orderly=state.orderly)
        return take_over

    def _start_schedules(self, state: StoredState) -> None:
        self._outbox.start(self._config, first=state.first)
        self._window_operations.follow()
        if not self._daemon.ending:
            self._scheduled_starts.start(self._units.values())
            self._promises.start(self._units.values())
            self._file_changes.start()
        self._clock_report.start(first=state.first)
        with self._committer.changing() as change:
            change.write(lambda _db: None)
            change.then(self._is_ready)

    def _build_operations(self, start: StartConfig, state: StoredState, take_over: TakeOver) -> None:
        loop, settings, config, core, engine = self._loop, self._settings, self._config, self._core, self._engine
        limit = TriggerLimit(loop.now_s, config.http.trigger_rate)
        many = BulkOperations(core, engine, self._units, self._bulk, self._retention, limit)
        files = ConfigFiles(
            loop,
            config,
            stale=bool(state.info.get("config_stale")),
            on_stale=self._files_changed,
        )
        files.start()
        certificate = CertificateReader(files, config)
        hooks = HookOperations(config)
        agenda = AgendaOperations(core, self._units, self._windows, self._daemon_pause, config)
        followers: list[Configurable] = [certificate, limit, hooks, self._external, self._file_changes, agenda]
        self._build_reload(start, take_over, files, followers)
        operations = Operations(
            core.procedures,
            RunOperations(core, engine, self._units, self._info, self._daemon_state, limit),
            UnitOperations(core, engine.stop, self._controller, self._scheduled_starts, self._units),
            many,
            AccessOperations(loop, self._committer, settings.run_token_key, state.familiar),
            NotificationOperations(self._core),
            self._outbox,
            self._reloader,
            self._damage,
            certificate,
            hooks,
            self._external,
            ApprovalOperations(core, engine, engine.approvals),
            self._clock_report,
            self._daemon_pause,
            self._window_operations,
            agenda,
        )
        self._control = ControlServer(loop, settings.control_socket, settings.token, operations, settings.api_account)

    def _build_reload(
        self,
        start: StartConfig,
        take_over: TakeOver,
        files: ConfigFiles,
        configurable: Sequence[Configurable],
    ) -> None:
        self._config_applier = ConfigApplier(
            self._loop,
            self._root,
            self._settings,
            self._log,
            [
                self._engine,
                self._notifications,
                self._outbox,
                self._heartbeats,
                self._janitor,
                self._retention,
                self._exports,
                self._window_operations,
                *configurable,
            ],
            self._shutdown,
        )
        self._active_config = ActiveConfig(start.resolved, files, self._info, self._core, self._notifications)
        changes = UnitChanges(
            self._core, self._engine, self._controller, self._scheduled_starts, self._units, take_over.leaving
        )
        self._reloader = Reloader(self._core, changes, self._active_config, self._config_applier.apply)

    def _running(self) -> int:
        """Return the number of runs with a process."""
        return sum(
            run.state in (run_transitions.State.RUNNING, run_transitions.State.STOPPING)
            for run in self._engine.at_root()
        )

    def _is_ready(self) -> None:
        self._daemon.ready = True
        with contextlib.suppress(OSError):  # ENOENT: this is not the daemon's first scheduler
            os.unlink(self._settings.starting)

    def _daemon_state(self) -> dict[str, object]:
        """Return the present state of the daemon for the ``info`` operation."""
        no_room = self._reserve is not None and self._reserve.missing
        logs = self._log_report.facts()
        return {
            "storing": self._committer.storing,
            "ready": self._daemon.ready,
            "degraded": self._daemon.starts_wait
            or self._damage.there
            or self._daemon.short_of_memory
            or no_room
            or self._info["config_unconfirmed"]
            or bool(logs["log_problems"]),
            "exports": self._exports.report(),
            **self._clock_report.facts(),
            **self._window_operations.facts(),
            **self._file_changes.report(),
            **logs,
        }

    def logs_may_grow(self) -> bool:
        """Return whether any run is active."""
        return bool(self._engine.live)

    def files_removed(self, last: int, kept_files: list[int]) -> None:
        """Forget the purged runs up to number `last`, except `kept_files`, whose files the janitor could not remove."""
        with self._committer.changing() as change:
            change.write(forget_purged, last, kept_files)

    def database_damaged(self) -> None:
        """Check the database after the janitor found damage."""
        self._damage.suspected()

    def storing_failed(self, error: BaseException) -> None:
        """Raise a notification that changes cannot be stored."""
        self._report_failing_database(str(error))

    def database_unusable(self, error: DatabaseUnusable) -> None:
        """Check a damaged database, or report a replaced one."""
        if isinstance(error, DatabaseDamaged):
            self._damage.on_error(error)
        elif self._database_watch is not None:
            self._database_watch.on_error(error)

    def _deliver(self, dropped: dict[str, int]) -> None:
        self._outbox.queued(dropped)

    def _damage_found(self, error: DatabaseDamaged) -> None:
        self._damage.on_error(error)

    def _clock_doubted(self) -> None:
        self._clock_report.report_doubt()

    def _files_changed(self) -> None:
        self._active_config.files_changed()

    def database_doubted(self, doubted: bool) -> None:
        """Withhold acknowledgements of ended runs while the database may be damaged."""
        self._engine.acknowledgements.hold(doubted)

    def database_lost(self, damage: str, remedy: str) -> None:
        """Report a damaged database that only a user can repair."""
        self._report_failing_database(damage)
        if self._database_watch is not None:
            self._database_watch.lost(HistoryLost(f"({damage})"), remedy)

    def _report_failing_database(self, reason: str) -> None:
        with self._committer.changing() as change:
            self._notifications.database_failing(reason, change)

    def leave(self) -> None:
        """Exit, so that the root starts the next scheduler; do nothing during a shutdown."""
        if not self._daemon.ending:
            self._loop.end()

    def full(self) -> bool:
        """Free the disk reserve; return False if there is none. Runs in the store thread."""
        return self._reserve is not None and self._reserve.release()

    def before_replace(self, file: File) -> None:
        """Record the file that is about to replace a removed database. Runs in the store thread."""
        note_file(self._settings, file)

    def rescued(self, text: str) -> None:
        """Report that removed database files were put back."""
        if self._database_watch is not None:
            self._database_watch.rescued(text)

    def changes_stored(self) -> None:
        """Continue work that waited for the store."""
        if self._reserve is not None:
            self._reserve.check()
        if self._database_watch is not None:
            self._database_watch.stored()
        self._scheduled_starts.go_on()
        self._controller.go_on()
        self._report_end_if_idle()

    def _store_configuration(self, change: Change) -> None:
        for unit in self._units.values():
            self._store_unit(unit, change)
        names, info = list(self._units), dict(self._info)
        change.write(forget_missing, names)
        change.write(set_meta, INFO, info)

    @staticmethod
    def _store_unit(unit: Unit, change: Change) -> None:
        text = definition_text(unit.definition)
        recorded = unit.recorded
        change.write(upsert_task, unit.name, unit.definition.kind, text)
        change.write(set_current, unit.name, recorded, change.now_ms)
        change.write(drop_instances, unit.name, len(unit.instances))
        columns = {"stopped": unit.stopped, "rolling": stored_text(unit.rolling)}
        change.write(update_task, unit.name, **columns)

    def _start_units(self, change: Change, *, first: bool) -> None:
        """Start services; if the daemon has just started, also tasks with ``run_on_start``."""
        if self._daemon.ending:
            return
        boot = current_boot()
        for unit in start_order(self._units.values()):
            if unit.service is not None:
                self._controller.take_over(unit, change)
            elif first:
                self._run_on_start(unit, boot, change)
        self._controller.finish_stops(self._units.values(), change)

    def _run_on_start(self, unit: Unit, boot: str, change: Change) -> None:
        task = unit.task
        if task is None or not task.run_on_start or unit.paused or self._daemon.paused:
            return
        if self._windows.opening(unit.name, change.now_ms) is not None:
            return
        if task.run_on_start == "boot":
            if boot and unit.last_boot == boot:
                return
            unit.last_boot = boot
            change.write(update_task, unit.name, last_boot=boot)
        self._engine.create_task_run(unit, task, change, RunRequest(trigger="startup"))

    def _complete_reload(self, take_over: TakeOver, change: Change) -> None:
        """Restart services with processes of an earlier definition: the previous scheduler died during a reload."""
        for name, indexes in take_over.outdated.items():
            unit = self._units[name]
            under_way = unit.rolling is not None and min(indexes) >= unit.rolling.index
            if not (unit.stopped or under_way or self._daemon.ending):
                self._controller.roll(unit, change)

    def _clock_stepped(self, by_ms: int) -> None:
        self._log.warning(f"the wall clock was set by {by_ms / 1000:+.1f} s")
        self._engine.clock_stepped(by_ms)
        if not self._daemon.ending:
            self._scheduled_starts.clock_stepped(self._units.values(), by_ms)
        self._clock_report.stepped(by_ms)

    def _on_message(self, message: Message) -> None:
        change = self._committer.change()
        op = message["op"]
        if op == "started":
            self._engine.started(message["run"], message["at"], change)
            self._run_sampler.started(message["run"], message["pid"])
        elif op == "exited":
            exited = msgspec.convert(message, Exited)
            # Samples first: the end then adds only the rest of the usage to the sums of the task.
            self._run_sampler.ended(exited.run, change)
            self._engine.exited(exited, change)
            self._retention.ended()
            if exited.lines:
                self._janitor.request()
        elif op == "notified":
            self._on_notified(message)
        elif op == "unknown":
            self._engine.request_unknown(message["run"])
        elif op == "stopping":
            self._jobs.stop_job(message["run"])
        elif op == "log":
            self._log_report.changed(message, change)
        elif op == "left_running":
            self._info["left_running"] = message["runs"]
        elif op in ("memory", "waiting", "starts"):
            self._on_shortage(op, message, change)
        elif op == "reload":
            self._core.procedures.start(self._reload())
        elif op == "shutdown":
            self._shut_down(change)
        else:
            raise ProtocolError(f"the root sent {op}")
        # A start can wait to be stored: until its end is acknowledged, the root can tell a new scheduler of it.
        self._committer.commit(change, can_wait=op == "started")

    def _reload(self) -> Procedure[None]:
        with contextlib.suppress(Refused):
            yield from self._reloader.reload(ReloadRequest(by="SIGHUP", dry_run=False), RequestEntry())
        self._root.send({"op": "reloaded"})

    def _on_notified(self, message: Message) -> None:
        run = self._engine.live.get(message["run"])
        if run is not None:
            self._controller.run_notified(run, message)

    def _on_shortage(self, op: str, message: Message, change: Change) -> None:
        """Handle the root's report that it is short of memory or another resource, or no longer."""
        if op == "memory":
            self._daemon.short_of_memory = message["short"]
            self._notifications.memory(change, short=message["short"])
        elif op == "waiting":
            self._engine.start_waits(message["run"], message["why"], change)
        else:
            self._daemon.starts_wait = message["why"] is not None
            self._notifications.starts_wait(message["waiting"], message["why"], change)

    def _shut_down(self, change: Change) -> None:
        for unit in self._units.values():
            self._scheduled_starts.end(unit)
        self._shutdown.start(self._units.values(), change)
        started_at = self._daemon.settings.started_at
        change.write(set_meta, _SHUT_DOWN, started_at)
        self._loop.after(0, self._report_end_if_idle)

    def _report_end_if_idle(self) -> None:
        if not self._daemon.ending or self._end_reported:
            return
        self._shutdown.go_on()
        if not self._committer.idle:
            return
        if any(run.id not in self._jobs.lost for run in self._engine.at_root()):
            return
        self._end_reported = True
        self._engine.acknowledgements.send()
        self._root.send({"op": "ready_to_end"})

    def run(self) -> None:
        """Run until the root exits."""
        self._loop.run()
        self._janitor.close()
        self._watcher.close()
        self._file_changes.close()
        self._notifier_client.close()
        self._exports.close()
        self._sampler.close()
        self._run_sampler.close()
        self._control.close()
        try:
            self._committer.close()
            self._core.procedures.close()
        except StoreError as err:  # the final checkpoint failed; all acknowledged changes are stored
            self._log.error(f"cannot close the database: {err}")
        self._event_log.close(last=self._daemon.ending)
        if self._daemon.ending:
            forget_all(self._settings)
