"""Parameters of tasks: their declaration, and how they reach the command.

=========  ===========================================================================
kind       the command receives it as
=========  ===========================================================================
env        an environment variable of that name
arg        a positional argument: ``$1``, ``$2`` … of a shell text, in the order of declaration
option     an argument ``--NAME=VALUE``, after the positional ones
flag       the argument ``--NAME`` if it is true, among the options in the order of declaration
=========  ===========================================================================

Each value is text, and becomes exactly one argument or variable: no shell or other program parses it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any

from msgspec import Struct

from supervisor.config.problems import Faults, InvalidValue, nearest, quoted
from supervisor.config.value_records import CronEntry, Param
from supervisor.config.value_types.param_values import MAX_BYTES, TYPES, normal
from supervisor.config.value_types.patterns import VALUE_PATTERN
from supervisor.config.value_types.values import (
    Choice,
    CronExpression,
    Flag,
    ListOf,
    Text,
    ValueType,
    choice,
    parse_parts,
    parse_table,
)

MAX_PARAMS = 100
_MAX_BITS = 63
"""TOML numbers have 64 bits, one of them for the sign."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_REFERABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_PROGRAM_PREFIXES = ("BASH_FUNC_", "GIT_CONFIG", "LD_", "LISTEN_", "RINGWARD_", "WATCHDOG_")
# fmt: off
_PROGRAM_NAMES = frozenset({
    "BASHOPTS", "BASH_ENV", "BROWSER", "CDPATH", "CLASSPATH", "EDITOR", "ENV", "FPATH", "GCONV_PATH", "GIT_ASKPASS",
    "GIT_DIR", "GIT_EDITOR", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_TEMPLATE_DIR", "GLIBC_TUNABLES", "GNUMAKEFLAGS",
    "HOME", "HOSTALIASES", "IFS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LESSCLOSE", "LESSOPEN", "LOCPATH",
    "MAKEFLAGS", "NLSPATH", "NODE_OPTIONS", "NODE_PATH", "NOTIFY_SOCKET", "PAGER", "PATH", "PERL5DB", "PERL5LIB",
    "PERL5OPT", "PERLLIB", "PHPRC", "PHP_INI_SCAN_DIR", "PS4", "PYTHONBREAKPOINT", "PYTHONEXECUTABLE", "PYTHONHOME",
    "PYTHONINSPECT", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONSTARTUP", "PYTHONUSERBASE",
    "PYTHONWARNINGS", "RSYNC_CONNECT_PROG", "RSYNC_RSH", "RUBYLIB", "RUBYOPT", "RUBYSHELL", "SHELL", "SHELLOPTS",
    "SSH_ASKPASS", "VISUAL", "XDG_CONFIG_HOME", "ZDOTDIR", "_JAVA_OPTIONS",
})
# fmt: on
"""Variables, and prefixes of variables, that no parameter can set.

With them the requester could choose the code to execute, or block the run's messages to the daemon.
"""


class ParamValue(Struct, frozen=True):
    """A value in the file: a string, or a TOML number or boolean, which becomes text."""

    expected = "a string, a number, true or false"

    def parse(self, value: object, directory: str) -> str:  # noqa: ARG002 - the protocol's signature
        """Return the value as text."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float) or (isinstance(value, int) and value.bit_length() > _MAX_BITS):
            raise InvalidValue(f"must be {self.expected}")
        return str(value)


KEYS: Mapping[str, ValueType] = {
    "name": Text(limit=100, empty=False),
    "kind": choice("env", "arg", "option", "flag"),
    "type": Choice({word: word for word in TYPES}),
    "default": ParamValue(),
    "required": Flag(),
    "choices": ListOf(ParamValue(), 1000, empty=False),
    "pattern": VALUE_PATTERN,
    "description": Text(),
    "secret": Flag(),
}


class ParamDeclaration(Struct, frozen=True):
    """The declaration of a parameter, as a table."""

    flow: bool = False
    """Whether it is a parameter of a flow, which has no kind."""

    @property
    def expected(self) -> str:
        """Show an example."""
        kind = "" if self.flow else ' kind = "env",'
        return f'a table such as {{ name = "DAY",{kind} required = true }}'

    @property
    def keys(self) -> Mapping[str, ValueType]:
        """Return the types of the keys of the table."""
        return {name: KEYS[name] for name in KEYS if not (self.flow and name == "kind")}

    def parse(self, value: object, directory: str) -> Param:
        """Return the parameter. No message repeats a value of a secret."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        if self.flow and "kind" in value:
            raise InvalidValue(
                "has a kind, but a flow has no command", 'steps take the value: "${param:NAME}"', show=False
            )
        parsed, faults = _declared(value, self.keys, directory)
        for name in ("name", "kind"):
            if name not in value and name in self.keys:
                faults.add(f"must have a {name}", f"write {self.expected}")
        if not faults.errors:
            faults.errors += _clashes(parsed)
        if not faults.errors:
            faults.errors += _unfit(parsed)
        for part in faults.errors:
            part.show = part.show and not (value.get("secret") and part.path[:1] in ((), ("default",), ("choices",)))
        faults.check()
        return Param(**parsed)


