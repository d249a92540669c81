"""All keys of the configuration, which :mod:`.daemon_tables` and :mod:`.model` declare, by table of the file.

The loader, its messages and the JSON Schema use this table.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from msgspec.structs import replace

from supervisor.config.daemon_tables import LAUNCHER, SLOT, Daemon, Export, Hook, Http, Notifier, Notify, Route, Storage
from supervisor.config.keys import REQUIRED, Key, keys_in
from supervisor.config.model import UNIT_KEYS
from supervisor.config.value_types.values import NAME

MAX_UNITS = 10_000
UNIT_NAME = NAME
"""The form of names. Names that consist of dots are also rejected, because names become path components."""

KEYS: Final = (
    *keys_in(Daemon, ("daemon",)),
    *keys_in(Http, ("http",)),
    *keys_in(Storage, ("storage",)),
    *keys_in(Notify, ("notify",)),
    *keys_in(Notifier, ("notifier",)),
    *keys_in(Route, ("route",)),
    *(replace(key, tables=frozenset({"launcher"})) for key in LAUNCHER),
    *keys_in(Hook, ("hook",)),
    *keys_in(Export, ("export",)),
    *(replace(key, tables=frozenset({"slot"})) for key in SLOT),
    *(key for record, kinds in UNIT_KEYS for key in keys_in(record, kinds)),
)


@cache
def keys_of(*tables: str) -> Mapping[str, Key]:
    """Return all keys of the tables `tables`, by name."""
    return {key.name: key for key in KEYS if not key.tables.isdisjoint(tables)}


@cache
def defaults_of(table: str) -> Mapping[str, object]:
    """Return the defaults of a table's keys that are fields of the model, by field name."""
    return {
        key.attribute: key.type.parse(key.default, "/") if key.default not in (None, REQUIRED) else None
        for key in keys_of(table).values()
        if key.attribute is not None
    }
