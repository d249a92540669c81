"""Checks across keys and tables: references between tasks, services, slots, hooks and exports.

The checks of units yield :data:`Found`: the name of the unit, the path below its table, and the error.
"""

import ipaddress
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from supervisor.config.daemon_tables import Export, Http
from supervisor.config.files.positions import KeyPath
from supervisor.config.model import Service, Task
from supervisor.config.problems import InvalidValue, nearest, quoted
from supervisor.config.value_records import StatusPageTable
from supervisor.config.value_types.durations import format_duration
from supervisor.config.value_types.hook_values import EVENTS
from supervisor.config.value_types.launchers import LOCAL
from supervisor.config.value_types.listen import MAX_SOCKETS
from supervisor.host.prepared_command import is_identifier
from supervisor.ipc.run_token import SEPARATOR
from supervisor.schedule.windows import WindowDefinition

MAX_WATCHING_TASKS = 64
"""Maximum number of tasks with ``on_change``. Each needs an inotify(7) instance, of which a user usually has 128."""
_WILD = frozenset("*?[")
_KINDS = {"run": "task", "pause": "task", "resume": "task", "start": "service", "restart": "service"}
"""The kind of unit to which each verb of a permission applies; ``stop`` applies to both."""
_ZONE_OF_OFFSET = re.compile(r"(?:Etc/)?(?:UTC?|GMT)(?P<sign>[+-])(?P<offset>\d{1,2}(?::\d{2})?)")
_DROPPING = ("dash", "ash", "busybox")
"""Shells that drop environment variables whose names are not identifiers; bash keeps them."""
_MOST_WITH_STDIN = 6
"""dash knows no descriptor above 9, and needs one after the sockets for a standard input that stays open."""
_TEXTS = ("run", "ready", "live")
_OWN_ANSWERS = ("notify", "exec")
"""The kinds of probes that another process of the same service need not pass."""

Unit = Task | Service
Endpoint = str | tuple[str, int]
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
            elif dependency.name in tasks and (flow := tasks[dependency.name].flow) is not None:
                invalid = InvalidValue(f"{dependency.name} is a step of a flow", f"name the flow {quoted(flow)}")
                yield service.name, key_path, invalid
            elif dependency.name in tasks and dependency.until in ("started", "ready"):
                yield (
                    service.name,
                    key_path,
                    InvalidValue(f"{dependency.name} is a task", 'a task needs until = "succeeded"'),
                )
            elif dependency.name in tasks and dependency.on_restart is not None:
                yield service.name, key_path, InvalidValue(f"{dependency.name} is a task", "remove on_restart")
            elif dependency.name in tasks and (param := _required_parameter(tasks[dependency.name])) is not None:
                message = (
                    f"{dependency.name} requires the parameter {quoted(param)}, which a run for a service does not get"
                )
                yield service.name, key_path, InvalidValue(message, "give it a default")
            elif dependency.name in services and dependency.until == "succeeded":
                remedy = 'a service has until = "started" or "ready"'
                yield service.name, key_path, InvalidValue(f"{dependency.name} is a service", remedy)
    for cycle in _cycles({name: [one.name for one in service.depends_on] for name, service in services.items()}):
        message = f"dependency cycle: {' -> '.join((*cycle, cycle[0]))}"
        yield cycle[0], ("depends_on",), InvalidValue(message, "remove one of them")


def _unknown(kind: str, name: str, unit_names: Collection[str]) -> InvalidValue:
    return InvalidValue(f"no {kind} named {quoted(name)}", nearest(name, unit_names))


def _required_parameter(task: Task) -> str | None:
    """Return the name of a parameter without which `task` cannot run; None if there is none."""
    return next((param.name for param in task.params if param.required and param.default is None), None)


