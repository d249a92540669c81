"""Permissions of runs towards the daemon: the type of one permission, and a check that its target exists."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from supervisor.config.model import Service, Task
from supervisor.config.problems import Invalid, nearest, quoted
from supervisor.ipc.run_token import SEPARATOR, VERBS

_GLOB = re.compile(r"[a-zA-Z0-9._:*?\[\]!-]{1,200}")
_WILD = frozenset("*?[")
_KINDS = {"run": "task", "pause": "task", "resume": "task", "start": "service", "restart": "service"}
"""Which kind of unit each verb is for; stop is for both."""


@dataclass(frozen=True)
class Permission:
    """A verb and a name, or a glob of names."""

    def parse(self, value: object, directory: str) -> str:  # noqa: ARG002 - the protocol's signature
        """Return the permission as it stands there."""
        if not isinstance(value, str) or SEPARATOR not in value:
            raise Invalid(f"must be {self.describe()}")
        verb, _, glob = value.partition(SEPARATOR)
        if verb not in VERBS:
            raise Invalid(f"unknown verb {quoted(verb)} (use {', '.join(VERBS)})", nearest(verb, VERBS))
        if not _GLOB.fullmatch(glob):
            raise Invalid(f"{quoted(glob)} is not a name or a glob of names")
        return value

    def describe(self) -> str:
        """Return the words for error messages."""
        return 'a permission such as "restart:web" or "run:report-*"'


def unknown(
    may: Iterable[str], units: Mapping[str, Task | Service], known: Collection[str]
) -> Iterator[tuple[int, str, str | None]]:
    """Yield the index of each permission whose name nothing has, or a unit of the wrong kind, the error and a remedy.

    Args:
        may: the permissions of one unit.
        units: the units whose values are valid.
        known: names of all units, including those with invalid values.
    """
    for index, one in enumerate(may):
        verb, _, name = one.partition(SEPARATOR)
        if not _WILD.isdisjoint(name):
            continue
        if name not in known:
            yield index, f"no task or service named {quoted(name)}", nearest(name, known)
        elif name in units and units[name].kind != _KINDS.get(verb, units[name].kind):
            yield index, f"{name} is a {units[name].kind}, and {verb} is for {_KINDS[verb]}s", None
