"""Checks across keys and tables: references between tasks, services, slots, hooks and exports.

The checks of units yield :data:`Found`: the name of the unit, the path below its table, and the error.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from supervisor.config.daemon_tables import Export
from supervisor.config.files.positions import KeyPath
from supervisor.config.model import Service, Task
from supervisor.config.problems import InvalidValue, nearest, quoted
from supervisor.config.value_types.hook_values import EVENTS
from supervisor.config.value_types.launchers import LOCAL
from supervisor.host.prepared_command import is_identifier
from supervisor.ipc.run_token import SEPARATOR

MAX_WATCHING_TASKS = 64
"""Maximum number of tasks with ``on_change``. Each needs an inotify(7) instance, of which a user usually has 128."""
_WILD = frozenset("*?[")
_KINDS = {"run": "task", "pause": "task", "resume": "task", "start": "service", "restart": "service"}
"""The kind of unit to which each verb of a permission applies; ``stop`` applies to both."""
_DROPPING = ("dash", "ash", "busybox")
"""Shells that drop environment variables whose names are not identifiers; bash keeps them."""
_TEXTS = ("run", "ready", "live")

Unit = Task | Service
Found = tuple[str, KeyPath, InvalidValue]


def check_dependencies(
    services: Mapping[str, Service], tasks: Mapping[str, Task], unit_names: Collection[str]
) -> Iterator[Found]:
    """Yield the errors in the dependencies of all services.

    Args:
        services: services with valid values.
        tasks: tasks with valid values.
        unit_names: names of all tasks and services, including those with invalid values.
    """
    for service in services.values():
        for index, dependency in enumerate(service.depends_on):
            key_path = ("depends_on", index)
            if dependency.name not in unit_names:
                yield service.name, key_path, _unknown("task or service", dependency.name, unit_names)
            elif dependency.name in tasks and dependency.until in ("started", "ready"):
                yield (
                    service.name,
                    key_path,
                    InvalidValue(f"{dependency.name} is a task", 'a task needs until = "succeeded"'),
                )
            elif dependency.name in tasks and (param := _required_parameter(tasks[dependency.name])) is not None:
                message = (
                    f"{dependency.name} requires the parameter {quoted(param)}, which a run for a service does not get"
                )
                yield service.name, key_path, InvalidValue(message, "give it a default")
            elif dependency.name in services and dependency.until == "succeeded":
                remedy = 'a service has until = "started" or "ready"'
                yield service.name, key_path, InvalidValue(f"{dependency.name} is a service", remedy)
    for cycle in _cycles(services):
        message = f"they wait for each other: {' -> '.join((*cycle, cycle[0]))}"
        yield cycle[0], ("depends_on",), InvalidValue(message, "remove one of them")


def _unknown(kind: str, name: str, unit_names: Collection[str]) -> InvalidValue:
    return InvalidValue(f"no {kind} named {quoted(name)}", nearest(name, unit_names))


def _required_parameter(task: Task) -> str | None:
    """Return the name of a parameter without which `task` cannot run; None if there is none."""
    return next((param.name for param in task.params if param.required and param.default is None), None)


def _cycles(services: Mapping[str, Service]) -> Iterator[list[str]]:
    """Yield a cycle for each dependency that closes one in a depth-first search."""
    done: set[str] = set()
    for first in services:
        path: list[str] = []
        waiting = [_following(services, first)] if first not in done else []
        path += [first] if waiting else []
        while waiting:
            name = next(waiting[-1], None)
            if name is None:
                waiting.pop()
                done.add(path.pop())
            elif name in path:
                yield path[path.index(name) :]
            elif name not in done:
                path.append(name)
                waiting.append(_following(services, name))


def _following(services: Mapping[str, Service], name: str) -> Iterator[str]:
    return (dependency.name for dependency in services[name].depends_on if dependency.name in services)


def check_watching(tasks: Iterable[Task]) -> Iterator[Found]:
    """Yield an error for each task with ``on_change`` beyond the limit."""
    for task in [task for task in tasks if task.on_change][MAX_WATCHING_TASKS:]:
        yield task.name, ("on_change",), InvalidValue(f"more than {MAX_WATCHING_TASKS} tasks have on_change")


def check_permissions(units: Mapping[str, Unit], unit_names: Collection[str]) -> Iterator[Found]:
    """Yield the permissions that name no unit, or one of the wrong kind.

    Args:
        units: the units with valid values.
        unit_names: names of all units, including those with invalid values.
    """
    for unit in units.values():
        for index, permission in enumerate(unit.may):
            verb, _, name = permission.partition(SEPARATOR)
            if not _WILD.isdisjoint(name):
                continue
            if name not in unit_names:
                yield unit.name, ("may", index), _unknown("task or service", name, unit_names)
            elif name in units and units[name].kind != _KINDS.get(verb, units[name].kind):
                message = f"{name} is a {units[name].kind}, and {verb} is for {_KINDS[verb]}s"
                yield unit.name, ("may", index), InvalidValue(message)


def check_public(names: Sequence[str], unit_names: Collection[str]) -> Iterator[tuple[int, InvalidValue]]:
    """Yield the names in ``public`` that no unit has, with their indexes."""
    for index, name in enumerate(names):
        if name not in unit_names:
            yield index, _unknown("task or service", name, unit_names)


def check_slots(units: Iterable[Unit], slots: Mapping[str, int | None]) -> Iterator[Found]:
    """Yield the ``uses`` that no run could ever get; a slot with an invalid size has the size None."""
    for unit in units:
        for name, count in unit.uses.items():
            size = slots.get(name)
            if name not in slots:
                remedy = nearest(name, slots) or f"add [slots.{name}] with its size"
                yield unit.name, ("uses", name), InvalidValue(f"no slot named {quoted(name)}", remedy)
            elif size is not None and count > size:
                message = f"needs {count} places of the slot {quoted(name)}, which has {size}"
                yield unit.name, ("uses", name), InvalidValue(message, f"raise slots.{name}.size, or use fewer places")


def selects(export: Export, unit: Unit) -> bool:
    """Return whether an export delivers the lines of a unit."""
    return (
        (not export.tasks or any(fnmatchcase(unit.name, glob) for glob in export.tasks))
        and (not export.groups or unit.group in export.groups)
        and (not export.tags or not set(export.tags).isdisjoint(unit.tags))
    )


def without_match(export: Export, units: Collection[Unit]) -> Iterator[tuple[str, int, str]]:
    """Yield the parts of a selection that no unit matches: key, index and message."""
    for index, glob in enumerate(export.tasks):
        if not any(fnmatchcase(unit.name, glob) for unit in units):
            yield "tasks", index, f'no task or service matches "{glob}"'
    for index, group in enumerate(export.groups):
        if all(unit.group != group for unit in units):
            yield "groups", index, f'no task or service has the group "{group}"'
    for index, tag in enumerate(export.tags):
        if all(tag not in unit.tags for unit in units):
            yield "tags", index, f'no task or service has the tag "{tag}"'


def check_hook(
    values: Mapping[str, Any], written: Collection[str], tasks: Mapping[str, Task], services: Mapping[str, Service]
) -> Iterator[tuple[KeyPath, InvalidValue]]:
    """Yield the errors of a hook that contradicts itself or its task, each with its key path.

    Args:
        values: the values of valid keys.
        written: all keys in the file.
        tasks: the tasks by name.
        services: the services by name.
    """
    wrong = set(written) - values.keys()
    if "events" not in wrong:
        yield from _unsuitable_events(values.get("kind"), values.get("events", ()))
    name: str | None = values.get("task")
    task = tasks.get(name or "")
    if name is not None and task is None:
        if name in services:
            yield ("task",), InvalidValue(f"{quoted(name)} is a service", "a hook runs a task")
        else:
            yield ("task",), _unknown("task", name, tasks)
    if task is None or "params" in wrong:
        return
    if not task.api_trigger:
        yield ("task",), InvalidValue(f"{quoted(task.name)} has api_trigger = false", "only its schedule may run it")
    declared = {param.name: param for param in task.params}
    given = values.get("params", {})
    for param in given:
        if param not in declared:
            remedy = nearest(param, declared) or f"declare it in params of the task {quoted(task.name)}"
            yield ("params", param), InvalidValue(f"not a parameter of the task {quoted(task.name)}", remedy)
    for param in declared.values():
        if param.required and param.default is None and param.name not in given:
            message = f"lacks the parameter {quoted(param.name)}, which the task {quoted(task.name)} requires"
            yield (), InvalidValue(message, f'add params = {{ {param.name} = "$.…" }}')


def _unsuitable_events(kind: str | None, events: tuple[str, ...]) -> Iterator[tuple[KeyPath, InvalidValue]]:
    if kind == "generic" and events:
        yield ("events",), InvalidValue("has no meaning for a generic hook, whose sender names no event", "use when")
    if kind is None or kind not in EVENTS:
        return
    pattern, example = EVENTS[kind]
    if not events:
        yield (), InvalidValue(f"has no events, which a {kind} hook requires", f'add events = ["{example}"]')
    for index, event in enumerate(events):
        if not pattern.fullmatch(event):
            yield ("events", index), InvalidValue(f"{quoted(event)} is not an event of {kind}", f'such as "{example}"')


def dropped_variables(values: Mapping[str, Any], own: Mapping[str, Any]) -> Iterable[tuple[KeyPath, InvalidValue]]:
    """Yield a warning for each shell text whose shell drops a variable, with the key path of the text.

    Args:
        values: all values of a unit.
        own: the unit's own table; a text from [defaults] is not in it.
    """
    odd = sorted(name for key in ("env", "secrets") for name in values.get(key, ()) if not is_identifier(name))
    shell = values.get("shell", "/bin/sh")
    program = os.path.basename(os.path.realpath(shell))
    if values.get("launcher", LOCAL) != LOCAL or not odd or not program.startswith(_DROPPING):
        return
    for key in _TEXTS:
        value = values.get(key)
        text = value if key == "run" else getattr(value, "target", None)
        if isinstance(text, str) and (key == "run" or getattr(value, "kind", None) == "exec"):
            names = ", ".join(map(quoted, odd))
            message = f"{shell} is {program}, which drops variables with names such as {names}"
            remedy = f'write {key if key == "run" else "exec"} as a list of arguments, or add shell = "/bin/bash"'
            yield ((key,) if key in own else ()), InvalidValue(message, remedy, show=False)
