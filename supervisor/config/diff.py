"""The differences between two configurations, and the effect of each on a running daemon. Pure."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import FieldInfo, fields

from supervisor.config.key_tables import defaults_of, keys_of
from supervisor.config.keys import Effect, Key
from supervisor.config.model import Config, Service, Task

SECTIONS = ("daemon", "http", "storage", "notify")
WHOLE = ("notifiers", "routes", "hooks", "exports", "slots", "calendars", "windows")
"""Tables that are compared as a whole, because any change applies at once."""
GONE = ("keep_runs", "keep_for_ms", "keep_refused")
"""The keys of ``[defaults]`` that apply to tasks and services which left the configuration."""
_OF_CRON = frozenset({"timezone", "dst_gap", "dst_overlap", "shift", "business_day"})
"""Keys that affect the schedule of a task only if it has cron expressions."""


class ChangedKey(Struct, frozen=True):
    """A key whose value differs."""

    key: str
    """The name in the file."""
    effect: Effect


class UnitChange(Struct, frozen=True):
    """A task or service whose definition differs; name and kind are the same."""

    old: Task | Service
    new: Task | Service
    keys: tuple[ChangedKey, ...]

    def has(self, *effects: Effect) -> bool:
        """Return whether any key has one of these effects."""
        return any(changed.effect in effects for changed in self.keys)


class ConfigDiff(Struct, frozen=True):
    """The differences between two configurations; units are sorted by name."""

    added: tuple[Task | Service, ...] = ()
    changed: tuple[UnitChange, ...] = ()
    turned: tuple[tuple[Task | Service, Task | Service], ...] = ()
    """Tasks that became services, and services that became tasks: before and after."""
    removed: tuple[Task | Service, ...] = ()
    sections: Mapping[str, tuple[ChangedKey, ...]] = field(default_factory=dict)
    """The other tables that differ: daemon, http, storage, notify, defaults, and those in :data:`WHOLE`."""

    def section_has(self, effect: Effect) -> bool:
        """Return whether any change outside tasks and services has this effect."""
        return any(changed.effect is effect for keys in self.sections.values() for changed in keys)


def diff(old: Config, new: Config) -> ConfigDiff:
    """Return the differences that turn `old` into `new`."""
    before, after = _units(old), _units(new)
    added, changed, turned = [], [], []
    for name, unit in sorted(after.items()):
        former = before.get(name)
        if former is None:
            added.append(unit)
        elif former.kind != unit.kind:
            turned.append((former, unit))
        elif former != unit:
            changed.append(UnitChange(former, unit, _changed(unit.kind, former, unit)))
    sections = {name: _changed(name, getattr(old, name), getattr(new, name)) for name in SECTIONS}
    sections["defaults"] = tuple(
        ChangedKey(key.name, Effect.AT_ONCE)
        for key in keys_of("task").values()
        if key.attribute in GONE and getattr(old, key.attribute) != getattr(new, key.attribute)
    )
    for name in WHOLE:
        differs = getattr(old, name) != getattr(new, name)
        sections[name] = (ChangedKey(name, Effect.AT_ONCE),) if differs else ()
    return ConfigDiff(
        added=tuple(added),
        changed=tuple(changed),
        turned=tuple(turned),
        removed=tuple(unit for name, unit in sorted(before.items()) if name not in after),
        sections={name: keys for name, keys in sections.items() if keys},
    )


def process_hash(unit: Task | Service) -> str:
    """Return a hash of the values that affect the processes of a service; they stay while the hash is the same.

    Default values are omitted: a later version with more keys must get the same hash.
    """
    unsaid = defaults_of(unit.kind)
    values = {name: getattr(unit, name) for name in _hashed(unit.kind)}
    parts = [[name, value] for name, value in values.items() if value not in (None, unsaid.get(name))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_not_default).encode()).hexdigest()


@cache
def _hashed(kind: str) -> tuple[str, ...]:
    """Return the keys of the hash. Their order must never change; historically, ``timeout`` follows the probes."""
    names = [name for name, key in _compared(kind).items() if effect_of(key, kind) is Effect.RESTART]
    end = names.index("stop_signal") if names else 0
    return (*sorted(names[:end], key=lambda name: name == "timeout_ms"), *names[end:])


def _not_default(record: Struct) -> dict[str, Any]:
    """Return the fields of a record that do not have their default values."""
    return {field.name: value for field in fields(record) if (value := getattr(record, field.name)) != _default(field)}


def _default(field: FieldInfo) -> object:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def _units(config: Config) -> dict[str, Task | Service]:
    return {**config.tasks, **config.services}


@cache
def _compared(table: str) -> Mapping[str, Key]:
    """Return the keys of a table that are fields of the model, by field name, in the order of the documentation."""
    return {key.attribute: key for key in keys_of(table).values() if key.attribute is not None}


def effect_of(key: Key, table: str) -> Effect:
    """Return the effect of a change of `key` in the table `table`."""
    if isinstance(key.effect, Effect):
        return key.effect
    of_task, of_service = key.effect
    return of_service if table == Service.kind else of_task


def _changed(table: str, old: Any, new: Any) -> tuple[ChangedKey, ...]:
    timeless = table == Task.kind and not (old.crons or new.crons)
    keys = tuple(
        ChangedKey(key.name, Effect.AT_ONCE if timeless and name in _OF_CRON else effect_of(key, table))
        for name, key in _compared(table).items()
        if getattr(old, name) != getattr(new, name)
    )
    return (*keys, ChangedKey("steps", Effect.NEXT_RUN)) if table == Task.kind and old.steps != new.steps else keys