class Params(Struct, frozen=True):
    """The declarations of all parameters of a task, or of a flow."""

    flow: bool = False

    @property
    def expected(self) -> str:
        """Describe the list by the type of its items."""
        return f"a list, each item {ParamDeclaration(self.flow).expected}"

    def parse(self, value: object, directory: str) -> tuple[Param, ...]:
        """Return the parameters of the task."""
        params: tuple[Param, ...] = ListOf(ParamDeclaration(self.flow), MAX_PARAMS, distinct=False).parse(
            value, directory
        )
        seen: set[str] = set()
        faults = Faults()
        for index, param in enumerate(params):
            if param.name in seen:
                faults.add("the name is already used by another parameter", path=(index, "name"))
            seen.add(param.name)
        if sum(len((param.default or "").encode()) for param in params) > MAX_BYTES:
            faults.add(f"the defaults must have at most {MAX_BYTES} bytes together")
        faults.check()
        return params


def _declared(value: dict[str, Any], keys: Mapping[str, ValueType], directory: str) -> tuple[dict[str, Any], Faults]:
    """Return the fields of the record that a table sets, and the faults of single values."""
    given, faults = parse_table(value, keys, directory)
    parsed = {"kind": None} | {field.name: field.default for field in fields(Param) if field.name in _OPTIONAL} | given
    if parsed.get("kind") == "flag" and "type" not in value:
        parsed["type"] = "boolean"
    return parsed, faults


_OPTIONAL = frozenset(KEYS) - {"name", "kind"}


def _clashes(parsed: Mapping[str, Any]) -> Iterable[InvalidValue]:
    """Yield conflicts between the keys of a declaration."""
    kind, kind_of_value = parsed["kind"], parsed["type"]
    if kind == "env":
        yield from _wrong_variable(parsed["name"])
    elif kind is None and not _REFERABLE_NAME.fullmatch(parsed["name"]):
        remedy = "use at most 100 letters, digits, hyphens and underscores, beginning with a letter or underscore"
        yield InvalidValue("is not a valid name", remedy, path=("name",))
    elif kind is not None and not _NAME.fullmatch(parsed["name"]):
        remedy = "use at most 100 letters, digits, hyphens and underscores, not beginning with a hyphen"
        yield InvalidValue("is not a valid name", remedy, path=("name",))
    if parsed["secret"] and kind not in ("env", None):
        message = "a secret needs the kind env: everyone on the host can read arguments"
        yield InvalidValue(message, show=False, path=("kind",))
    if kind == "flag" and kind_of_value != "boolean":
        yield InvalidValue("must be boolean for a flag", path=("type",))
    if parsed["choices"] and kind_of_value == "boolean":
        yield InvalidValue("cannot be combined with the type boolean", show=False, path=("choices",))
    if parsed["pattern"] and kind_of_value != "string":
        yield InvalidValue(f"cannot be combined with the type {kind_of_value}", show=False, path=("pattern",))
    if parsed["choices"] and parsed["pattern"]:
        yield InvalidValue("cannot be combined with choices", "remove one of them", show=False, path=("pattern",))


def _wrong_variable(name: str) -> Iterable[InvalidValue]:
    if not _ENV_NAME.fullmatch(name):
        remedy = "use at most 100 letters, digits and underscores, not beginning with a digit"
        yield InvalidValue("is not a valid name of an environment variable", remedy, path=("name",))
    elif is_reserved(name):
        message = "cannot be a parameter: this variable controls which programs execute, or belongs to the daemon"
        yield InvalidValue(message, "use another name, and set this variable in the command", path=("name",))


