"""The types of values of ``[hooks.NAME]``."""

import re
from collections.abc import Mapping

from msgspec import Struct

from supervisor.config.problems import Faults, InvalidValue, quoted
from supervisor.config.value_records import JsonPath
from supervisor.config.value_types.values import ListOf, Text, parse_parts

KINDS = ("github", "gitlab", "generic")
MAX_HOOKS = 1000
MAX_PATHS = 100
MIN_SECRET = 16
"""Minimum size of a secret in bytes. Anyone who sees a signed request can try to guess a shorter one offline."""
PATH = r"\$(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]{1,6}\])+"
_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")
EVENTS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "github": (re.compile("[a-z][a-z_]{0,99}"), "push"),
    "gitlab": (re.compile("[A-Z][A-Za-z ]{0,99} Hook"), "Push Hook"),
}
"""The form of event names and an example, by kind of hook. The names are values of a header."""
_ACCEPTED = ListOf(Text(limit=1000), 100, empty=False, single=True)


class Path(Struct, frozen=True):
    """The path to a value in a JSON document: names and indexes, the outermost first."""

    expected = 'a JSON path such as "$.commits[0].id"'

    def parse(self, value: object, directory: str) -> JsonPath:
        """Return the names and indices of the path."""
        text = Text(limit=1000, empty=False, expected=self.expected).parse(value, directory)
        if not re.fullmatch(PATH, text):
            remedy = "a path has names and indices only; filters, wildcards and quoted names are not supported"
            raise InvalidValue(f"must be {self.expected}", remedy)
        return tuple(name or int(index) for name, index in _STEP.findall(text))


def _table(value: object, expected: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidValue(f"must be {expected}")
    if len(value) > MAX_PATHS:
        raise InvalidValue(f"must have at most {MAX_PATHS} entries, it has {len(value)}", show=False)
    return value


class ParamPaths(Struct, frozen=True):
    """The paths of values for a task's parameters in the body of a request."""

    expected = 'a table of JSON paths such as { ref = "$.ref" }'

    def parse(self, value: object, directory: str) -> dict[str, JsonPath]:
        """Return the path of each parameter's value."""
        return parse_parts(_table(value, self.expected).items(), lambda _name, path: Path().parse(path, directory))


class Conditions(Struct, frozen=True):
    """The conditions for the body of a request that starts a run: accepted values by path."""

    expected = 'a table of JSON paths and values such as { "$.ref" = "refs/heads/main" }'

    def parse(self, value: object, directory: str) -> tuple[tuple[JsonPath, tuple[str, ...]], ...]:
        """Return the conditions: each path with its accepted values."""
        conditions: list[tuple[JsonPath, tuple[str, ...]]] = []
        faults = Faults()
        for text, accepted in _table(value, self.expected).items():
            try:
                path = Path().parse(text, directory)
            except InvalidValue as err:
                faults.add(f"{quoted(text)} must be {Path().expected}", err.remedy)
                continue
            with faults.at(text):
                conditions.append((path, _ACCEPTED.parse(accepted, directory)))
        faults.check()
        return tuple(conditions)


def checked_secret(text: str) -> str:
    """Return the secret in `text`, the content of its file.

    Raises:
        InvalidValue: the secret is too short, or has several lines.
    """
    secret = text.rstrip("\r\n")
    if "\n" in secret:
        raise InvalidValue("must have one line, the secret", show=False)
    if len(secret.encode()) < MIN_SECRET:
        raise InvalidValue(f"must have at least {MIN_SECRET} bytes", "create one: openssl rand -hex 32", show=False)
    return secret
