"""Selection of tasks and services by name, glob, group and tag: the parameters, and the names that they select."""

import fnmatch
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api.errors import ApiError
from api.operations.operation import Call
from api.operations.parameters import QueryParameter, text
from store import tasks as store_tasks
from store.database import Database
from store.runs import flows as store_flows
from store.runs import writes as store_runs
from store.runs.runs_by_unit import RunScope
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
    QueryParameter(
        "task",
        _names,
        {"type": "string"},
        (),
        "Comma-separated names of tasks and services, or globs such as web*; default: all.",
    ),
    text("group", "Only tasks and services of this group."),
    text("tag", "Only tasks and services with this tag."),
    text("flow_run_id", "Only runs of the steps of this run of a flow."),
)


@dataclass(frozen=True)
class Units:
    """A selection of tasks and services.

    Attributes:
        names: names and globs; a unit must match any of them; empty for all units.
        group: group that a unit must be in; None for any.
        tag: tag that a unit must have; None for any.
        tasks: glob pattern of the units that the client may see; None for all.
        flow_run_id: only runs of the steps of this flow run; None for all.
    """

    names: tuple[str, ...]
    group: str | None
    tag: str | None
    tasks: str | None
    flow_run_id: str | None = None

    @property
    def selects(self) -> bool:
        """Whether it is a choice, and not all units."""
        return bool(self.names) or any(part is not None for part in (self.group, self.tag, self.flow_run_id))

    def resolve(self, db: Database) -> RunScope:
        """Return the units that are selected at present; a flow covers its steps.

        A plain name also selects a unit that was removed from the configuration, if it still has runs.

        Raises:
            ApiError: 404 a name, a glob, the group or the tag selects nothing.
        """
        standings = {standing.name: _Configured(standing) for standing in store_tasks.standings(db)}
        if self.flow_run_id is not None:
            return self._of_flow_run(db, standings, self.flow_run_id)
        chosen = self._chosen(db, standings)
        flows = {name: steps for name in chosen if name in standings and (steps := standings[name].steps)}
        own = {task for flow, steps in flows.items() for task in steps if task.startswith(f"{flow}:")}
        inner = {task for steps in flows.values() for task in steps if self.sees(task)} - own - chosen
        return RunScope(frozenset(chosen | own | inner), frozenset(inner), frozenset(flows))

    def _of_flow_run(self, db: Database, standings: Mapping[str, "_Configured"], run_id: str) -> RunScope:
        run = store_runs.get_run(db, run_id)
        if run is None or not self.sees(run.task_name):
            raise ApiError(404, f'No run with the id "{run_id}"')
        names = {inner.task_name for inner in store_flows.runs_of(db, [run_id])}
        rest = [run.task_name, *names]
        while rest:  # the steps of flows inside it, too
            steps = set(standings[name].steps) if (name := rest.pop()) in standings else set()
            rest += steps - names
            names |= steps
        own = {name for name in names if name.startswith(f"{run.task_name}:") or self.sees(name)}
        return RunScope(frozenset(own), flow_run_id=run_id)

    def _chosen(self, db: Database, configured: Mapping[str, "_Configured"]) -> frozenset[str]:
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

    @property
    def flow(self) -> str | None:
        return self._values.get("flow")

    @property
    def steps(self) -> list[str]:
        """The tasks of the steps of a flow; for other units empty."""
        return [step["task"] for step in self._values.get("steps", ())] if '"steps"' in self._definition else []


def units_of(call: Call) -> Units:
    """Return the selection of a request, limited to the client's tasks."""
    name = call.path.get("taskName")
    if name is not None:
        return Units((name,), None, None, call.tasks)
    query = call.query
    return Units(query["task"], query["group"], query["tag"], call.tasks, query["flow_run_id"])
