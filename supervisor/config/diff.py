"""The differences between two configurations, and the effect of each on a running daemon. Pure.

Every key has one effect. The tables below have every field of the model; a test compares them.
"""

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from supervisor.config.model import Config, Service, Task
from supervisor.config.schema import defaults_of, keys_of


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


_E = Effect

TASK: Mapping[str, Effect] = {
    "run": _E.NEXT_RUN,
    "shell": _E.NEXT_RUN,
    "working_dir": _E.NEXT_RUN,
    "env": _E.NEXT_RUN,
    "clean_env": _E.NEXT_RUN,
    "env_public": _E.AT_ONCE,
    "secrets": _E.NEXT_RUN,
    "user": _E.NEXT_RUN,
    "umask": _E.NEXT_RUN,
    "limits": _E.NEXT_RUN,
    "stdin": _E.NEXT_RUN,
    "may": _E.NEXT_RUN,
    "launcher": _E.NEXT_RUN,
    "description": _E.AT_ONCE,
    "group": _E.AT_ONCE,
    "tags": _E.AT_ONCE,
    "crons": _E.SCHEDULE,
    "every_ms": _E.SCHEDULE,
    "at_ms": _E.SCHEDULE,
    "on_change": _E.AT_ONCE,
    "settle_ms": _E.AT_ONCE,
    "timezone": _E.SCHEDULE,
    "dst_gap": _E.SCHEDULE,
    "dst_overlap": _E.SCHEDULE,
    "jitter_ms": _E.AT_ONCE,
    "catch_up": _E.AT_ONCE,
    "catch_up_window_ms": _E.AT_ONCE,
    "run_on_start": _E.NEXT_START,
    "max_concurrent": _E.AT_ONCE,
    "on_overlap": _E.AT_ONCE,
    "queue_max": _E.AT_ONCE,
    "queue_priority": _E.AT_ONCE,
    "coalesce": _E.AT_ONCE,
    "uses": _E.NEXT_RUN,
    "timeout_ms": _E.NEXT_RUN,
    "stop_signal": _E.NEXT_RUN,
    "stop_target": _E.NEXT_RUN,
    "grace_ms": _E.NEXT_RUN,
    "leave_leftovers": _E.NEXT_RUN,
    "retry_attempts": _E.NEXT_RUN,
    "retry_delay_ms": _E.NEXT_RUN,
    "retry_backoff": _E.NEXT_RUN,
    "retry_max_delay_ms": _E.NEXT_RUN,
    "retry_on": _E.NEXT_RUN,
    "retry_superseded": _E.AT_ONCE,
    "exit_codes": _E.NEXT_RUN,
    "failure_output": _E.NEXT_RUN,
    "tty": _E.NEXT_RUN,
    "merge_stderr": _E.NEXT_RUN,
    "redraw": _E.NEXT_RUN,
    "log_max_bytes": _E.NEXT_RUN,
    "log_on_full": _E.NEXT_RUN,
    "keep_runs": _E.AT_ONCE,
    "keep_for_ms": _E.AT_ONCE,
    "keep_refused": _E.AT_ONCE,
    "api_trigger": _E.AT_ONCE,
    "params": _E.NEXT_RUN,
    "notify_on_failure": _E.AT_ONCE,
    "notify_on_success": _E.AT_ONCE,
    "notify_on_missed": _E.AT_ONCE,
    "max_duration_alert_ms": _E.NEXT_RUN,
    "silence_alert_ms": _E.NEXT_RUN,
    "heartbeat": _E.AT_ONCE,
}
_WITHOUT_CRON: Mapping[str, Effect] = {
    **TASK,
    "timezone": _E.AT_ONCE,
    "dst_gap": _E.AT_ONCE,
    "dst_overlap": _E.AT_ONCE,
}
"""For tasks that run at intervals, once, or only by hand."""
SERVICE: Mapping[str, Effect] = {
    "run": _E.RESTART,
    "shell": _E.RESTART,
    "working_dir": _E.RESTART,
    "env": _E.RESTART,
    "clean_env": _E.RESTART,
    "env_public": _E.AT_ONCE,
    "secrets": _E.RESTART,
    "user": _E.RESTART,
    "umask": _E.RESTART,
    "limits": _E.RESTART,
    "stdin": _E.RESTART,
    "may": _E.RESTART,
    "launcher": _E.RESTART,
    "description": _E.AT_ONCE,
    "group": _E.AT_ONCE,
    "tags": _E.AT_ONCE,
    "instances": _E.INSTANCES,
    "restart": _E.AT_ONCE,
    "restart_delay_ms": _E.AT_ONCE,
    "restart_backoff": _E.AT_ONCE,
    "restart_max_delay_ms": _E.AT_ONCE,
    "restart_attempts": _E.AT_ONCE,
    "healthy_after_ms": _E.AT_ONCE,
    "fatal_retry_ms": _E.AT_ONCE,
    "flap_restarts": _E.AT_ONCE,
    "flap_window_ms": _E.AT_ONCE,
    "ready": _E.RESTART,
    "live": _E.RESTART,
    "depends_on": _E.AT_ONCE,
    "autostart": _E.NEXT_START,
    "priority": _E.AT_ONCE,
    "uses": _E.NEXT_RUN,
    "timeout_ms": _E.RESTART,
    "stop_signal": _E.RESTART,
    "stop_target": _E.RESTART,
    "grace_ms": _E.RESTART,
    "leave_leftovers": _E.RESTART,
    "exit_codes": _E.AT_ONCE,
    "failure_output": _E.RESTART,
    "tty": _E.RESTART,
    "merge_stderr": _E.RESTART,
    "redraw": _E.RESTART,
    "log_max_bytes": _E.RESTART,
    "log_on_full": _E.RESTART,
    "keep_runs": _E.AT_ONCE,
    "keep_for_ms": _E.AT_ONCE,
    "keep_refused": _E.AT_ONCE,
    "notify_on_failure": _E.AT_ONCE,
    "notify_on_success": _E.AT_ONCE,
    "notify_on_missed": _E.AT_ONCE,
    "max_duration_alert_ms": _E.NEXT_RUN,
    "silence_alert_ms": _E.NEXT_RUN,
}
SECTIONS: Mapping[str, Mapping[str, Effect]] = {
    "daemon": {
        "data_dir": _E.DAEMON,
        "timezone": _E.AT_ONCE,
        "shutdown_timeout_ms": _E.AT_ONCE,
        "log_level": _E.API,
        "cgroups": _E.AT_ONCE,
        "max_running": _E.AT_ONCE,
        "heartbeat": _E.AT_ONCE,
    },
    "http": {
        "listen": _E.DAEMON,
        "socket": _E.DAEMON,
        "socket_group": _E.DAEMON,
        "proxy_socket": _E.DAEMON,
        "user": _E.DAEMON,
        "workers": _E.API,
        "password_file": _E.API,
        "tls_cert": _E.API,
        "tls_key": _E.API,
        "behind_proxy": _E.API,
        "identity": _E.API,
        "hosts": _E.API,
        "external_url": _E.API,
        "base_path": _E.API,
        "metrics_open": _E.API,
        "public": _E.API,
        "trigger_rate": _E.AT_ONCE,
    },
    "storage": {
        "database": _E.DAEMON,
        "durability": _E.SCHEDULER,
        "min_free_bytes": _E.AT_ONCE,
        "compress_after_ms": _E.AT_ONCE,
        "max_log_bytes": _E.AT_ONCE,
        "undo_window_ms": _E.AT_ONCE,
    },
    "notify": {
        "coalesce_window_ms": _E.AT_ONCE,
        "history_keep": _E.AT_ONCE,
        "digest_ms": _E.AT_ONCE,
    },
}
WHOLE = ("notifiers", "routes", "hooks", "exports", "slots")
"""Tables of which only is said that they differ: they hold at once."""
GONE: Mapping[str, Effect] = {"keep_runs": _E.AT_ONCE, "keep_for_ms": _E.AT_ONCE, "keep_refused": _E.AT_ONCE}
"""Of ``[defaults]``: the keys that apply to tasks and services that left the configuration."""


