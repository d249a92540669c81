"""Filters of runs: the conditions of the API, and their form in SQL."""

import fnmatch
import itertools
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from store.connection import TEXTS, Connection, Value
from store.runs import phases
from store.runs.ids import is_ulid

VISIBLE = "runs.seq NOT IN (SELECT run FROM deleted_runs)"
"""Condition for runs that are not deleted. It must come last, because it is the most expensive one."""

Optional = Literal["started_at", "duration"]
"""Columns that can be NULL."""

WIDTH_ALL, WIDTH_TASK = 22, 27
"""Width (log2 ms) of the narrowest buckets in `run_counts`, for all tasks together and for single tasks."""

_ENDED_NAME = f"SELECT min(task_name) FROM runs INDEXED BY runs_task WHERE state < {phases.FIRST_ACTIVE}"  # noqa: S608 - constants
_TASK_NAMES = (
    f"WITH RECURSIVE names (name) AS ({_ENDED_NAME} UNION ALL"  # noqa: S608 - constants
    f" SELECT ({_ENDED_NAME} AND task_name > name) FROM names WHERE name IS NOT NULL)"
    " SELECT name FROM names WHERE name IS NOT NULL"
    f" UNION SELECT task_name FROM runs INDEXED BY runs_active WHERE state >= {phases.FIRST_ACTIVE}"
)
_MOST_SINGLY = 1000
"""Up to this number, each value is a parameter. SQLite accepts 32,766 in a statement, which may repeat the values."""
_ULID_CHARACTERS = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions that a visible run must all meet. The default matches every run.

    Attributes:
        tasks: Glob pattern of the tasks that the caller may see; None for all tasks.
        task: Exact task name from the path of the request; None for no condition.
        task_name: Exact task name from the filter; None for no condition.
        phases: Phases: "pending", "running", "ended". A run matches any of `phases` or `reasons`; without either, all.
        reasons: Exact names of end reasons.
        triggers: Triggers, any of which matches; empty for no condition.
        created_after: Earliest time of creation, ms since the epoch.
        created_before: Latest time of creation, ms since the epoch.
        exit_code_min: Lowest exit code.
        exit_code_max: Highest exit code.
        retries_only: Whether only retries match.
        flow_run_id: The flow run whose steps' runs match; None for no condition.
        search: Part of the task name or the id, case-insensitive; empty for no condition.
    """

    tasks: str | None = None
    task: str | None = None
    task_name: str | None = None
    phases: Collection[str] = frozenset()
    reasons: Collection[str] = frozenset()
    triggers: Collection[str] = frozenset()
    created_after: int | None = None
    created_before: int | None = None
    exit_code_min: int | None = None
    exit_code_max: int | None = None
    retries_only: bool = False
    flow_run_id: str | None = None
    search: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter in terms of the table. None means no condition; an empty set matches nothing.

    Attributes:
        names: Task names.
        states: Numbers of store.runs.phases.
        id_part: Upper-case part of the id. A run whose task is in `id_or_names` matches too.
        id_or_names: Task names for `id_part`.
        has: A column that must have a value.
        lacks: A column that must be NULL; not together with `has`.
        started: Times (ms) between which all matches are known to have started; None if unknown. The condition only
            avoids reading other rows.
        lasted: The same for durations in ms.
        some_deleted: Whether deleted runs must be excluded. False if there are none, or if they are wanted too.
    """

    names: frozenset[str] | None = None
    states: frozenset[int] | None = None
    triggers: frozenset[str] | None = None
    created_after: int | None = None
    created_before: int | None = None
    exit_code_min: int | None = None
    exit_code_max: int | None = None
    retries_only: bool = False
    flow_run_id: str | None = None
    id_part: str | None = None
    id_or_names: frozenset[str] = frozenset()
    has: Optional | None = None
    lacks: Optional | None = None
    started: tuple[int, int] | None = None
    lasted: tuple[int, int] | None = None
    some_deleted: bool = True

    def conditions(self) -> tuple[str, list[Value]]:
        """Return the complete WHERE expression and its parameters."""
        parts: list[str] = []
        params: list[Value] = []
        if self.names is not None:
            parts.append(among("task_name", self.names, params))
        if self.states is not None:
            parts += self._by_state(self.states, params)
        if self.triggers is not None:
            parts.append(among("triggered_by", self.triggers, params))
        for expression, bound in (
            ("created_at >= ?", self.created_after),
            ("created_at <= ?", self.created_before),
            ("exit_code >= ?", self.exit_code_min),
            ("exit_code <= ?", self.exit_code_max),
        ):
            if bound is not None:
                parts.append(expression)
                params.append(bound)
        parts += self._sparing(params)
        if self.retries_only:
            parts.append("retry_attempt > 0")
        if self.flow_run_id is not None:
            parts.append("flow_run_id = ?")
            params.append(self.flow_run_id)
        if self.id_part is not None:
            by_name = f"{among('task_name', self.id_or_names, params)} OR " if self.id_or_names else ""
            parts.append("id = ?" if self.id_is_whole() else f"({by_name}instr(id, ?) > 0)")
            params.append(self.id_part)
        if self.some_deleted:
            parts.append(VISIBLE)
        return " AND ".join(parts) or "true", params

    @staticmethod
    def _by_state(states: frozenset[int], params: list[Value]) -> Iterator[str]:
        """Yield the conditions on the state. The first one is the condition of a partial index, if one applies."""
        part = phases.ALL_STATES
        if states <= phases.ENDED_STATES:
            part = phases.ENDED_STATES
            yield f"state < {phases.FIRST_ACTIVE}"
        elif states <= phases.ACTIVE_STATES:
            part = phases.ACTIVE_STATES
            yield f"state >= {phases.FIRST_ACTIVE}"
        # Keep the list short, because it is searched for each run.
        others = part - states
        if others and len(others) < len(states):
            yield f"NOT ({among('state', others, params)})"
        elif others:
            yield among("state", states, params)

    def _sparing(self, params: list[Value]) -> list[str]:
        """Return conditions that others imply, or that separate the two parts of a list (with and without a value)."""
        parts: list[str] = []
        if self.has is not None:
            parts.append(f"{self.has} IS NOT NULL")
        if self.lacks is not None:
            parts.append(f"{self.lacks} IS NULL")
        for column, bounds in (("started_at", self.started), ("duration", self.lasted)):
            if bounds is not None:
                parts.append(f"{column} BETWEEN ? AND ?")
                params.extend(bounds)
        return parts

    def ended(self) -> "Selection":
        """Return the selection limited to ended runs."""
        return replace(self, states=phases.ENDED_STATES if self.states is None else self.states & phases.ENDED_STATES)

    def active(self) -> "Selection":
        """Return the selection limited to runs that have not ended."""
        states = phases.ACTIVE_STATES if self.states is None else self.states & phases.ACTIVE_STATES
        return replace(self, states=states)

    def limited_to(self, column: str, values: Collection[int | str]) -> "Selection":
        """Return the selection limited to values of a column: to these states, or to one task name or exit code."""
        if column == "state":
            states = phases.ALL_STATES if self.states is None else self.states
            return replace(self, states=frozenset(map(int, values)) & states)
        (value,) = values
        if column == "exit_code":
            return replace(self, exit_code_min=int(value), exit_code_max=int(value))
        return replace(self, names=frozenset({str(value)}))

    def id_is_whole(self) -> bool:
        """Return whether `id_part` is a complete id, so that at most one run matches."""
        return self.id_part is not None and not self.id_or_names and is_ulid(self.id_part)

    def by_state_alone(self) -> bool:
        """Return whether there are only conditions on the state and on the presence of values."""
        return self == Selection(states=self.states, has=self.has, lacks=self.lacks, some_deleted=self.some_deleted)

    def is_empty(self) -> bool:
        """Return whether nothing can match, whatever the table contains."""
        return frozenset() in (self.names, self.states, self.triggers)


