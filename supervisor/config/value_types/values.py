"""The types of the values of keys: each checks a TOML value, and converts it to the value in the model."""

import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from logring.mask import MAX_SECRET, MIN_SECRET, Mask
from supervisor.config.files.substitute import Substituted, as_written
from supervisor.config.problems import Faults, InvalidValue, nearest, quoted
from supervisor.config.value_types.durations import format_duration, format_size, parse_duration, parse_size
from supervisor.host.zones import is_zone
from supervisor.schedule.cron import validate

NAME = re.compile(r"[a-zA-Z0-9._:-]{1,100}")
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Maximum size of an argument or variable: MAX_ARG_STRLEN (execve(2)) without the terminating NUL."""
MAX_DURATION_MS = 10 * 366 * 86_400_000

_STRING = "a string"
_LIST_OF_TABLES = "write [{ … }] or, as a header, [[…]]"
_WILDCARD = re.compile(r"[*?\[]")
_ENV_NAME = re.compile(r"[^=\0]+")
_CANNOT_STOP = frozenset({"SIGSTOP", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCHLD", "SIGCLD"})
_REALTIME = re.compile(r"SIGRTMIN(?:\+([0-9]{1,2}))?")
_YES_NO = {"true": True, "false": False}

Part = TypeVar("Part", str, int)
T = TypeVar("T")


class ValueType(Protocol):
    """The type of a key's values."""

    def parse(self, value: object, directory: str) -> Any:
        """Check and convert `value`; relative paths start from `directory`.

        Raises:
            InvalidValue: the value is invalid.
        """

    @property
    def expected(self) -> str:
        """A short description of valid values, for messages and documentation."""


class Text(Struct, frozen=True):
    """A string of limited length without NUL characters."""

    limit: int = 4096
    empty: bool = True
    expected: str = _STRING

    def parse(self, value: object, directory: str) -> str:  # noqa: ARG002 - the protocol's signature
        """Return the string."""
        if not isinstance(value, str):
            raise InvalidValue(f"must be {self.expected}", _in_quotes(value) if self.expected == _STRING else None)
        if not value and not self.empty:
            raise InvalidValue("must not be empty", show=False)
        if "\0" in value:
            raise InvalidValue("must not contain a NUL character", show=False)
        if len(value.encode()) > self.limit:
            raise InvalidValue(f"must be at most {self.limit} bytes long, it has {len(value.encode())}", show=False)
        return str(value)


class Name(Struct, frozen=True):
    """The name of an object in the configuration."""

    expected: str

    def parse(self, value: object, directory: str) -> str:
        """Return the name."""
        text = Text(limit=100, empty=False, expected=self.expected).parse(value, directory)
        if not NAME.fullmatch(text):
            raise InvalidValue(f"must be {self.expected}")
        return text


class TextOf(Struct, frozen=True):
    """A string that matches a pattern as a whole."""

    expected: str
    pattern: re.Pattern[str]
    limit: int = 1000

    def parse(self, value: object, directory: str) -> str:
        """Return the string."""
        text = Text(limit=self.limit, empty=False, expected=self.expected).parse(value, directory)
        if not self.pattern.fullmatch(text):
            raise InvalidValue(f"must be {self.expected}")
        return text


class FilePath(Struct, frozen=True):
    """A path; a relative one starts from the directory of the configuration file that contains it."""

    expected = "a path"
    limit: int = 4095
    """Maximum size in bytes: PATH_MAX without the terminating NUL, or less if the kernel allows less."""

    def parse(self, value: object, directory: str) -> str:
        """Return the absolute path."""
        text = Text(empty=False, expected="a path").parse(value, directory)
        if text.startswith("~"):
            raise InvalidValue("has a ~, which is not expanded", 'write the path out, or "${HOME}/…"')
        path = os.path.join(directory, text)
        if ".." not in path:  # normpath would remove ".." after a symbolic link, which changes the target
            path = os.path.normpath(path)
        if len(os.fsencode(path)) > self.limit:
            raise InvalidValue(f"must be at most {self.limit} bytes long, together with {directory}")
        return path


