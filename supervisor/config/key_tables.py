"""All keys of the configuration, which :mod:`.daemon_tables` and :mod:`.model` declare, by table of the file.

The loader, its messages and the JSON Schema use this table.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from msgspec.structs import replace

from supervisor.config.daemon_tables import (
    CALENDAR,
    LAUNCHER,
    SLOT,
    WINDOW,
    Daemon,
    Export,
    Hook,
    Http,
    Notifier,
    Notify,
    Route,
    Storage,
)
from supervisor.config.flows.flow_keys import keys_of_flows, of_flows
from supervisor.config.keys import REQUIRED, Key, keys_in
from supervisor.config.model import UNIT_KEYS
from supervisor.config.value_types.values import NAME

MAX_UNITS = 10_000
UNIT_NAME = NAME
"""The form of names. Names that consist of dots are also rejected, because names become path components."""

EXTERNAL = "external"
"""The table of a task that runs elsewhere: it has no process, queue or caller here."""
ELSEWHERE = ("grace", "token_file")
"""Keys that only such a task has."""
# fmt: off
OF_EXTERNAL = frozenset({
    *ELSEWHERE, "external", "description", "group", "tags", "cron", "every", "at", "timezone", "dst_gap",
    "dst_overlap", "skip_on", "shift", "business_day", "timeout", "exit_codes", "min_duration", "too_short",
    "expected_duration", "max_duration_alert", "finish_by", "failure_rate", "keep_runs", "keep_for", "keep_refused",
    "notify_on_failure", "notify_on_success", "notify_on_missed",
})
"""Keys of tasks that it has."""
# fmt: on


def of_external(key: Key) -> Key:
    """Return a key of tasks with the table of those that run elsewhere, if they have it, too."""
    if "task" in key.tables and key.name in OF_EXTERNAL:
        return replace(key, tables=key.tables | {EXTERNAL})
    return key


_OF_UNITS = tuple(of_external(of_flows(key)) for record, kinds in UNIT_KEYS for key in keys_in(record, kinds))
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
    *(replace(key, tables=frozenset({"calendar"})) for key in CALENDAR),
    *(replace(key, tables=frozenset({"window"})) for key in WINDOW),
    *_OF_UNITS,
    *keys_of_flows(next(key for key in _OF_UNITS if key.name == "max_concurrent")),
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