def resolve(db: Connection, run_filter: RunFilter) -> Selection:
    """Return the selection for a filter. It is valid in the current snapshot of `db`.

    Raises:
        ValueError: Unknown phase or end reason.
    """
    names: frozenset[str] | None = None
    for name in (run_filter.task, run_filter.task_name):
        if name is not None:
            names = frozenset({name}) if names is None else names & {name}
    if run_filter.tasks is not None:
        candidates = names if names is not None else task_names(db)
        names = frozenset(name for name in candidates if fnmatch.fnmatchcase(name, run_filter.tasks))
    states = phases.select(run_filter.phases, run_filter.reasons) if run_filter.phases or run_filter.reasons else None
    selection = Selection(
        names=names,
        states=None if states == phases.ALL_STATES else states,
        triggers=frozenset(run_filter.triggers) if run_filter.triggers else None,
        created_after=run_filter.created_after,
        created_before=run_filter.created_before,
        exit_code_min=run_filter.exit_code_min,
        exit_code_max=run_filter.exit_code_max,
        retries_only=run_filter.retries_only,
        flow_run_id=run_filter.flow_run_id,
        some_deleted=db.row("SELECT 1 FROM deleted_runs LIMIT 1") is not None,
    )
    return _search(db, selection, run_filter.search) if run_filter.search else selection


def _search(db: Connection, selection: Selection, text: str) -> Selection:
    """Return the selection limited to a search text. The search in task names becomes a set of names.

    Ids are only searched for text that can occur in an id.
    """
    names = task_names(db) if selection.names is None else selection.names
    matching = frozenset(name for name in names if text.casefold() in name.casefold())
    if len(matching) == len(names) and names:
        return selection
    part = text.upper()
    if text.isascii() and len(part) <= 26 and _ULID_CHARACTERS.issuperset(part):
        if part in _common_beginning(db):
            return selection
        return replace(selection, id_part=part, id_or_names=matching)
    return replace(selection, names=matching)


def _common_beginning(db: Connection) -> str:
    """Return the common prefix of all ids, which begin with the time."""
    id_range = db.row("SELECT (SELECT min(id) FROM runs), (SELECT max(id) FROM runs)")
    first, last = id_range if id_range and id_range[0] is not None else ("", "")
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=True))
    return "".join(character for character, _ in alike)


def task_names(db: Connection) -> frozenset[str]:
    """Return the task names of all runs, including deleted ones. Each name takes one step in an index."""
    return frozenset(row[0] for row in db.rows(_TASK_NAMES))


def among(column: str, values: Collection[str] | Collection[int], params: list[Value]) -> str:
    """Return the condition that a column has one of these values, and append its parameters to `params`."""
    if len(values) > _MOST_SINGLY:
        params.append(json.dumps([*values]))
        return f"{column} IN {TEXTS}"
    params.extend(values)
    return f"{column} = ?" if len(values) == 1 else f"{column} IN ({', '.join('?' * len(values))})"
