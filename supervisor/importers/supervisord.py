"""Configurations of supervisord."""

import configparser
import glob
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.importers.outcome import Outcome, Unreadable, seconds
from supervisor.importers.words import for_shell

_PROGRAM, _GROUP = "program:", "group:"
_OWN = ("supervisord", "supervisorctl", "unix_http_server", "inet_http_server", "rpcinterface:", "include", _GROUP)
_VARIABLE = re.compile(r"%\(ENV_([A-Za-z0-9_]+)\)s")
_TO_REPLACE = re.compile(r"%\(ENV_(?P<name>[A-Za-z0-9_]+)\)s|%\(process_num\)0?(?P<digits>\d*)d")
_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|\\.|%\(ENV_([A-Za-z0-9_]+)\)s""", re.DOTALL)
"""What is in quotes, and variables that are not."""
_SPLIT_MARK = "\0"
_SPLIT = re.compile(rf"{_SPLIT_MARK}%\(ENV_([A-Za-z0-9_]+)\)s")
_REST = re.compile(r"%\((\w+)\)[sd]")
_HERE = "%(here)s"
_MAX_PRIORITY = 1000
_INHERITED = ("user", "umask", "directory")
"""Of ``[supervisord]`` itself: programs that do not say otherwise have them from it."""
_RESTART = {"true": "always", "unexpected": "on_failure", "false": "never"}
_OF_LOGS = ("logfile_maxbytes", "logfile_backups", "capture_maxbytes", "syslog", "events_enabled")
_NOT_NEEDED = frozenset(
    {"process_name", "stopasgroup", "killasgroup"}
    | {f"{stream}_{key}" for stream in ("stdout", "stderr") for key in _OF_LOGS}
)
"""What means nothing here, or holds anyway: the whole process tree is stopped, and logs are kept."""


def read(path: str, text: str, outcome: Outcome) -> None:
    """Add the programs of a configuration and of the files that it includes.

    Raises:
        Unreadable: it is none.
    """
    parser = _parsed(path, text, outcome)
    groups = {
        name.strip(): section.removeprefix(_GROUP)
        for section in parser.sections()
        if section.startswith(_GROUP)
        for name in parser[section].get("programs", "").split(",")
    }
    common = dict(parser["supervisord"]) if parser.has_section("supervisord") else {}
    for section in parser.sections():
        place = f"{path} [{section}]"
        if section.startswith(_PROGRAM):
            name = section.removeprefix(_PROGRAM)
            try:
                _program(name, dict(parser[section]), common, groups.get(name), place, outcome)
            except ValueError as err:  # quotes that do not end
                outcome.note(place, f"is not carried over: {err}")
        elif section.startswith(_GROUP):
            for key in parser[section]:
                if key != "programs":
                    outcome.note(place, f"{key} is not carried over")
        elif not section.startswith(_OWN):
            outcome.note(place, "is not carried over")


def _parsed(path: str, text: str, outcome: Outcome) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)  # as supervisord itself
    directory = os.path.dirname(os.path.abspath(path))
    try:
        parser.read_string(text, path)
        patterns = parser.get("include", "files", fallback="").split()
        _expand_here(parser, directory)
        for pattern in patterns:
            found = sorted(glob.glob(pattern.replace(_HERE, "."), root_dir=directory))
            if not found:
                outcome.note(f"{path} [include]", f"{pattern}: there is no such file")
            for name in found:
                _include(parser, os.path.join(directory, name), outcome)
    except (configparser.Error, UnicodeDecodeError) as err:
        raise Unreadable(f"{path}: {err}") from err
    return parser


def _include(parser: configparser.RawConfigParser, path: str, outcome: Outcome) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file, path)
    except OSError as err:
        outcome.note(path, f"cannot be read: {err.strerror}")
    else:
        _expand_here(parser, os.path.dirname(os.path.abspath(path)))


def _expand_here(parser: configparser.RawConfigParser, directory: str) -> None:
    """Put the directory of the file that was just read in its place."""
    for section in parser.sections():
        for key, value in parser.items(section):
            if _HERE in value:
                parser.set(section, key, value.replace(_HERE, directory))


def _program(
    name: str,
    said: dict[str, str],
    common: Mapping[str, str],
    group: str | None,
    place: str,
    outcome: Outcome,
) -> None:
    def expanded(text: str) -> str:
        text = text.replace("%(program_name)s", name).replace("%(group_name)s", group or name)
        for missing in _REST.findall(_TO_REPLACE.sub("", text)):
            outcome.note(place, f"%({missing})s is not carried over")
        return text.replace("%%", "%")

    command = said.pop("command", "")
    if not command:
        outcome.note(place, "has no command")
        return
    keys: dict[str, Any] = {"run": _command(expanded(command)), "group": group}
    keys |= {"restart": "on_failure", "healthy_after": "1s", "graceful_stop": "10s"}  # what holds there unless said
    env = _variables(expanded(common.get("environment", "")), place, outcome)
    said = {key: common[key] for key in _INHERITED if key in common} | said
    for key, value in said.items():
        if key == "environment":
            env |= _variables(expanded(value), place, outcome)
        elif key in _KEYS:
            _carry(key, expanded(value), keys, place, outcome)
        elif key.endswith("_logfile"):
            if value.upper() not in ("AUTO", "NONE", "/DEV/STDOUT", "/DEV/STDERR", "/DEV/FD/1", "/DEV/FD/2"):
                outcome.note(place, f"{key} = {value}: the logs of Ringward keep the output instead")
        elif key not in _NOT_NEEDED:
            outcome.note(place, f"{key} is not carried over")
    keys["env"] = env
    keys = {key: value for key, value in keys.items() if value is not None}
    outcome.add("services", name, keys, place)


def _carry(key: str, value: str, keys: dict[str, Any], place: str, outcome: Outcome) -> None:
    target, parse = _KEYS[key]
    try:
        found = None if _TO_REPLACE.search(value) else parse(value)
    except (ValueError, KeyError):
        found = None
    if found is None and key != "redirect_stderr":
        outcome.note(place, f"{key} = {value} is not carried over")
    else:
        keys[target] = found
        if key in ("numprocs", "priority") and keys[target] != int(value):
            outcome.note(place, f"{key} = {value}: is {keys[target]} here")


def _command(text: str) -> list[str] | str:
    """Its arguments; a text for the shell where variables or the number of the process are among them."""
    if not _TO_REPLACE.search(text):
        return shlex.split(text)
    words = shlex.split(_QUOTED.sub(lambda part: part[0] if part[1] is None else _SPLIT_MARK + part[0], text))
    splits = "set -f; " if any(_SPLIT_MARK in word for word in words) else ""  # no patterns there
    return f"{splits}exec {' '.join(map(_shown, words))}"


def _shown(word: str) -> str:
    """For a shell. The value of a variable is split into words, but where there are quotes around it."""
    parts = _SPLIT.split(word)
    if len(parts) == 1:
        return for_shell(parts, _TO_REPLACE, _replaced)
    return "".join(
        f"${{{part}}}" if number % 2 else for_shell([part], _TO_REPLACE, _replaced) if part else ""
        for number, part in enumerate(parts)
    )


def _replaced(found: re.Match[str]) -> str:
    if found["name"]:
        return f"${{{found['name']}}}"
    digits = found["digits"]
    return f"$(printf %0{digits}d $RINGWARD_INSTANCE)" if digits else "$RINGWARD_INSTANCE"


def _variables(text: str, place: str, outcome: Outcome) -> dict[str, str]:
    """Of ``A="1",B=2``."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=",")
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: dict[str, str] = {}
    for word in lexer:
        name, equals, value = word.partition("=")
        if equals:
            if _VARIABLE.search(value):
                outcome.note(place, f"environment: {name} has a variable of the daemon; write it as ${{NAME}}")
            elif _TO_REPLACE.search(value):
                outcome.note(place, f"environment: {name} has the process's number: RINGWARD_INSTANCE here")
            found[name.strip()] = value
    return found


def _truth(text: str) -> bool:
    return {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}[
        text.lower()
    ]


def _whole(low: int, high: int) -> Callable[[str], int]:
    return lambda text: min(max(int(text), low), high)


def _merged(text: str) -> str | None:
    return "merge" if _truth(text) else None


def _codes(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


_KEYS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "numprocs": ("instances", _whole(1, 64)),
    "directory": ("working_dir", str),
    "user": ("user", str),
    "umask": ("umask", lambda text: f"{int(text, 8):03o}"),
    "priority": ("priority", _whole(0, _MAX_PRIORITY)),
    "autostart": ("autostart", _truth),
    "autorestart": ("restart", lambda text: _RESTART[text.lower()]),
    "exitcodes": ("exit_codes", _codes),
    "startsecs": ("healthy_after", lambda text: seconds(int(text))),
    "startretries": ("restart_attempts", _whole(0, 10_000)),
    "stopsignal": ("stop_signal", lambda text: f"SIG{text.upper().removeprefix('SIG')}"),
    "stopwaitsecs": ("graceful_stop", lambda text: seconds(int(text))),
    "redirect_stderr": ("stderr", _merged),
}
