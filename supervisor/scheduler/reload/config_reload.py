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

import os
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta

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
from supervisor.schedule.calendars import WEEKEND
from supervisor.scheduler.control.control_socket import (
    Answer,
    Arguments,
    RequestEntry,
    done,
    operation,
    refused,
    shutting_down,
)
from supervisor.scheduler.core import Core
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedure, Refused, Turn
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.reload.active_config import ActiveConfig, ResolvedConfig
from supervisor.scheduler.reload.daemon_settings import feasible, for_the_api, resolve, unchangeable
from supervisor.scheduler.reload.reload_report import Report, report, summary
from supervisor.scheduler.reload.unit_changes import UnitChanges
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown
from supervisor.startup.advice import advised_soon

_AT_NEXT_START = "the daemon is shutting down: the changes take effect at its next start"


def read_again(path: str, settings: DaemonSettings) -> ResolvedConfig:
    """Read the configuration for a daemon that runs with `settings`.

    Raises:
        ConfigError: the configuration is invalid.
        CannotChange: it is valid, but requires a restart of the daemon.
    """
    config = load(path)
    desired = resolve(config, settings)
    problems = unchangeable(config, settings, desired)
    if problems:
        raise CannotChange(problems)
    return ResolvedConfig(config, feasible(settings, desired))


class CannotChange(ConfigError):
    """The configuration is valid, but requires a restart of the daemon."""


class ReloadRequest(Arguments):
    """A request to reload."""

    by: str
    """The requester."""
    dry_run: bool
    """Whether to report the changes without applying them."""


class _YearOfCalendars(Arguments):
    year: Annotated[int, Meta(ge=1970, le=2200)]


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
    advice: list[Problem]
    """Warnings about what runs need and this host lacks."""


