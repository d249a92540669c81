"""The run policy: the settings that a run keeps until it ends, even if a reload changes its definition.

The root keeps the policy in ``origin`` (:mod:`supervisor.ipc.messages`) for the next scheduler, whose configuration may
differ. Settings that matter only when the process starts are excluded.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any, get_type_hints

import msgspec

from supervisor.config.model import Service, Task

_USUAL: dict[str, Any] = {
    "stop_signal": 15,
    "grace_ms": 5000,
    "leave_leftovers": False,
    "retry_attempts": 0,
    "retry_delay_ms": 5000,
    "retry_backoff": "exponential",
    "retry_max_delay_ms": 300_000,
    "retry_on": ("failed", "timeout", "crashed", "start_failed", "log_overflow"),
    "exit_codes": (0,),
    "failure_output": None,
    "ready": None,
    "live": None,
    "max_duration_alert_ms": None,
    "silence_alert_ms": None,
    "uses": {},
}
"""All fields of the policy, with the usual values that messages omit."""


def _shape(kind: type[Task | Service]) -> tuple[list[str], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]:
    names = [name for name in _USUAL if name in kind.__dataclass_fields__]
    return names, attrgetter(*names), tuple(_USUAL[name] for name in names)


_shapes = {kind.kind: _shape(kind) for kind in (Task, Service)}
"""By kind: the fields, their getter, and their usual values."""


def policy_of(definition: Task | Service) -> dict[str, Any]:
    """Return the policy of a definition for a message; usual values are omitted."""
    names, values, usual = _shapes[definition.kind]
    policy = values(definition)
    if policy == usual:
        return {}
    return {
        name: msgspec.to_builtins(value) for name, value in zip(names, policy, strict=True) if value != _USUAL[name]
    }


def with_policy(definition: Task | Service, terms: dict[str, Any]) -> Task | Service:
    """Return `definition` with `terms`, the policy with which the run started.

    A policy that this version cannot decode, because another version wrote it, is ignored.
    """
    types = _types(definition.kind)
    try:
        policy = {
            name: msgspec.convert(terms[name], types[name]) if name in terms else usual
            for name, usual in _USUAL.items()
            if name in types
        }
    except msgspec.ValidationError:
        return definition
    return replace(definition, **policy)


@cache
def _types(kind: str) -> dict[str, Any]:
    return get_type_hints(Task if kind == Task.kind else Service)
