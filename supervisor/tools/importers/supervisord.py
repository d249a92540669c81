"""Imports configurations of supervisord."""

import configparser
import glob
import os
import re
import shlex
import string
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.tools.importers.import_result import Outcome, UnreadableFile, WithReferences, seconds
from supervisor.tools.importers.shell_words import Replacement, for_shell
from supervisor.tools.importers.unit_values import signal_name

_PROGRAM, _GROUP = "program:", "group:"
_OWN = ("supervisord", "supervisorctl", "unix_http_server", "inet_http_server", "rpcinterface:", "include", _GROUP)
_VARIABLE = re.compile(r"%\(ENV_(?P<name>[A-Za-z0-9_]+)\)s")
_TO_REPLACE = re.compile(rf"{_VARIABLE.pattern}|%\(process_num\)(?P<format>0?\d*)[ds]|(?P<host>%\(host_node_name\)s)")
_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|\\.|%\(ENV_([A-Za-z0-9_]+)\)s""", re.DOTALL)
"""The pattern of quoted text, and of variables outside quotes."""
_SPLIT_MARK = "\0"
_SPLIT = re.compile(rf"{_SPLIT_MARK}%\(ENV_([A-Za-z0-9_]+)\)s")
_REST = re.compile(r"%\((\w+)\)[sd]")
_HERE = "%(here)s"
_MAX_PRIORITY = 1000
_INHERITED = ("user", "umask", "directory")
"""Keys that programs inherit from the section ``[supervisord]``."""
_SECTION = re.compile(r"^\[([^]]+)\]", re.MULTILINE)
_OF_LOGS = ("logfile_maxbytes", "logfile_backups", "capture_maxbytes")
_NOT_NEEDED = frozenset(
    {"process_name", "stopasgroup", "killasgroup", "numprocs_start"}
    | {f"{stream}_{key}" for stream in ("stdout", "stderr") for key in _OF_LOGS}
)
"""Keys that have no meaning for Ringward or are handled elsewhere."""
_SWITCHES = frozenset(f"{stream}_{key}" for stream in ("stdout", "stderr") for key in ("syslog", "events_enabled"))
"""Keys that have a meaning only if they are true."""


def read(path: str, text: str, outcome: Outcome) -> None:
    """Add the programs of a configuration and of its included files to the outcome.

    Raises:
        UnreadableFile: a file is not a configuration of supervisord.
    """
    parser = _parsed(path, text, outcome)
    groups = {
        name.strip(): section.removeprefix(_GROUP).strip()
        for section in parser.sections()
        if section.startswith(_GROUP)
        for name in parser[section].get("programs", "").split(",")
    }
    common = dict(parser["supervisord"]) if parser.has_section("supervisord") else {}
    if "directory" in common:  # only here, supervisord expands it
        common["directory"] = os.path.expanduser(common["directory"])
    for section in parser.sections():
        location = f"{path} [{section}]"
        if section.startswith(_PROGRAM):
            name = section.removeprefix(_PROGRAM).strip()
            try:
                _program(name, dict(parser[section]), common, groups.get(name), location, outcome)
            except (ValueError, KeyError) as err:  # for example an unterminated quote, or a value that is not a number
                outcome.note(location, f"is not converted: {err}")
        elif section.startswith(_GROUP):
            for key in parser[section]:
                if key != "programs":
                    outcome.note(location, f"{key} is not converted")
        elif not section.startswith(_OWN):
            outcome.note(location, "is not converted")


def _parsed(path: str, text: str, outcome: Outcome) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)  # as in supervisord
    directory = os.path.dirname(os.path.abspath(path))
    sections: set[str] = set()
    try:
        _read(parser, path, text, sections, outcome)
        patterns = parser.get("include", "files", fallback="").split()
        _expand_here(parser, directory)
        for pattern in patterns:
            paths = sorted(glob.glob(pattern.replace(_HERE, "."), root_dir=directory))
            if not paths:
                outcome.note(f"{path} [include]", f"{pattern}: no such file")
            for name in paths:
                _include(parser, os.path.join(directory, name), sections, outcome)
    except (configparser.Error, UnicodeDecodeError) as err:
        raise UnreadableFile(f"{path}: {err}") from err
    return parser


def _read(parser: configparser.RawConfigParser, path: str, text: str, sections: set[str], outcome: Outcome) -> None:
    """Read a file; report sections that were read before, whose settings it adds to, as supervisord does."""
    parser.read_string(text, path)
    for section in _SECTION.findall(text):
        if section in sections:
            outcome.note(f"{path} [{section}]", "occurs more than once: the last value of each key applies")
        sections.add(section)


def _include(parser: configparser.RawConfigParser, path: str, sections: set[str], outcome: Outcome) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            _read(parser, path, file.read(), sections, outcome)
    except OSError as err:
        outcome.note(path, f"cannot be read: {err.strerror}")
    else:
        _expand_here(parser, os.path.dirname(os.path.abspath(path)))


def _expand_here(parser: configparser.RawConfigParser, directory: str) -> None:
    """Replace ``%(here)s`` in the settings of the last file with the directory of that file."""
    for section in parser.sections():
        for key, value in parser.items(section):
            if _HERE in value:
                parser.set(section, key, value.replace(_HERE, directory))


def _program(
    name: str,
    settings: dict[str, str],
    common: Mapping[str, str],
    group: str | None,
    location: str,
    outcome: Outcome,
) -> None:
    def expanded(text: str) -> str:
        text = text.replace("%(program_name)s", name).replace("%(group_name)s", group or name)
        numprocs = settings.get("numprocs", "1")
        text = re.sub(r"%\(numprocs\)[ds]", lambda _match: numprocs, text)
        for missing in _REST.findall(_TO_REPLACE.sub("", text)):
            outcome.note(location, f"%({missing})s is not converted")
        return text.replace("%%", "%")

    command = settings.pop("command", "")
    if not command:
        outcome.note(location, "has no command")
        return
    # The defaults of supervisord. It sends the stop signal only to the main process.
    keys: dict[str, Any] = {"run": None, "group": group}
    keys |= {"restart": "on_failure", "healthy_after": "1s", "graceful_stop": "10s"}
    if not _truth(settings.get("stopasgroup", "false")):
        keys["stop_target"] = "main"
    env = _variables(expanded(common.get("environment", "")))
    settings = {key: common[key] for key in _INHERITED if key in common} | settings
    for key, value in settings.items():
        if key == "environment":
            env |= _variables(expanded(value))
        elif key in _KEYS:
            _carry(key, expanded(value), keys, location, outcome)
        elif not _is_nothing(key, value):
            file = ": Ringward keeps the output in its logs instead" if key.endswith("_logfile") else ""
            outcome.note(location, f"{key} = {value}{file or ' is not converted'}")
    outcome.stops_within(location, keys["graceful_stop"], explicit="stopwaitsecs" in settings)
    in_shell = {variable: value for variable, value in env.items() if _of_the_instance(value)}
    keys["run"] = _command(expanded(command), in_shell, int(settings.get("numprocs_start", "0")))
    keys["env"] = {
        variable: _referring(value, location, outcome) for variable, value in env.items() if variable not in in_shell
    }
    keys = {key: value for key, value in keys.items() if value is not None}
    _say_what_a_quick_exit_is(keys, location, outcome)
    outcome.add("services", name, keys, location)


def _say_what_a_quick_exit_is(keys: Mapping[str, Any], location: str, outcome: Outcome) -> None:
    """Report what supervisord does after an exit within startsecs, whatever its code and ``autorestart``."""
    startsecs = keys["healthy_after"]
    if startsecs == "0s":
        return
    if keys["restart"] == "on_failure":
        there = f"exit code 0 within startsecs ({startsecs}) is a failure there, and the program is started again"
        outcome.note(location, f"{there}; here it is a success")
    elif keys["restart"] == "never":
        outcome.note(location, f"an exit within startsecs ({startsecs}) starts the program again there, but not here")


def _is_nothing(key: str, value: str) -> bool:
    """Return whether a key with this value can be ignored."""
    if key.endswith("_logfile"):
        return value.upper() in ("AUTO", "NONE", "/DEV/STDOUT", "/DEV/STDERR", "/DEV/FD/1", "/DEV/FD/2")
    return key in _NOT_NEEDED or (key in _SWITCHES and _BOOLEANS.get(value.lower()) is False)


def _of_the_instance(value: str) -> bool:
    """Return whether a value is known only when an instance starts, because it depends on the instance or host."""
    return any(match["name"] is None for match in _TO_REPLACE.finditer(value))


def _referring(value: str, location: str, outcome: Outcome) -> str:
    """Convert variables in a value to references to variables of the daemon."""
    parts, end = [], 0
    for match in _VARIABLE.finditer(value):
        name = match["name"]
        if name not in os.environ:
            outcome.note(location, f"%(ENV_{name})s: no such variable here; it is empty unless the daemon has it")
        reference = f"${{{name}}}" if name in os.environ else f"${{{name}:-}}"
        parts += [value[end : match.start()].replace("${", "$${"), reference]
        end = match.end()
    return WithReferences("".join((*parts, value[end:].replace("${", "$${")))) if parts else value


def _carry(key: str, value: str, keys: dict[str, Any], location: str, outcome: Outcome) -> None:
    target, parse = _KEYS[key]
    parsed: Any
    try:
        if _VARIABLE.search(value) and parse is str and not _of_the_instance(value):
            parsed = _referring(value, location, outcome)
        else:
            parsed = None if _TO_REPLACE.search(value) else parse(value)
    except (ValueError, KeyError):
        parsed = None
    if parsed is None and key != "redirect_stderr":
        outcome.note(location, f"{key} = {value} is not converted")
    else:
        keys[target] = parsed
        if key in ("numprocs", "priority") and keys[target] != int(value):
            outcome.note(location, f"{key} = {value}: is {keys[target]} here")


def _command(text: str, variables: Mapping[str, str], first: int) -> list[str] | str:
    """Convert a command to arguments, or to shell code if part of it is known only when an instance starts.

    Args:
        text: The command in the file.
        variables: The variables whose values are known only when an instance starts.
        first: The number of the first process.
    """
    if not _TO_REPLACE.search(text) and not variables:
        return shlex.split(text)
    words = shlex.split(_QUOTED.sub(lambda part: part[0] if part[1] is None else _SPLIT_MARK + part[0], text))
    splits = "set -f; " if any(_SPLIT_MARK in word for word in words) else ""  # supervisord does not expand patterns
    replaced = _replacement(first)
    exports = "".join(
        f"export {name}={for_shell([value], _TO_REPLACE, replaced)}; " for name, value in variables.items()
    )
    return f"{splits}{exports}exec {' '.join(_shown(word, replaced) for word in words)}"


def _shown(word: str, replaced: Replacement) -> str:
    """Return a word as shell code, in which the value of an unquoted variable is split into words."""
    parts = _SPLIT.split(word)
    if len(parts) == 1:
        return for_shell(parts, _TO_REPLACE, replaced)
    return "".join(
        f"${{{part}}}" if number % 2 else for_shell([part], _TO_REPLACE, replaced) if part else ""
        for number, part in enumerate(parts)
    )


def _replacement(first: int) -> Replacement:
    number = f"$((RINGWARD_INSTANCE + {first}))" if first else "$RINGWARD_INSTANCE"

    def replaced(match: re.Match[str]) -> str:
        if match["name"]:
            return f"${{{match['name']}}}"
        if match["host"]:
            return "$(uname -n)"
        return f"$(printf %{match['format']}d {number})" if match["format"] else number

    return replaced


def _variables(text: str) -> dict[str, str]:
    """Return the variables in a text such as ``A="1",B=2``, in which a backslash is a character like any other.

    Raises:
        ValueError: a variable has no value, which supervisord refuses as well.
    """
    lexer = shlex.shlex(text)
    lexer.wordchars += "".join(set(string.punctuation) - set("\"'#,=;"))
    tokens = list(lexer)
    assignments = [tokens[at : at + 3] for at in range(0, len(tokens), 4)]
    if wrong := [words for words in assignments if len(words) != 3 or words[1] != "="]:
        raise ValueError(f"environment: {''.join(wrong[0])} is not NAME=value")
    return {name: value.strip("\"'") for name, _, value in assignments}


_BOOLEANS = configparser.RawConfigParser.BOOLEAN_STATES


def _truth(text: str) -> bool:
    return _BOOLEANS[text.lower()]


def _restart(text: str) -> str:
    if text.lower() == "unexpected":
        return "on_failure"
    return "always" if _truth(text) else "never"


def _whole(low: int, high: int) -> Callable[[str], int]:
    return lambda text: min(max(int(text), low), high)


def _merged(text: str) -> str | None:
    return "merge" if _truth(text) else None


def _codes(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


_KEYS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "numprocs": ("instances", _whole(1, 64)),
    "directory": ("working_dir", str),
    "user": ("user", str),
    "umask": ("umask", lambda text: f"{int(text, 8):03o}"),
    "priority": ("priority", _whole(0, _MAX_PRIORITY)),
    "autostart": ("autostart", _truth),
    "autorestart": ("restart", _restart),
    "exitcodes": ("exit_codes", _codes),
    "startsecs": ("healthy_after", lambda text: seconds(int(text))),
    "startretries": ("restart_attempts", _whole(0, 10_000)),
    "stopsignal": ("stop_signal", signal_name),
    "stopwaitsecs": ("graceful_stop", lambda text: seconds(int(text))),
    "redirect_stderr": ("stderr", _merged),
}
