"""The scheduler without its process, with a store and a root that answer on the test's command."""

import os
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from store.daemon_values import get_meta
from store.database import Database, open_writer
from store.errors import DatabaseUnusable, StoreError
from store.runs.ids import new_ulid
from store.runs.writes import Run, get_run, open_approvals, unfinished_runs
from store.store_thread import StoreThread
from store.tasks import upsert_task
from supervisor.config.load import load
from supervisor.host.clock import Clock
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import PROTOCOL, DaemonSettings, Exited
from supervisor.ipc.probe_request import ProbeAnswer, ProbeRequest
from supervisor.scheduler.control.external_runs import ExternalRuns
from supervisor.scheduler.control.window_operations import WINDOWS, windows_of
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import CommitListener, Committer
from supervisor.scheduler.flows.executor import Flows
from supervisor.scheduler.flows.open_flows import read_open_flows
from supervisor.scheduler.loop.daemon_state import DaemonState
from supervisor.scheduler.loop.event_log import EventLog
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedures
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.loop.user_lookup import UserLookup
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.runs.conditions import TaskConditions
from supervisor.scheduler.runs.gates import Gates
from supervisor.scheduler.runs.live_units import Due, LiveRun, RunRequest, Unit
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.services.service_controller import ServiceController
from supervisor.scheduler.services.watcher_client import OnAnswer, WatcherClient
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns
from supervisor.scheduler.startup_shutdown.take_over import TakeOver, make_units

Done = Callable[[Any], None]


class Store:
    """A store thread that does each job on the test's command."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.jobs: list[tuple[Callable[[Database], Any], Done]] = []
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._bell

    def submit(self, run: Callable[[Database], Any], done: Done) -> None:
        self.jobs.append((run, done))

    def work(self) -> None:
        """Do the first job."""
        run, done = self.jobs.pop(0)
        result: Any
        try:
            with self.database.transaction():
                result = run(self.database)
        except (StoreError, OSError) as err:
            result = err
        done(result)

    def fail(self, error: BaseException) -> None:
        """Let the first job fail."""
        self.jobs.pop(0)[1](error)

    def work_all(self) -> None:
        while self.jobs:
            self.work()

    def close(self) -> None:
        os.close(self._bell)
        self.database.close()


class _Announcer:
    def announce(self, *_: object) -> None:
        pass

    def ring_at_round_end(self) -> None:
        pass


@dataclass
class Commits(CommitListener):
    """Calls the functions that a test sets."""

    failed: Callable[[BaseException], None] = lambda _error: None
    unusable: Callable[[DatabaseUnusable], None] = lambda _error: None
    stored: Callable[[], None] = lambda: None

    def storing_failed(self, error: BaseException) -> None:
        self.failed(error)

    def database_unusable(self, error: DatabaseUnusable) -> None:
        self.unusable(error)

    def changes_stored(self) -> None:
        self.stored()


class Root:
    """Keeps the requests sent to the root."""

    protocol = PROTOCOL

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.held: dict[tuple[str, str], socket.socket] = {}
        """The listening sockets that it holds, by service and name."""
        self.requests: dict[str, dict[str, Any]] = {}

    def send(self, frame: dict[str, Any], passed: socket.socket | None = None) -> None:
        self.sent.append(frame)
        if passed is not None:
            self.held[frame["service"], frame["name"]] = passed
        elif frame["op"] == "release":
            self.held.pop((frame["service"], frame["name"])).close()
        if "spawn" in frame:
            self.requests[frame["spawn"]["run"]] = frame["spawn"]

    def request(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Return the request of a ``spawn`` message, which may refer to an announced one."""
        return frame["spawn"] if "spawn" in frame else self.requests[frame["run"]]

    def take(self, op: str) -> list[str]:
        """Remove the frames of this kind and return their run ids."""
        frames = [frame for frame in self.sent if frame["op"] == op]
        self.sent = [frame for frame in self.sent if frame["op"] != op]
        return [self.request(frame)["run"] if op == "spawn" else frame["run"] for frame in frames]


