"""The public view of a definition, without secrets."""

import dataclasses
import functools
import hashlib
import json
import math

from store.runs.definitions import Definition
from supervisor.config.model import Service, Task
from supervisor.config.value_records import Dependency, Param, Probe
from supervisor.config.value_types.timing import UNLIMITED_ATTEMPTS
from supervisor.host.signal_sets import signal_name

_MASK = "***"
_HASH_DIGITS = 32


def _dependency(dependency: Dependency) -> dict[str, str]:
    return {"name": dependency.name} | ({"until": dependency.until} if dependency.until is not None else {})


def _probe(probe: Probe | None) -> dict[str, object] | None:
    if probe is None:
        return None
    shown: dict[str, object] = {probe.kind: True if probe.kind == "notify" else probe.target}
    shown |= {"every_ms": probe.every_ms, "timeout_ms": probe.timeout_ms}
    return shown | ({"failures": probe.failures} if probe.failures else {})


def _param(param: Param) -> dict[str, object]:
    shown = {name: getattr(param, name) for name in param.__dataclass_fields__}
    if param.secret and param.default is not None:
        shown["default"] = _MASK
    return {name: value for name, value in shown.items() if value is not None}


def definition_text(unit: Task | Service) -> str:
    """Return a definition as JSON, with the names of the configuration file.

    Masked values: variables in ``env`` that ``env_public`` does not list, ``secrets``, defaults of secret parameters,
    and ``heartbeat``.
    """
    return json.dumps(_public(unit), allow_nan=False)


def recorded_definition(unit: Task | Service) -> Definition:
    """Return the form of a definition that runs refer to, with its hash: the public view without default values.

    A later version with more keys gets the same text. The hash is one of public values only, so it reveals no secret;
    another secret value does not change it.
    """
    usual = _usual(unit.kind)
    values = {name: value for name, value in _public(unit).items() if value != usual.get(name)}
    text = json.dumps({"kind": unit.kind, **values}, allow_nan=False, sort_keys=True)
    return Definition(text, hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS])


@functools.cache
def _usual(kind: str) -> dict[str, object]:
    """Return the public view of a definition that has only default values."""
    return _public(Task(name="", run="") if kind == Task.kind else Service(name="", run=""))


def _public(unit: Task | Service) -> dict[str, object]:
    fields: dict[str, object] = {
        "kind": unit.kind,
        **{field.name: getattr(unit, field.name) for field in dataclasses.fields(unit)},
    }
    del fields["name"]
    fields["env"] = {name: value if name in unit.env_public else _MASK for name, value in unit.env.items()}
    fields["secrets"] = dict.fromkeys(unit.secrets, _MASK)
    steps = unit.stop_signal
    fields["stop_signal"] = signal_name(steps) if isinstance(steps, int) else [[signal_name(n), ms] for n, ms in steps]
    fields["graceful_stop_ms"] = fields.pop("grace_ms")
    fields["leftovers"] = "leave" if fields.pop("leave_leftovers") else "kill"
    fields["env_base"] = "clean" if fields.pop("clean_env") else "inherit"
    fields["umask"] = None if unit.umask is None else f"{unit.umask:04o}"
    fields["stderr"] = "merge" if fields.pop("merge_stderr") else "separate"
    fields["redraw"] = "auto" if fields["redraw"] else "off"
    fields["launcher"] = None if unit.launcher is None else unit.launcher.name
    fields["log_max_size_bytes"] = fields.pop("log_max_bytes")
    if isinstance(unit, Service):
        fields["depends_on"] = [_dependency(dependency) for dependency in unit.depends_on]
        fields["ready"], fields["live"] = _probe(unit.ready), _probe(unit.live)
        for key in ("restart_attempts", "flap_restarts"):
            if fields[key] == math.inf:  # which JSON cannot express
                fields[key] = UNLIMITED_ATTEMPTS
    if isinstance(unit, Task):
        fields["cron"] = fields.pop("crons")
        fields["params"] = [_param(param) for param in unit.params]
        if unit.heartbeat is not None:
            fields["heartbeat"] = _MASK
    return {name: value for name, value in fields.items() if value is not None}