class FileGlob(Struct, frozen=True):
    """A path whose last component may contain wildcards."""

    expected = 'a path such as "/srv/in/*.csv"'

    def parse(self, value: object, directory: str) -> str:
        """Return the absolute path with its wildcards."""
        text = Text(empty=False, expected=self.expected).parse(value, directory)
        if text.endswith("/"):
            raise InvalidValue("names a directory", f'write "{as_written(value)}*" for all files in it')
        path = FilePath().parse(text, directory)
        if _WILDCARD.search(os.path.dirname(path)):
            remedy = "name each directory; there may be several paths"
            raise InvalidValue("must have wildcards in the last part of the path only", remedy)
        return path


class Flag(Struct, frozen=True):
    """True or false."""

    expected = "true or false"

    def parse(self, value: object, directory: str) -> bool:  # noqa: ARG002 - the protocol's signature
        """Return the truth value."""
        if isinstance(value, Substituted) and value in _YES_NO:
            return _YES_NO[value]
        if not isinstance(value, bool):
            raise InvalidValue("must be true or false, without quotes")
        return value


class Integer(Struct, frozen=True):
    """A whole number within limits."""

    low: int
    high: int

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - the protocol's signature
        """Return the number."""
        if isinstance(value, Substituted) and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise InvalidValue(f"must be {self.expected}")
        return value

    @property
    def expected(self) -> str:
        """Describe the bounds of the number."""
        return f"a whole number from {self.low} to {self.high}"


class Choice(Struct, frozen=True):
    """One of several words, each for a value in the model."""

    words: dict[str, object]

    def parse(self, value: object, directory: str) -> Any:  # noqa: ARG002 - the protocol's signature
        """Return the value that the word stands for."""
        if not isinstance(value, str) or value not in self.words:
            near = nearest(value, self.words) if isinstance(value, str) else None
            raise InvalidValue(f"must be {self.expected}", near)
        return self.words[value]

    @property
    def expected(self) -> str:
        """List the accepted words."""
        return " or ".join(quoted(word) for word in self.words)


def choice(*words: str) -> Choice:
    """Return a choice whose words are also the values in the model."""
    return Choice({word: word for word in words})


class Duration(Struct, frozen=True):
    """A duration, in milliseconds."""

    expected = 'a duration such as "30s" or "1h30m"'
    low_ms: int = 0
    high_ms: int = MAX_DURATION_MS

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - the protocol's signature
        """Return the duration in milliseconds."""
        if not isinstance(value, str):
            raise InvalidValue(f"must be {self.expected}", _in_quotes(value, "s"))
        try:
            ms = parse_duration(value)
        except ValueError:
            raise InvalidValue(f"must be {self.expected}", "units: w, d, h, m, s, ms, the longest first") from None
        if not self.low_ms <= ms <= self.high_ms:
            low, high = format_duration(self.low_ms), format_duration(self.high_ms)
            raise InvalidValue(f"must be a duration from {low} to {high}")
        return ms


class Size(Struct, frozen=True):
    """An amount of storage, in bytes."""

    expected = 'a size such as "64kb" or "100mb"'
    low: int
    high: int

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - the protocol's signature
        """Return the size in bytes."""
        if not isinstance(value, str):
            raise InvalidValue(f"must be {self.expected}", "write it with its unit: b, kb, mb, gb, tb")
        try:
            size = parse_size(value)
        except ValueError:
            raise InvalidValue(f"must be {self.expected}", "units: b, kb, mb, gb, tb") from None
        if not self.low <= size <= self.high:
            raise InvalidValue(f"must be a size from {format_size(self.low)} to {format_size(self.high)}")
        return size


