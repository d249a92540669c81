"""Slots: the value of ``uses``, and the check of all ``uses`` against the sizes of the slots."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from supervisor.config.files.positions import KeyPath
from supervisor.config.model import Service, Task
from supervisor.config.problems import Invalid, InvalidParts, nearest, quoted
from supervisor.config.value_types.values import Integer, ListOf, Name

MAX_SLOTS = 1000
PLACES = Integer(1, 10_000)
"""Places of a slot: its size, or the number that a run takes."""
NAMES = ListOf(Name("the name of a slot"), 100)


@dataclass(frozen=True)
class Uses:
    """The places that a run takes, by slot."""

    def parse(self, value: object, directory: str) -> dict[str, int]:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        if isinstance(value, list):
            return dict.fromkeys(NAMES.parse(value, directory), 1)
        if not isinstance(value, dict):
            raise Invalid(f"must be {self.describe()}", f"write [{quoted(value)}]" if isinstance(value, str) else None)
        found: dict[str, int] = {}
        wrong: list[Invalid] = []
        for name, count in value.items():
            try:
                found[name] = PLACES.parse(count, directory)
            except Invalid as err:
                err.path = (name,)
                wrong.append(err)
        if wrong:
            raise InvalidParts(wrong)
        return found

    def describe(self) -> str:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return 'a list of slots such as ["db"], or a table with numbers of places such as { db = 2 }'


@dataclass(frozen=True)
class Wrong:
    """One invalid use of a slot."""

    unit: str
    place: KeyPath
    """Below the table of the unit."""
    message: str
    remedy: str | None


def unusable(units: Iterable[Task | Service], slots: Mapping[str, int | None]) -> Iterator[Wrong]:
    """Return the uses that no run could ever get. The size of a slot is None if it is invalid."""
    for unit in units:
        for name, count in unit.uses.items():
            size = slots.get(name)
            if name not in slots:
                yield Wrong(
                    unit.name,
                    ("uses", name),
                    f"no slot named {quoted(name)}",
                    nearest(name, slots) or f"add [slots.{name}] with its size",
                )
            elif size is not None and count > size:
                yield Wrong(
                    unit.name,
                    ("uses", name),
                    f"needs {count} places of the slot {quoted(name)}, which has {size}",
                    f"raise slots.{name}.size, or use fewer places",
                )