@dataclass(frozen=True)
class Changed:
    """One key whose value differs."""

    key: str
    """As the file has it."""
    effect: Effect


@dataclass(frozen=True)
class UnitChange:
    """A task or service of the same name and kind that differs."""

    old: Task | Service
    new: Task | Service
    keys: tuple[Changed, ...]

    def has(self, *effects: Effect) -> bool:
        """Return whether any key has one of these effects."""
        return any(changed.effect in effects for changed in self.keys)


@dataclass(frozen=True)
class Difference:
    """The differences, with units in the order of their names."""

    added: tuple[Task | Service, ...] = ()
    changed: tuple[UnitChange, ...] = ()
    turned: tuple[tuple[Task | Service, Task | Service], ...] = ()
    """A task that became a service, or the other way round: before and after."""
    removed: tuple[Task | Service, ...] = ()
    sections: Mapping[str, tuple[Changed, ...]] = field(default_factory=dict)
    """The tables among daemon, http, storage, notify, defaults and those of `WHOLE` with any difference."""

    def section_has(self, effect: Effect) -> bool:
        """Return whether any key outside of tasks and services has this effect."""
        return any(changed.effect is effect for keys in self.sections.values() for changed in keys)


def diff(old: Config, new: Config) -> Difference:
    """Return the differences that turn `old` into `new`."""
    before, after = _units(old), _units(new)
    added, changed, turned = [], [], []
    for name, unit in sorted(after.items()):
        known = before.get(name)
        if known is None:
            added.append(unit)
        elif known.kind != unit.kind:
            turned.append((known, unit))
        elif known != unit:
            changed.append(UnitChange(known, unit, _changed(unit.kind, _effects(known, unit), known, unit)))
    sections = {
        name: _changed(name, effects, getattr(old, name), getattr(new, name)) for name, effects in SECTIONS.items()
    }
    sections["defaults"] = _changed("task", GONE, old, new)
    for name in WHOLE:
        differs = getattr(old, name) != getattr(new, name)
        sections[name] = (Changed(name, Effect.AT_ONCE),) if differs else ()
    return Difference(
        added=tuple(added),
        changed=tuple(changed),
        turned=tuple(turned),
        removed=tuple(unit for name, unit in sorted(before.items()) if name not in after),
        sections={name: keys for name, keys in sections.items() if keys},
    )


