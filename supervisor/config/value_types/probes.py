"""The types of values of readiness and liveness probes, and of the conditions of tasks."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import HostCheck, Probe, ProbeKind
from supervisor.config.value_types.patterns import LINE_PATTERN
from supervisor.config.value_types.values import CommandLine, Duration, FilePath, Integer, Text, ValueType, parse_table

INSTANCE = "{instance}"
"""Placeholder in addresses for the number of the instance."""
_SCHEMES = ("http", "https")


class ProbeUrl(Struct, frozen=True):
    """A URL that an HTTP probe requests."""

    expected = 'a URL such as "http://127.0.0.1:8080/healthz"'

    def parse(self, value: object, directory: str) -> str:
        """Return the URL of the probe."""
        text = Text(limit=2000, empty=False, expected=self.expected).parse(value, directory)
        try:
            parts = urlsplit(text.replace(INSTANCE, "0"))
            sound = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        except ValueError:  # a port beyond 65535, an unfinished bracket
            sound = False
        if not sound or parts.fragment or not text.isascii() or not text.isprintable() or " " in text:
            raise InvalidValue(f"must be {self.expected}")
        return text


class ProbeAddress(Struct, frozen=True):
    """The host and port to which a TCP probe connects."""

    expected = 'a host and a port such as "127.0.0.1:5432"'

    def parse(self, value: object, directory: str) -> str:
        """Return the host and the port as one text."""
        text = Text(limit=300, empty=False, expected=self.expected).parse(value, directory)
        try:
            parts = urlsplit("//" + text.replace(INSTANCE, "0"))
            sound = bool(parts.hostname) and bool(parts.port) and parts.netloc == text.replace(INSTANCE, "0")
        except ValueError:  # a port beyond 65535, an unfinished bracket
            sound = False
        if not sound or "@" in text:
            raise InvalidValue(f"must be {self.expected}")
        return text


class TrueOnly(Struct, frozen=True):
    """``true``, the only allowed value."""

    expected = "true"

    def parse(self, value: object, directory: str) -> str:  # noqa: ARG002 - the protocol's signature
        """Return an empty target, because the probe needs none."""
        if value is not True:
            raise InvalidValue("must be true", "or leave it out")
        return ""


KINDS: Mapping[str, ValueType] = {
    "notify": TrueOnly(),
    "http": ProbeUrl(),
    "tcp": ProbeAddress(),
    "exec": CommandLine(),
    "log": LINE_PATTERN,
}
SETTINGS: Mapping[str, ValueType] = {
    "every": Duration(low_ms=50),
    "timeout": Duration(low_ms=1),
    "failures": Integer(1, 1000),
}


class ProbeTable(Struct, frozen=True):
    """A probe of one of several kinds, with its times."""

    expected = 'a table such as { http = "http://127.0.0.1:8080/healthz", timeout = "30s" }'
    kinds: tuple[ProbeKind, ...]
    every: str
    timeout: str
    failures: int = 0
    """Default of the key `failures`; 0 if there is no such key."""

    def parse(self, value: object, directory: str) -> Probe:
        """Return the probe that the table describes."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        types: dict[str, ValueType] = {name: KINDS[name] for name in self.kinds}
        types |= {name: kind for name, kind in SETTINGS.items() if name != "failures" or self.failures}
        parsed, faults = parse_table(value, types, directory)
        chosen = [name for name in self.kinds if name in value]
        if len(chosen) != 1:
            problem = f"not {' and '.join(chosen)}" if chosen else "it has none"
            faults.add(f"must have exactly one of {', '.join(self.kinds)}, {problem}")
        faults.check()
        every, timeout = (Duration().parse(default, directory) for default in (self.every, self.timeout))
        return Probe(
            kind=chosen[0],
            target=parsed[chosen[0]],
            every_ms=parsed.get("every", every),
            timeout_ms=parsed.get("timeout", timeout),
            failures=parsed.get("failures", self.failures),
        )


READY = ProbeTable(("notify", "http", "tcp", "exec", "log"), every="1s", timeout="60s")
LIVE = ProbeTable(("notify", "http", "tcp", "exec"), every="10s", timeout="2s", failures=3)

_MAX_LOAD = 10_000


class Load(Struct, frozen=True):
    """A number that the load of the last minute is compared with."""

    expected = f"a number above 0 and up to {_MAX_LOAD}"

    def parse(self, value: object, directory: str) -> float:  # noqa: ARG002 - the protocol's signature
        """Return the number."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MAX_LOAD:
            raise InvalidValue(f"must be {self.expected}")
        return float(value)


HOST_CHECKS: Mapping[str, ValueType] = {"path": FilePath(), "load_below": Load()}


class Condition(Struct, frozen=True):
    """The condition of a task: a command, or a table with what must be true."""

    expected = f'{CommandLine.expected}, or a table such as {{ path = "/srv/ready", load_below = 2.0 }}'

    def parse(self, value: object, directory: str) -> str | tuple[str, ...] | HostCheck:
        """Return the command, or what must be true."""
        if not isinstance(value, dict):
            if not isinstance(value, str | list):
                raise InvalidValue(f"must be {self.expected}")
            return CommandLine().parse(value, directory)
        parsed, faults = parse_table(value, HOST_CHECKS, directory)
        if not value:
            faults.add("must have path, load_below or both")
        faults.check()
        return HostCheck(**parsed)
