"""The types of values of ``[hooks.NAME]``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.config.problems import Invalid, InvalidParts, quoted
from supervisor.config.records import JsonPath
from supervisor.config.value_types.values import ListOf, Text

KINDS = ("github", "gitlab", "generic")
MAX_HOOKS = 1000
MAX_PATHS = 100
MIN_SECRET = 16
"""Bytes of a secret: anyone who sees a signed delivery can guess shorter ones at leisure."""
PATH = r"\$(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]{1,6}\])+"
_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")
EVENTS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "github": (re.compile("[a-z][a-z_]{0,99}"), "push"),
    "gitlab": (re.compile("[A-Z][A-Za-z ]{0,99} Hook"), "Push Hook"),
}
"""By kind of hook: the form of the names of events, and an example. They are the values of a header."""
_ACCEPTED = ListOf(Text(limit=1000), 100, empty=False, single=True)


@dataclass(frozen=True)
class Path:
    """The place of one value in a JSON document: names and indices, from the outside to the inside."""

    def parse(self, value: object, directory: str) -> JsonPath:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        text = Text(limit=1000, empty=False, what=self.describe()).parse(value, directory)
        if not re.fullmatch(PATH, text):
            remedy = "a path has names and indices only; filters, wildcards and quoted names are not supported"
            raise Invalid(f"must be {self.describe()}", remedy)
        return tuple(name or int(index) for name, index in _STEP.findall(text))

    def describe(self) -> str:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return 'a JSON path such as "$.commits[0].id"'


def _table(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Invalid(f"must be {what}")
    if len(value) > MAX_PATHS:
        raise Invalid(f"must have at most {MAX_PATHS} entries, it has {len(value)}", show=False)
    return value


@dataclass(frozen=True)
class ParamPaths:
    """Where the values of a task's parameters stand in the body of a request."""

    def parse(self, value: object, directory: str) -> dict[str, JsonPath]:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        found: dict[str, JsonPath] = {}
        wrong: list[Invalid] = []
        for name, path in _table(value, self.describe()).items():
            try:
                found[name] = Path().parse(path, directory)
            except Invalid as err:
                err.path = (name,)
                wrong.append(err)
        if wrong:
            raise InvalidParts(wrong)
        return found

    def describe(self) -> str:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return 'a table of JSON paths such as { ref = "$.ref" }'


@dataclass(frozen=True)
class Conditions:
    """What values of the body start a run: by path, the accepted ones."""

    def parse(self, value: object, directory: str) -> tuple[tuple[JsonPath, tuple[str, ...]], ...]:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        found: list[tuple[JsonPath, tuple[str, ...]]] = []
        wrong: list[Invalid] = []
        for text, accepted in _table(value, self.describe()).items():
            try:
                path = Path().parse(text, directory)
            except Invalid as err:
                wrong.append(Invalid(f"{quoted(text)} must be {Path().describe()}", err.remedy, show=False))
                continue
            try:
                found.append((path, _ACCEPTED.parse(accepted, directory)))
            except Invalid as err:
                for part in err.parts:
                    part.path = (text, *part.path)
                wrong += err.parts
        if wrong:
            raise InvalidParts(wrong)
        return tuple(found)

    def describe(self) -> str:
        """See :class:`supervisor.config.value_types.values.ValueType`."""
        return 'a table of JSON paths and values such as { "$.ref" = "refs/heads/main" }'


def checked_secret(text: str) -> str:
    """Return the secret in the content of its file.

    Raises:
        Invalid: it is too short, or has several lines.
    """
    secret = text.rstrip("\r\n")
    if "\n" in secret:
        raise Invalid("must have one line, the secret", show=False)
    if len(secret.encode()) < MIN_SECRET:
        raise Invalid(f"must have at least {MIN_SECRET} bytes", "create one: openssl rand -hex 32", show=False)
    return secret
