"""A row of the table of all configuration keys, which :mod:`supervisor.config.model` declares."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from inspect import get_annotations
from typing import Any, Final

from supervisor.config.value_types.values import ValueType

REQUIRED: Final = object()
"""Stands for the default of a key that the file must set."""


class Effect(enum.Enum):
    """The effect of a changed key."""

    AT_ONCE = "at once"
    """It holds as soon as the reload is stored."""
    NEXT_RUN = "next run"
    """Runs that have been started finish under the value of before."""
    NEXT_START = "next start"
    """The key applies when the daemon starts."""
    SCHEDULE = "schedule"
    """The next instant is sought anew, from now on."""
    RESTART = "restart"
    """The processes of the service were started with it, so they are replaced."""
    INSTANCES = "instances"
    """Instances are added or taken away."""
    API = "api"
    """The API server is replaced."""
    SCHEDULER = "scheduler"
    """The scheduler is replaced."""
    DAEMON = "daemon"
    """It cannot change while the daemon runs."""


@dataclass(frozen=True)
class Key:
    """A key of the configuration."""

    name: str
    """As the file has it."""
    type: ValueType
    default: Any
    """The value as the file would have it. None: not set. REQUIRED: the file must set it."""
    doc: str
    effect: Effect | tuple[Effect, Effect] = Effect.AT_ONCE
    """The effect of a change; a pair: on a task, and on a service."""
    attribute: str | None = None
    """The name of the key in the model; None: the model does not have it."""
    places: frozenset[str] = frozenset()
    """Tables that have it, in the singular: daemon, http, notifier, task and so on."""


def key(
    kind: ValueType,
    default: object,
    doc: str,
    effect: Effect | tuple[Effect, Effect] = Effect.AT_ONCE,
    *,
    name: str = "",
    shown: bool = True,
    resolved: bool = False,
) -> Any:
    """Declare a field of the model that is a key of the file.

    Args:
        kind: the type of the value.
        default: see :class:`Key`; the field has the value that it stands for.
        doc: a short text for documentation and JSON Schema.
        effect: see :class:`Key`.
        name: of the key in the file, if it is not the name of the field.
        shown: False: the value may have a secret, which the repr of the record leaves out.
        resolved: the loader replaces the value by the record that it names; the field is None by default.
    """
    metadata = {Key: Key(name, kind, default, doc, effect)}
    if default is REQUIRED:
        return field(repr=shown, metadata=metadata)
    value = None if default is None or resolved else kind.parse(default, "/")
    if isinstance(value, dict):
        return field(default_factory=dict, repr=shown, metadata=metadata)
    return field(default=value, repr=shown, metadata=metadata)


def keys_in(record: Any, places: tuple[str, ...]) -> Iterator[Key]:
    """Yield the keys that a record of the model declares itself, for these tables of the file."""
    for name in get_annotations(record):
        declared = record.__dataclass_fields__[name]
        if Key in declared.metadata:
            row: Key = declared.metadata[Key]
            attribute = None if name not in {one.name for one in fields(record)} else name
            yield replace(row, name=row.name or name, attribute=attribute, places=frozenset(places))
