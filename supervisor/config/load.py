"""Loads a configuration, and checks it as a whole.

Each key is checked against :mod:`supervisor.config.key_tables`. If there are problems, one
:class:`supervisor.config.problems.ConfigError` reports all of them. Otherwise the records are created.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from supervisor.config.cross_checks import (
    Found,
    check_dependencies,
    check_hook,
    check_permissions,
    check_public,
    check_slots,
    check_watching,
    dropped_variables,
    without_match,
)
from supervisor.config.daemon_tables import Daemon, Export, Hook, Http, Notifier, Notify, Route, Storage
from supervisor.config.diff import GONE
from supervisor.config.files.positions import KeyPath
from supervisor.config.files.reading import Source, included, read_source
from supervisor.config.host_zone import host_zone
from supervisor.config.key_tables import MAX_UNITS, UNIT_NAME, defaults_of, keys_of
from supervisor.config.keys import REQUIRED, Key
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import ConfigError, InvalidValue, nearest, quoted
from supervisor.config.table_reader import TableReader, Values
from supervisor.config.value_records import Launcher
from supervisor.config.value_types.exports import MAX_EXPORTS, check
from supervisor.config.value_types.exposure import unsafe
from supervisor.config.value_types.hook_values import MAX_HOOKS, checked_secret
from supervisor.config.value_types.launchers import LOCAL, MAX_LAUNCHERS, launcher, unknown_launcher, unlaunchable
from supervisor.config.value_types.notify_targets import KEYS_WITH_NAMES, unknown
from supervisor.config.value_types.params import unsuitable
from supervisor.config.value_types.slots import MAX_SLOTS

_SECTIONS = ("daemon", "http", "storage", "notify")
_UNITS = {"tasks": "task", "services": "service"}
_NOTIFIERS, _ROUTES, _LAUNCHERS, _HOOKS = "notifiers", "routes", "launchers", "hooks"
_EXPORTS, _SLOTS = "exports", "slots"
_TABLES = (*_SECTIONS, _NOTIFIERS, _ROUTES, _LAUNCHERS, _HOOKS, _EXPORTS, _SLOTS, "defaults", *_UNITS)
_TABLES_OF_UNITS = ("env", "secrets", "limits")
"""Keys whose tables are merged with those in [defaults]."""
_SCHEDULES = ("cron", "every", "at")
"""Keys of which a task can have only one."""
_MAX_NOTIFIERS = 100
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


class _Loader(TableReader):
    def load(self, path: str) -> Config:
        main = read_source(path)
        self.files.append(main.name)
        self._tables(main, _TABLES)
        daemon, http, storage, notify = (self.section(main, section, keys_of(section)) for section in _SECTIONS)
        for key_path, invalid in unsafe(http):
            self.wrong(main, ("http", *key_path), invalid.message, invalid.remedy)
        sources = [main, *self._included(main, daemon.get("include", ()))]
        defaults = self._defaults(main)
        own_zone = "timezone" in daemon
        if not own_zone:
            daemon["timezone"] = self._host_zone(main)
        notifiers = self._notifiers(main)
        routes = self._routes(main, notifiers)
        launchers = self._launchers(main)
        exports = self._exports(main)
        self._known_notifiers(main, ("defaults",), main.data.get("defaults"), notifiers)
        tasks: dict[str, Task] = {}
        services: dict[str, Service] = {}
        seen: dict[str, tuple[Source, KeyPath]] = {}
        for source in sources:
            for table, kind in _UNITS.items():
                for name, values in self._units(source, table, kind, defaults[kind], seen):
                    self._known_notifiers(source, (table, name), source.data[table][name], notifiers)
                    values["launcher"] = self._launcher(source, (table, name), values, launchers)
                    if kind == "task":
                        values.setdefault("timezone", daemon["timezone"])
                        tasks[name] = Task(name=name, **_fields(values, kind))
                    else:
                        services[name] = Service(name=name, **_fields(values, kind))
        units: dict[str, Task | Service] = {**tasks, **services}
        self._cross_checked(check_dependencies(services, tasks, seen), seen)
        self._cross_checked(check_watching(tasks.values()), seen)
        self._cross_checked(check_permissions(units, seen), seen)
        hooks = self._hooks(main, tasks, services)
        for export in exports.values():
            for key, index, message in without_match(export, units.values()):
                self.warnings.append(main.problem((_EXPORTS, export.name, key, index), message, None))
        for index, invalid in check_public(http.get("public", ()), seen):
            self.warnings.append(main.problem(("http", "public", index), invalid.message, invalid.remedy))
        slots = self._slots(main)
        self._cross_checked(check_slots(units.values(), slots), seen)
        self.finish()
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
            warnings=tuple(self.warnings),
        )

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

    def _named(self, source: Source, table: str, kind: str) -> Iterator[tuple[str, KeyPath, dict[str, object]]]:
        """Yield name, path and content of each ``[TABLE.NAME]``."""
        tables = source.data.get(table, {})
        if not isinstance(tables, dict):
            self.wrong(source, (table,), "must hold tables", f"write [{table}.NAME]")
            return
        for name, content in tables.items():
            path = (table, name)
            if isinstance(content, dict):
                yield name, path, content
            else:
                self.wrong(source, path, f"must be a table, with the {kind}'s name", f"write [{table}.NAME]")

    def _notifiers(self, main: Source) -> dict[str, str | None]:
        """Return the URLs of all notifiers by name; None if a URL is invalid."""
        notifiers: dict[str, str | None] = {}
        for name, path, content in self._named(main, _NOTIFIERS, "notifier"):
            if len(notifiers) == _MAX_NOTIFIERS:
                self.wrong(main, path, f"more than {_MAX_NOTIFIERS} notifiers")
            else:
                self._is_name(main, path, name)
                notifiers[name] = self.values(main, path, content, keys_of("notifier")).get("url")
                if "url" not in content:
                    self.wrong(main, path, "has no URL", 'add url = "…"')
        return notifiers

    def _exports(self, main: Source) -> dict[str, Export]:
        """Return the valid exports by name."""
        exports: dict[str, Export] = {}
        paths: dict[str, str] = {}
        for count, (name, path, content) in enumerate(self._named(main, _EXPORTS, "export")):
            if count == MAX_EXPORTS:
                self.wrong(main, path, f"more than {MAX_EXPORTS} exports")
            self._is_name(main, path, name)
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
        for name, path, content in self._named(main, _LAUNCHERS, "launcher"):
            if len(launchers) == MAX_LAUNCHERS:
                self.wrong(main, path, f"more than {MAX_LAUNCHERS} launchers")
            elif name == LOCAL:
                self.wrong(main, path, "the name is reserved for this host", "choose another name")
            else:
                self._is_name(main, path, name)
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

    def _launcher(
        self, source: Source, path: KeyPath, values: Values, launchers: Mapping[str, Launcher | None]
    ) -> Launcher | None:
        """Return the launcher of a task or service; None if it has none, or an invalid one."""
        name = values.get("launcher", LOCAL)
        table, unit = path
        key_path = (*path, "launcher") if "launcher" in source.data[str(table)][unit] else path
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
                routes.append(Route(**_fields(values, "route")))
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
        for name, path, content in self._named(main, _HOOKS, "hook"):
            self._is_name(main, path, name)
            values = self.values(main, path, content, keys)
            for key in sorted(required - content.keys()):
                self.wrong(main, path, f"has no {key}", f"add {key} = …")
            for key_path, invalid in check_hook(values, content, tasks, services):
                self.wrong(main, (*path, *key_path), invalid.message, invalid.remedy)
            file: str | None = values.get("secret_file")
            if file is None:
                continue
            try:
                values["secret_file"] = checked_secret(self.text(file))
            except InvalidValue as err:
                self.wrong(main, (*path, "secret_file"), f"{file}: {err.message}", err.remedy)
            if required <= values.keys():
                hooks[name] = Hook(name=name, **_fields(values, "hook"))
        return hooks

    def _slots(self, main: Source) -> dict[str, int | None]:
        """Return the sizes of all slots by name; None if a size is invalid."""
        slots: dict[str, int | None] = {}
        for count, (name, path, content) in enumerate(self._named(main, _SLOTS, "slot")):
            if count == MAX_SLOTS:
                self.wrong(main, (_SLOTS,), f"more than {MAX_SLOTS} slots")
            self._is_name(main, path, name)
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
            if name in _TABLES:
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
            self._tables(source, tuple(_UNITS))
            yield source

    def _defaults(self, main: Source) -> dict[str, Values]:
        """Return the values of [defaults] that apply to each kind of unit, by kind."""
        table = main.data.get("defaults", {})
        if not isinstance(table, dict):
            self.wrong(main, ("defaults",), "must be a table", "write [defaults]")
            table = {}
        values = self.values(main, ("defaults",), table, keys_of("task", "service"))
        self._schedule(main, ("defaults",), table)
        given = {
            kind: {name: value for name, value in values.items() if name in keys_of(kind)} for kind in _UNITS.values()
        }
        # A default time limit is meant for tasks; services run without end.
        given["service"].pop("timeout", None)
        return given

    def _units(
        self,
        source: Source,
        table: str,
        kind: str,
        defaults: Values,
        seen: dict[str, tuple[Source, KeyPath]],
    ) -> Iterable[tuple[str, Values]]:
        """Yield the tasks or services in a file that have a command, with their values, defaults included."""
        keys = keys_of(kind)
        for name, path, unit in self._named(source, table, kind):
            self._name(source, path, name, seen)
            if len(seen) > MAX_UNITS:
                self.wrong(source, path, f"more than {MAX_UNITS} tasks and services")
                return
            values = self.values(source, path, unit, keys)
            tables = {key: defaults.get(key, {}) | values.get(key, {}) for key in _TABLES_OF_UNITS}
            own_schedule = self._schedule(source, path, unit) if kind == "task" else False
            replaced = _SCHEDULES if own_schedule else ()
            given = {key: value for key, value in defaults.items() if key not in replaced}
            values = given | values | tables
            self._params(source, path, values, own="params" in unit)
            for key_path, warning in dropped_variables(values, unit):
                self.warnings.append(source.problem((*path, *key_path), warning.message, warning.remedy))
            if "run" in values:
                yield name, values
            elif "run" not in unit:
                self.wrong(source, path, "has no command", 'add run = "…"')

    def _params(self, source: Source, path: KeyPath, values: Values, *, own: bool) -> None:
        """Check the parameters of a unit against its other keys; `own`: they are not those in [defaults]."""
        scheduled = any(values.get(key) for key in (*_SCHEDULES, "on_change", "run_on_start"))
        unfit = unsuitable(
            values.get("params", ()),
            scheduled=scheduled,
            api_trigger=values.get("api_trigger", True),
            secrets=values.get("secrets", {}),
        )
        for index, invalid in unfit:
            key_path = (*path, "params", index, *invalid.path) if own else path
            name = values["params"][index].name
            self.wrong(source, key_path, f"the parameter {quoted(name)} {invalid.message}", invalid.remedy)

    def _schedule(self, source: Source, path: KeyPath, table: Mapping[str, object]) -> bool:
        """Return whether a table sets a schedule; report more than one."""
        schedules = [key for key in table if key in _SCHEDULES]
        for key in schedules[1:]:
            message = f"cannot be combined with {schedules[0]}: a task has one of cron, every and at"
            self.wrong(source, (*path, key), message, "remove one; several times are a list of cron expressions")
        return bool(schedules)

    def _is_name(self, source: Source, path: KeyPath, name: str) -> None:
        if not UNIT_NAME.fullmatch(name) or not name.strip("."):
            remedy = "a name has 1 to 100 letters, digits, dots, underscores, colons and hyphens, not only dots"
            self.wrong(source, path, "is not a valid name", remedy)

    def _name(self, source: Source, path: KeyPath, name: str, seen: dict[str, tuple[Source, KeyPath]]) -> None:
        self._is_name(source, path, name)
        if name in seen:
            first, first_path = seen[name]
            first_line = f"{first.name}:{first.positions.line(first_path)}"
            self.wrong(source, path, f"the name is already defined at {first_line}", "use another name")
        else:
            seen[name] = (source, path)

    def unknown(self, source: Source, path: KeyPath, value: object, keys: Mapping[str, Key]) -> None:
        table, *_, name = map(str, path)
        kind = _UNITS.get(table)
        for other in _UNITS.values():
            if kind and other != kind and name in keys_of(other):
                self.wrong(source, path, f"not a key of a {kind}", f"only a {other} has this key")
                return
        if kind and isinstance(value, dict) and nearest(name, keys) is None:
            whole = quoted(f"{path[1]}.{name}")
            self.wrong(source, path, "unknown key", f"if {whole} is the name of a {kind}, write [{table}.{whole}]")
        else:
            super().unknown(source, path, value, keys)


def _place_of(key: str) -> str | None:
    """Return a suggestion for a key that is in no table; None if no table has it."""
    if key in keys_of("task", "service"):
        return "write it below the header of its table, such as [tasks.NAME] or [defaults]"
    return next((f"write it below [{section}]" for section in _SECTIONS if key in keys_of(section)), None)


def _fields(values: Values, table: str) -> dict[str, Any]:
    """Return `values` as keyword arguments for the record of `table`."""
    keys = keys_of(table)
    return {attribute: value for name, value in values.items() if (attribute := keys[name].attribute) is not None}
