"""Reload: read the configuration again, and apply the differences while everything else continues.

::

    read and check the files (in a thread) -> plan -> replace the copy -> store -> change memory -> store -> answer
                  nothing has changed until here ---^

Only one reload takes place at a time:

1. The copy of the active configuration is replaced. If the scheduler dies after that, the next one starts from the new
   copy, compares it with active runs, and so completes the reload.
2. A transaction stores the definitions. If it fails, the previous copy is restored and nothing has changed.
3. Memory changes, and further transactions store the runs that end or start as a result.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from store.runs.definitions import Definition, set_current
from store.tasks import forget_missing, update_task, upsert_task
from supervisor.config.diff import ConfigDiff, diff
from supervisor.config.keys import Effect
from supervisor.config.load import load
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import ConfigError, Problem
from supervisor.config.public_definition import definition_text, recorded_definition
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.control.socket_operation import (
    Arguments,
    Reply,
    done,
    operation,
    refused,
    shutting_down,
    unavailable,
)
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.loop.daemon_state import DaemonState
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.reload.active_config import ActiveConfig, ResolvedConfig
from supervisor.scheduler.reload.daemon_settings import feasible, for_the_api, resolve, unchangeable
from supervisor.scheduler.reload.reload_report import Report, report, summary
from supervisor.scheduler.reload.unit_changes import UnitChanges
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown

_AT_NEXT_START = "the daemon is shutting down: the changes take effect at its next start"


def read_again(path: str, boot: DaemonSettings) -> ResolvedConfig:
    """Read the configuration for a daemon that runs with `boot`.

    Raises:
        ConfigError: the configuration is invalid.
        CannotChange: it is valid, but requires a restart of the daemon.
    """
    config = load(path)
    desired = resolve(config, boot)
    problems = unchangeable(config, boot, desired)
    if problems:
        raise CannotChange(problems)
    return ResolvedConfig(config, feasible(boot, desired))


class CannotChange(ConfigError):
    """The configuration is valid, but requires a restart of the daemon."""


class ReloadRequest(Arguments):
    """A request to reload."""

    by: str
    """The requester."""
    dry_run: bool
    """Whether to report the changes without applying them."""


class _Request(NamedTuple):
    by: str
    dry_run: bool
    reply: Reply


class _Shown(NamedTuple):
    """The public forms of a definition."""

    text: str
    recorded: Definition


class _LoadedConfig(NamedTuple):
    """A configuration that was read, with results that take long to compute for thousands of tasks."""

    new: ResolvedConfig
    difference: ConfigDiff
    shown: dict[tuple[str, str], _Shown]
    """Public definitions of new and changed units, by name and kind."""


class Reloader:
    """Carries out reloads, one at a time.

    Args:
        units: changes tasks and services.
        active: the active configuration.
        apply: applies all other settings.
    """

    def __init__(
        self,
        daemon: DaemonState,
        committer: Committer,
        units: UnitChanges,
        active: ActiveConfig,
        apply: Callable[[ResolvedConfig, ConfigDiff], None],
        log: Log,
    ) -> None:
        self._daemon = daemon
        self._committer = committer
        self._units = units
        self._active = active
        self._apply = apply
        self._log = log
        self._requests: deque[_Request] = deque()

    @operation(ReloadRequest)
    def reload(self, request: ReloadRequest, reply: Reply) -> None:
        """Read the files and apply the differences; answer with the report after everything is stored.

        If a shutdown begins after the definitions were stored, a warning in the report says so.

        A refusal has the status 422 if the configuration is invalid, and 409 if it requires a restart of the daemon. It
        has 503 if the files cannot be read, the database cannot be written, or the daemon is shutting down.
        """
        self._requests.append(_Request(request.by, request.dry_run, reply))
        if len(self._requests) == 1:
            self._next()

    # One request, step by step.

    def _next(self) -> None:
        now = self._active.resolved
        self._active.files.submit(lambda: _compared(now, read_again(now.config.path, now.boot)), self._was_read)

    def _answer(self, answer: dict[str, object]) -> None:
        self._requests.popleft().reply(answer)
        if self._requests:
            self._next()

    def _was_read(self, loaded: _LoadedConfig | BaseException) -> None:
        request = self._requests[0]
        if isinstance(loaded, ConfigError):
            self._refuse(request, loaded)
        elif isinstance(loaded, BaseException):
            self._log.error(f"cannot read the configuration: {loaded!r}")
            unavailable(self._answer, "cannot read the configuration")(loaded)
        elif self._daemon.ending:
            self._answer(shutting_down())
        else:
            self._plan(request, loaded)

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

    def _plan(self, request: _Request, read: _LoadedConfig) -> None:
        new, difference, shown = read
        replaces_api = for_the_api(self._active.resolved.boot, new.boot)
        planned = report(difference, self._units.units, new.config.warnings, replaces_api=replaces_api)
        if request.dry_run:
            self._answer(done(**planned))
            return

        def not_stored(error: BaseException) -> None:
            self._active.applied()
            unavailable(self._answer)(error)

        def store() -> None:
            with self._committer.changing(not_stored) as change:
                self._store_definitions(new.config, difference, shown, change)
                # An empty change would be dropped with its effects, but this one has an effect and so is not empty.
                change.then(lambda: self._activate(request, new, difference, planned))

        self._active.copy(new, applied=False, then=store)

    def _store_definitions(
        self, config: Config, difference: ConfigDiff, shown: dict[tuple[str, str], _Shown], change: Change
    ) -> None:
        for (name, kind), definition in shown.items():
            change.write(partial(upsert_task, name=name, kind=kind, definition=definition.text))
            change.write(partial(set_current, task_name=name, definition=definition.recorded, now_ms=change.now_ms))
        for changed in difference.changed:
            self._units.store_mark(changed, change)
        if difference.removed:
            names = [*config.tasks, *config.services]
            change.write(lambda db: forget_missing(db, names))
        for before, _after in difference.turned:
            change.write(partial(update_task, name=before.name, paused=False, next_run_at=None))

    def _activate(self, request: _Request, new: ResolvedConfig, difference: ConfigDiff, planned: Report) -> None:
        """Redefine the changed tasks, then apply all other differences.

        If a shutdown begins meanwhile, the rest is left to the next daemon. A refusal would be wrong, because it
        promises that nothing was changed, and the definitions are stored.
        """

        def redefined(change: Change | None) -> None:
            if change is None:
                self._log.warning(f"the configuration was reloaded ({request.by}), but {_AT_NEXT_START}")
                self._answer(done(**{**planned, "warnings": [*planned["warnings"], _AT_NEXT_START]}))
            else:
                self._complete(request, new, difference, planned, change)

        self._units.redefine_tasks([change for change in difference.changed if isinstance(change.new, Task)], redefined)

    def _complete(
        self, request: _Request, new: ResolvedConfig, difference: ConfigDiff, planned: Report, change: Change
    ) -> None:
        """Apply all differences except changed tasks, as part of `change`, the last one of these tasks."""
        for gone in (*difference.removed, *(before for before, _after in difference.turned)):
            self._units.remove(gone.name, change)
        for changed in difference.changed:
            if isinstance(changed.new, Service):
                self._units.redefine(changed, change)
        for added in (*difference.added, *(after for _before, after in difference.turned)):
            self._units.add(added, change)
        self._units.start_services(_starting(difference), change)
        self._active.replace(new, change)
        names = {kind: planned[kind] for kind in ("added", "removed")}
        change.announce(
            "config.reloaded", {**names, "changed": [unit["name"] for unit in planned["changed"]], "by": request.by}
        )
        self._log.info(f"the configuration was reloaded ({request.by}): {summary(planned)}")
        for warning in new.config.warnings:
            for line in str(warning).split("\n"):
                self._log.warning(line)
        change.then(lambda: self._end(new, difference, planned))
        self._committer.commit(change)

    def _end(self, new: ResolvedConfig, difference: ConfigDiff, planned: Report) -> None:
        self._apply(new, difference)
        self._active.applied()
        self._answer(done(**planned))


def _starting(difference: ConfigDiff) -> list[str]:
    """Return the names of the services that the reload starts or restarts."""
    again = (changed.new for changed in difference.changed if changed.has(Effect.RESTART))
    new = (*difference.added, *(after for _before, after in difference.turned), *again)
    return [unit.name for unit in new if isinstance(unit, Service)]


def _compared(now: ResolvedConfig, new: ResolvedConfig) -> _LoadedConfig:
    difference = diff(now.config, new.config)
    definitions = (
        *difference.added,
        *(changed.new for changed in difference.changed),
        *(after for _before, after in difference.turned),
    )
    shown: dict[tuple[str, str], _Shown] = {
        (definition.name, definition.kind): _Shown(definition_text(definition), recorded_definition(definition))
        for definition in definitions
    }
    return _LoadedConfig(new, difference, shown)


def _error(problem: Problem) -> dict[str, object]:
    text = str(problem)
    position = problem.file
    for number in (problem.line, problem.column):
        if number is not None:
            position += f":{number}"
    location = f"{position}: {problem.key}" if problem.key else position
    return {"location": location, "message": text.removeprefix(f"{location}: "), "value": problem.to_dict()}


class Configurable(Protocol):
    """An object that depends on the configuration."""

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""


class ConfigApplier:
    """Applies the settings of a configuration that do not belong to tasks and services."""

    def __init__(
        self,
        loop: Loop,
        root: RootConnection,
        boot: DaemonSettings,
        log: Log,
        followers: Sequence[Configurable],
        shutdown: Shutdown,
    ) -> None:
        """`boot`: the root's present settings; `followers`: all objects that depend on the configuration."""
        self._loop = loop
        self._root = root
        self._boot = boot
        self._log = log
        self._followers = followers
        self._shutdown = shutdown

    def settings(self, boot: DaemonSettings) -> None:
        """Send the settings to the root if they differ, and apply the settings of the scheduler itself."""
        if boot != self._boot:
            self._root.send(
                {"op": "settings", "boot": boot.to_dict(self._root.protocol), "api": for_the_api(self._boot, boot)}
            )
            self._boot = boot
        self._log.set_level(boot.log_level)
        self._shutdown.configure(boot.shutdown_timeout_ms)

    def apply(self, resolved: ResolvedConfig, difference: ConfigDiff) -> None:
        """Apply the configuration that a reload activated."""
        config = resolved.config
        self.settings(resolved.boot)
        for follower in self._followers:
            follower.configure(config)
        if difference.section_has(Effect.SCHEDULER):
            # Exit only in the next round, after the requester is answered. The root then starts the next scheduler.
            self._loop.after(0, self._loop.end)
