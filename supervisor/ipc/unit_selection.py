"""Selects the units of a command by names and globs, group and tag. Pure.

Names and globs add units; group and tag restrict them. A glob skips units of the wrong kind, but an exact name of such
a unit is an error. A name, glob, group or tag that matches nothing is also an error, so a typo changes nothing.

Steps of flows are selected only by exact names, and by globs with a colon.
"""

import fnmatch
import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

_GLOB = frozenset("*?[")
_MOST_SUGGESTIONS = 5
"""Maximum number of unknown names for which a similar name is searched."""
_MOST_COMPARED = 20
_MOST_CHARACTERS = 100
_SIMILAR = 0.6
_MOST_LISTED = 20
"""Maximum number of messages in the text of an error."""


class SelectableUnit(Protocol):
    """The attributes of a task or service that a selector uses."""

    @property
    def name(self) -> str:
        """The name, which no other unit has."""

    @property
    def kind(self) -> str:
        """The kind: ``task`` or ``service``."""

    @property
    def group(self) -> str | None:
        """The group; None: it has none."""

    @property
    def tags(self) -> Sequence[str]:
        """The tags, often none."""

    @property
    def flow(self) -> str | None:
        """The flow of which it is a step; None for other units."""


U = TypeVar("U", bound=SelectableUnit)


@dataclass(frozen=True)
class Selector:
    """The selector of a request.

    Attributes:
        names: Exact names and globs; None: all units.
        group: Selects only units of this group; None: of any group.
        tag: Selects only units with this tag; None: with any tags.
        reach: Globs of the units that the client may see; None: all.
    """

    names: tuple[str, ...] | None = None
    group: str | None = None
    tag: str | None = None
    reach: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Kinds:
    """The kind of units that a command accepts.

    Attributes:
        fits: Returns whether the command accepts a unit.
        what: What these units are called in messages.
        misfit: Returns the message about a unit that the command does not accept.
    """

    fits: Callable[[Any], bool]
    what: str
    misfit: Callable[[Any], str] = lambda unit: f"{unit.name} is a {unit.kind}"


ANY = Kinds(lambda _unit: True, "task or service")
"""All tasks and services."""


class NotSelected(Exception):
    """The selector is invalid: `status` is 404 if something matches nothing, 409 if a unit is of the wrong kind."""

    def __init__(self, status: int, errors: list[dict[str, object]]) -> None:
        messages = [*dict.fromkeys(str(error["message"]) for error in errors)]
        more = f" and {len(messages) - _MOST_LISTED} more" if len(messages) > _MOST_LISTED else ""
        super().__init__("; ".join(messages[:_MOST_LISTED]) + more)
        self.status = status
        self.errors = errors


def select(units: Iterable[U], selector: Selector, kinds: Kinds) -> list[U]:
    """Return the selected units in their order.

    Raises:
        NotSelected: part of the selector matches nothing or names a unit of the wrong kind.
    """
    reach = None if selector.reach is None else _matcher(selector.reach)
    visible = {unit.name: unit for unit in units if reach is None or reach(unit.name)}
    fitting = [unit for unit in visible.values() if kinds.fits(unit)]
    missing: list[dict[str, object]] = []
    misfits: list[dict[str, object]] = []
    named: set[str] = set()
    names = [unit.name for unit in fitting]
    outer = [unit.name for unit in fitting if unit.flow is None]
    for index, name in enumerate(selector.names or ()):
        location = f"body.names[{index}]"
        if is_glob(name):
            matches = set(filter(_matcher([name]), names if ":" in name else outer))
            named |= matches
            if not matches:
                missing.append(_error(location, f'no {kinds.what} matches "{name}"'))
        elif name not in visible:
            compared = names if len(missing) < _MOST_SUGGESTIONS else []
            missing.append(_error(location, _unknown(kinds.what, name, compared)))
        elif not kinds.fits(visible[name]):
            misfits.append(_error(location, kinds.misfit(visible[name])))
        else:
            named.add(name)
    for key, value in (("group", selector.group), ("tag", selector.tag)):
        labels = {label for unit in visible.values() for label in _labels(unit, key)}
        if value is not None and value not in labels:
            missing.append(_error(f"body.{key}", _unknown(key, value, labels)))
    if missing or misfits:
        raise NotSelected(404 if missing else 409, missing + misfits)
    chosen = [unit for unit in fitting if _is_meant(unit, selector, named)]
    if not chosen and (selector.group is not None or selector.tag is not None):
        within = " and ".join(f'{key} "{value}"' for key in ("group", "tag") if (value := getattr(selector, key)))
        raise NotSelected(404, [_error("body", f"no selected {kinds.what} has {within}")])
    return chosen


def is_glob(name: str) -> bool:
    """Return whether a name is a glob. Names of units never contain its special characters."""
    return not _GLOB.isdisjoint(name)


def _is_meant(unit: SelectableUnit, selector: Selector, named: set[str]) -> bool:
    return (
        (unit.flow is None if selector.names is None else unit.name in named)
        and (selector.group is None or selector.group in _labels(unit, "group"))
        and (selector.tag is None or selector.tag in _labels(unit, "tag"))
    )


def _labels(unit: SelectableUnit, key: str) -> Iterable[str]:
    if key == "tag":
        return unit.tags
    return () if unit.group is None else (unit.group,)


def _matcher(globs: Iterable[str]) -> Callable[[str], object]:
    return re.compile("|".join(map(fnmatch.translate, globs)) or r"\Z.").match


def _unknown(kind: str, name: str, names: Iterable[str]) -> str:
    near = _similar(name[:_MOST_CHARACTERS], names)
    return f'no {kind} named "{name}"' + (f' (did you mean "{near}"?)' if near else "")


def _similar(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar known name; None if there is none.

    A comparison of two long names takes 0.2 ms, and the scheduler decides nothing meanwhile. So only the names with
    the most characters in common are compared.
    """
    from difflib import SequenceMatcher, get_close_matches  # imported only after a typo, because that takes 5 ms

    matcher = SequenceMatcher(None, "", name)
    bounds: list[tuple[float, str]] = []
    for other in names:
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() >= _SIMILAR and (bound := matcher.quick_ratio()) >= _SIMILAR:
            bounds.append((bound, other))
    candidates = [other for _, other in heapq.nlargest(_MOST_COMPARED, bounds)]
    return next(iter(get_close_matches(name, candidates, n=1, cutoff=_SIMILAR)), None)


def _error(location: str, message: str) -> dict[str, object]:
    return {"location": location, "message": message}
