"""Selection of tasks and services by name, glob, group and tag: the parameters, and the names that they select."""

import fnmatch
import functools
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
from supervisor.ipc.unit_selection import ANY, NotSelected, Selector, select

_NAME = re.compile(r"[a-zA-Z0-9._:*?\[\]!-]{1,200}")
_MOST_NAMES = 1000


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))
    if len(names) > _MOST_NAMES:
        raise ValueError(f"has more than {_MOST_NAMES} names")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f'"{name[:100]}" is neither a name of a task or service nor a glob')
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
        names: names and globs; a unit must match any of them; empty for all units.
        group: group that a unit must be in; None for any.
        tag: tag that a unit must have; None for any.
        tasks: glob pattern of the units that the client may see; None for all.
    """

    names: tuple[str, ...]
    group: str | None
    tag: str | None
    tasks: str | None

    def resolve(self, db: Database) -> frozenset[str]:
        """Return the names of the units that are selected at present.

        A plain name also selects a unit that was removed from the configuration, if it still has runs.

        Raises:
            ApiError: 404 a name, a glob, the group or the tag selects nothing.
        """
        configured = {standing.name: _Configured(standing) for standing in store_tasks.standings(db)}
        former = {name for name in self.names if name not in configured and self._has_runs(db, name)}
        names = tuple(name for name in self.names if name not in former)
        if former and not names and self.group is None and self.tag is None:
            return frozenset(former)
        reach = None if self.tasks is None else (self.tasks,)
        selector = Selector(names if self.names else None, self.group, self.tag, reach)
        try:
            selected = {unit.name for unit in select(configured.values(), selector, ANY)}
        except NotSelected as err:
            raise ApiError(404, str(err)) from err
        return frozenset(selected if self.group is not None or self.tag is not None else selected | former)

    def sees(self, name: str) -> bool:
        """Return whether the client may see a unit."""
        return self.tasks is None or fnmatch.fnmatchcase(name, self.tasks)

    def _has_runs(self, db: Database, name: str) -> bool:
        return self.sees(name) and store_runs.has_runs(db, name)


class _Configured:
    """A stored unit, with the attributes that selectors compare."""

    kind = ""

    def __init__(self, record: store_tasks.UnitStatus) -> None:
        self.name = record.name
        self._definition = record.definition

    @functools.cached_property
    def _values(self) -> dict[str, Any]:
        definition: dict[str, object] = msgspec.json.decode(self._definition)
        return definition

    @property
    def group(self) -> str | None:
        return self._values.get("group")

    @property
    def tags(self) -> list[str]:
        return self._values.get("tags") or []


def units_of(call: Call) -> Units:
    """Return the selection of a request, limited to the client's tasks."""
    name = call.path.get("taskName")
    if name is not None:
        return Units((name,), None, None, call.tasks)
    return Units(call.query["task"], call.query["group"], call.query["tag"], call.tasks)
