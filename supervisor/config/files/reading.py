"""Reads a TOML file: with a limit of size, a check of its owner, and the line of each key."""

import contextlib
import glob
import os
import re
import stat
from collections.abc import Collection, Sequence
from typing import Any

import tomli
from msgspec import Struct

from supervisor.config.files.positions import KeyPath, Positions
from supervisor.config.files.substitute import read_small
from supervisor.config.problems import NAME_RULE, ConfigError, Problem, dotted, quoted
from supervisor.config.value_records import Stamp

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_INCLUDED = 1000

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_WILD = frozenset("*?[")

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*({_NAME})[ \t]*\]")
_KEY = re.compile(rf"[ \t]*({_NAME})[ \t]*=[ \t]*([^\s#]?)")
_UNQUOTED = re.compile(r"""[ \t]*\[([a-z]+)\.([^]"'\n]+)\]""")
_YAML = re.compile(r"[ \t]*(?:---|(?:- )?[\w.-]+:(?:[ \t]|$))")
_SPECIAL = frozenset('"\\#')
_TOML = 'write a table such as [tasks.backup] with keys such as run = "backup --all"'
_VALUES = ("Invalid value", "Expected newline or end of document after a statement")
_HEADERS = ("Expected ']' at the end of a table declaration", "Invalid initial character for a key part")
_STATEMENTS = ("Expected '=' after a key in a key/value pair", "Invalid statement")
_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot redefine", "Cannot mutate", "Duplicate inline table key")
_REMEDIES = {
    "Invalid initial character for a key part": "quote a name that has other characters than letters, digits, _ and -",
    "Unescaped '\\' in a string": "write \\\\, or use single quotes",
    "Unterminated string": 'close the string with the same quotes; a string of several lines needs """',
}


class Source(Struct, frozen=True):
    """A file that was read."""

    name: str
    """The path as given, which messages show."""
    directory: str
    """Absolute path of its directory, from which relative paths in the file start."""
    data: dict[str, Any]
    positions: Positions
    stamp: Stamp
    """The state of the file when it was read."""

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return os.path.join(self.directory, os.path.basename(self.name))

    def problem(self, path: KeyPath, message: str, remedy: str | None = None) -> Problem:
        """Return a problem with the key at `path`."""
        return Problem(self.name, self.positions.line(path), dotted(path), message, remedy)


def read_source(name: str) -> Source:
    """Read and parse the file `name`.

    Raises:
        ConfigError: it cannot be read, must not be trusted, or is not valid TOML.
    """
    data, status = _read(name)
    if problem := distrust(name, status, os.geteuid()):
        raise ConfigError([problem])
    return _parse(name, data, status)


def read_keys(name: str, keys: Collection[tuple[str, str]]) -> tuple[Source, Problem | None]:
    """Read some keys of the file `name`, even if the file is not valid TOML.

    Args:
        name: path of the file.
        keys: the keys, each as (table, key).

    Returns:
        A source with only these keys, and the reason why root must not trust the file, if any.

    Raises:
        ConfigError: the file cannot be read, or it is not valid TOML because of one of these keys.
    """
    data, status = _read(name)
    directory = os.path.dirname(os.path.abspath(name))
    text = data.decode("utf-8-sig", "replace")
    try:
        content = _parse(name, data, status).data
    except ConfigError:
        salvaged = _salvage(text, keys)
        if salvaged is None:
            raise
        content = salvaged
    tables: dict[str, dict[str, object]] = {}
    for table, key in keys:
        if isinstance(content.get(table), dict) and key in content[table]:
            tables.setdefault(table, {})[key] = content[table][key]
    return Source(name, directory, tables, Positions(text), stamp(status)), distrust(name, status, os.geteuid())


