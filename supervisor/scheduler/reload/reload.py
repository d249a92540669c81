"""Reload: read the configuration again and apply the differences while everything else continues.

::

    files -> read, checked, settled (thread) -> plan -> copied -> stored -> memory -> stored -> answer
             nothing is changed until here ------^

Only one reload runs at a time. The copy of the active configuration is written first. If the scheduler dies later, the
next one starts from that copy, compares it with active runs, and so completes the reload. The first transaction stores
the definitions; if it fails, the previous copy is restored and nothing has changed. Then memory follows, and the second
transaction stores the runs that this ends or starts.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from store.daemon_values import set_meta
from store.tasks import forget_missing, update_task, upsert_task
from supervisor.config.diff import Difference, UnitChange, diff
from supervisor.config.files.stamps import has_same_zone
from supervisor.config.keys import Effect
from supervisor.config.load import load
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import ConfigError, Problem
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Boot
from supervisor.scheduler.control.control_socket import Reply, done, refused
from supervisor.scheduler.control.unit_view import definition_text
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.reload import last_good
from supervisor.scheduler.reload.config_files import ConfigFiles
from supervisor.scheduler.reload.daemon_settings import feasible, for_the_api, resolve, unchangeable
from supervisor.scheduler.reload.reload_report import Report, report, summary
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from supervisor.scheduler.runs.run_engine import RunEngine
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from supervisor.scheduler.services.service_controller import NOT_CONFIGURED, ServiceController
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown

_SLICE = 200
"""Number of tasks to redefine in one turn of the loop."""
INFO = "info"
"""Name in the store of the facts about the configuration."""


@dataclass(frozen=True)
class ResolvedConfig:
    """A configuration and its resolved daemon settings."""

    config: Config
    boot: Boot


def read_again(path: str, boot: Boot) -> ResolvedConfig:
    """Read the configuration for a daemon that runs with `boot`.

    Raises:
        ConfigError: the configuration is not valid.
        CannotChange: it is valid, but needs a restart of the daemon.
    """
    config = load(path)
    wanted = resolve(config, boot)
    problems = unchangeable(config, boot, wanted)
    if problems:
        raise CannotChange(problems)
    return ResolvedConfig(config, feasible(boot, wanted))


class CannotChange(ConfigError):
    """The configuration is valid, but needs a restart of the daemon."""


class _Request(NamedTuple):
    by: str
    dry_run: bool
    reply: Reply


class _Found(NamedTuple):
    """A configuration that was read, and all results that take long to compute for thousands of tasks."""

    new: ResolvedConfig
    difference: Difference
    texts: dict[tuple[str, str], str]
    """Public definitions as JSON, by name and kind."""


class Reloader:
    """Owns the active configuration, and activates others.

    Args:
        files: reads and watches the files.
        units: all configured units; shared, not copied.
        info: facts about the configuration; shared, not copied.
        apply: applies settings outside of tasks and services.
        resolved: the active configuration and its daemon settings.
        leaving: removed tasks with active runs, by name.
    """

    def __init__(
        self,
        loop: Loop,
        engine: RunEngine,
        controller: ServiceController,
        scheduled_starts: ScheduledStarts,
        notifications: Notifications,
        files: ConfigFiles,
        units: dict[str, Unit],
        info: dict[str, Any],
        log: Log,
        *,
        apply: Callable[[ResolvedConfig, Difference], None],
        resolved: ResolvedConfig,
        leaving: Mapping[str, Unit],
    ) -> None:
        self._loop = loop
        self._engine = engine
        self._committer = engine.committer
        self._daemon = engine.daemon
        self._controller = controller
        self._scheduled_starts = scheduled_starts
        self._notifications = notifications
        self._files = files
        self._units = units
        self._info = info
        self._log = log
        self._apply = apply
        self._resolved = resolved
        self._requests: deque[_Request] = deque()
        self._leaving = dict(leaving)
        """Removed tasks with active runs, by name."""

    def command(self, arguments: dict[str, Any], reply: Reply) -> None:
        """Handle the operation ``reload``."""
        self.reload(reply, by=arguments["by"], dry_run=bool(arguments["dry_run"]))

    def reload(self, reply: Reply, *, by: str, dry_run: bool = False) -> None:
        """Read the files and apply the differences.

        Args:
            reply: called with the report after all is stored, or with a refusal: 422 for an invalid configuration, 409
                if it needs a restart of the daemon, 503 if nothing was changed.
            by: the requester.
            dry_run: only report the changes.
        """
        self._requests.append(_Request(by, dry_run, reply))
        if len(self._requests) == 1:
            self._next()

    def files_changed(self) -> None:
        """Report that the configuration is out of date."""
        self._info["config_stale"] = True
        path = self._resolved.config.path
        if has_same_zone(self._resolved.config):
            self._log.warning(f"{path} or a file that it includes was edited; reload to apply the change")
        else:
            before = self._resolved.config.host_zone
            self._log.warning(f"the time zone of the host is no longer {before}; reload to apply it to schedules")
        change = self._committer.change()
        self._store_info(change)
        change.announce("config.stale", {"path": path})
        self._notifications.config_stale(self._resolved.config, change)
        self._committer.commit(change)

    # One request, step by step.

    def _next(self) -> None:
        now = self._resolved
        self._files.submit(lambda: _compared(now, read_again(now.config.path, now.boot)), self._was_read)

    def _answer(self, answer: dict[str, Any]) -> None:
        self._requests.popleft().reply(answer)
        if self._requests:
            self._next()

    def _was_read(self, found: _Found | BaseException) -> None:
        request = self._requests[0]
        if isinstance(found, ConfigError):
            self._refuse(request, found)
        elif isinstance(found, BaseException):
            self._log.error(f"cannot read the configuration: {found!r}")
            self._answer(refused(503, f"Cannot read the configuration: {found}"))
        elif self._daemon.ending:
            self._answer(refused(503, "The daemon is shutting down"))
        else:
            self._plan(request, found)

    def _refuse(self, request: _Request, error: ConfigError) -> None:
        if not request.dry_run:
            self._log.error(f"the configuration was not reloaded ({request.by}); the previous one stays active:")
            for line in str(error).split("\n"):
                self._log.error(line)
        count = len(error.problems)
        problems = "1 problem" if count == 1 else f"{count} problems"
        errors = [_error(problem) for problem in error.problems]
        if isinstance(error, CannotChange):
            self._answer(refused(409, f"The configuration needs a restart of the daemon: {problems}", errors))
        else:
            self._answer(refused(422, f"The configuration is invalid: {problems}", errors))

    def _plan(self, request: _Request, read: _Found) -> None:
        new, difference, texts = read
        replaces_api = for_the_api(self._resolved.boot, new.boot)
        found = report(difference, self._units, replaces_api=replaces_api)
        if request.dry_run:
            self._answer(done(**found))
            return

        def given_up(error: BaseException) -> None:
            self._keep(self._resolved, applied=True)
            self._answer(refused(503, f"The database cannot be written: {error}"))

        def store() -> None:
            change = self._committer.change(given_up)
            self._store_definitions(new.config, difference, texts, change)
            # The change is never empty, so the effect always runs.
            change.then(lambda: self._bring_into_force(request, new, difference, found))
            self._committer.commit(change)

        self._keep(new, applied=False, then=store)

    def _keep(self, resolved: ResolvedConfig, *, applied: bool, then: Callable[[], None] = lambda: None) -> None:
        """Write the copy of the active configuration, then call `then` even if that fails."""

        def kept(error: BaseException | None) -> None:
            if error is not None:
                self._log.warning(f"cannot write the copy of the configuration: {error}")
            then()

        self._files.submit(partial(last_good.keep, resolved.config, resolved.boot, applied=applied), kept)

    def applied(self) -> None:
        """Note in the copy that the root has the settings, so that the next scheduler keeps them."""
        self._keep(self._resolved, applied=True)

    def _store_definitions(
        self, config: Config, difference: Difference, texts: dict[tuple[str, str], str], change: Change
    ) -> None:
        for (name, kind), text in texts.items():
            change.write(partial(upsert_task, name=name, kind=kind, definition=text))
        for changed in difference.changed:
            if changed.has(Effect.SCHEDULE):
                self._store_mark(self._units[changed.new.name], change)
        if difference.removed:
            names = [*config.tasks, *config.services]
            change.write(lambda db: forget_missing(db, names))
        for before, _after in difference.turned:
            name = before.name
            change.write(lambda db, name=name: update_task(db, name, paused=False, next_run_at=None))  # type: ignore[misc]

    def _store_mark(self, unit: Unit, change: Change) -> None:
        """Store a high-water mark, so that a new schedule does not catch up, not even after a restart."""
        self._scheduled_starts.fire_due(unit)
        mark = max(unit.last_instant or 0, change.now_ms)
        change.write(lambda db: update_task(db, unit.name, last_instant=mark))

    def _bring_into_force(self, request: _Request, new: ResolvedConfig, difference: Difference, found: Report) -> None:
        """Redefine changed tasks first, in slices, because there may be thousands."""
        tasks = [changed for changed in difference.changed if isinstance(changed.new, Task)]
        slices = iter([tasks[at : at + _SLICE] for at in range(0, len(tasks), _SLICE)] or [[]])

        def go_on(some: list[UnitChange]) -> None:
            if self._daemon.ending:
                self._answer(refused(503, "The daemon is shutting down"))
                return
            change = self._committer.change()
            for changed in some:
                self._redefine(self._units[changed.new.name], changed, change)
            following = next(slices, None)
            if following is None:
                self._complete(request, new, difference, found, change)
            else:
                self._loop.after(0, lambda: go_on(following))
                self._committer.commit(change)

        go_on(next(slices))

    def _complete(
        self, request: _Request, new: ResolvedConfig, difference: Difference, found: Report, change: Change
    ) -> None:
        """Apply all other differences as part of a change."""
        for gone in (*difference.removed, *(before for before, _after in difference.turned)):
            self._remove(self._units.pop(gone.name), change)
        for changed in difference.changed:
            if isinstance(changed.new, Service):
                self._redefine(self._units[changed.new.name], changed, change)
        for added in (*difference.added, *(after for _before, after in difference.turned)):
            self._add(added, change)
        self._controller.dependency_gate.look_at_all(change)
        for unit in self._starting(difference):
            self._controller.start_needed(unit, change)
        self._resolved = new
        self._files.follow(new.config)
        config = new.config
        self._info.update(
            config_loaded_at=change.now_ms,
            config_warnings=[],
            config_stale=False,
            timezone=config.daemon.timezone,
            tasks=len(config.tasks),
            services=len(config.services),
            undo_window_ms=config.storage.undo_window_ms,
        )
        self._store_info(change)
        names = {kind: found[kind] for kind in ("added", "removed")}
        change.announce(
            "config.reloaded", {**names, "changed": [one["name"] for one in found["changed"]], "by": request.by}
        )
        self._log.info(f"the configuration was reloaded ({request.by}): {summary(found)}")
        change.then(lambda: self._end(new, difference, found))
        self._committer.commit(change)

    def _starting(self, difference: Difference) -> list[Unit]:
        """Return the services that start or restart."""
        again = (changed.new for changed in difference.changed if changed.has(Effect.RESTART))
        new = (*difference.added, *(after for _before, after in difference.turned), *again)
        units = [self._units[one.name] for one in new if isinstance(one, Service)]
        return [unit for unit in units if not unit.stopped]

    def _end(self, new: ResolvedConfig, difference: Difference, found: Report) -> None:
        self._apply(new, difference)
        self.applied()
        self._answer(done(**found))

    def _store_info(self, change: Change) -> None:
        info = dict(self._info)
        change.write(lambda db: set_meta(db, INFO, info))

    # Tasks and services.

    def _remove(self, unit: Unit, change: Change) -> None:
        unit.configured = False
        if unit.service is not None:
            self._controller.remove(unit, change)
            change.write(lambda db: update_task(db, unit.name, rolling=None, fatal_since=None, flapping_since=None))
            return
        self._scheduled_starts.end(unit)
        waiting: list[LiveRun] = [*unit.queue, *unit.waiting.values()]
        for run in waiting:
            self._engine.stop(run, change, by=NOT_CONFIGURED)
        self._leaving = {name: one for name, one in self._leaving.items() if one.active}
        if unit.active:
            self._leaving[unit.name] = unit

    def _redefine(self, unit: Unit, changed: UnitChange, change: Change) -> None:
        definition = changed.new
        if isinstance(definition, Service):
            self._controller.replace(unit, definition, change)
            self._engine.requeue(unit)
            return
        self._scheduled_starts.redefine(unit, definition, change)
        self._engine.requeue(unit)
        self._engine.admit(change)

    def _add(self, definition: Task | Service, change: Change) -> None:
        unit = self._units[definition.name] = Unit(definition)
        if isinstance(definition, Service):
            self._controller.add(unit, change)
            return
        leaving = self._leaving.pop(unit.name, None)
        for run in [] if leaving is None else leaving.active.values():
            # They count for the new task, so that it respects max_concurrent.
            run.unit = unit
            unit.active[run.id] = run
        self._scheduled_starts.begin([unit])


def _compared(now: ResolvedConfig, new: ResolvedConfig) -> _Found:
    difference = diff(now.config, new.config)
    definitions = (
        *difference.added,
        *(changed.new for changed in difference.changed),
        *(after for _before, after in difference.turned),
    )
    return _Found(new, difference, {(one.name, one.kind): definition_text(one) for one in definitions})


def _error(problem: Problem) -> dict[str, Any]:
    text = str(problem)
    place = problem.file
    for number in (problem.line, problem.column):
        if number is not None:
            place += f":{number}"
    location = f"{place}: {problem.key}" if problem.key else place
    return {"location": location, "message": text.removeprefix(f"{location}: "), "value": problem.to_dict()}


class Configurable(Protocol):
    """An object that depends on the configuration."""

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""


class ConfigApplier:
    """Applies a configuration outside of tasks and services."""

    def __init__(
        self,
        loop: Loop,
        root: RootConnection,
        boot: Boot,
        log: Log,
        followers: Sequence[Configurable],
        shutdown: Shutdown,
    ) -> None:
        """`boot`: the settings of the root; `followers`: all objects that depend on the configuration."""
        self._loop = loop
        self._root = root
        self._boot = boot
        self._log = log
        self._followers = followers
        self._shutdown = shutdown

    def settings(self, boot: Boot) -> None:
        """Send changed settings to the root."""
        if boot != self._boot:
            self._root.send(
                {"op": "settings", "boot": boot.to_dict(self._root.protocol), "api": for_the_api(self._boot, boot)}
            )
            self._boot = boot
        self._log.set_level(boot.log_level)
        self._shutdown.configure(boot.shutdown_timeout_ms)

    def apply(self, resolved: ResolvedConfig, difference: Difference) -> None:
        """Apply the configuration that a reload activated."""
        config = resolved.config
        self.settings(resolved.boot)
        for one in self._followers:
            one.configure(config)
        if difference.section_has(Effect.SCHEDULER):
            # The requester is answered first; the root starts the next scheduler at once.
            self._loop.after(0, self._loop.end)
