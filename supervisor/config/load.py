"""Loads a configuration, and checks it as a whole.

Each key is checked against :mod:`supervisor.config.key_tables`. If there are problems, one
:class:`supervisor.config.problems.ConfigError` reports all of them. Otherwise the records are created.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from supervisor.config.calendar_files import MAX_CALENDARS, calendar, named_calendars, unsuitable
from supervisor.config.cross_checks import (
    Found,
    check_conditions,
    check_dependencies,
    check_gates,
    check_hook,
    check_permissions,
    check_promises,
    check_public,
    check_restart_order,
    check_slots,
    check_sockets,
    check_status_page,
    check_tokens,
    check_watching,
    without_match,
)
from supervisor.config.daemon_tables import Daemon, Export, Hook, Http, Notifier, Notify, Route, Storage
from supervisor.config.diff import GONE
from supervisor.config.files.positions import KeyPath
from supervisor.config.files.reading import Source, included, read_source, writer
from supervisor.config.flows.flow_checks import check_flows, unintended
from supervisor.config.host_zone import host_zone
from supervisor.config.key_tables import defaults_of, keys_of
from supervisor.config.keys import REQUIRED
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import ConfigError, InvalidValue, nearest, quoted
from supervisor.config.table_reader import Values
from supervisor.config.unit_reader import FLOWS, UNITS, UnitReader, UnitTable
from supervisor.config.value_records import Launcher
from supervisor.config.value_types.exports import MAX_EXPORTS, check
from supervisor.config.value_types.exposure import unsafe
from supervisor.config.value_types.hook_values import MAX_HOOKS, checked_secret
from supervisor.config.value_types.launchers import LOCAL, MAX_LAUNCHERS, launcher, unknown_launcher, unlaunchable
from supervisor.config.value_types.notify_targets import KEYS_WITH_NAMES, unknown
from supervisor.config.value_types.slots import MAX_SLOTS
from supervisor.config.window_times import MAX_WINDOWS, window
from supervisor.ipc.notification_kinds import ENDED_WITH
from supervisor.schedule.calendars import WEEKEND, Calendar
from supervisor.schedule.windows import WindowDefinition

_SECTIONS = ("daemon", "http", "storage", "notify")
_NOTIFIERS, _ROUTES, _LAUNCHERS, _HOOKS = "notifiers", "routes", "launchers", "hooks"
_EXPORTS, _SLOTS, _CALENDARS, _WINDOWS = "exports", "slots", "calendars", "windows"
_TABLES = (*_SECTIONS, _NOTIFIERS, _ROUTES, _LAUNCHERS, _HOOKS, _EXPORTS, _SLOTS, _CALENDARS, _WINDOWS, "defaults")
_UNIT_TABLES = (*UNITS, FLOWS)
_MAX_NOTIFIERS = 100
_TOKEN = re.compile("[A-Za-z0-9._~-]{16,200}")
"""The form of tokens that stand in addresses."""
_MAX_ROUTES = 1000


def load(path: str, environ: Mapping[str, str] | None = None) -> Config:
    """Return the configuration in the file `path` and the files that it includes.

    Args:
        path: path of the main file, which messages show as given.
        environ: environment for ``${VAR}`` and the host's time zone; None for that of the process.

    Raises:
        ConfigError: the configuration is invalid; lists all problems.
    """
    return _Loader(os.environ if environ is None else environ).load(path)


def load_sections(path: str, *sections: str, environ: Mapping[str, str] | None = None) -> dict[str, Values]:
    """Return the checked values of some sections, by name; ignore everything else in the file.

    Raises:
        ConfigError: the file is unreadable, or one of these sections is invalid.
    """
    loader = _Loader(os.environ if environ is None else environ)
    main = read_source(path)
    sections_read = {section: loader.section(main, section, keys_of(section)) for section in sections}
    loader.finish()
    return sections_read


class _Loader(UnitReader):
    def load(self, path: str) -> Config:
        main = read_source(path)
        self.files.append(main.name)
        self._tables(main, (*_TABLES, *_UNIT_TABLES))
        daemon, http, storage, notify = (self.section(main, section, keys_of(section)) for section in _SECTIONS)
        for key_path, invalid in unsafe(http):
            self.wrong(main, ("http", *key_path), invalid.message, invalid.remedy)
        sources = [main, *self._included(main, daemon.get("include", ()))]
        defaults = self.defaults_of_units(main)
        self.zone(main, ("daemon",), daemon)
        self.zone(main, ("defaults",), defaults["task"])
        own_zone = "timezone" in daemon
        if not own_zone:
            daemon["timezone"] = self._host_zone(main)
        notifiers = self._notifiers(main)
        routes = self._routes(main, notifiers)
        launchers = self._launchers(main)
        calendars = self._calendars(main)
        windows = self._windows(main, daemon["timezone"])
        exports = self._exports(main)
        self._known_notifiers(main, ("defaults",), main.data.get("defaults"), notifiers)
        tasks: dict[str, Task] = {}
        services: dict[str, Service] = {}
        seen: dict[str, tuple[Source, KeyPath]] = {}
        for source in sources:
            for unit in self.units(source, defaults, seen):
                name, values = unit.name, unit.values
                self._known_notifiers(source, unit.path, unit.own, notifiers)
                values["launcher"] = self._launcher(unit, launchers)
                if unit.table == Service.kind:
                    services[name] = Service(name=name, **_fields(values, Service.kind))
                else:
                    values.setdefault("timezone", daemon["timezone"])
                    values["skip_on"] = self._skip_on(unit, calendars)
                    values |= self._token(unit)
                    tasks[name] = Task(name=name, **_fields(values, Task.kind, unit.table), **unit.of_flow)
        units: dict[str, Task | Service] = {**tasks, **services}
        self._cross_checked(check_dependencies(services, tasks, seen), seen)
        self._cross_checked(check_flows(tasks, services, seen), seen)
        self._cross_checked(check_watching(tasks.values()), seen)
        self._cross_checked(check_promises(tasks.values()), seen)
        self._cross_checked(check_restart_order(services.values()), seen)
        self._cross_checked(check_sockets(services.values(), Http(**_fields(http, "http"))), seen)
        self._cross_checked(check_conditions(tasks.values()), seen)
        self._cross_checked(check_gates(tasks, seen), seen)
        self._cross_checked(check_tokens(tasks.values()), seen)
        self._cross_checked(check_permissions(units, seen), seen)
        for variables, place, file in self.variable_files:
            name = ":".join(map(str, place[1:4:2])) if "steps" in place[2:3] else str(place[1])
            owner = units.get(name) if place[0] != "defaults" else None
            user = defaults["task"].get("user") if owner is None else owner.user
            if message := writer(file, user):
                remedy = f"let only root or the unit's user write it: chown root {file}; chmod go-w {file}"
                self.warnings.append(variables.problem(place, message, remedy))
        hooks = self._hooks(main, tasks, services)
        choices: dict[KeyPath, Export | WindowDefinition] = {
            (_EXPORTS, name): export for name, export in exports.items()
        }
        choices |= {(_WINDOWS, name, "match"): chosen for name, chosen in windows.items()}
        self._unmatched(main, choices, units)
        for index, invalid in check_public(http.get("public", ()), seen):
            self.warnings.append(main.problem(("http", "public", index), invalid.message, invalid.remedy))
        for key_path, invalid in check_status_page(http.get("status_page"), http.get("public", ())):
            self.warnings.append(main.problem(("http", "status_page", *key_path), invalid.message, invalid.remedy))
        slots = self._slots(main)
        self._cross_checked(check_slots(units.values(), slots), seen)
        self.finish()
        for name, key_path, invalid in unintended(tasks):
            source, place = seen[name]
            self.warnings.append(source.problem((*place, *key_path), invalid.message, invalid.remedy))
        return Config(
            path=main.path,
            files=tuple(source.path for source in sources),
            daemon=Daemon(**_fields(daemon, "daemon")),
            http=Http(**_fields(http, "http")),
            storage=Storage(**_fields(storage, "storage")),
            notify=Notify(**_fields(notify, "notify")),
            **{
                name: value
                for name, value in {**defaults_of("task"), **_fields(defaults["task"], "task")}.items()
                if name in GONE
            },
            include=tuple(daemon.get("include", ())),
            host_zone=None if own_zone else daemon["timezone"],
            read={**self.read, **{source.path: source.stamp for source in sources}},
            tasks=tasks,
            services=services,
            notifiers={name: Notifier(name=name, url=url) for name, url in notifiers.items() if url is not None},
            routes=routes,
            hooks=hooks,
            exports=exports,
            slots={name: size for name, size in slots.items() if size is not None},
            windows=windows,
            calendars={name: calendar for name, calendar in calendars.items() if calendar is not None},
            warnings=tuple(self.warnings),
        )

    def _unmatched(
        self, main: Source, choices: Mapping[KeyPath, Export | WindowDefinition], units: Mapping[str, Task | Service]
    ) -> None:
        """Warn about parts of choices of units that match nothing."""
        for path, choice in choices.items():
            for key, index, message in without_match(choice, units.values()):
                self.warnings.append(main.problem((*path, key, index), message, None))

    def _cross_checked(self, invalid_keys: Iterable[Found], seen: dict[str, tuple[Source, KeyPath]]) -> None:
        for name, key_path, invalid in invalid_keys:
            source, path = seen[name]
            self.wrong(source, (*path, *key_path), invalid.message, invalid.remedy)

    def _host_zone(self, main: Source) -> str:
        try:
            return host_zone(self.environ)
        except InvalidValue as err:
            self.wrong(main, ("daemon", "timezone"), err.message, err.remedy)
            return "UTC"

    def _notifiers(self, main: Source) -> dict[str, str | None]:
        """Return the URLs of all notifiers by name; None if a URL is invalid."""
        notifiers: dict[str, str | None] = {}
        for name, path, content in self.named(main, _NOTIFIERS, "notifier"):
            if len(notifiers) == _MAX_NOTIFIERS:
                self.wrong(main, path, f"more than {_MAX_NOTIFIERS} notifiers")
            else:
                self.is_name(main, path, name)
                notifiers[name] = self.values(main, path, content, keys_of("notifier")).get("url")
                if "url" not in content:
                    self.wrong(main, path, "has no URL", 'add url = "…"')
        return notifiers

    def _exports(self, main: Source) -> dict[str, Export]:
        """Return the valid exports by name."""
        exports: dict[str, Export] = {}
        paths: dict[str, str] = {}
        for count, (name, path, content) in enumerate(self.named(main, _EXPORTS, "export")):
            if count == MAX_EXPORTS:
                self.wrong(main, path, f"more than {MAX_EXPORTS} exports")
            self.is_name(main, path, name)
            before = len(self.problems)
            values = self.values(main, path, content, keys_of("export"))
            if "type" not in content:
                self.wrong(main, path, "has no type", 'add type = "…"')
            try:
                check(values, content)
            except InvalidValue as err:
                for part in err.parts:
                    self.invalid(main, path, content, part)
            if len(self.problems) > before:
                continue
            export = exports[name] = Export(name=name, **_fields(values, "export"))
            other = paths.setdefault(export.path, name) if export.path is not None else name
            if other != name:
                self.wrong(main, (*path, "path"), f"the export {other} writes this file too", "use another path")
        return exports

    def _launchers(self, main: Source) -> dict[str, Launcher | None]:
        """Return all launchers by name; None if one is invalid."""
        launchers: dict[str, Launcher | None] = {}
        for name, path, content in self.named(main, _LAUNCHERS, "launcher"):
            if len(launchers) == MAX_LAUNCHERS:
                self.wrong(main, path, f"more than {MAX_LAUNCHERS} launchers")
            elif name == LOCAL:
                self.wrong(main, path, "the name is reserved for this host", "choose another name")
            else:
                self.is_name(main, path, name)
                before = len(self.problems)
                values = self.values(main, path, content, keys_of("launcher"))
                launchers[name] = None
                if len(self.problems) == before:
                    try:
                        launchers[name] = launcher(name, values)
                    except InvalidValue as err:
                        for part in err.parts:
                            self.invalid(main, path, content, part)
        return launchers

    def _launcher(self, unit: UnitTable, launchers: Mapping[str, Launcher | None]) -> Launcher | None:
        """Return the launcher of a unit; None if it has none, or an invalid one."""
        source, values = unit.source, unit.values
        name = values.get("launcher", LOCAL)
        key_path = (*unit.path, "launcher") if "launcher" in unit.own else unit.path
        if name == LOCAL:
            return None
        if name not in launchers:
            invalid = unknown_launcher(name, launchers)
            self.wrong(source, key_path, invalid.message, invalid.remedy)
            return None
        named_launcher = launchers[name]
        for invalid in () if named_launcher is None else unlaunchable(named_launcher, values):
            self.wrong(source, key_path, invalid.message, invalid.remedy)
        return named_launcher

    def _calendars(self, main: Source) -> dict[str, Calendar | None]:
        """Return all calendars by name; None if one is invalid."""
        calendars: dict[str, Calendar | None] = {}
        for name, path, content in self.named(main, _CALENDARS, "calendar"):
            if len(calendars) == MAX_CALENDARS:
                self.wrong(main, path, f"more than {MAX_CALENDARS} calendars")
                break
            if name == WEEKEND.name:
                self.wrong(main, path, "the name is that of the built-in calendar", "choose another name")
                continue
            self.is_name(main, path, name)
            before = len(self.problems)
            values = self.values(main, path, content, keys_of("calendar"))
            calendars[name] = None
            if "subdivision" in content and "country" not in content:
                self.wrong(main, (*path, "subdivision"), "needs its country", 'add country = "…"')
            if len(self.problems) > before:
                continue
            try:
                text = None if values.get("file") is None else self.text(values["file"])
                calendars[name] = calendar(name, values, text)
            except InvalidValue as err:
                about = quoted(values[str(err.path[0])]) if err.path else str(values["file"])
                self.wrong(main, (*path, *(err.path or ("file",))), f"{about} {err.message}", err.remedy)
        return calendars

    def _skip_on(self, unit: UnitTable, calendars: Mapping[str, Calendar | None]) -> tuple[Calendar, ...]:
        """Return the valid calendars of a task, and check its keys about them.

        Keys in [defaults] are for the tasks that can have them.
        """
        source, path, own, values = unit.source, unit.path, unit.own, unit.values
        try:
            found = named_calendars(values.get("skip_on", ()), calendars)
        except InvalidValue as err:
            self.wrong(source, (*path, *err.path) if "skip_on" in own else path, err.message, err.remedy)
            return ()
        for invalid in unsuitable(values, found):
            key = str(invalid.path[0])
            if key in own or key == "skip_on":
                key_path, about = ((*path, key), "") if key in own else (path, f"{key} ")
                self.wrong(source, key_path, about + invalid.message, invalid.remedy)
            else:
                values[key] = None
        return found

    def _windows(self, main: Source, zone: str) -> dict[str, WindowDefinition]:
        """Return the valid windows by name."""
        windows: dict[str, WindowDefinition] = {}
        for name, path, content in self.named(main, _WINDOWS, "window"):
            if len(windows) == MAX_WINDOWS:
                self.wrong(main, path, f"more than {MAX_WINDOWS} windows")
                break
            self.is_name(main, path, name)
            before = len(self.problems)
            values = self.values(main, path, content, keys_of("window"))
            if len(self.problems) == before:
                try:
                    windows[name] = window(name, values, zone)
                except InvalidValue as err:
                    self.wrong(main, (*path, *err.path), err.message, err.remedy)
        return windows

    def _routes(self, main: Source, notifiers: Mapping[str, object]) -> tuple[Route, ...]:
        tables = main.data.get(_ROUTES, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.wrong(main, (_ROUTES,), "must be an array of tables", f"write [[{_ROUTES}]]")
            return ()
        if len(tables) > _MAX_ROUTES:
            self.wrong(main, (_ROUTES,), f"more than {_MAX_ROUTES} routes")
        routes = []
        for index, table in enumerate(tables[:_MAX_ROUTES]):
            path = (_ROUTES, index)
            values = self.values(main, path, table, keys_of("route"))
            if "notify" in values:
                self._names(main, (*path, "notify"), values["notify"], notifiers)
                route = Route(**_fields(values, "route"))
                if (
                    route.repeat_ms is not None
                    and route.match.kinds
                    and ENDED_WITH.keys().isdisjoint(route.match.kinds)
                ):
                    message = "has no effect: none of the kinds has a recovery"
                    self.wrong(main, (*path, "repeat"), message, 'remove it, or add a kind such as "run.failed"')
                routes.append(route)
            elif "notify" not in table:
                self.wrong(main, path, "has no notifiers", 'add notify = ["NAME"]')
        return tuple(routes)

    def _hooks(self, main: Source, tasks: Mapping[str, Task], services: Mapping[str, Service]) -> dict[str, Hook]:
        """Return the valid hooks by name."""
        tables = main.data.get(_HOOKS)
        if isinstance(tables, dict) and len(tables) > MAX_HOOKS:
            self.wrong(main, (_HOOKS,), f"more than {MAX_HOOKS} hooks")
            return {}
        hooks: dict[str, Hook] = {}
        keys = keys_of("hook")
        required = {name for name, key in keys.items() if key.default is REQUIRED}
        for name, path, content in self.named(main, _HOOKS, "hook"):
            self.is_name(main, path, name)
            values = self.values(main, path, content, keys)
            for key in sorted(required - content.keys()):
                self.wrong(main, path, f"has no {key}", f"add {key} = …")
            for key_path, invalid in check_hook(values, content, tasks, services):
                self.wrong(main, (*path, *key_path), invalid.message, invalid.remedy)
            values["secret_file"] = self._secret(main, path, "secret_file", values.get("secret_file"))
            if required <= values.keys():
                hooks[name] = Hook(name=name, **_fields(values, "hook"))
        return hooks

    def _token(self, unit: UnitTable) -> Values:
        """Return the token of a task that runs elsewhere, by its key; empty for other units."""
        file = unit.values.get("token_file")
        if file is None:
            return {}
        token = self._secret(unit.source, unit.path, "token_file", file)
        if token is not None and not _TOKEN.fullmatch(token):
            message = f"{file}: must have 16 to 200 letters, digits, and . _ ~ -"
            self.wrong(unit.source, (*unit.path, "token_file"), message, "create one: openssl rand -hex 32")
        return {"token_file": token}

    def _secret(self, source: Source, path: KeyPath, key: str, file: str | None) -> str | None:
        """Return the secret in the file that a key names; None if there is none, or it is reported as invalid."""
        try:
            return None if file is None else checked_secret(self.text(file))
        except InvalidValue as err:
            self.wrong(source, (*path, key), f"{file}: {err.message}", err.remedy)
            return None

    def _slots(self, main: Source) -> dict[str, int | None]:
        """Return the sizes of all slots by name; None if a size is invalid."""
        slots: dict[str, int | None] = {}
        for count, (name, path, content) in enumerate(self.named(main, _SLOTS, "slot")):
            if count == MAX_SLOTS:
                self.wrong(main, (_SLOTS,), f"more than {MAX_SLOTS} slots")
            self.is_name(main, path, name)
            slots[name] = self.values(main, path, content, keys_of("slot")).get("size")
            if "size" not in content:
                self.wrong(main, path, "has no size", "add size = 1")
        return slots

    def _known_notifiers(self, source: Source, path: KeyPath, table: object, notifiers: Mapping[str, object]) -> None:
        """Check the notifier names in a table against the configured notifiers."""
        if not isinstance(table, dict):
            return
        for key in KEYS_WITH_NAMES:
            value = table.get(key, [])
            names = [value] if isinstance(value, str) else value
            if isinstance(names, list) and all(isinstance(name, str) for name in names):
                self._names(source, (*path, key), names, notifiers)

    def _names(self, source: Source, path: KeyPath, names: Collection[str], notifiers: Mapping[str, object]) -> None:
        for index, invalid in unknown(names, notifiers):
            self.wrong(source, (*path, index), invalid.message, invalid.remedy)

    def _tables(self, source: Source, allowed: tuple[str, ...]) -> None:
        for name in source.data:
            if name in allowed:
                continue
            if name in _TABLES:  # of the main file
                self.wrong(source, (name,), "is not allowed in an included file", "move it to the main file")
            else:
                entry_kind = "table" if isinstance(source.data[name], dict) else "key"
                remedy = nearest(name, allowed)
                if entry_kind == "key" and remedy is None:
                    remedy = _place_of(name)
                self.wrong(source, (name,), f"unknown {entry_kind}", remedy)

    def _included(self, main: Source, patterns: tuple[str, ...]) -> Iterable[Source]:
        names, problems = included(main, patterns)
        self.problems += problems
        self.files += names  # even unreadable files, for the order of their errors
        for name in names:
            try:
                source = read_source(name)
            except ConfigError as err:
                self.problems += err.problems
                continue
            self._tables(source, _UNIT_TABLES)
            yield source


def _place_of(key: str) -> str | None:
    """Return a suggestion for a key that is in no table; None if no table has it."""
    if key in keys_of("task", "service"):
        return "write it below the header of its table, such as [tasks.NAME] or [defaults]"
    return next((f"write it below [{section}]" for section in _SECTIONS if key in keys_of(section)), None)


def _fields(values: Values, *tables: str) -> dict[str, Any]:
    """Return `values` as keyword arguments for the record of `tables`."""
    keys = keys_of(*tables)
    return {attribute: value for name, value in values.items() if (attribute := keys[name].attribute) is not None}