def _effects(old: Task | Service, new: Task | Service) -> Mapping[str, Effect]:
    """Return the effects of the keys; no clock moves the schedule of a task that has no cron expressions."""
    if isinstance(old, Task) and isinstance(new, Task):
        return TASK if old.crons or new.crons else _WITHOUT_CRON
    return SERVICE


def definition_hash(unit: Task | Service) -> str:
    """Stands for all that the processes of a service are started with: as long as it is the same, they may stay.

    Defaults are left out, so that a version that knows more keys gets the same result.
    """
    effects = TASK if isinstance(unit, Task) else SERVICE
    unsaid = defaults_of(unit.kind)
    names = (name for name, effect in effects.items() if effect is Effect.RESTART)
    parts = [[name, value] for name in names if (value := getattr(unit, name)) not in (None, unsaid.get(name))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_said).encode()).hexdigest()


def _said(record: Any) -> dict[str, Any]:
    """Return the fields of a record, without fields at their defaults."""
    return {one.name: value for one in fields(record) if (value := getattr(record, one.name)) != _default(one)}


def _default(one: Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _units(config: Config) -> dict[str, Task | Service]:
    return {**config.tasks, **config.services}


def _changed(place: str, effects: Mapping[str, Effect], old: Any, new: Any) -> tuple[Changed, ...]:
    """In the order of the documentation."""
    return tuple(
        Changed(key.name, effects[key.attribute])
        for key in keys_of(place).values()
        if key.attribute in effects and getattr(old, key.attribute) != getattr(new, key.attribute)
    )
