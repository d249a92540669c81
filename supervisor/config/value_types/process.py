"""The types of values that say how a process is started and ended."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.config.files.substitute import Substituted
from supervisor.config.problems import Invalid, InvalidParts, nearest
from supervisor.config.value_types.values import Duration, FilePath, Integer, Signal, Size, Text, ValueType

UNLIMITED: Final = -1
_USER = re.compile(r"[^:\s]+(?::[^:\s]+)?")
_UMASK = re.compile(r"0?[0-7]{3}")
_FILE = "file:"
MAX_STEPS = 10
MIN_CPUS, MAX_CPUS = 0.01, 1024
_KB, _TB = 1 << 10, 1 << 40


@dataclass(frozen=True)
class User:
    """A user, alone or with a group: names, or numbers where there is no such name."""

    def parse(self, value: object, directory: str) -> str:
        """See :class:`ValueType`."""
        text = Text(limit=200, empty=False, what=self.describe()).parse(value, directory)
        if not _USER.fullmatch(text):
            raise Invalid(f"must be {self.describe()}")
        return text

    def describe(self) -> str:
        """See :class:`ValueType`."""
        return 'a user such as "backup", or a user and a group such as "backup:adm"'


@dataclass(frozen=True)
class Umask:
    """Which permissions new files do not get, as a number."""

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - the protocol's signature
        """See :class:`ValueType`."""
        if not isinstance(value, str) or not _UMASK.fullmatch(value):
            raise Invalid(f"must be {self.describe()}", "write it in quotes, in octal digits")
        return int(value, 8)

    def describe(self) -> str:
        """See :class:`ValueType`."""
        return 'a umask such as "027"'


@dataclass(frozen=True)
class StopSignal:
    """A signal, or several of them each with the time it has."""

    def parse(self, value: object, directory: str) -> int | tuple[tuple[int, int], ...]:
        """See :class:`ValueType`. Times in milliseconds."""
        if not isinstance(value, list):
            return Signal().parse(value, directory)
        if not 1 <= len(value) <= MAX_STEPS:
            raise Invalid(f"must have 1 to {MAX_STEPS} steps, it has {len(value)}", show=False)
        steps, wrong = [], []
        for index, step in enumerate(value):
            try:
                steps.append(_step(step, directory))
            except Invalid as err:
                err.path = (index, *err.path)
                wrong.append(err)
        if wrong:
            raise InvalidParts(wrong)
        return tuple(steps)

    def describe(self) -> str:
        """See :class:`ValueType`."""
        return 'the name of a signal such as "SIGTERM", or a list of steps such as ["SIGINT", "10s"]'


def _step(value: object, directory: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise Invalid('must be a signal and a duration such as ["SIGINT", "10s"]')
    return Signal().parse(value[0], directory), Duration().parse(value[1], directory)


@dataclass(frozen=True)
class Stdin:
    """The standard input of a run."""

    def parse(self, value: object, directory: str) -> str:
        """Return ``null``, ``open``, or the absolute path of a file."""
        if value in ("null", "open"):
            return str(value)
        if not isinstance(value, str) or not value.startswith(_FILE) or value == _FILE:
            near = nearest(value, ("null", "open")) if isinstance(value, str) else None
            raise Invalid(f"must be {self.describe()}", near)
        return FilePath().parse(value.removeprefix(_FILE), directory)

    def describe(self) -> str:
        """Return the words for error messages."""
        return '"null", "open" or a file such as "file:input.txt"'


@dataclass(frozen=True)
class Cpus:
    """How many processors may be used; less than one is a share of one."""

    def parse(self, value: object, directory: str) -> float:  # noqa: ARG002 - the protocol's signature
        """See :class:`ValueType`."""
        if isinstance(value, Substituted) and re.fullmatch(r"[0-9]{1,4}(?:\.[0-9]{1,3})?", value, re.ASCII):
            value = float(value)
        if not isinstance(value, int | float) or isinstance(value, bool) or not MIN_CPUS <= value <= MAX_CPUS:
            raise Invalid(f"must be {self.describe()}")
        return float(value)

    def describe(self) -> str:
        """See :class:`ValueType`."""
        return f"a number of processors from {MIN_CPUS} to {MAX_CPUS}"


@dataclass(frozen=True)
class Seconds:
    """A duration, in seconds, rounded up."""

    def parse(self, value: object, directory: str) -> int:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return -(-Duration(low_ms=1).parse(value, directory) // 1000)

    def describe(self) -> str:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return Duration().describe()


@dataclass(frozen=True)
class Amount:
    """A size, or no limit."""

    low: int = 0

    def parse(self, value: object, directory: str) -> int:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return UNLIMITED if value == "unlimited" else Size(self.low, _TB).parse(value, directory)

    def describe(self) -> str:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return f'{Size(self.low, _TB).describe()}, or "unlimited"'


LIMITS: Final[Mapping[str, ValueType]] = {
    "memory": Size(1024 * _KB, _TB),
    "address_space": Amount(1024 * _KB),
    "cpu": Cpus(),
    "cpu_time": Seconds(),
    "nofile": Integer(8, 1 << 30),
    "nproc": Integer(1, 1 << 22),
    "core": Amount(),
    "file_size": Amount(),
    "stack": Amount(64 * _KB),
    "memlock": Amount(),
    "nice": Integer(-20, 19),
    "oom_score_adj": Integer(-1000, 1000),
}
"""By name. Sizes in bytes, times in seconds; -1: unlimited."""


def _limit(name: str) -> ValueType:
    if name not in LIMITS:
        raise Invalid("unknown limit", nearest(name, LIMITS), show=False)
    return LIMITS[name]


@dataclass(frozen=True)
class Limits:
    """Resource limits of the processes of a run."""

    def parse(self, value: object, directory: str) -> dict[str, float]:
        """See :class:`ValueType`."""
        if not isinstance(value, dict):
            raise Invalid(f"must be {self.describe()}")
        limits: dict[str, float] = {}
        wrong: list[Invalid] = []
        for name, content in value.items():
            try:
                limits[name] = _limit(name).parse(content, directory)
            except Invalid as err:
                err.path = (name, *err.path)
                wrong.append(err)
        if wrong:
            raise InvalidParts(wrong)
        return limits

    def describe(self) -> str:
        """See :class:`ValueType`."""
        return 'a table of limits such as { memory = "512mb", nice = 10 }'
