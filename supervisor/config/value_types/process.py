"""The types of values that determine how a process starts and stops."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from supervisor.config.files.substitute import Substituted
from supervisor.config.problems import InvalidValue, nearest
from supervisor.config.value_types.values import (
    Duration,
    FilePath,
    Integer,
    Signal,
    Size,
    TextOf,
    ValueType,
    parse_parts,
)

UNLIMITED: Final = -1
USER: Final = TextOf(
    'a user such as "backup", or a user and a group such as "backup:adm"', re.compile(r"[^:\s]+(?::[^:\s]+)?"), 200
)
"""A user, with or without a group: names or numeric ids."""
_UMASK = re.compile(r"0?[0-7]{3}")
_FILE = "file:"
MAX_STEPS = 10
MIN_CPUS, MAX_CPUS = 0.01, 1024
_KB, _TB = 1 << 10, 1 << 40


class Umask(Struct, frozen=True):
    """The permissions that new files do not get (umask(2)), as a number."""

    expected = 'a umask such as "027"'

    def parse(self, value: object, directory: str) -> int:  # noqa: ARG002 - the protocol's signature
        """Return the umask as a number."""
        if not isinstance(value, str) or not _UMASK.fullmatch(value):
            raise InvalidValue(f"must be {self.expected}", "write it in quotes, in octal digits")
        return int(value, 8)


class StopSignal(Struct, frozen=True):
    """A signal, or several, each with the time before the next one."""

    expected = 'the name of a signal such as "SIGTERM", or a list of steps such as ["SIGINT", "10s"]'

    def parse(self, value: object, directory: str) -> int | tuple[tuple[int, int], ...]:
        """Return the number of the signal, or the numbers of several, each with its time in milliseconds."""
        if not isinstance(value, list):
            return Signal().parse(value, directory)
        if not 1 <= len(value) <= MAX_STEPS:
            raise InvalidValue(f"must have 1 to {MAX_STEPS} steps, it has {len(value)}", show=False)
        return tuple(parse_parts(enumerate(value), lambda _index, step: _step(step, directory)).values())


def _step(value: object, directory: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise InvalidValue('must be a signal and a duration such as ["SIGINT", "10s"]')
    return Signal().parse(value[0], directory), Duration().parse(value[1], directory)


class Stdin(Struct, frozen=True):
    """The standard input of a run."""

    expected = '"null", "open" or a file such as "file:input.txt"'

    def parse(self, value: object, directory: str) -> str:
        """Return ``null``, ``open``, or the absolute path of a file."""
        if value in ("null", "open"):
            return str(value)
        if not isinstance(value, str) or not value.startswith(_FILE) or value == _FILE:
            near = nearest(value, ("null", "open")) if isinstance(value, str) else None
            raise InvalidValue(f"must be {self.expected}", near)
        return FilePath().parse(value.removeprefix(_FILE), directory)


class Cpus(Struct, frozen=True):
    """Number of processors that may be used, which can be a fraction."""

    expected = f"a number of processors from {MIN_CPUS} to {MAX_CPUS}"

    def parse(self, value: object, directory: str) -> float:  # noqa: ARG002 - the protocol's signature
        """Return the number of processors."""
        if isinstance(value, Substituted) and re.fullmatch(r"[0-9]{1,4}(?:\.[0-9]{1,3})?", value, re.ASCII):
            value = float(value)
        if not isinstance(value, int | float) or isinstance(value, bool) or not MIN_CPUS <= value <= MAX_CPUS:
            raise InvalidValue(f"must be {self.expected}")
        return float(value)


class Seconds(Struct, frozen=True):
    """A duration in seconds, rounded up."""

    expected = Duration().expected

    def parse(self, value: object, directory: str) -> int:
        """Return the duration in seconds."""
        return -(-Duration(low_ms=1).parse(value, directory) // 1000)


class Amount(Struct, frozen=True):
    """A size, or ``unlimited``."""

    low: int = 0

    def parse(self, value: object, directory: str) -> int:
        """Return the size in bytes, or the number for no limit."""
        return UNLIMITED if value == "unlimited" else Size(self.low, _TB).parse(value, directory)

    @property
    def expected(self) -> str:
        """Describe the accepted values."""
        return f'{Size(self.low, _TB).expected}, or "unlimited"'


_WEIGHT = Integer(1, 10_000)
LIMITS: Final[Mapping[str, ValueType]] = {
    "memory": Size(1024 * _KB, _TB),
    "memory_high": Size(1024 * _KB, _TB),
    "swap": Size(0, _TB),
    "pids": Integer(1, 1 << 22),
    "cpu": Cpus(),
    "cpu_weight": _WEIGHT,
    "io_weight": _WEIGHT,
    "address_space": Amount(1024 * _KB),
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
"""The types of limits by name. Sizes are in bytes, times in seconds; -1 means unlimited."""


def _limit(name: str) -> ValueType:
    if name not in LIMITS:
        raise InvalidValue("unknown limit", nearest(name, LIMITS), show=False)
    return LIMITS[name]


class Limits(Struct, frozen=True):
    """Resource limits of the processes of a run."""

    expected = 'a table of limits such as { memory = "512mb", nice = 10 }'

    def parse(self, value: object, directory: str) -> dict[str, float]:
        """Return the resource limits by name."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        return parse_parts(value.items(), lambda name, content: _limit(name).parse(content, directory))
