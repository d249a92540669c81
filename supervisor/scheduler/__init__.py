"""The scheduler process: decides when runs start and end, and is the only writer of their state."""

import typing

from supervisor.later import import_later

# msgspec prefers typing_extensions over typing, and peewee uses one function of inspect. Each takes a megabyte.
import_later(
    "typing_extensions",
    {name: getattr(typing, name) for name in ("NotRequired", "Required", "get_type_hints")},
    override=lambda method: method,
)
import_later("inspect", {"isclass": lambda one: isinstance(one, type)})
