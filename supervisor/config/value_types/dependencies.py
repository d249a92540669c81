"""Dependencies of services: the type of the value, and checks across all services."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from supervisor.config.model import Dependency, Service, Task
from supervisor.config.problems import Invalid, InvalidParts, nearest, quoted
from supervisor.config.value_types.values import Name, ValueType, choice

_UNIT = Name("the name of a task or service")
KEYS: Mapping[str, ValueType] = {"name": _UNIT, "until": choice("started", "ready", "succeeded")}


@dataclass(frozen=True)
class Depends:
    """A service or task, and until when it is waited for."""

    def parse(self, value: object, directory: str) -> Dependency:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        if not isinstance(value, dict):
            return Dependency(_UNIT.parse(value, directory))
        said = {}
        wrong: list[Invalid] = []
        for key, content in value.items():
            try:
                said[key] = _known(key).parse(content, directory)
            except Invalid as err:
                err.path = (key,)
                wrong.append(err)
        if "name" not in value:
            wrong.append(Invalid("must have a name", show=False))
        if wrong:
            raise InvalidParts(wrong)
        return Dependency(**said)

    def describe(self) -> str:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return 'a name, or a table such as { name = "database", until = "ready" }'


def _known(key: str) -> ValueType:
    if key not in KEYS:
        raise Invalid("unknown key", nearest(key, KEYS), show=False)
    return KEYS[key]


@dataclass(frozen=True)
class Wrong:
    """One thing that is."""

    service: str
    index: int | None
    """Of the dependency; None: all of them."""
    message: str
    remedy: str | None


def unsound(services: Mapping[str, Service], tasks: Mapping[str, Task], known: Collection[str]) -> Iterator[Wrong]:
    """Return the errors in the dependencies of all services.

    Args:
        services: services with valid values.
        tasks: tasks with valid values.
        known: names of all tasks and services, including those with invalid values.
    """
    for service in services.values():
        for index, one in enumerate(service.depends_on):
            if one.name not in known:
                remedy = nearest(one.name, known)
                yield Wrong(service.name, index, f"no task or service named {quoted(one.name)}", remedy)
            elif one.name in tasks and one.until in ("started", "ready"):
                yield Wrong(service.name, index, f"{one.name} is a task", 'a task needs until = "succeeded"')
            elif one.name in tasks and (param := _asked_for(tasks[one.name])) is not None:
                message = f"{one.name} requires the parameter {quoted(param)}, which a run for a service does not get"
                yield Wrong(service.name, index, message, "give it a default")
            elif one.name in services and one.until == "succeeded":
                yield Wrong(
                    service.name, index, f"{one.name} is a service", 'a service has until = "started" or "ready"'
                )
    for cycle in _cycles(services):
        yield Wrong(
            cycle[0], None, f"they wait for each other: {' -> '.join((*cycle, cycle[0]))}", "remove one of them"
        )


def _asked_for(task: Task) -> str | None:
    """Return a parameter that must be given."""
    return next((one.name for one in task.params if one.required and one.default is None), None)


def _cycles(services: Mapping[str, Service]) -> Iterator[list[str]]:
    """Yield a cycle for each dependency that closes one, in the order of a walk."""
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
    return (one.name for one in services[name].depends_on if one.name in services)