def stamp(status: os.stat_result) -> Stamp:
    """Return the state of a file from its status, without reading it."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(name: str) -> tuple[bytes, os.stat_result]:
    try:
        return read_small(name, MAX_FILE_BYTES)
    except OSError as err:
        raise ConfigError([Problem(name, None, "", f"cannot be read: {err.strerror or err}")]) from err


def _parse(name: str, data: bytes, status: os.stat_result) -> Source:
    directory = os.path.dirname(os.path.abspath(name))
    text = _decode(name, data)
    try:
        return Source(name, directory, tomli.loads(text), Positions(text), stamp(status))
    except tomli.TOMLDecodeError as err:
        key, message, remedy = _explain(text, err.lineno, err.msg)
        raise ConfigError([Problem(name, err.lineno, key, message, remedy, err.colno)]) from err
    except ValueError as err:  # a value that int() rejects
        raise ConfigError([Problem(name, None, "", "has a number with too many digits")]) from err
    except RecursionError as err:
        raise ConfigError([Problem(name, None, "", "is nested too deeply")]) from err


def distrust(name: str, status: os.stat_result, euid: int) -> Problem | None:
    """Return the reason why root must not trust the file `name`, into which another user could write commands.

    Args:
        name: path of the file, for the message.
        status: status of the file, not of a symbolic link to it.
        euid: effective user id of this process; other users than root trust every file.
    """
    if euid != 0:
        return None
    if status.st_uid != 0:
        message = f"belongs to user {status.st_uid}; only root may configure a daemon that runs as root"
        return Problem(name, None, "", message, f"run: chown root {name}")
    if status.st_mode & _OTHERS_WRITE:
        who, mode = "everybody" if status.st_mode & stat.S_IWOTH else "its group", stat.S_IMODE(status.st_mode)
        message = f"is writable by {who} (mode {mode:04o}); only root may configure a daemon that runs as root"
        return Problem(name, None, "", message, f"run: chmod go-w {name}")
    return None


def writer(path: str, user: str | None) -> str | None:
    """Return who else than root, the daemon's user and the unit's user can change a file; None if nobody can.

    Who can write variables of a unit chooses what its programs load. Users whom ``/etc/passwd`` does not list are
    unknown, because a name service may never answer.

    Args:
        path: path of a file that exists.
        user: the key ``user`` of the unit.
    """
    name, _, group = (user or "").partition(":")
    uid, gid = _local_ids(name) if name else (os.geteuid(), os.getegid())
    for place in (path, os.path.dirname(path)):
        status = os.stat(place)
        sticky = place != path and status.st_mode & stat.S_ISVTX
        where = f"{place} can be changed by"
        if uid is not None and status.st_uid not in (0, os.geteuid(), uid):
            return f"{where} user {status.st_uid}"
        if status.st_mode & stat.S_IWOTH and not sticky:
            return f"{where} everybody"
        foreign = not group and gid is not None and status.st_gid not in (0, gid)
        if status.st_mode & stat.S_IWGRP and foreign and not sticky:
            return f"{where} group {status.st_gid}"
    return None


def _local_ids(name: str) -> tuple[int | None, int | None]:
    """Return the ids of a user and its group from ``/etc/passwd``; None if it does not list the user."""
    with contextlib.suppress(OSError, ValueError), open("/etc/passwd", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.split(":")
            if len(fields) > 3 and name in (fields[0], fields[2]):
                return int(fields[2]), int(fields[3])
    return (int(name), None) if name.isascii() and name.isdigit() else (None, None)


def matches(directory: str, main: str, pattern: str) -> list[str]:
    """Return the files that match a glob in `directory`, except the file `main`, as sorted relative paths."""
    own = _real_path(main)
    paths = sorted(glob.glob(pattern, root_dir=directory))
    return [name for name in paths if _real_path(os.path.join(directory, name)) != own]


def _real_path(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # EACCES for links in /proc; reading the file reports the reason
        return path


def included(main: Source, patterns: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """Return the files that the globs of `main` include, in order and each once, and the errors of the globs."""
    names: dict[str, None] = {}
    problems: list[Problem] = []
    prefix = os.path.dirname(main.name)
    for index, pattern in enumerate(patterns):
        path = ("daemon", "include", index)
        paths = matches(main.directory, main.path, pattern)
        if not paths and (message := _why_no_match(os.path.join(main.directory, pattern))):
            problems.append(main.problem(path, f"{message}: {os.path.join(prefix, pattern)}"))
        for match in paths:
            names[os.path.join(prefix, match)] = None
    if len(names) > MAX_INCLUDED:
        message = f"{len(names)} included files, which exceeds the maximum of {MAX_INCLUDED}"
        problems.append(main.problem(("daemon", "include"), message))
    return list(names)[:MAX_INCLUDED], problems


def _why_no_match(pattern: str) -> str | None:
    """Return why a glob that matched no file is an error; None if it is none, because globs may match nothing.

    A directory that cannot be read is an error: a reload would remove the tasks in it.
    """
    if _WILD.isdisjoint(pattern):
        return None if os.path.exists(pattern) else "no such file"
    directory = os.path.dirname(pattern)
    while not _WILD.isdisjoint(directory):
        directory = os.path.dirname(directory)
    try:
        os.scandir(directory).close()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        return f"cannot list the directory ({err.strerror})"
    return None


def _decode(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        raise ConfigError([Problem(name, line, "", "is not UTF-8")]) from err


# Texts that are not valid TOML. The parser reports only the position of the error, and returns nothing. So these
# functions examine the lines one by one.


def _explain(text: str, line: int, message: str) -> tuple[str, str, str | None]:
    """Return key, message and remedy for an error of the parser on a line (from 1)."""
    lines = text.split("\n")[:line]
    last = lines[-1] if lines else ""
    pair = _KEY.match(last)
    table = next((match[1] for line in reversed(lines) if (match := _HEADER.match(line))), "")
    key = ".".join(part for part in (table, pair[1] if pair else "") if part)
    if message.startswith(_TWICE):
        return key, "is defined twice", "remove one of them"
    if message in _VALUES and pair is not None and pair[2] not in tuple("\"'[{"):
        value = last.partition("=")[2].strip()
        shown = "…" if _SPECIAL.intersection(value) or not value else value
        return key, "has an invalid value", f'put text into quotes: {pair[1]} = "{shown}"'
    if message in _HEADERS and (named := _UNQUOTED.match(last)):
        return named[1], f"{quoted(named[2])} is not a name, at least not without quotes", NAME_RULE
    if message in _STATEMENTS and text.lstrip().startswith("{"):
        return "", "is JSON, not TOML", _TOML
    if message in _STATEMENTS and _YAML.match(last):
        return "", "is YAML, not TOML", _TOML
    return key, f"{message[:1].lower()}{message[1:]}", _REMEDIES.get(message)


def _salvage(text: str, keys: Collection[tuple[str, str]]) -> dict[str, dict[str, object]] | None:
    """Read keys with a value on a single line from a text that is not valid TOML.

    Args:
        text: the text.
        keys: the keys, each as (table, key).

    Returns:
        The keys that were found, by table; None if the value of one is not readable.
    """
    tables: dict[str, dict[str, object]] = {}
    header = ""
    for line in text.splitlines():
        if named := _HEADER.match(line):
            header = named[1]
        mentioned = [(table, key) for table, key in keys if key in line and table in (header, *_words(line))]
        if not mentioned or line.lstrip().startswith("#"):
            continue
        try:
            content = tomli.loads(f"[{header}]\n{line}" if header and not named else line)
        except (ValueError, RecursionError):
            if any(_words(line)[-1:] in ([table], [key]) for table, key in mentioned):
                return None
            continue
        for table, key in mentioned:
            if isinstance(content.get(table), dict) and key in content[table]:
                tables.setdefault(table, {}).setdefault(key, content[table][key])
    return tables


def _words(line: str) -> list[str]:
    """Return the parts of the key on a line."""
    pair = _KEY.match(line)
    return [part.strip(" \t\"'") for part in pair[1].split(".")] if pair else []
