"""Reads the tables of tasks, services and flows: each key against its table, and the values that a unit inherits."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from supervisor.config.cross_checks import dropped_variables, misleading_zone
from supervisor.config.files.positions import KeyPath
from supervisor.config.files.reading import Source
from supervisor.config.files.substitute import refers
from supervisor.config.flows.flow_keys import (
    FLOW,
    FROM_DEFAULTS,
    NAMED_STEP,
    NO_LIMIT,
    NOTIFYING,
    OF_FLOWS,
    OF_STEPS,
    STEP,
    STEP_DEFAULTS,
    STEP_KEYS,
    STEP_NAME,
    STEP_NAME_RULE,
)
from supervisor.config.key_tables import ELSEWHERE, EXTERNAL, MAX_UNITS, UNIT_NAME, keys_of
from supervisor.config.keys import Key
from supervisor.config.model import Service, Task
from supervisor.config.problems import NAME_RULE, dotted, nearest, quoted
from supervisor.config.table_reader import TableReader, Values
from supervisor.config.value_records import Reference, Step, Template
from supervisor.config.value_types.params import unsuitable as unsuitable_params
from supervisor.config.value_types.params import unsuitable_values

UNITS = {"tasks": Task.kind, "services": Service.kind}
FLOWS = "flows"
_TABLES_OF_UNITS = ("env", "secrets", "limits")
"""Keys whose tables are merged with those in [defaults]."""
_SCHEDULES = ("cron", "every", "at")
"""Keys of which a task can have only one."""
_REFERABLE = ("run", "env", "each")
"""Keys of a step with a command that can refer to other steps."""


class UnitTable(Struct):
    """A task, service, flow or step with a command, as a file has it."""

    name: str
    source: Source
    path: KeyPath
    table: str
    """The table of its keys, as in :attr:`supervisor.config.keys.Key.tables`."""
    own: dict[str, Any]
    """The content of its table in the file."""
    values: Values = {}
    """The checked values, default values included."""
    given: Values = {}
    """The checked values of its own table."""
    of_flow: dict[str, Any] = {}
    """The fields of the record that the tables of a flow make."""


class UnitReader(TableReader):
    """Reads the tables of tasks, services, flows and steps."""

    def named(self, source: Source, table: str, kind: str) -> Iterator[tuple[str, KeyPath, dict[str, object]]]:
        """Yield name, path and content of each ``[TABLE.NAME]``."""
        yield from self._tables_in(source, (table,), source.data.get(table, {}), kind)

    def _tables_in(
        self, source: Source, path: KeyPath, tables: object, kind: str
    ) -> Iterator[tuple[str, KeyPath, dict[str, object]]]:
        """Yield name, path and content of each table in `tables`, which stands at `path`."""
        header = f"write [{dotted(path)}.NAME]"
        if not isinstance(tables, dict):
            self.wrong(source, path, "must hold tables", header)
            return
        for name, content in tables.items():
            if isinstance(content, dict):
                yield name, (*path, name), content
            else:
                self.wrong(source, (*path, name), f"must be a table, with the {kind}'s name", header)

    def defaults_of_units(self, main: Source) -> dict[str, Values]:
        """Return the values of [defaults] that apply to each kind of unit, by kind."""
        table = main.data.get("defaults", {})
        if not isinstance(table, dict):
            self.wrong(main, ("defaults",), "must be a table", "write [defaults]")
            table = {}
        values = self.values(main, ("defaults",), table, keys_of("task", "service"))
        self._schedule(main, ("defaults",), table)
        given = {
            kind: {name: value for name, value in values.items() if name in keys_of(kind)} for kind in UNITS.values()
        }
        # A default time limit is meant for tasks; services run without end.
        given["service"].pop("timeout", None)
        return given

    def units(
        self, source: Source, defaults: Mapping[str, Values], seen: dict[str, tuple[Source, KeyPath]]
    ) -> Iterator[UnitTable]:
        """Yield the units in a file that have a command, and the flows."""
        for table, kind in UNITS.items():
            for name, path, own in self.named(source, table, kind):
                unit = UnitTable(name, source, path, kind, own)
                given = defaults[kind]
                if kind == Task.kind and {**given, **own}.get("external") is True:
                    unit.table = EXTERNAL
                    given = {key: value for key, value in given.items() if key in keys_of(EXTERNAL)}
                if not self._name(unit, seen):
                    return
                if self._read(unit, given):
                    yield unit
        for name, path, content in self.named(source, FLOWS, FLOW):
            yield from self._flow(UnitTable(name, source, path, FLOW, content), defaults["task"], seen)

    def _flow(self, flow: UnitTable, defaults: Values, seen: dict[str, tuple[Source, KeyPath]]) -> Iterator[UnitTable]:
        """Yield a flow, and its steps with a command."""
        source, path, content = flow.source, flow.path, flow.own
        flow.own = {name: value for name, value in content.items() if name not in ("steps", "defaults")}
        self._name(flow, seen)
        self._read(flow, {name: value for name, value in defaults.items() if name in FROM_DEFAULTS})
        below = content.get("defaults", {})
        if not isinstance(below, dict):
            self.wrong(source, (*path, "defaults"), "must be a table", f"write [{dotted((*path, 'defaults'))}]")
            below = {}
        own_defaults = self.values(source, (*path, "defaults"), below, keys_of(STEP_DEFAULTS), ("env",))
        of_file: Values = {"max_concurrent": NO_LIMIT} | {
            name: value
            for name, value in defaults.items()
            if name in keys_of(STEP_DEFAULTS) and not name.startswith("retry_")
        }
        of_flow = ("group", "tags", "keep_runs", "keep_for", "keep_refused")
        inherited: Values = {name: flow.values[name] for name in of_flow if name in flow.values}
        steps: list[Step] = []
        units: list[UnitTable] = []
        for name, step_path, own in self._tables_in(source, (*path, "steps"), content.get("steps", {}), STEP):
            if not STEP_NAME.fullmatch(name):
                self.wrong(source, step_path, "is not a valid name of a step", STEP_NAME_RULE)
            table = NAMED_STEP if "task" in own else STEP
            unit = UnitTable(f"{flow.name}:{name}", source, step_path, table, own)
            params: dict[str, Template] = {}
            if table == NAMED_STEP:
                unit.values = self.values(source, step_path, own, keys_of(NAMED_STEP), ("params", "each"))
                for param, text in unit.values.get("params", {}).items():
                    params[param] = self.templates.get((*step_path, "params", param), (text,))
            elif not self._name(unit, seen):
                return
            elif self._read(unit, merged(merged(of_file, inherited), own_defaults)):
                references = self._references(unit, (*path, "defaults"))
                unit.of_flow = {"flow": flow.name, "step": name, "references": references}
                units.append(unit)
            steps.append(
                Step(
                    name=name,
                    unit=unit.values.get("task", unit.name),
                    params=params,
                    needs_approval=unit.values.get("needs_approval", False),
                    each=self._each(unit),
                    **{
                        key.attribute: unit.values[key.name]
                        for key in STEP_KEYS
                        if key.attribute is not None and key.name in unit.values
                    },
                )
            )
        if content.get("steps") in (None, {}):
            self.wrong(source, path, "has no steps", f"add [{dotted((*path, 'steps'))}.NAME]")
        flow.values["run"] = ""
        flow.of_flow = {"steps": tuple(steps)}
        yield flow
        yield from units

    def _each(self, step: UnitTable) -> dict[str, tuple[Template, ...] | Reference]:
        """Return the lists of a step."""
        lists: dict[str, tuple[Template, ...] | Reference] = {}
        for name, items in step.values.get("each", {}).items():
            path = (*step.path, "each", name)
            if isinstance(items, tuple):
                lists[name] = tuple(self.templates.get((*path, n), (item,)) for n, item in enumerate(items))
                continue
            match self.templates.get(path):
                case (Reference() as reference,):
                    lists[name] = reference
                case _:
                    remedy = 'write ["…"], or "${step:NAME.KEY}"'
                    self.wrong(step.source, path, "must be a list, or one reference", remedy)
        return lists

    def _references(self, step: UnitTable, defaults: KeyPath) -> tuple[tuple[str | int, Template], ...]:
        """Return the values of a step that have references; report those in a text for a shell."""
        command = step.values["run"]
        places: dict[str | int, KeyPath] = {}
        if isinstance(command, tuple):
            places |= {index: (*step.path, "run", index) for index in range(len(command))}
        elif refers(command):
            remedy = 'write a list, such as ["sh", "-c", "… $1", "sh", "${step:…}"], or put the value into env'
            message = "has a reference in a text for a shell, which would execute the value"
            self.wrong(step.source, (*step.path, "run"), message, remedy)
        for name in step.values.get("env", {}):
            places[name] = (*(step.path if name in step.given.get("env", {}) else defaults), "env", name)
        return tuple((place, self.templates[path]) for place, path in places.items() if path in self.templates)

    def _read(self, unit: UnitTable, defaults: Values) -> bool:
        """Read the values of a unit; return whether it has a command, or needs none."""
        source, path, own, keys = unit.source, unit.path, unit.own, keys_of(unit.table)
        values = self.values(source, path, own, keys, _REFERABLE if unit.table == STEP else ())
        self.zone(source, path, values)
        own_schedule = self._schedule(source, path, own) if unit.table != STEP and unit.table != Service.kind else False
        replaced = _SCHEDULES if own_schedule else ()
        given = {key: value for key, value in defaults.items() if key not in replaced}
        unit.given, unit.values = values, merged(given, values)
        values = unit.values
        if "finish_by" in own and not any(values.get(key) for key in _SCHEDULES):
            self.wrong(source, (*path, "finish_by"), "needs a schedule", "add cron, every or at")
        self._params(unit)
        for key_path, warning in dropped_variables(values, own):
            self.warnings.append(source.problem((*path, *key_path), warning.message, warning.remedy))
        if unit.table == EXTERNAL:
            values |= {"run": "", "api_trigger": False}
            if "token_file" not in own:
                self.wrong(
                    source, path, "has no token_file", 'add token_file = "…"; openssl rand -hex 32 makes a token'
                )
        for name in ELSEWHERE if unit.table == Task.kind else ():
            if name in own:
                remedy = "add external = true" if name != "grace" else "write graceful_stop, or add external = true"
                self.wrong(source, (*path, name), "not a key of a task that runs here", remedy)
        if "run" not in values and "run" not in own and unit.table != FLOW and not any(map(_is_unit, own.values())):
            remedy = 'add run = "…"' if unit.table != STEP else 'add run = "…", or task = "…"'
            self.wrong(source, path, "has no command", remedy)
        return "run" in values or unit.table == FLOW

    def zone(self, source: Source, path: KeyPath, values: Values) -> None:
        """Warn if the time zone in a table means the opposite of what people read."""
        if warning := misleading_zone(values.get("timezone", "")):
            self.warnings.append(source.problem((*path, "timezone"), warning.message, warning.remedy))

    def _params(self, unit: UnitTable) -> None:
        """Check the parameters of a unit against its other keys."""
        source, path, own, values = unit.source, unit.path, unit.own, unit.values
        scheduled = any(values.get(key) for key in (*_SCHEDULES, "on_change", "run_on_start"))
        unfit = unsuitable_params(
            values.get("params", ()),
            scheduled=scheduled,
            api_trigger=values.get("api_trigger", True),
            secrets=values.get("secrets", {}),
        )
        for index, invalid in unfit:
            key_path = (*path, "params", index, *invalid.path) if "params" in own else path
            name = values["params"][index].name
            self.wrong(source, key_path, f"the parameter {quoted(name)} {invalid.message}", invalid.remedy)
        given = own.get("cron")
        for parts, invalid in unsuitable_values(values.get("params", ()), values.get("cron", ())):
            place = ("cron", *(parts if isinstance(given, list) else parts[1:])) if given is not None else ()
            self.wrong(source, (*path, *place), invalid.message, invalid.remedy)

    def _schedule(self, source: Source, path: KeyPath, table: Mapping[str, object]) -> bool:
        """Return whether a table sets a schedule; report more than one."""
        schedules = [key for key in table if key in _SCHEDULES]
        for key in schedules[1:]:
            message = f"cannot be combined with {schedules[0]}: a task has one of cron, every and at"
            self.wrong(source, (*path, key), message, "remove one; several times are a list of cron expressions")
        return bool(schedules)

    def is_name(self, source: Source, path: KeyPath, name: str) -> None:
        """Report an invalid name."""
        if not UNIT_NAME.fullmatch(name) or not name.strip("."):
            self.wrong(source, path, "is not a valid name", NAME_RULE)

    def _name(self, unit: UnitTable, seen: dict[str, tuple[Source, KeyPath]]) -> bool:
        """Check the name of a unit; return False if there are too many units."""
        source, path, name = unit.source, unit.path, unit.name
        self.is_name(source, path, name)
        if name in seen:
            first, first_path = seen[name]
            first_line = f"{first.name}:{first.positions.line(first_path)}"
            self.wrong(source, path, f"the name is already defined at {first_line}", "use another name")
        else:
            seen[name] = (source, path)
        if len(seen) > MAX_UNITS:
            self.wrong(source, path, f"more than {MAX_UNITS} tasks and services")
        return len(seen) <= MAX_UNITS

    def unknown(self, source: Source, path: KeyPath, value: object, keys: Mapping[str, Key]) -> None:
        """Report an unknown key, with the table that has it."""
        table, *_, name = map(str, path)
        kind = UNITS.get(table)
        if kind == Task.kind and name in keys_of(NAMED_STEP) and not isinstance(value, dict):
            self.wrong(source, path, "not a key of a task", "only a step of a flow has it: [flows.NAME.steps.NAME]")
            return
        if table == FLOWS and (found := _place_in_flow(path)) is not None:
            self.wrong(source, path, *found)
            return
        if keys is keys_of(EXTERNAL) and name in keys_of(Task.kind):
            self.wrong(source, path, "not a key of a task that runs elsewhere", "remove it, or external = true")
            return
        for other in UNITS.values():
            if kind and other != kind and name in keys_of(other):
                self.wrong(source, path, f"not a key of a {kind}", f"only a {other} has this key")
                return
        if kind and isinstance(value, dict) and (_is_unit(value) or nearest(name, keys) is None):
            whole = quoted(f"{path[1]}.{name}")
            self.wrong(source, path, "unknown key", f"if {whole} is the name of a {kind}, write [{table}.{whole}]")
        else:
            super().unknown(source, path, value, keys)


def merged(defaults: Values, values: Values) -> Values:
    """Return values with those that they inherit."""
    tables = {
        key: defaults.get(key, {}) | values.get(key, {}) for key in _TABLES_OF_UNITS if key in {**defaults, **values}
    }
    return defaults | values | tables


def _is_unit(value: object) -> bool:
    """Return whether a table below that of a unit is a unit too, whose name has a dot without quotes."""
    return isinstance(value, dict) and "run" in value


def _place_in_flow(path: KeyPath) -> tuple[str, str] | None:
    """Return what is wrong with a key in a table of a flow, and the table where it belongs; None if it is unknown."""
    flow, key = dotted(path[:2]), str(path[-1])
    match path[2:]:
        case ("defaults", _):
            if key in NOTIFYING:
                return "not a default of steps", f"write it below [{flow}], or below the steps that notify"
            if key in OF_FLOWS:
                return "not a key of a step", f"write it below [{flow}]"
            if key in keys_of(STEP):
                return "not a default of steps", f"write it below [{flow}.steps.NAME]"
        case ("steps", _, _) if key in keys_of(NAMED_STEP) or key in keys_of(STEP):
            if key == "params":
                return "not a key of a step with a command", 'refer to parameters of the flow: "${param:NAME}"'
            return "not a key of a step with task", "write it below the task that it names"
        case ("steps", _, _) if key in OF_FLOWS:
            return "not a key of a step", f"write it below [{flow}]"
        case (_,) if key in ("run", "uses"):
            return "not a key of a flow, which has no process", f"write it below [{flow}.steps.NAME]"
        case (_,) if key in OF_STEPS:
            return "not a key of a flow, which has no process", f"write it below [{flow}.defaults], for its steps"
    return None