class ListOf(Struct, frozen=True):
    """A list of values of one type, as a tuple."""

    item: ValueType
    limit: int
    empty: bool = True
    single: bool = False
    """Whether a single value is accepted without a list around it."""
    distinct: bool = True
    """Whether all items must differ."""

    def parse(self, value: object, directory: str) -> tuple[Any, ...]:
        """Return the items as a tuple."""
        if self.single and not isinstance(value, list):
            return (self.item.parse(value, directory),)
        if not isinstance(value, list):
            raise InvalidValue(f"must be {self.expected}", self._as_list(value, directory))
        if not value and not self.empty:
            raise InvalidValue("must not be empty", show=False)
        if len(value) > self.limit:
            raise InvalidValue(f"must have at most {self.limit} items, it has {len(value)}", show=False)
        parsed = parse_parts(enumerate(value), lambda _index, item: self.item.parse(item, directory))
        faults = Faults()
        seen: set[object] = set()
        for index, element in parsed.items():
            with faults.at(index):
                if element in seen and self.distinct:
                    raise InvalidValue("repeats an earlier item")
            seen.add(element)
        faults.check()
        return tuple(parsed.values())

    def _as_list(self, value: object, directory: str) -> str | None:
        """Return a remedy for an item without a list around it; None if it is not a valid item."""
        try:
            self.item.parse(value, directory)
        except InvalidValue:
            return None
        return f"write [{quoted(as_written(value))}]" if not isinstance(value, dict) else _LIST_OF_TABLES

    @property
    def expected(self) -> str:
        """Describe the list by the type of its items."""
        several = f"a list, each item {self.item.expected}"
        return f"{self.item.expected}, or {several}" if self.single else several


def parse_parts(parts: Iterable[tuple[Part, Any]], parse: Callable[[Part, Any], T]) -> dict[Part, T]:
    """Return the parsed parts of a value by their names or indexes.

    Raises:
        InvalidParts: parts are invalid.
    """
    parsed: dict[Part, T] = {}
    faults = Faults()
    for name, content in parts:
        with faults.at(name):
            parsed[name] = parse(name, content)
    faults.check()
    return parsed


def parse_table(
    table: Mapping[str, object], types: Mapping[str, ValueType], directory: str
) -> tuple[dict[str, Any], Faults]:
    """Return the valid values in a table with known keys, and the faults of the others."""
    values: dict[str, object] = {}
    faults = Faults()
    for name, content in table.items():
        with faults.at(name):
            values[name] = _known(name, types).parse(content, directory)
    return values, faults


def _known(name: str, types: Mapping[str, ValueType]) -> ValueType:
    if name not in types:
        raise InvalidValue("unknown key", nearest(name, types), show=False)
    return types[name]


class VariableName(Struct, frozen=True):
    """The name of an environment variable."""

    expected = "the name of a variable"

    def parse(self, value: object, directory: str) -> str:
        """Return the name of the variable."""
        name = Text().parse(value, directory)
        _check_variable(name)
        return name


