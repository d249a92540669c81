"""The public view of a definition, without secrets."""

import dataclasses
import functools
import hashlib
import json
import math
import re

from store.runs.definitions import Definition
from supervisor.config.flows.flow_keys import OF_STEPS
from supervisor.config.model import ENDLESS, Service, Task
from supervisor.config.value_records import Dependency, HeldSocket, HostCheck, Param, Probe, Reference, Step, Template
from supervisor.config.value_types.timing import UNLIMITED_ATTEMPTS
from supervisor.host.signal_sets import signal_name

_MASK = "***"
_HASH_DIGITS = 32
_KEY_OF = re.compile("_(?:ms|bytes)$")
"""The end of a field's name that its key does not have."""


def _dependency(dependency: Dependency) -> dict[str, str]:
    shown = {"name": dependency.name, "until": dependency.until, "on_restart": dependency.on_restart}
    return {name: value for name, value in shown.items() if value is not None}


def _socket(held: HeldSocket) -> object:
    if held.address.startswith("tcp:"):
        return held.address
    accounts = {"user": held.user, "group": held.group}
    shown = {"address": held.address, "mode": f"{held.mode:04o}", **accounts}
    return {name: value for name, value in shown.items() if value is not None}


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


def _cron_params(task: Task) -> list[dict[str, str]]:
    secret = {param.name for param in task.params if param.secret}
    return [{name: _MASK if name in secret else value for name, value in params} for params in task.cron_params]


def _step(step: Step) -> dict[str, object]:
    """Return a step as the file has it, without its default values."""
    shown = {name: getattr(step, name) for name in Step.__struct_fields__ if name not in ("unit", "params", "each")}
    values = {name: template_text(value) for name, value in step.params.items()}
    lists = {
        name: template_text((value,)) if isinstance(value, Reference) else [template_text(item) for item in value]
        for name, value in step.each.items()
    }
    shown |= {"task": step.unit, "params": values, "each": lists}
    return {name: value for name, value in shown.items() if value or name in ("after", "when")}


def template_text(template: Template) -> str:
    """Return a value with its references as the file has them."""
    return "".join(part if isinstance(part, str) else _reference(part) for part in template)


def _reference(reference: Reference) -> str:
    key = f".{reference.key}" if reference.key else ""
    default = "" if reference.default is None else f":-{reference.default}"
    return f"${{{reference.of}:{reference.name}{key}{default}}}"


def definition_text(unit: Task | Service) -> str:
    """Return a definition as JSON, with the names of the configuration file.

    Masked values: variables in ``env`` that ``env_public`` does not list, ``secrets``, defaults of secret parameters,
    ``heartbeat``, and the token of a task that runs elsewhere.
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
        fields["sockets"] = {held.name: _socket(held) for held in unit.sockets}
        fields["ready"], fields["live"] = _probe(unit.ready), _probe(unit.live)
        for key in ENDLESS:
            if fields[key] == math.inf:
                fields[key] = UNLIMITED_ATTEMPTS
    if isinstance(unit, Task):
        fields["cron"] = list(unit.crons)
        fields["cron_params"] = _cron_params(unit) if any(unit.cron_params) else None
        if isinstance(unit.only_if, HostCheck):
            fields["only_if"] = {
                name: value for name, value in dataclasses.asdict(unit.only_if).items() if value is not None
            }
        fields["skip_on"] = [calendar.name for calendar in unit.skip_on]
        fields["failure_rate"] = None if unit.failure_rate is None else unit.failure_rate.text
        fields["finish_by"] = None if unit.finish_by is None else unit.finish_by.text
        fields["params"] = [_param(param) for param in unit.params]
        fields["steps"] = [_step(step) for step in unit.steps] or None
        del fields["references"]  # run and env have their texts
        if unit.steps:  # its steps have processes, it has none
            fields = {name: fields[name] for name in fields if _KEY_OF.sub("", name) not in OF_STEPS}
        for secret in ("heartbeat", "ping_token"):
            if fields[secret] is not None:
                fields[secret] = _MASK
    return {name: value for name, value in fields.items() if value is not None}