class Watcher(WatcherClient):
    """Keeps the requests to the watcher, so that a test can answer them."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[ProbeRequest, OnAnswer]] = {}

    def watch(self, request: ProbeRequest, on_answer: OnAnswer) -> None:
        self.open[request.key] = request, on_answer

    def forget(self, key: str) -> None:
        self.open.pop(key, None)

    def says(self, answer: ProbeAnswer) -> None:
        """Report the result of a probe."""
        self.open[answer.key][1](answer)


class Bench:
    """A run engine and a service controller with a configuration."""

    make_user_lookup: Callable[[Loop], UserLookup] = UserLookup
    """Makes the lookup of users for the next scheduler."""

    def __init__(self, directory: Path, text: str, clock: Clock | None = None) -> None:
        self._given_clock = clock
        config_path = directory / "ringward.toml"
        config_path.write_text(text)
        config_path.chmod(0o600)
        settings = DaemonSettings(
            daemon_id="D",
            data_dir=str(directory),
            runtime_dir=str(directory),
            config_path=str(config_path),
            listen=[],
            http_socket="",
            workers=1,
            shutdown_timeout_ms=1,
            log_level="error",
            password="",
            password_ephemeral=False,
            token="token",
            started_at=1,
        )
        self.settings = settings
        self.log = Log("test", "error")
        self.root = Root()
        self.store = Store(open_writer(settings.database))
        self.config = load(str(config_path))
        self.take_up(first=True)
        for unit in self.units.values():
            upsert_task(self.store.database, unit.name, unit.definition.kind, "{}")

    def clock_stepped(self, by_ms: int) -> None:
        """Follow a step of the wall clock."""

    def queued(self, lost: dict[str, int]) -> None:
        """Deliver new messages."""

    def take_up(self, *, first: bool) -> None:
        """Start a scheduler from the stored state, without the memory of the earlier one."""
        self.loop = Loop(self._given_clock, self.clock_stepped)
        store, event_log = cast(StoreThread, self.store), cast(EventLog, _Announcer())
        self.commits = Commits()
        self.committer = Committer(self.loop, store, event_log, self.log, self.commits)
        self.windows = windows_of(self.config, get_meta(self.store.database, WINDOWS))
        self.notifications = Notifications(self.config, self.queued, self.windows)
        self.connection = root = cast(RootConnection, self.root)
        self.daemon = DaemonState(self.settings, first=first)
        self.core = Core(self.loop, self.daemon, self.committer, self.log, Procedures())
        self.user_lookup = self.make_user_lookup(self.loop)
        self.engine = RunEngine(self.core, root, self.notifications, self.user_lookup)
        self.engine.configure(self.config)
        self.watcher = Watcher()
        self.controller = ServiceController(
            self.core, self.engine, self.user_lookup, self.watcher, self.notifications, root
        )
        self.units: dict[str, Unit] = make_units(self.store.database, self.config, first=first)
        self.controller.dependency_gate.know(self.units, {})
        flows = Flows(self.core, self.engine, self.units, read_open_flows(self.store.database))
        conditions = TaskConditions(self.core, self.engine, self.user_lookup, self.watcher)
        gates = Gates(self.core, self.engine, self.units, self.notifications)
        self.engine.observers.extend((conditions, gates))
        self.external = ExternalRuns(self.core, self.engine, self.units, self.config)
        self.engine.connect(self.controller, flows=flows, conditions=conditions, external=self.external)

    def restart(self, running: Collection[LiveRun] = (), exits: Collection[Exited] = (), again: bool = False) -> None:
        """Start the next scheduler; the root has the given runs."""
        self.take_up(first=False)
        self.reconcile(running, exits, again=again)

    def reconcile(
        self, running: Collection[LiveRun] = (), exits: Collection[Exited] = (), *, again: bool = False
    ) -> None:
        """Take over the unfinished runs from the store and from the root."""
        at_root = {run.id: {"run": run.id, "started_at": self.loop.now_ms(), "cause": None} for run in running}
        for run_id, instance in at_root.items():
            instance["origin"] = self.root.requests[run_id]["origin"]
        known_runs = KnownRuns(
            unfinished_runs(self.store.database),
            running=at_root,
            exits=[*exits],
            ending=False,
            again=again,
            approvals=open_approvals(self.store.database),
        )
        root = cast(RootConnection, self.root)
        with self.committer.changing() as change:
            take_over = TakeOver(self.core, self.engine, self.controller, root, self.units)
            take_over.reconcile(known_runs, change)
        self.store.work_all()

    def trigger(self, name: str, by: str | None = None, at: int | None = None) -> LiveRun:
        unit = self.units[name]
        assert unit.task is not None
        change = self.committer.change()
        run = self.engine.create_task_run(
            unit,
            unit.task,
            change,
            RunRequest(trigger="api", run_id=new_ulid(change.now_ms), by=by, due=None if at is None else Due("at", at)),
        )
        self.committer.commit(change)
        return run

    def stop(self, run: LiveRun, cause: str = "stop") -> None:
        change = self.committer.change()
        self.engine.stop(run, change, cause=cause)
        self.committer.commit(change)

    def started(self, run_id: str) -> None:
        change = self.committer.change()
        self.engine.started(run_id, change.now_ms, change)
        self.committer.commit(change)

    def exited(self, run_id: str, *, status: int = 0, ran_ms: int = 0, cause: str | None = None) -> None:
        change = self.committer.change()
        at = change.now_ms
        exited = Exited(run=run_id, status=status, cause=cause, started_at=at - ran_ms, ended_at=at)
        self.engine.exited(exited, change)
        self.committer.commit(change)

    def row(self, run: LiveRun) -> Run:
        stored_run = get_run(self.store.database, run.id)
        assert stored_run is not None
        return stored_run

    def close(self) -> None:
        for held in self.root.held.values():
            held.close()
        self.store.close()
