"""Dependencies of services: the type of the value."""

from collections.abc import Mapping

from msgspec import Struct

from supervisor.config.value_records import Dependency
from supervisor.config.value_types.values import Name, ValueType, choice, parse_table

_UNIT = Name("the name of a task or service")
KEYS: Mapping[str, ValueType] = {
    "name": _UNIT,
    "until": choice("started", "ready", "succeeded"),
    "on_restart": choice("restart", "stop"),
}


class DependencyEntry(Struct, frozen=True):
    """A service or task, and the condition for which a service waits."""

    expected = 'a name, or a table such as { name = "database", until = "ready" }'

    def parse(self, value: object, directory: str) -> Dependency:
        """Return the dependency that a name or a table describes."""
        if not isinstance(value, dict):
            return Dependency(_UNIT.parse(value, directory))
        parsed, faults = parse_table(value, KEYS, directory)
        if "name" not in value:
            faults.add("must have a name")
        faults.check()
        return Dependency(**parsed)
