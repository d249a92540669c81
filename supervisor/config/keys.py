"""The description of a configuration key; :mod:`.daemon_tables` and :mod:`.model` declare all keys with it."""

import enum
from collections.abc import Iterator
from dataclasses import field, fields
from inspect import get_annotations
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from supervisor.config.value_types.values import ValueType

REQUIRED: Final = object()
"""The default of a key that has none, because the file must set it."""


class Effect(enum.Enum):
    """The effect of a change of a key in a reload."""

    AT_ONCE = "at once"
    """The new value applies as soon as the reload is stored."""
    NEXT_RUN = "next run"
    """The new value applies to the next run; active runs keep the previous one."""
    NEXT_START = "next start"
    """The new value applies when the daemon starts."""
    SCHEDULE = "schedule"
    """The schedule counts from now."""
    RESTART = "restart"
    """The instances of the service restart."""
    INSTANCES = "instances"
    """Instances start or stop."""
    API = "api"
    """The API server restarts."""
    SCHEDULER = "scheduler"
    """The scheduler restarts."""
    DAEMON = "daemon"
    """The value cannot change while the daemon runs."""


class Deprecation(Struct, frozen=True):
    """A key that still works, but that the next major release may remove."""

    since: str
    """The first release with the warning, such as 1.3.0."""
    remedy: str
    """What to write instead, as the remedy of a warning."""


class Key(Struct, frozen=True):
    """A key of the configuration."""

    name: str
    """The name in the file."""
    type: ValueType
    default: Any
    """The default as TOML would represent it. None: not set. REQUIRED: the file must set the key."""
    doc: str
    effect: Effect | tuple[Effect, Effect] = Effect.AT_ONCE
    """The effect of a change; a pair has the effects on tasks and on services."""
    attribute: str | None = None
    """The name of the field in the model; None if only the loader uses the key."""
    tables: frozenset[str] = frozenset()
    """The tables that have the key, in the singular: daemon, http, notifier, task and so on."""
    deprecated: Deprecation | None = None
    example: Any = None
    """A value as TOML would represent it, if neither the default nor the type's description shows one."""


def key(
    kind: ValueType,
    default: object,
    doc: str,
    effect: Effect | tuple[Effect, Effect] = Effect.AT_ONCE,
    *,
    name: str = "",
    shown: bool = True,
    resolved: bool = False,
    deprecated: Deprecation | None = None,
    example: object = None,
) -> Any:
    """Declare a field of the model that is a key of the file.

    Args:
        kind: the type of the value.
        default: the default as in :class:`Key`; that of the field is the value which it parses to.
        doc: a short text for documentation and JSON Schema.
        effect: the effect of a change, as in :class:`Key`.
        name: the name in the file, if it differs from that of the field.
        shown: whether the repr of the record contains the value; False for values that may contain a secret.
        resolved: whether the loader replaces the value by the record that it names; then the field defaults to None.
        deprecated: the date since when the key is deprecated, and its replacement; the loader warns about the key.
        example: a value, as in :class:`Key`.
    """
    metadata = {Key: Key(name, kind, default, doc, effect, deprecated=deprecated, example=example)}
    if default is REQUIRED:
        return field(repr=shown, metadata=metadata)
    value = None if default is None or resolved else kind.parse(default, "/")
    if isinstance(value, dict):
        return field(default_factory=dict, repr=shown, metadata=metadata)
    return field(default=value, repr=shown, metadata=metadata)


def keys_in(record: Any, tables: tuple[str, ...]) -> Iterator[Key]:
    """Yield the keys that a record of the model declares itself, as keys of `tables`; its bases' keys are omitted."""
    for name in get_annotations(record):
        declared = record.__dataclass_fields__[name]
        if Key in declared.metadata:
            row: Key = declared.metadata[Key]
            attribute = None if name not in {field.name for field in fields(record)} else name
            yield replace(row, name=row.name or name, attribute=attribute, tables=frozenset(tables))
