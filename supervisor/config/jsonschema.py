"""The JSON Schema of the configuration, for editors. It comes from the same table of keys as the checks of the loader.

The schema describes the form of each value. ``ringward validate`` also checks conflicts between keys, and that time
zones and users exist.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import tomli

from store.runs.run_durations import LEARNED
from supervisor.config.calendar_files import BusinessDay, CalendarDate
from supervisor.config.database_url import DatabaseUrl
from supervisor.config.flows import flow_keys
from supervisor.config.key_tables import UNIT_NAME, keys_of
from supervisor.config.keys import REQUIRED, Key
from supervisor.config.value_types import (
    dependencies,
    exports,
    exposure,
    hook_values,
    identity_table,
    launchers,
    listen,
    notify_targets,
    params,
    patterns,
    probes,
    process,
    slots,
)
from supervisor.config.value_types.durations import DURATION, SIZE
from supervisor.config.value_types.exposure import BasePath, HostName, Network, Url
from supervisor.config.value_types.permissions import APPROVERS, Approvers, Permission
from supervisor.config.value_types.timing import (
    ATTEMPTS,
    RATE,
    RETRY_REASONS,
    TIME_OF_DAY,
    UNLIMITED_ATTEMPTS,
    Attempts,
    Deadline,
    ExpectedDuration,
    LocalTime,
    OnStart,
    Rate,
    RetryCause,
    Timestamp,
)
from supervisor.config.value_types.values import (
    Choice,
    CommandLine,
    CronExpression,
    Duration,
    Environment,
    FileGlob,
    FilePath,
    Flag,
    Integer,
    ListOf,
    Name,
    Secrets,
    Signal,
    Size,
    Text,
    TextOf,
    TimeZone,
    ValueType,
    VariableName,
)
from supervisor.ipc.run_token import SEPARATOR, VERBS
from supervisor.version import VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SECTIONS = ("daemon", "http", "storage", "notify")
_ANY_CASE = re.sub("[a-z]", lambda match: f"[{match[0]}{match[0].upper()}]", SIZE.pattern)

_IN_DESCRIPTION = re.compile(r'such as ("[^"]*"|\{.*\}|\[.*\])')

_TABLES = {
    "daemon": "The daemon itself",
    "http": "The HTTP API and the dashboard",
    "storage": "The database and the logs",
    "notify": "All notifications",
    "notifiers": "Receivers of notifications",
    "launchers": "Other engines that execute runs",
    "hooks": "Webhooks that start tasks",
    "exports": "Copies of log lines for other programs",
    "slots": "Places that runs share",
    "calendars": "Days on which tasks do not run",
    "windows": "Times in which tasks do not run and alarms wait",
    "routes": "The notifiers of each notification",
    "defaults": "Values for all tasks and services that do not set them",
    "tasks": "Commands that run to their end, on a schedule or on demand",
    "services": "Commands that are kept running",
    "flows": "Tasks that consist of runs of other tasks",
}
_NESTED: Mapping[str, tuple[str, Any]] = {
    "address": ("where clients connect", "unix:/run/app.sock"),
    "address_space": ("address space of each process", "2gb"),
    "choices": ("the accepted values", ["small", "large"]),
    "core": ("size of core dumps", "unlimited"),
    "cpu": ("processors that all processes of a run use together", 1.5),
    "cpu_weight": ("share of the processors when they are busy", 50),
    "cpu_time": ("processor time of each process", "10m"),
    "cron": ("when it runs", "0 2 * * sun"),
    "default": ("the value if none is given", "today"),
    "description": ("shown beside the parameter", "The day to load"),
    "every": ("time between two checks", "10s"),
    "embed": ("sites that may show the page in a frame", ["https://example.com"]),
    "exec": ("a command that exits with 0", "pg_isready"),
    "failures": ("failed checks in a row after which the instance is restarted", 3),
    "file_size": ("size of each file that a process writes", "1gb"),
    "group": ("group of the socket", "www-data"),
    "groups": ("groups of tasks and services", ["shop"]),
    "groups_header": ("header with the groups of the user", "Remote-Groups"),
    "http": ("a URL that answers with a status from 200 to 399", "http://127.0.0.1:8080/healthz"),
    "io_weight": ("share of the disks when they are busy", 50),
    "kind": ("how the command gets the value", "env"),
    "kinds": ("kinds of notifications", ["run.failed"]),
    "load_below": ("what the load of the last minute must be below", 2.0),
    "log": ("a line of output that matches", "listening on port [0-9]+"),
    "memlock": ("memory that each process locks", "64mb"),
    "memory": ("memory of all processes of a run together", "512mb"),
    "memory_high": ("memory above which the kernel slows the processes down", "400mb"),
    "mode": ("permissions of the socket", "0660"),
    "name": ("the name", "DAY"),
    "nice": ("niceness of the processes", 10),
    "nofile": ("open files of each process", 4096),
    "notify": ("READY=1 by sd_notify", True),
    "nproc": ("processes of the user", 200),
    "on_restart": ("what follows a restart of the dependency", "restart"),
    "oom_score_adj": ("how early the kernel kills the processes when memory is short", 500),
    "params": ("values of parameters of these runs", {"full": "true"}),
    "path": ("a path that must exist", "/srv/ready"),
    "pids": ("number of processes and threads of a run together", 200),
    "pattern": ("must match the whole value", "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "required": ("whether each run needs a value", True),
    "roles": ("role of each group; * is for all others", {"admins": "admin", "*": "viewer"}),
    "sections": ("headings, each with tasks and services", {"Shop": ["web"]}),
    "secret": ("whether the value is kept out of records and messages", True),
    "secret_file": ("file with the secret of the proxy", "/etc/ringward/proxy-secret"),
    "secret_header": ("header with the secret of the proxy", "X-Proxy-Secret"),
    "severity": ("the least severity", "error"),
    "stack": ("size of each stack", "8mb"),
    "tags": ("tags of tasks and services", ["nightly"]),
    "swap": ("swap space of all processes of a run together", "0b"),
    "tasks": ("glob of names of tasks and services", "backup-*"),
    "tcp": ("a port that accepts connections", "127.0.0.1:5432"),
    "text": ("text below the title", "Maintenance is on Sundays from 02:00 to 04:00 UTC."),
    "timeout": ("time limit of the check", "30s"),
    "title": ("title of the page", "Status of the shop"),
    "type": ("type of the value", "string"),
    "until": ("what to wait for", "ready"),
    "user": ("owner of the socket", "app"),
    "user_header": ("header with the name of the user", "Remote-User"),
}
"""Meaning and example of each key of a table within a table."""

Schema = dict[str, Any]

_REFERENCE: Schema = {"$ref": "#/$defs/reference"}
_STRING: Schema = {"type": "string", "minLength": 1}
_STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_DURATION: Schema = {"anyOf": [{"type": "string", "pattern": f"^(?:0|{DURATION.pattern})$"}, _REFERENCE]}
_SIZE: Schema = {"anyOf": [{"type": "string", "pattern": f"^{_ANY_CASE}$"}, _REFERENCE]}


def document() -> Schema:
    """Return the schema of a configuration file."""
    sections = {name: _table(keys_of(name)) for name in _SECTIONS}
    units = {"tasks": keys_of("task"), "services": keys_of("service")}
    both = keys_of("task", "service")
    tables = {
        **sections,
        "notifiers": _named(keys_of("notifier")),
        "launchers": _named(keys_of("launcher")),
        "hooks": _named(keys_of("hook")),
        "exports": _named(keys_of("export")),
        "slots": _named(keys_of("slot")),
        "calendars": _named(keys_of("calendar")),
        "windows": _named(keys_of("window")),
        "routes": {"type": "array", "items": _table(keys_of("route"))},
        "defaults": _table(both, required=False),
        **{table: _named(keys) for table, keys in units.items()},
        "flows": flows(),
    }
    task = tables["tasks"]["additionalProperties"]
    task["anyOf"] = [{"required": task.pop("required", [])}, {"required": ["external", "token_file"]}]
    return {
        "$schema": DIALECT,
        "$id": f"urn:ringward:configuration:{VERSION}",
        "title": "Configuration of Ringward",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"title": name, "description": _TABLES[name], **table} for name, table in tables.items()},
        "$defs": {
            "reference": {
                "description": "A value with a reference: ${VARIABLE}, ${VARIABLE:-default} or ${file:PATH}",
                "type": "string",
                "pattern": r"\$\{",
            }
        },
    }


def schema_of(kind: ValueType) -> Schema:
    """Return the schema of a value of type `kind`.

    Raises:
        TypeError: there is no schema for the type.
    """
    rule = _RULES.get(type(kind))
    if rule is None:
        raise TypeError(f"no JSON Schema for {type(kind).__name__}")
    return rule(kind)


def _table(keys: Mapping[str, Key], *, required: bool = True) -> Schema:
    """Return the schema of a table that allows only these keys."""
    needed = [key.name for key in keys.values() if key.default is REQUIRED and required]
    return _object({name: _key(key) for name, key in keys.items()}, needed)


def _named(keys: Mapping[str, Key]) -> Schema:
    """Return the schema of a table of tables, such as ``[tasks.NAME]``."""
    return {
        "type": "object",
        "propertyNames": {"pattern": f"^{UNIT_NAME.pattern}$"},
        "additionalProperties": _table(keys),
    }


def flows() -> Schema:
    """Return the schema of ``[flows.NAME]`` with its steps and their defaults."""
    flow = _table(keys_of(flow_keys.FLOW))
    with_command = _table(keys_of(flow_keys.STEP))
    with_task = _object({name: _key(key) for name, key in keys_of(flow_keys.NAMED_STEP).items()}, ["task"])
    steps = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": flow_keys.MAX_STEPS,
        "propertyNames": {"pattern": f"^{flow_keys.STEP_NAME.pattern}$"},
        "additionalProperties": {"anyOf": [with_command, with_task]},
    }
    defaults = _table(keys_of(flow_keys.STEP_DEFAULTS))
    for name, doc, shown, schema in (
        ("steps", "the steps by name", {"extract": {"run": "./extract"}}, steps),
        ("defaults", "values for all steps that do not set them", {"user": "etl"}, defaults),
    ):
        flow["properties"][name] = {"title": name, "description": doc, "examples": [shown], **schema}
    flow["required"] = ["steps"]
    return {"type": "object", "propertyNames": {"pattern": f"^{UNIT_NAME.pattern}$"}, "additionalProperties": flow}


def _key(key: Key) -> Schema:
    extra: Schema = {} if key.default in (None, REQUIRED) else {"default": key.default}
    if key.deprecated is not None:
        extra["deprecated"] = True
    about = {"title": key.name, "description": f"{key.doc}; {key.type.expected}", "examples": [example(key)]}
    return {**about, **extra, **schema_of(key.type)}


def example(key: Key) -> object:
    """Return an example value of a key, as TOML would represent it."""
    if key.default not in (None, REQUIRED, "", []):
        return key.default
    return _example_of(key.type) if key.example is None else key.example


def _example_of(kind: ValueType) -> object:
    """Return the example from the description of a type; None if there is none."""
    if isinstance(kind, Choice):
        return next(iter(kind.words))
    text = kind.expected
    match = _IN_DESCRIPTION.search(text)
    if match is None:
        return None
    value = tomli.loads(f"example = {match[1]}")["example"]
    return [value] if text.startswith("a list, each item") else value


def _object(properties: Mapping[str, Schema], required: list[str] | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": dict(properties)}
    return schema | ({"required": required} if required else {})


def _types(types: Mapping[str, ValueType], required: list[str] | None = None) -> Schema:
    return _object({name: _nested(name, kind) for name, kind in types.items()}, required)


def _nested(name: str, kind: ValueType) -> Schema:
    """Return the schema of a key in a table that is itself the value of a key."""
    doc, given = _NESTED[name]
    return {"title": name, "description": f"{doc}; {kind.expected}", "examples": [given], **schema_of(kind)}


def _or_reference(schema: Schema) -> Schema:
    return {"anyOf": [schema, _REFERENCE]}


def _text(kind: Text) -> Schema:
    return {"type": "string", "minLength": int(not kind.empty), "maxLength": kind.limit}


def _integer(kind: Integer) -> Schema:
    return _or_reference({"type": "integer", "minimum": kind.low, "maximum": kind.high})


def _list(kind: ListOf) -> Schema:
    item = schema_of(kind.item)
    several = {
        "type": "array",
        "items": item,
        "minItems": int(not kind.empty),
        "maxItems": kind.limit,
        "uniqueItems": True,
    }
    return {"anyOf": [item, several]} if kind.single else several


def _probe(kind: probes.ProbeTable) -> Schema:
    settings = {name: each for name, each in probes.SETTINGS.items() if name != "failures" or kind.failures}
    table = _types({name: probes.KINDS[name] for name in kind.kinds} | settings)
    return table | {"oneOf": [{"required": [name]} for name in kind.kinds]}


def _steps(_kind: ValueType) -> Schema:
    step = {"type": "array", "prefixItems": [_STRING, _DURATION], "minItems": 2, "maxItems": 2}
    return {"anyOf": [_STRING, {"type": "array", "items": step, "minItems": 1, "maxItems": process.MAX_STEPS}]}


def _always(schema: Schema) -> Callable[[object], Schema]:
    return lambda _kind: schema


_CPUS = _or_reference({"type": "number", "minimum": process.MIN_CPUS, "maximum": process.MAX_CPUS})
_COMMAND: Schema = {"anyOf": [_STRING, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_CAUSE: Schema = {
    "anyOf": [{"type": "integer", "minimum": 0, "maximum": 255}, {"enum": list(RETRY_REASONS)}, _REFERENCE]
}
_DECLARED = ["name", "kind"]
_PATH: Schema = {"anyOf": [{"type": "string", "pattern": f"^{hook_values.PATH}$"}, _REFERENCE]}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100, "uniqueItems": True}
_CONDITIONS: Schema = {
    "type": "object",
    "propertyNames": {"pattern": f"^{hook_values.PATH}$"},
    "additionalProperties": {"anyOf": [{"type": "string"}, _TEXTS]},
}

_RULES: Mapping[type, Callable[[Any], Schema]] = {
    **dict.fromkeys(
        (
            BasePath,
            CronExpression,
            DatabaseUrl,
            FileGlob,
            exports.SyslogAddress,
            FilePath,
            HostName,
            listen.Listen,
            LocalTime,
            Timestamp,
            Network,
            Signal,
            TextOf,
            TimeZone,
            Url,
            VariableName,
            Name,
            notify_targets.NotifierUrl,
            notify_targets.PingUrl,
            notify_targets.QuietRange,
            patterns.RegularExpression,
            probes.ProbeAddress,
            probes.ProbeUrl,
            process.Umask,
            listen.SocketAddress,
            listen.SocketMode,
        ),
        _always({"type": "string"}),
    ),
    params.CronValue: lambda _kind: {"anyOf": [schema_of(CronExpression()), _types(params.CRON_WITH_PARAMS, ["cron"])]},
    params.ParamValues: _always({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
    Text: _text,
    Flag: _always(_or_reference({"type": "boolean"})),
    Deadline: _always(
        {"anyOf": [{"type": "string", "pattern": rf"^(?:{TIME_OF_DAY.pattern}|\+{DURATION.pattern})$"}, _REFERENCE]}
    ),
    Rate: _always({"anyOf": [{"type": "string", "pattern": f"^{RATE.pattern}$"}, _REFERENCE]}),
    ExpectedDuration: _always({"anyOf": [{"const": LEARNED}, _DURATION]}),
    OnStart: _always(_or_reference({"enum": [True, False, "boot"]})),
    Integer: _integer,
    Attempts: lambda _kind: {"anyOf": [{"const": UNLIMITED_ATTEMPTS}, _integer(ATTEMPTS)]},
    Choice: lambda kind: _or_reference({"enum": list(kind.words)}),
    Duration: _always(_DURATION),
    process.Seconds: _always(_DURATION),
    Size: _always(_SIZE),
    process.Amount: _always({"anyOf": [_SIZE, {"const": "unlimited"}]}),
    process.Cpus: _always(_CPUS),
    process.Limits: lambda _kind: _types(process.LIMITS),
    process.StopSignal: _steps,
    Permission: _always({"type": "string", "pattern": f"^(?:{'|'.join(VERBS)}){SEPARATOR}."}),
    process.Stdin: _always(
        {"anyOf": [{"enum": ["null", "open"]}, {"type": "string", "pattern": "^file:."}, _REFERENCE]}
    ),
    ListOf: _list,
    CalendarDate: _always({"type": "string", "format": "date"}),
    BusinessDay: _always(_or_reference({"enum": [*range(-10, 0), *range(1, 11)]})),
    slots.SlotUses: lambda _kind: {
        "anyOf": [
            _list(slots.NAMES),
            {"type": "object", "additionalProperties": _integer(slots.PLACES)},
        ]
    },
    listen.Sockets: lambda _kind: {
        "type": "object",
        "propertyNames": {"pattern": f"^{listen.SOCKET_NAME}$"},
        "additionalProperties": {"anyOf": [_STRING, _types(listen.SOCKET_KEYS, ["address"])]},
    },
    Environment: _always(_STRINGS),
    Secrets: _always(_STRINGS),
    probes.Load: _always({"type": "number", "exclusiveMinimum": 0}),
    Approvers: lambda _kind: {"anyOf": [{"type": "boolean"}, _list(APPROVERS), _REFERENCE]},
    probes.Condition: lambda _kind: {"anyOf": [*_COMMAND["anyOf"], _types(probes.HOST_CHECKS)]},
    CommandLine: _always(_COMMAND),
    RetryCause: _always(_CAUSE),
    dependencies.DependencyEntry: lambda _kind: {"anyOf": [_STRING, _types(dependencies.KEYS, ["name"])]},
    hook_values.Path: _always(_PATH),
    hook_values.ParamPaths: _always({"type": "object", "additionalProperties": _PATH}),
    hook_values.Conditions: _always(_CONDITIONS),
    identity_table.Header: _always({"type": "string", "pattern": f"^{identity_table.HEADER}$", "maxLength": 100}),
    identity_table.Roles: _always(
        {"type": "object", "minProperties": 1, "additionalProperties": {"enum": list(identity_table.ROLES)}}
    ),
    identity_table.IdentityTable: lambda _kind: _types(identity_table.KEYS, list(identity_table.REQUIRED)),
    exposure.Sections: lambda _kind: {"type": "object", "additionalProperties": _list(exposure.SECTION_UNITS)},
    exposure.StatusPageType: lambda _kind: _types(exposure.PAGE_KEYS, list(exposure.PAGE_REQUIRED)),
    notify_targets.MatchTable: lambda _kind: _types(notify_targets.MATCHES),
    notify_targets.UnitConditions: lambda _kind: _types(notify_targets.UNITS),
    params.ParamValue: _always({"type": ["string", "number", "boolean"]}),
    params.ParamDeclaration: lambda kind: _types(kind.keys, [name for name in _DECLARED if name in kind.keys]),
    params.Params: lambda kind: _list(ListOf(params.ParamDeclaration(kind.flow), params.MAX_PARAMS)),
    flow_keys.EachLists: _always(
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{flow_keys.STEP_NAME.pattern}$"},
            "additionalProperties": {"anyOf": [{"type": "array", "maxItems": flow_keys.MAX_ITEMS}, _REFERENCE]},
        }
    ),
    flow_keys.StepParams: _always(
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
    ),
    probes.ProbeTable: _probe,
    probes.TrueOnly: _always({"const": True}),
    launchers.ArgumentList: lambda kind: {"type": "array", "items": {"type": "string"}, "minItems": int(kind.program)},
}
