"""Problems of a configuration: message, position and remedy.

Exception
└── ConfigError    all problems of one configuration
└── Invalid        one value (inside the loader; it knows neither file nor line)
└── Unusable       a valid configuration that this host cannot follow
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from supervisor.config.files.positions import KeyPath
from supervisor.config.synonyms import KEYS, meant
from supervisor.ipc.log_line import printable

NAME_RULE = (
    "a name has 1 to 100 ASCII letters, digits, dots, underscores, colons and hyphens, not only dots; with dots or "
    'colons it needs quotes: [tasks."db.backup"]'
)
"""The remedy for an invalid name."""
_SHOWN_CHARS = 60
_SHOWN_BITS = 64
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class Problem(Struct, frozen=True):
    """An error or a warning, with its position and remedy."""

    file: str
    """Path of the file as the caller named it, which keeps relative paths short."""
    line: int | None
    """Line number from 1; None if the problem concerns the whole file."""
    key: str
    """The dotted key in TOML syntax; empty if the problem concerns the whole file."""
    message: str
    remedy: str | None = None
    """The action that fixes it."""
    column: int | None = None
    """Column number from 1; only syntax errors have one."""

    def __str__(self) -> str:
        location = self.file
        for number in (self.line, self.column):
            if number is not None:
                location += f":{number}"
        text = printable(f"{location}: {self.key}: {self.message}" if self.key else f"{location}: {self.message}")
        return f"{text}\n  {printable(self.remedy)}" if self.remedy else text

    def to_dict(self) -> dict[str, object]:
        """Return the problem as JSON values; fields without a value are omitted."""
        fields = {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "key": self.key or None,
            "message": self.message,
            "remedy": self.remedy,
        }
        return {name: value for name, value in fields.items() if value is not None}


class ConfigError(Exception):
    """The configuration cannot be used; `problems` lists all reasons, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnusableObject(Exception):
    """The configuration is valid, but it names an object that this host cannot use: a file, a certificate, a group."""

    def __init__(self, message: str, remedy: str | None = None, *, path: KeyPath = ()) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.path = path
        """Path of the key that names the object."""


class InvalidValue(Exception):
    """A value is not valid for its key."""

    def __init__(
        self,
        message: str,
        remedy: str | None = None,
        *,
        show: bool = True,
        path: KeyPath = (),
        reason: str | None = None,
    ) -> None:
        super().__init__(message if reason is None else f"{message}: {reason}")
        self.message = message
        self.reason = reason
        """The end of the message, which quotes parts of the value; left out if the value has substitutions."""
        self.remedy = remedy
        self.show = show
        """Whether the message should quote the value."""
        self.path = path
        """Path of the invalid part inside the value."""

    @property
    def parts(self) -> Sequence["InvalidValue"]:
        """Return the separate problems."""
        return (self,)


class InvalidParts(InvalidValue):
    """Several parts of a value are invalid."""

    def __init__(self, parts: Sequence[InvalidValue]) -> None:
        super().__init__("; ".join(part.message for part in parts))
        self._parts = parts

    @property
    def parts(self) -> Sequence[InvalidValue]:
        """Return the separate problems."""
        return self._parts


class Faults:
    """Collects the faults of one value, so that the user sees all of them at once."""

    def __init__(self, errors: Iterable[InvalidValue] = ()) -> None:
        self.errors = list(errors)

    def add(self, message: str, remedy: str | None = None, *, path: KeyPath = ()) -> None:
        """Add a fault whose message does not repeat the value."""
        self.errors.append(InvalidValue(message, remedy, show=False, path=path))

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Collect the faults of the part of the value at `path`."""
        try:
            yield
        except InvalidValue as err:
            for part in err.parts:
                part.path = (*path, *part.path)
            self.errors += err.parts

    def check(self) -> None:
        """Raise the collected faults, if there are any.

        Raises:
            InvalidParts: there are faults.
        """
        if self.errors:
            raise InvalidParts(self.errors)


def dotted(path: KeyPath) -> str:
    """Return a key path in TOML syntax: ``tasks."db.backup".env.HOME``, ``services.web.run[2]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if part and _BARE.issuperset(part) else quoted(part)
        text += f".{shown}" if text else shown
    return text


def quoted(value: object) -> str:
    """Return a value in TOML syntax for a message: in one line, with control characters escaped, and shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "a number with too many digits"
    text = json.dumps(value) if isinstance(value, str | int | float) else str(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return a suggestion of the known word that `word` probably stands for; None if there is none.

    The same word in other letter case comes first, then names that other programs use, then similar spellings.
    """
    from difflib import get_close_matches  # imported only for an error

    words = list(candidates)
    same = next((known for known in words if known.casefold() == word.casefold()), None)
    synonym = same or meant(word, words, KEYS)
    near = [synonym] if synonym else get_close_matches(word[:_SHOWN_CHARS], words, n=1, cutoff=0.6)
    return f"did you mean {quoted(near[0])}?" if near else None