def _cycles(followed: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield a cycle for each dependency that closes one in a depth-first search."""
    done: set[str] = set()
    for first in followed:
        path: list[str] = []
        waiting = [_following(followed, first)] if first not in done else []
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
                waiting.append(_following(followed, name))


def _following(followed: Mapping[str, Sequence[str]], name: str) -> Iterator[str]:
    return (other for other in followed[name] if other in followed)


def check_tokens(tasks: Iterable[Task]) -> Iterator[Found]:
    """Yield an error for each task with the same token as an earlier one."""
    first: dict[str, str] = {}
    for task in tasks:
        if task.ping_token is not None and first.setdefault(task.ping_token, task.name) != task.name:
            message = f"has the same token as {quoted(first[task.ping_token])}"
            yield task.name, ("token_file",), InvalidValue(message, "create another one: openssl rand -hex 32")


def check_watching(tasks: Iterable[Task]) -> Iterator[Found]:
    """Yield an error for each task with ``on_change`` beyond the limit."""
    for task in [task for task in tasks if task.on_change][MAX_WATCHING_TASKS:]:
        yield task.name, ("on_change",), InvalidValue(f"more than {MAX_WATCHING_TASKS} tasks have on_change")


def check_promises(tasks: Iterable[Task]) -> Iterator[Found]:
    """Yield the promises about tasks that no run could keep."""
    for task in tasks:
        timeout_ms = task.timeout_ms
        if timeout_ms is not None and timeout_ms <= (task.min_duration_ms or 0):
            message = f"no run can succeed: timeout is {format_duration(timeout_ms)}"
            yield task.name, ("min_duration",), InvalidValue(message, "raise timeout, or lower min_duration")


def check_restart_order(services: Iterable[Service]) -> Iterator[Found]:
    """Yield an error for each service whose next process could not be told from the present one by its probe."""
    for service in services:
        if service.restart_order == "new_first" and (service.ready is None or service.ready.kind not in _OWN_ANSWERS):
            message = '"new_first" needs a readiness probe that only the next process can pass'
            yield service.name, ("restart_order",), InvalidValue(message, "add ready = { notify = true }, or exec")


def check_sockets(services: Iterable[Service], http: Http) -> Iterator[Found]:
    """Yield the errors in the sockets of all services.

    Args:
        services: services with valid values.
        http: ``[http]``, whose addresses belong to the daemon itself.
    """
    own = (*http.listen, http.socket, http.proxy_socket)
    taken: list[tuple[Endpoint, str]] = [(endpoint, "[http]") for endpoint in own if endpoint is not None]
    for service in services:
        for held in service.sockets:
            other = next((owner for endpoint, owner in taken if _collide(endpoint, held.endpoint)), None)
            if other is not None:
                yield service.name, ("sockets", held.name), InvalidValue(f"{held.address} is an address of {other}")
            taken.append((held.endpoint, service.name))
        if service.sockets:
            yield from _unsuitable(service)
    if sum(len(service.sockets) for service in services) > MAX_SOCKETS:
        last = [service for service in services if service.sockets][-1]
        yield last.name, ("sockets",), InvalidValue(f"more than {MAX_SOCKETS} sockets in all services together")


def _unsuitable(service: Service) -> Iterator[Found]:
    """Yield the keys that contradict the sockets of a service."""
    if isinstance(service.run, str) and service.run.split(None, 1)[0] != "exec":
        message = "the shell gets the sockets, but not the program that it starts"
        yield service.name, ("run",), InvalidValue(message, 'begin with "exec ", or write a list of arguments')
    if service.launcher is not None:
        yield service.name, ("sockets",), InvalidValue(f"the launcher {service.launcher.name} cannot pass on sockets")
    if service.stdin == "open" and len(service.sockets) > _MOST_WITH_STDIN:
        message = f'stdin = "open" allows at most {_MOST_WITH_STDIN} sockets'
        yield service.name, ("sockets",), InvalidValue(message)
    for key, probe in (("ready", service.ready), ("live", service.live)):
        if probe is not None and probe.kind == "tcp":
            host, _, port = str(probe.target).rpartition(":")
            host = "127.0.0.1" if host == "localhost" else host.strip("[]")
            for held in service.sockets:
                if port.isdecimal() and _collide((host, int(port)), held.endpoint):
                    message = (
                        f"the daemon holds {held.address}, so it accepts connections whether the service works or not"
                    )
                    yield service.name, (key,), InvalidValue(message, "use another kind of probe, such as http")


def _collide(one: Endpoint, other: Endpoint) -> bool:
    """Return whether two endpoints cannot both be bound; ``[::]`` is IPv6 only."""
    if isinstance(one, str) or isinstance(other, str) or one[1] != other[1]:
        return one == other
    try:
        first, second = ipaddress.ip_address(one[0]), ipaddress.ip_address(other[0])
    except ValueError:  # the host of a probe may be a name
        return False
    same = first == second or first.is_unspecified or second.is_unspecified
    return same and first.version == second.version


def check_conditions(tasks: Iterable[Task]) -> Iterator[Found]:
    """Yield the conditions that are asked again without an end, or for a time but never again."""
    for task in tasks:
        given = {"only_if_retry": task.only_if_retry_ms, "only_if_for": task.only_if_for_ms}
        missing = [key for key, value in given.items() if value is None]
        if len(missing) == 1:
            (key,) = given.keys() - missing
            yield task.name, (key,), InvalidValue(f"needs {missing[0]}", "set both of them, or none")


def check_gates(tasks: Mapping[str, Task], unit_names: Collection[str]) -> Iterator[Found]:
    """Yield the errors in what tasks require; the arguments are those of `check_dependencies`."""
    for task in tasks.values():
        if task.requires and not task.crons and task.every_ms is None:
            yield task.name, ("requires",), InvalidValue("needs cron or every", "a flow runs tasks after each other")
        for index, name in enumerate(task.requires):
            other, wrong = tasks.get(name), None
            if name not in unit_names:
                wrong = _unknown("task", name, unit_names)
            elif name == task.name:
                wrong = InvalidValue("a task cannot require itself")
            elif other is None:
                wrong = InvalidValue(f"{name} is not a task")
            elif other.flow is not None:
                wrong = InvalidValue(f"{name} is a step of a flow", f"name the flow {quoted(other.flow)}")
            elif not other.crons and other.every_ms is None and other.at_ms is None:
                wrong = InvalidValue(f"{name} has no schedule, so there is nothing to wait for")
            if wrong is not None:
                yield task.name, ("requires", index), wrong
    for cycle in _cycles({task.name: [name for name in task.requires if name != task.name] for task in tasks.values()}):
        message = f"dependency cycle: {' -> '.join((*cycle, cycle[0]))}"
        yield cycle[0], ("requires",), InvalidValue(message, "remove one of them")


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


def check_status_page(page: StatusPageTable | None, public: Sequence[str]) -> Iterator[tuple[KeyPath, InvalidValue]]:
    """Yield the names on the status page that ``public`` lacks, with their places; the page does not show them."""
    if page is not None and not public:
        yield (), InvalidValue("shows nothing, because http.public is empty", "add public = [names] to [http]")
    for heading, names in () if page is None else page.sections:
        for index, name in enumerate(names):
            if name not in public:
                message = f'"{name}" is not in http.public, so the page does not show it'
                yield ("sections", heading, index), InvalidValue(message, nearest(name, public) or "add it to public")


def check_slots(units: Iterable[Unit], slots: Mapping[str, int | None]) -> Iterator[Found]:
    """Yield the ``uses`` that no run could ever get; a slot with an invalid size has the size None."""
    for unit in units:
        for name, count in unit.uses.items():
            size = slots.get(name)
            count *= 2 if isinstance(unit, Service) and unit.restart_order == "new_first" else 1
            if name not in slots:
                remedy = nearest(name, slots) or f"add [slots.{name}] with its size"
                yield unit.name, ("uses", name), InvalidValue(f"no slot named {quoted(name)}", remedy)
            elif size is not None and count > size:
                message = f"needs {count} places of the slot {quoted(name)}, which has {size}"
                yield unit.name, ("uses", name), InvalidValue(message, f"raise slots.{name}.size, or use fewer places")


def selects(choice: Export | WindowDefinition, unit: Unit) -> bool:
    """Return whether an export delivers the lines of a unit, or a window applies to it.

    An export of a flow also delivers the lines of its steps.
    """
    flow = unit.flow if isinstance(choice, Export) else None
    names = (unit.name,) if flow is None else (unit.name, flow)
    return (
        (not choice.tasks or any(fnmatchcase(name, glob) for glob in choice.tasks for name in names))
        and (not choice.groups or unit.group in choice.groups)
        and (not choice.tags or not set(choice.tags).isdisjoint(unit.tags))
    )


def without_match(choice: Export | WindowDefinition, units: Collection[Unit]) -> Iterator[tuple[str, int, str]]:
    """Yield the parts of a selection that no unit matches: key, index and message."""
    for index, glob in enumerate(choice.tasks):
        if not any(fnmatchcase(unit.name, glob) for unit in units):
            yield "tasks", index, f'no task or service matches "{glob}"'
    for index, group in enumerate(choice.groups):
        if all(unit.group != group for unit in units):
            yield "groups", index, f'no task or service has the group "{group}"'
    for index, tag in enumerate(choice.tags):
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


def misleading_zone(name: str) -> InvalidValue | None:
    """Return a warning for a time zone such as "UTC+2", whose sign people read the other way round."""
    match = _ZONE_OF_OFFSET.fullmatch(name)
    if match is None or not int(match["offset"].partition(":")[0]):
        return None
    here, there = ("behind", "ahead of") if match["sign"] == "+" else ("ahead of", "behind")
    other = name.replace(match["sign"], "-" if match["sign"] == "+" else "+")
    return InvalidValue(
        f"{quoted(name)} is {match['offset']} h {here} UTC, as in the variable TZ",
        f'for {match["offset"]} h {there} UTC, write {quoted(other)}, or a place such as "Europe/Prague"',
        show=False,
    )


def dropped_variables(values: Mapping[str, Any], own: Mapping[str, Any]) -> Iterable[tuple[KeyPath, InvalidValue]]:
    """Yield a warning for each shell text whose shell drops a variable, with the key path of the text.

    Args:
        values: all values of a unit.
        own: the unit's own table; a text from [defaults] is not in it.
    """
    odd = sorted(name for key in ("env", "secrets") for name in values.get(key, ()) if not is_identifier(name))
    if values.get("launcher", LOCAL) != LOCAL or not odd:
        return
    shell = values.get("shell", "/bin/sh")
    program = os.path.basename(os.path.realpath(shell))
    if not program.startswith(_DROPPING):
        return
    for key in _TEXTS:
        value = values.get(key)
        text = value if key == "run" else getattr(value, "target", None)
        if isinstance(text, str) and (key == "run" or getattr(value, "kind", None) == "exec"):
            names = ", ".join(map(quoted, odd))
            message = f"{shell} is {program}, which drops variables with names such as {names}"
            remedy = f'write {key if key == "run" else "exec"} as a list of arguments, or add shell = "/bin/bash"'
            yield ((key,) if key in own else ()), InvalidValue(message, remedy, show=False)