def is_reserved(name: str) -> bool:
    """Return whether a variable controls which programs execute, or belongs to the daemon."""
    return name.upper() in _PROGRAM_NAMES or name.upper().startswith(_PROGRAM_PREFIXES)


def _unfit(parsed: dict[str, Any]) -> Iterable[InvalidValue]:
    """Yield errors about choices and a default that the parameter would reject; normalise the others in place."""
    kinds = {name: parsed[name] for name in ("name", "kind", "type", "secret", "pattern")}
    choices: list[str] = []
    faults = Faults()
    for index, text in enumerate(parsed["choices"]):
        with faults.at("choices", index):
            normal_text = normal(Param(**kinds | {"secret": False, "kind": "env"}), text)
            if normal_text in choices:
                raise InvalidValue("repeats an earlier item")
            choices.append(normal_text)
    yield from faults.errors
    parsed["choices"] = tuple(choices)
    if parsed["default"] is not None:
        try:
            parsed["default"] = normal(
                Param(**kinds, choices=parsed["choices"], required=parsed["required"]), parsed["default"]
            )
        except InvalidValue as err:
            err.path = ("default",)
            yield err


class CronValue(Struct, frozen=True):
    """A cron expression, or a table with one and values of parameters."""

    expected = f'{CronExpression().expected}, or a table such as {{ cron = "@daily", params = {{ full = "true" }} }}'

    def parse(self, value: object, directory: str) -> CronEntry:
        """Return the expression with its values as text."""
        if not isinstance(value, dict):
            if not isinstance(value, str):
                raise InvalidValue(f"must be {self.expected}")
            return CronEntry(CronExpression().parse(value, directory))
        parsed, faults = parse_table(value, CRON_WITH_PARAMS, directory)
        if "cron" not in value:
            faults.add("must have a cron", f"write {self.expected}")
        faults.check()
        return CronEntry(parsed["cron"], tuple(parsed.get("params", {}).items()))


class ParamValues(Struct, frozen=True):
    """Values of parameters by name."""

    expected = 'a table such as { full = "true" }'

    def parse(self, value: object, directory: str) -> dict[str, str]:
        """Return the values as text."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        return parse_parts(value.items(), lambda _name, item: ParamValue().parse(item, directory))


CRON_WITH_PARAMS: Mapping[str, ValueType] = {"cron": CronExpression(), "params": ParamValues()}


def unsuitable_values(
    params: Iterable[Param], entries: Iterable[CronEntry]
) -> Iterable[tuple[tuple[str | int, ...], InvalidValue]]:
    """Yield the errors in values that cron expressions give to parameters, each with the index of its expression."""
    known = {param.name: param for param in params}
    defaults = {name: param.default or "" for name, param in known.items()}
    for index, entry in enumerate(entries):
        for name, text in entry.params:
            if name not in known:
                message = f"the task has no parameter {quoted(name)}"
                yield (index, "params", name), InvalidValue(message, nearest(name, known) or "add it to params")
                continue
            try:
                normal(known[name], text)
            except InvalidValue as err:
                yield (
                    (index, "params", name),
                    InvalidValue(f"the parameter {quoted(name)} {err.message}", err.remedy),
                )
        if sum(len(text.encode()) for text in {**defaults, **dict(entry.params)}.values()) > MAX_BYTES:
            message = f"with the defaults, the values must have at most {MAX_BYTES} bytes together"
            yield (index, "params"), InvalidValue(message)


def unsuitable(
    params: Iterable[Param], *, scheduled: bool, api_trigger: bool, secrets: Collection[str]
) -> Iterable[tuple[int, InvalidValue]]:
    """Yield the conflicts of a task's parameters with its other keys, each with the parameter's index.

    Args:
        params: the parameters of the task.
        scheduled: whether the task also runs without a requester, who could set values.
        api_trigger: whether users can run the task, and so set values.
        secrets: names of the variables with secrets of the task.
    """
    for index, param in enumerate(params):
        if param.required and param.default is None:
            if scheduled:
                message = "is required, but runs of a schedule, of changed files and of the start have no caller"
                yield index, InvalidValue(message, "give it a default", show=False)
            elif not api_trigger:
                yield index, InvalidValue("is required, but with api_trigger = false there is no caller", show=False)
        if param.kind == "env" and param.name in secrets:
            yield index, InvalidValue("is already in secrets", "remove one of them", show=False, path=("name",))
