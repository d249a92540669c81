"""Selecting tasks and services by name, glob, group and tag: parameters, and the names that they mean."""

import fnmatch
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from api.errors import ApiError
from api.operations.operation import Call
from api.operations.parameters import Param, text
from store import tasks as store_tasks
from store.database import Database
from store.runs import writes as store_runs

_NAME = re.compile(r"[a-zA-Z0-9._:*?\[\]!-]{1,200}")
_GLOB = re.compile(r"[*?\[]")
_MOST_NAMES = 1000


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))
    if len(names) > _MOST_NAMES:
        raise ValueError(f"has more than {_MOST_NAMES} names")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f'"{name}" is neither a name of a task or service nor a glob')
    return names


UNIT_PARAMS = (
    Param(
        "task",
        _names,
        {"type": "string"},
        (),
        "Comma-separated names of tasks and services, or globs such as web*; default: all.",
    ),
    text("group", "Only tasks and services of this group."),
    text("tag", "Only tasks and services with this tag."),
)


@dataclass(frozen=True)
class Units:
    """A selection of tasks and services.

    Attributes:
        names: names and globs, any of which may match; empty: all.
        group: the group that they must be in.
        tag: the tag that they must have.
        tasks: glob of the only names that the client may know of.
    """

    names: tuple[str, ...]
    group: str | None
    tag: str | None
    tasks: str | None

    def resolve(self, db: Database) -> frozenset[str]:
        """Return the names that are selected at present.

        A name without a glob also selects a unit that the configuration no longer has, if it has runs.

        Raises:
            ApiError: 404 a name, or group and tag together, select nothing.
        """
        configured = {one.name: one.definition for one in store_tasks.standings(db) if self.sees(one.name)}
        found: set[str] = set()
        for name in self.names:
            matching = fnmatch.filter(configured, name) if _GLOB.search(name) else [name]
            known = matching and (matching[0] in configured or self._has_runs(db, name))
            if not known:
                raise ApiError(404, f'No task named "{name}", and no run of one')
            found.update(matching)
        if not self.names:
            found.update(configured)
        if self.group is None and self.tag is None:
            return frozenset(found)
        narrowed = frozenset(name for name in found if self._fits(configured.get(name)))
        if not narrowed:
            raise ApiError(404, f"None of the selected tasks and services has {self._wanted()}")
        return narrowed

    def sees(self, name: str) -> bool:
        """Return whether the client may know of a unit."""
        return self.tasks is None or fnmatch.fnmatchcase(name, self.tasks)

    def _has_runs(self, db: Database, name: str) -> bool:
        return self.sees(name) and store_runs.has_runs(db, name)

    def _fits(self, definition: str | None) -> bool:
        if definition is None:
            return False
        values: dict[str, Any] = msgspec.json.decode(definition)
        in_group = self.group is None or values.get("group") == self.group
        return in_group and (self.tag is None or self.tag in (values.get("tags") or ()))

    def _wanted(self) -> str:
        group = f'the group "{self.group}"' if self.group is not None else ""
        tag = f'the tag "{self.tag}"' if self.tag is not None else ""
        return " and ".join(part for part in (group, tag) if part)


def units_of(call: Call) -> Units:
    """Return the selection of a request, limited to the client's tasks."""
    name = call.path.get("taskName")
    if name is not None:
        return Units((name,), None, None, call.tasks)
    return Units(call.query["task"], call.query["group"], call.query["tag"], call.tasks)
