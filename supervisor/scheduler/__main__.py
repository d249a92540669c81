"""``python -m supervisor.scheduler --fd N``: started by the root, over whose socketpair it hears and speaks.

Ends when that socket closes. Exit statuses: 0 then; 71 when there is no memory left, or when the database went away or
proved to be damaged while the scheduler started; 73 when it cannot start. With ``--check`` it only tells whether it
could work with the settings on standard input. The root tries again, but a daemon whose very first scheduler cannot
start does not start either.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from dataclasses import replace
from typing import Any

import msgspec

from store.database import Database
from store.errors import Away, Damaged, StoreError, Unusable
from store.meta import get_meta, set_meta
from store.recovery.copies import suspect
from store.runs.samples import of_running, settle_passes
from store.store_thread import StoreThread
from store.tasks import drop_instances, ended_since, forget_missing, update_task, upsert_task
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError
from supervisor.host.osport import current_boot, set_title
from supervisor.ipc.counted import counted
from supervisor.ipc.doorbell import DoorbellServer
from supervisor.ipc.messages import Boot, Exited, Frame, ProtocolError
from supervisor.ipc.recent_starts import begun
from supervisor.later import import_later, settle, unused
from supervisor.scheduler.control.access_operations import CertificateReader
from supervisor.scheduler.control.bulk_jobs import BulkJobs, last_job
from supervisor.scheduler.control.bulk_operations import BulkOperations
from supervisor.scheduler.control.control_socket import ControlServer
from supervisor.scheduler.control.notification_operations import NotificationOperations, NotifierOperations
from supervisor.scheduler.control.rate_limit import TriggerLimit
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.control.unit_view import definition_text
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.database.damage import DamageMonitor
from supervisor.scheduler.database.database_file import DatabaseWatch, forget_all
from supervisor.scheduler.database.disk_reserve import DiskReserve
from supervisor.scheduler.database.janitor_client import JanitorClient
from supervisor.scheduler.database.opening import TAKEN_UP, obstacle, open_database, restored, tell_restored
from supervisor.scheduler.database.removal_clock import STATE, RemovalClock
from supervisor.scheduler.database.retention import Retention
from supervisor.scheduler.database.samplers import HostSampler, RunSampler
from supervisor.scheduler.launchers.jobs import LaunchedJobs
from supervisor.scheduler.loop.event_log import EventLog, left_over
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop, RoundLog
from supervisor.scheduler.loop.root_connection import RootConnection, RootGone
from supervisor.scheduler.notifications.clock_report import ClockReport
from supervisor.scheduler.notifications.heartbeat_urls import Heartbeats
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.notifications.notifier_client import NotifierClient
from supervisor.scheduler.notifications.outbox import Outbox
from supervisor.scheduler.notifications.run_alerts import RunAlerts
from supervisor.scheduler.reload import last_good
from supervisor.scheduler.reload.config_files import ConfigFiles
from supervisor.scheduler.reload.daemon_settings import follow
from supervisor.scheduler.reload.reload import INFO, ConfigApplier, Reloader, ResolvedConfig
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.failure_output import Outputs
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.rolling_restart import stored_text
from supervisor.scheduler.services.service_controller import ServiceController
from supervisor.scheduler.services.start_order import start_order
from supervisor.scheduler.services.watcher_client import WatcherClient
from supervisor.scheduler.startup_shutdown import data_lock
from supervisor.scheduler.startup_shutdown.known_runs import read
from supervisor.scheduler.startup_shutdown.orphans import end_orphans
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown
from supervisor.scheduler.startup_shutdown.take_over import TakeOver, make_units, save_leftover_rings
from supervisor.version import VERSION


def load_ulids() -> None:
    """Load it now: who makes the first id finds it."""
    import_later("importlib.metadata", version=unused)
    importlib.import_module("ulid")
    settle()


EX_OSERR = 71
EX_CANTCREAT = 73
_NOFILE = 65_536
"""Each request of an API worker is a connection."""
_SHUT_DOWN = "shut_down"
"""Name in the store of the start time of the daemon that was shut down last."""


class Scheduler:
    """All parts of the process, connected."""

    def __init__(
        self,
        root: RootConnection,
        boot: Boot,
        found: last_good.Found,
        resolved: ResolvedConfig,
        warnings: list[str],
        log: RoundLog,
        database: Database,
    ) -> None:
        config = resolved.config
        self._root = root
        self._log = log
        self._loop = Loop()
        log.attach(self._loop)
        root.ask({"op": "snapshot"})
        again = restored(database)
        waiting = frozenset[str]() if again is None else again.waiting
        known = read(database, root.wait("snapshot"), again=again is not None, waiting=waiting)
        # A predecessor under the same root may have ended before it got as far as to take up the work.
        earlier = get_meta(database, TAKEN_UP)
        first = earlier != boot.started_at
        orderly = get_meta(database, _SHUT_DOWN) == earlier
        self._units = make_units(database, config, first=first, running_names=known.running_names)
        if first:
            end_orphans(database, boot.daemon_id, known.lost(database), known.cgroups, log)
            save_leftover_rings(database, boot, known, log)
            known = replace(known, begun=begun(boot.runtime_dir))
        first_number, events = left_over(database, boot.runtime_dir)
        last = last_job(database)
        clock_state = get_meta(database, STATE)
        # What people were told of the configuration in force goes on to hold.
        before = (get_meta(database, INFO) or {}) if found.copied else {}
        was_stale = bool(before.get("config_stale"))
        ended = {} if first else ended_since(database, boot.started_at)
        usages = of_running(database, known.running)
        store = StoreThread(database)
        bell = DoorbellServer(boot.scheduler_bell, boot.token, boot.api_account)
        self._event_log = EventLog(self._loop, boot.runtime_dir, boot.daemon_id, bell, first_number)
        self._event_log.announce(first_number, events)
        self._event_log.ring_at_round_end()
        self._committer = Committer(self._loop, store, self._event_log, log)
        notifications = Notifications(config)
        self._engine = RunEngine(self._loop, boot, root, self._committer, notifications, log)
        self._notifications = notifications
        self._notifier_client = NotifierClient(self._loop, log)
        self._outbox = Outbox(self._loop, boot, self._committer, self._notifier_client, config, log)
        self._outbox.on_lost = notifications.deliveries_lost
        notifications.on_queued = self._outbox.queued
        heartbeats = Heartbeats(self._loop, self._committer, self._notifier_client, config, log)
        self._engine.observers = [RunAlerts(self._loop, boot, notifications, self._engine.commit), heartbeats]
        self._committer.on_trouble = lambda error: self._report_failing_database(str(error))
        self._short_of_memory = False
        """The root gets no more."""
        self._starts_wait = False
        """Runs have waited for a minute because the root lacks descriptors, processes or memory."""
        self._reserve: DiskReserve | None = None
        if boot.database_url is None:
            self._reserve = DiskReserve(
                self._loop, boot.data_dir, notifications, log, self._engine.change, self._engine.commit
            )
            store.on_full = self._reserve.release
        self._watcher = WatcherClient(self._loop, boot, log)
        self._controller = ServiceController(self._loop, self._engine, self._watcher, notifications, log, first=first)
        self._controller.dependency_gate.know(self._units, ended)
        self._jobs = LaunchedJobs(self._loop, self._engine, self._watcher, root, log)
        self._engine.observers.append(self._jobs)
        self._engine.connect(self._controller, Outputs(self._loop, boot, self._watcher, log), self._jobs)
        self._shutdown = Shutdown(self._loop, self._engine, self._controller, boot.shutdown_timeout_ms)
        self._janitor = JanitorClient(self._loop, boot, config.storage, log, growing=lambda: bool(self._engine.live))
        reading = LongReads(self._loop, boot.database)
        doubt = self._engine.hold_acknowledgements
        self._damage = DamageMonitor(self._loop, boot, reading, log, doubt, self._report_failing_database, self._leave)
        self._janitor.on_damage = self._damage.suspected
        reading.on_damage = self._damage.met
        self._database_watch: DatabaseWatch | None = None
        if boot.database_url is None:
            self._database_watch = DatabaseWatch(
                self._loop, boot, store, self._engine, self._committer, notifications, log, self._leave
            )
            self._committer.on_unusable = self._unusable
            self._damage.on_lost = self._database_watch.lost
        bulk = BulkJobs(self._loop, self._engine, reading, last)
        removal_clock = RemovalClock(self._loop, current_boot(), clock_state)
        self._retention = Retention(self._loop, self._engine, bulk, self._janitor, config, removal_clock, log)
        self._scheduled_starts = ScheduledStarts(self._loop, self._engine)
        self._clock_report = ClockReport(
            self._engine, self._scheduled_starts, self._units, notifications, removal_clock, log
        )
        self._sampler = HostSampler(self._loop, removal_clock, boot.data_dir, self._running, self._engine.commit)
        self._run_sampler = RunSampler(self._loop, self._engine.commit, os.getppid(), known.running, usages)
        self._end_reported = False
        self._ready = False
        """What was found at the start, and what that led to, is stored."""
        self._info = {**self._information(config, warnings), "config_stale": was_stale}
        if "config_loaded_at" in before:
            self._info["config_loaded_at"] = before["config_loaded_at"]
        self._info["left_running"] = known.left_running
        self._engine.ending = known.ending
        # One transaction: either all of it is done, and nothing of it a second time, or nothing.
        change = self._engine.change()
        tell_restored(again, change, notifications)
        self._store_configuration(change)
        change.write(lambda db: settle_passes(db, [run.id for run in known.unfinished]))
        startup = TakeOver(self._engine, self._controller, root, self._units, log, self._jobs, first=first)
        startup.reconcile(known, change)
        change.write(lambda db: set_meta(db, TAKEN_UP, boot.started_at))
        bulk.announce_unreported(change)
        self._begin(change, first=first)
        self._complete_reload(startup, change)
        if first and earlier is not None:
            notifications.daemon_restarted(change, orderly=orderly)
        self._engine.commit(change)
        self._outbox.begin(first=first)
        self._begin_schedules()
        self._clock_report.begin(first=first)
        settled_down = self._engine.change()
        settled_down.write(lambda _db: None)
        settled_down.then(self._is_ready)
        self._engine.commit(settled_down)
        limit = TriggerLimit(time.monotonic, config.http.trigger_rate)
        commands = RunOperations(self._engine, self._units, self._info, self._tell, limit)
        whole = UnitOperations(self._engine, self._controller, self._scheduled_starts, self._units)
        informing = NotificationOperations(self._engine, self._units, notifications)
        notifying = NotifierOperations(self._engine, self._outbox)
        many = BulkOperations(
            self._loop,
            self._engine,
            self._units,
            reading,
            bulk,
            undo_window_ms=config.storage.undo_window_ms,
            on_deleted=self._retention.deleted,
            limit=limit,
        )
        files = ConfigFiles(self._loop, config, stale=was_stale)
        certificate = CertificateReader(files, config)
        in_force = ConfigApplier(
            self._loop,
            root,
            boot,
            log,
            [notifications, self._outbox, heartbeats, certificate, limit],
            self._janitor,
            self._retention,
            many,
            self._shutdown,
        )
        self._reloader = Reloader(
            self._loop,
            self._engine,
            self._controller,
            self._scheduled_starts,
            notifications,
            files,
            self._units,
            self._info,
            log,
            apply=in_force.apply,
            resolved=resolved,
            leaving=startup.leaving,
        )
        operations = commands.operations() | whole.operations() | informing.operations() | many.operations()
        operations |= notifying.operations() | self._damage.operations() | certificate.operations()
        operations |= self._clock_report.operations()
        operations["reload"] = self._reloader.command
        self._control = ControlServer(self._loop, boot.control_socket, boot.token, operations, boot.api_account)
        self._committer.on_stored = self._stored
        self._loop.on_clock_step = self._clock_stepped
        root.attach(self._loop, self._on_frame, self._loop.end)
        in_force.settings(resolved.boot)
        if not found.applied:
            self._reloader.applied()
        root.send({"op": "ready"})

    def _running(self) -> int:
        """Number of runs that have a process."""
        return sum(
            run.state in (run_transitions.State.RUNNING, run_transitions.State.STOPPING)
            for run in self._engine.live.values()
        )

    def _is_ready(self) -> None:
        self._ready = True

    def _tell(self) -> dict[str, Any]:
        """What only a look tells, besides what is stored."""
        no_room = self._reserve is not None and self._reserve.missing
        return {
            "storing": self._committer.storing and self._ready,
            "degraded": self._starts_wait or self._damage.there or self._short_of_memory or no_room,
            **self._clock_report.found(),
        }

    def _unusable(self, error: Unusable) -> None:
        if isinstance(error, Damaged):
            self._damage.met(error)
        elif self._database_watch is not None:
            self._database_watch.met(error)

    def _report_failing_database(self, why: str) -> None:
        change = self._engine.change()
        self._notifications.database_failing(why, change)
        self._engine.commit(change)

    def _leave(self) -> None:
        """Let another scheduler begin, unless the daemon ends anyway."""
        if not self._engine.ending:
            self._loop.end()

    def _stored(self) -> None:
        if self._reserve is not None:
            self._reserve.look()
        if self._database_watch is not None:
            self._database_watch.stored()
        self._scheduled_starts.go_on()
        self._controller.go_on()
        self._report_end_if_idle()

    def _information(self, config: Config, warnings: list[str]) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "config_path": config.path,
            "config_loaded_at": self._loop.now_ms(),
            "config_warnings": warnings,
            "timezone": config.daemon.timezone,
            "tasks": len(config.tasks),
            "services": len(config.services),
            "undo_window_ms": config.storage.undo_window_ms,
        }

    def _store_configuration(self, change: Change) -> None:
        for unit in self._units.values():
            self._store_unit(unit, change)
        names, info = list(self._units), dict(self._info)
        change.write(lambda db: forget_missing(db, names))
        change.write(lambda db: set_meta(db, INFO, info))

    @staticmethod
    def _store_unit(unit: Unit, change: Change) -> None:
        text = definition_text(unit.definition)
        change.write(lambda db: upsert_task(db, unit.name, unit.definition.kind, text))
        change.write(lambda db: drop_instances(db, unit.name, len(unit.instances)))
        wanted = {"stopped": unit.stopped, "rolling": stored_text(unit.rolling)}
        change.write(lambda db: update_task(db, unit.name, **wanted))

    def _begin(self, change: Change, *, first: bool) -> None:
        """Start what starts with the daemon."""
        if self._engine.ending:
            return
        boot = current_boot()
        for unit in start_order(self._units.values()):
            if unit.service is not None:
                self._controller.begin(unit, change)
            elif first:
                self._run_on_start(unit, boot, change)

    def _run_on_start(self, unit: Unit, boot: str, change: Change) -> None:
        task = unit.task
        if task is None or not task.run_on_start or unit.paused:
            return
        if task.run_on_start == "boot":
            if boot and unit.last_boot == boot:
                return
            unit.last_boot = boot
            change.write(lambda db: update_task(db, unit.name, last_boot=boot))
        self._engine.create_task_run(unit, task, change, trigger="startup")

    def _complete_reload(self, startup: TakeOver, change: Change) -> None:
        """Replace the processes of services that were started under another definition than the present one."""
        for name, indexes in startup.outdated.items():
            unit = self._units[name]
            under_way = unit.rolling is not None and min(indexes) >= unit.rolling.index
            if not (unit.stopped or under_way or self._engine.ending):
                self._controller.roll(unit, change)

    def _begin_schedules(self) -> None:
        if not self._engine.ending:
            self._scheduled_starts.begin(self._units.values())

    def _clock_stepped(self, by_ms: int) -> None:
        self._log.warning(f"the wall clock was set by {by_ms / 1000:+.1f} s")
        if not self._engine.ending:
            self._scheduled_starts.clock_stepped(self._units.values(), by_ms)
        self._clock_report.stepped(by_ms)

    def _on_frame(self, frame: Frame) -> None:
        change = self._engine.change()
        op = frame["op"]
        if op == "started":
            self._engine.started(frame["run"], frame["at"], change)
            self._run_sampler.started(frame["run"], frame["pid"])
        elif op == "exited":
            exited = msgspec.convert(frame, Exited)
            # First what was sampled: what the end adds to the sums of the task is the rest.
            self._run_sampler.ended(exited.run, change)
            self._engine.exited(exited, change)
            self._retention.ended()
            if exited.lines:
                self._janitor.want()
        elif op == "notified":
            run = self._engine.live.get(frame["run"])
            if run is not None:
                self._controller.run_notified(run, frame)
        elif op == "stopping":
            self._jobs.stopping(frame["run"])
        elif op == "log":
            self._engine.log_changed(frame["run"], frame["state"], frame["reason"], change)
        elif op == "left_running":
            self._info["left_running"] = frame["runs"]
        elif op in ("memory", "waiting", "starts"):
            self._on_shortage(op, frame, change)
        elif op == "reload":
            self._reloader.reload(lambda _answer: self._root.send({"op": "reloaded"}), by="SIGHUP")
        elif op == "shutdown":
            self._shut_down(change)
        else:
            raise ProtocolError(f"the root sent {op}")
        # A start is known to the root until its end is stored, and nobody waits for it.
        self._engine.commit(change, can_wait=op == "started")

    def _on_shortage(self, op: str, frame: Frame, change: Change) -> None:
        """Take in that the root lacks something, or has it again."""
        if op == "memory":
            self._short_of_memory = frame["short"]
            self._notifications.memory(change, short=frame["short"])
        elif op == "waiting":
            self._engine.start_waits(frame["run"], frame["why"], change)
        else:
            self._starts_wait = frame["why"] is not None
            self._notifications.starts_wait(frame["waiting"], frame["why"], change)

    def _shut_down(self, change: Change) -> None:
        for unit in self._units.values():
            self._scheduled_starts.end(unit)
        self._shutdown.begin(self._units.values(), change)
        started_at = self._engine.boot.started_at
        change.write(lambda db: set_meta(db, _SHUT_DOWN, started_at))
        self._loop.after(0, self._report_end_if_idle)

    def _report_end_if_idle(self) -> None:
        if not self._engine.ending or self._end_reported:
            return
        self._shutdown.go_on()
        if not self._committer.idle:
            return
        held = (run.id for run in self._engine.live.values() if run.state in run_transitions.HELD_BY_ROOT)
        if any(run_id not in self._jobs.lost for run_id in held):
            return
        self._end_reported = True
        self._engine.acknowledge()
        self._root.send({"op": "ready_to_end"})

    def run(self) -> None:
        """Until the root goes."""
        self._loop.run()
        self._janitor.close()
        self._watcher.close()
        self._notifier_client.close()
        self._sampler.close()
        self._run_sampler.close()
        self._control.close()
        try:
            self._committer.close()
        except StoreError as err:  # a checkpoint fails; what was acknowledged is stored
            self._log.error(f"the database cannot be closed: {err}")
        self._event_log.close(last=self._engine.ending)
        if self._engine.ending:
            forget_all(self._engine.boot)


def check(settings: str) -> int:
    """Say why a scheduler of this version would not work on the database of these settings; returns the exit status."""
    why = obstacle(Boot.from_dict(json.loads(settings)).database)
    if why is not None:
        print(why)
    return 0 if why is None else EX_CANTCREAT


def main() -> int:
    """Run the scheduler; returns the exit status."""
    if sys.argv[1:] == ["--check"]:
        return check(sys.stdin.read())
    load_ulids()
    root = RootConnection(int(sys.argv[2]))
    try:
        boot = root.hello()
    except RootGone:
        return 0
    except ProtocolError as err:
        RoundLog("info").error(f"cannot start: {err}")
        return EX_CANTCREAT
    os.umask(0o077)
    set_title(data_lock.TITLE)
    # SIGTERM to the whole process group of a terminal is for the root, which tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = RoundLog(boot.log_level)
    if root.refusal is not None:
        log.warning(f"the supervisor is of another version than {VERSION} and stays so: {root.refusal}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _NOFILE), hard))
    try:
        lock = data_lock.take(boot.data_dir)
        found = last_good.find(boot, log, first_epoch=root.epoch == 1)
        config = found.config
        database = open_database(boot, config, root, log)
        in_force, warnings = (boot, []) if found.applied else follow(config, boot)
        try:
            scheduler = Scheduler(root, boot, found, ResolvedConfig(config, in_force), warnings, log, database)
        except Away as err:  # it was there a moment ago: the next scheduler waits for it
            log.error(f"another scheduler begins: {err}")
            return EX_OSERR
        except Damaged as err:
            if boot.database_url is not None:
                raise
            log.error(f"the database is damaged; the next scheduler reads all of it: {err}")
            suspect(boot.database)
            return EX_OSERR
    except RootGone:
        if root.is_early("shutdown"):
            forget_all(boot)
        return 0
    except (data_lock.Locked, ConfigError, StoreError, OSError) as err:
        log.error(f"cannot start: {err}")
        return EX_CANTCREAT
    log.info(f"ready: {counted(len(config.tasks), 'task')}, {counted(len(config.services), 'service')}")
    # What is there now stays: looking for garbage among it, again and again, would hold up the loop for milliseconds.
    gc.collect()
    gc.freeze()
    try:
        scheduler.run()
    except MemoryError:
        # Whatever was being done is done by another one, who finds out what that was.
        log.error("there is no memory left, another scheduler begins")
        return EX_OSERR
    finally:
        log.flush()
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