class Reloader:
    """Carries out reloads, one at a time.

    Args:
        units: changes tasks and services.
        active: the active configuration.
        apply: applies all other settings.
    """

    def __init__(
        self,
        core: Core,
        units: UnitChanges,
        active: ActiveConfig,
        apply: Callable[[ResolvedConfig, ConfigDiff], None],
    ) -> None:
        self._daemon = core.daemon
        self._committer = core.committer
        self._log = core.log
        self._units = units
        self._active = active
        self._apply = apply
        self._turn = Turn()

    @operation(_YearOfCalendars)
    def calendars(self, request: _YearOfCalendars, _entry: RequestEntry) -> Answer:
        """Answer with the calendars and their closed days in a year, as dates with names."""
        calendars = *self._active.resolved.config.calendars.values(), WEEKEND
        return done(
            calendars=[
                {
                    "name": calendar.name,
                    "country": calendar.country,
                    "subdivision": calendar.subdivision,
                    "days": [[day.isoformat(), name] for day, name in calendar.days(request.year)],
                }
                for calendar in calendars
            ]
        )

    @operation(ReloadRequest)
    def reload(self, request: ReloadRequest, entry: RequestEntry) -> Procedure[Answer]:
        """Read the files and apply the differences; answer with the report after everything is stored.

        If a shutdown begins after the definitions were stored, a warning in the report says so.

        A refusal has the status 422 if the configuration is invalid, and 409 if it requires a restart of the daemon. It
        has 503 if the files cannot be read, the database cannot be written, or the daemon is shutting down.
        """
        yield self._turn.take
        try:
            now = self._active.resolved
            loaded = yield self._active.files.work(lambda: _compared(now, read_again(now.config.path, now.settings)))
            if isinstance(loaded, BaseException) or self._daemon.ending:
                return self._refusal(request, loaded)
            new, difference, shown, advice = loaded
            warnings = [*new.config.warnings, *advice]
            replaces_api = for_the_api(now.settings, new.settings)
            planned = report(difference, self._units.units, warnings, replaces_api=replaces_api)
            if request.dry_run:
                return done(**planned)
            yield from self._active.copy(new, applied=False)
            change = self._committer.change()
            self._store_definitions(new.config, difference, shown, change)
            entry.record(change)
            try:
                yield self._committer.stored_or_refused(change)
            except Refused:
                self._active.applied()  # restores the copy of the previous configuration
                raise
            # From here on a refusal would be wrong, because it promises that nothing was changed.
            tasks = [changed for changed in difference.changed if isinstance(changed.new, Task)]
            last_change = yield from self._units.redefine_tasks(tasks)
            if last_change is None:
                self._log.warning(f"the configuration was reloaded ({request.by}), but {_AT_NEXT_START}")
                return done(**{**planned, "warnings": [*planned["warnings"], _AT_NEXT_START]})
            self._change_memory(request, loaded, planned, last_change)
            yield self._committer.stored(last_change)
            self._apply(new, difference)
            self._active.applied()
            return done(**planned)
        finally:
            self._turn.leave()

    def _refusal(self, request: ReloadRequest, error: BaseException | _LoadedConfig) -> Answer:
        """Return the answer if the files cannot be used, or the daemon is shutting down."""
        if not isinstance(error, BaseException):
            return shutting_down()
        if not isinstance(error, ConfigError):
            self._log.error(f"cannot read the configuration: {error!r}")
            return refused(503, f"cannot read the configuration: {error}")
        if not request.dry_run:
            self._log.error(f"the configuration was not reloaded ({request.by}); the previous one stays active:")
            for line in str(error).split("\n"):
                self._log.error(line)
        count = len(error.problems)
        problems = "1 problem" if count == 1 else f"{count} problems"
        errors = [_error(problem) for problem in error.problems]
        if isinstance(error, CannotChange):
            return refused(409, f"The configuration needs a restart of the daemon: {problems}", errors)
        return refused(422, f"The configuration is invalid: {problems}", errors)

    def _store_definitions(
        self, config: Config, difference: ConfigDiff, shown: dict[tuple[str, str], _Shown], change: Change
    ) -> None:
        for (name, kind), definition in shown.items():
            change.write(upsert_task, name=name, kind=kind, definition=definition.text)
            change.write(set_current, task_name=name, definition=definition.recorded, now_ms=change.now_ms)
        for changed in difference.changed:
            self._units.store_mark(changed, change)
        if difference.removed:
            names = [*config.tasks, *config.services]
            change.write(forget_missing, names)
        for before, _after in difference.turned:
            change.write(update_task, before.name, paused=False, withheld=None, next_run_at=None)

    def _change_memory(self, request: ReloadRequest, loaded: _LoadedConfig, planned: Report, change: Change) -> None:
        """Apply all differences except changed tasks, as part of `change`, the last one of these tasks."""
        new, difference, _shown, advice = loaded
        for gone in (*difference.removed, *(before for before, _after in difference.turned)):
            self._units.remove(gone.name, change)
        for changed in difference.changed:
            if isinstance(changed.new, Service):
                self._units.redefine(changed, change)
        for added in (*difference.added, *(after for _before, after in difference.turned)):
            self._units.add(added, change)
        self._units.start_services(_starting(difference), change)
        self._active.replace(new, advice, change)
        names = {kind: planned[kind] for kind in ("added", "removed")}
        change.announce(
            "config.reloaded", {**names, "changed": [unit["name"] for unit in planned["changed"]], "by": request.by}
        )
        self._log.info(f"the configuration was reloaded ({request.by}): {summary(planned)}")
        for warning in (*new.config.warnings, *advice):
            for line in str(warning).split("\n"):
                self._log.warning(line)


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
    return _LoadedConfig(new, difference, shown, advised_soon(new.config, os.environ))


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
        settings: DaemonSettings,
        log: Log,
        followers: Sequence[Configurable],
        shutdown: Shutdown,
    ) -> None:
        """`settings`: the root's present settings; `followers`: all objects that depend on the configuration."""
        self._loop = loop
        self._root = root
        self._settings = settings
        self._log = log
        self._followers = followers
        self._shutdown = shutdown

    def settings(self, settings: DaemonSettings) -> None:
        """Send the settings to the root if they differ, and apply the settings of the scheduler itself."""
        if settings != self._settings:
            self._root.send(
                {
                    "op": "settings",
                    "boot": settings.to_dict(self._root.protocol),
                    "api": for_the_api(self._settings, settings),
                }
            )
            self._settings = settings
        self._log.set_level(settings.log_level)
        self._shutdown.configure(settings.shutdown_timeout_ms)

    def apply(self, resolved: ResolvedConfig, difference: ConfigDiff) -> None:
        """Apply the configuration that a reload activated."""
        config = resolved.config
        self.settings(resolved.settings)
        for follower in self._followers:
            follower.configure(config)
        if difference.section_has(Effect.SCHEDULER):
            # Exit only in the next round, after the requester is answered. The root then starts the next scheduler.
            self._loop.after(0, self._loop.end)