class Environment(Struct, frozen=True):
    """Environment variables for a command."""

    expected = 'a table of strings such as { LANG = "C.UTF-8" }'

    def parse(self, value: object, directory: str) -> dict[str, str]:
        """Return the variables with their values."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        if len(value) > 1000:
            raise InvalidValue(f"must have at most 1000 variables, it has {len(value)}", show=False)
        text = Text(limit=MAX_ARGUMENT_BYTES)

        def parse(name: str, content: object) -> str:
            _check_variable(name)
            parsed = text.parse(content, directory)
            _check_size(name, parsed)
            return parsed

        return parse_parts(value.items(), parse)


class Secrets(Struct, frozen=True):
    """Environment variables for a command, with values that are masked in its output."""

    expected = 'a table of strings such as { TOKEN = "${file:token}" }'

    def parse(self, value: object, directory: str) -> dict[str, str]:
        """Return the variables with their values. No message repeats a value."""
        try:
            variables = Environment().parse(value, directory)
        except InvalidValue as err:
            for part in err.parts:
                part.show, part.remedy = False, part.remedy and "write it in quotes"
            raise
        faults = Faults()
        for name, content in variables.items():
            try:
                Mask([content.encode()])
            except ValueError:
                message = f"cannot be masked: a secret must have lines of {MIN_SECRET} to {MAX_SECRET} bytes"
                faults.add(message, "put values that are not secret into env", path=(name,))
        faults.check()
        return variables


class CommandLine(Struct, frozen=True):
    """The command to execute: a string for the shell, or a list of arguments."""

    expected = "a command: a string for the shell, or a list of arguments"

    def parse(self, value: object, directory: str) -> str | tuple[str, ...]:
        """Return the command for the shell, or the arguments."""
        text = Text(limit=MAX_ARGUMENT_BYTES, expected=self.expected)
        if not isinstance(value, list):
            command = text.parse(value, directory)
            if not command.strip():
                raise InvalidValue("must not be empty", show=False)
            return command
        if not value or value[0] == "":
            raise InvalidValue("must name a program first", show=False)
        if len(value) > 10_000:
            raise InvalidValue(f"must have at most 10000 arguments, it has {len(value)}", show=False)
        argument = Text(limit=MAX_ARGUMENT_BYTES)
        return tuple(parse_parts(enumerate(value), lambda _index, word: argument.parse(word, directory)).values())


class Signal(Struct, frozen=True):
    """A signal, given by its name."""

    expected = 'the name of a signal such as "SIGTERM"'

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - the protocol's signature
        """Return the number of the signal."""
        if not isinstance(value, str):
            raise InvalidValue(f"must be {self.expected}")
        name = value.upper()
        name = name if name.startswith("SIG") else f"SIG{name}"
        if name in _CANNOT_STOP:
            raise InvalidValue("must be a signal that can end a process")
        if match := _REALTIME.fullmatch(name):
            number = signal.SIGRTMIN + int(match[1] or 0)
            if number <= signal.SIGRTMAX:
                return number
        elif name in signal.Signals.__members__:
            return signal.Signals[name].value
        raise InvalidValue(f"must be {self.expected}", nearest(name, signal.Signals.__members__))


class TimeZone(Struct, frozen=True):
    """A time zone: an IANA name, or a rule."""

    expected = 'a time zone such as "Europe/Prague"'

    def parse(self, value: object, directory: str) -> str:
        """Return the name or the rule of the time zone."""
        text = Text(limit=255, empty=False, expected=self.expected).parse(value, directory)
        if not is_zone(text):
            from zoneinfo import available_timezones

            raise InvalidValue(f"must be {self.expected}", nearest(text, available_timezones()))
        return text


class CronExpression(Struct, frozen=True):
    """A cron expression of five or six fields, or a macro."""

    expected = 'a cron expression such as "*/5 * * * *" or "@hourly"'

    def parse(self, value: object, directory: str) -> str:
        """Return the expression."""
        text = Text(limit=256, empty=False, expected=self.expected).parse(value, directory)
        if (wrong := validate(text)) is not None:
            raise InvalidValue("is not a valid schedule", show=False, reason=wrong)
        return text


def _check_variable(name: str) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise InvalidValue("is not a valid name of an environment variable", show=False)
    if name.startswith("RINGWARD_"):
        raise InvalidValue("is reserved: names that begin with RINGWARD_ belong to the daemon", show=False)


def _check_size(name: str, content: str) -> None:
    size = len(f"{name}={content}".encode())
    if size > MAX_ARGUMENT_BYTES:
        message = f"takes {size} bytes with its name; the kernel takes at most {MAX_ARGUMENT_BYTES} in one variable"
        raise InvalidValue(message, "put the value into a file, and the path of the file into the variable", show=False)


def _in_quotes(value: object, suffix: str = "") -> str | None:
    """Return a remedy for a number or boolean in place of a string; for a number only if there is a `suffix`."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    if number or (isinstance(value, bool | int | float) and not suffix):
        return f'write "{quoted(value)}{suffix}"'
    return None
