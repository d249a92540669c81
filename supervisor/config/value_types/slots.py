"""The types of the size of a slot, and of ``uses``."""

from msgspec import Struct

from supervisor.config.files.substitute import as_written
from supervisor.config.problems import InvalidValue, quoted
from supervisor.config.value_types.values import Integer, ListOf, Name, parse_parts

MAX_SLOTS = 1000
PLACES = Integer(1, 10_000)
"""A number of places: the size of a slot, or the places that a run takes."""
NAMES = ListOf(Name("the name of a slot"), 100)


class SlotUses(Struct, frozen=True):
    """The number of places that a run takes, by slot."""

    expected = 'a list of slots such as ["db"], or a table with numbers of places such as { db = 2 }'

    def parse(self, value: object, directory: str) -> dict[str, int]:
        """Return the number of places by slot."""
        if isinstance(value, list):
            return dict.fromkeys(NAMES.parse(value, directory), 1)
        if not isinstance(value, dict):
            raise InvalidValue(
                f"must be {self.expected}", f"write [{quoted(as_written(value))}]" if isinstance(value, str) else None
            )
        return parse_parts(value.items(), lambda _name, count: PLACES.parse(count, directory))
