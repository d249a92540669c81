"""Which units a command is about: names and globs, a group, a tag, or all. Pure.

Names are united; group and tag narrow. A glob skips units that do not fit the command, but an exact name of such a unit
is an error. A name, glob, group or tag that matches nothing is an error too, so a typing error changes nothing.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

_GLOB = frozenset("*?[")


class Unit(Protocol):
    """A task or service, as far as a selector looks at it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """``task`` or ``service``."""

    @property
    def group(self) -> str | None:
        """Its group."""

    @property
    def tags(self) -> Sequence[str]:
        """Its tags."""


U = TypeVar("U", bound=Unit)


@dataclass(frozen=True)
class Selector:
    """The selector of a request.

    Attributes:
        names: exact names and globs; None: all units within `group` and `tag`.
        group: only units of this group.
        tag: only units with this tag.
        reach: globs of the only units that exist for the client; None: all.
    """

    names: tuple[str, ...] | None = None
    group: str | None = None
    tag: str | None = None
    reach: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Kinds:
    """The units that a command fits.

    Attributes:
        fits: whether a unit is one of them.
        what: their kind, for messages.
        misfit: the message about a unit that the command does not fit.
    """

    fits: Callable[[Any], bool]
    what: str
    misfit: Callable[[Any], str] = lambda unit: f"{unit.name} is a {unit.kind}"


ANY = Kinds(lambda _unit: True, "task or service")
"""All tasks and services."""


class NotSelected(Exception):
    """The selector is refused: `status` is 404 for an unknown name, 409 for a unit of the wrong kind."""

    def __init__(self, status: int, errors: list[dict[str, Any]]) -> None:
        super().__init__("; ".join(dict.fromkeys(str(error["message"]) for error in errors)))
        self.status = status
        self.errors = errors


def select(units: Iterable[U], wanted: Selector, kinds: Kinds) -> list[U]:
    """Return the selected units in their order.

    Raises:
        NotSelected: a part of the selector matches nothing, or names a unit of the wrong kind.
    """
    reach = None if wanted.reach is None else _matcher(wanted.reach)
    visible = {unit.name: unit for unit in units if reach is None or reach(unit.name)}
    fitting = [unit for unit in visible.values() if kinds.fits(unit)]
    missing: list[dict[str, Any]] = []
    misfits: list[dict[str, Any]] = []
    named: set[str] = set()
    for place, name in enumerate(wanted.names or ()):
        location = f"body.names[{place}]"
        if is_glob(name):
            matches = set(filter(_matcher([name]), (unit.name for unit in fitting)))
            named |= matches
            if not matches:
                missing.append(_error(location, f'no {kinds.what} matches "{name}"'))
        elif name not in visible:
            missing.append(_error(location, _unknown(kinds.what, name, [unit.name for unit in fitting])))
        elif not kinds.fits(visible[name]):
            misfits.append(_error(location, kinds.misfit(visible[name])))
        else:
            named.add(name)
    for key, value in (("group", wanted.group), ("tag", wanted.tag)):
        known = {one for unit in visible.values() for one in _labels(unit, key)}
        if value is not None and value not in known:
            missing.append(_error(f"body.{key}", _unknown(key, value, known)))
    if missing or misfits:
        raise NotSelected(404 if missing else 409, missing + misfits)
    found = [unit for unit in fitting if _is_meant(unit, wanted, named)]
    if not found and (wanted.group is not None or wanted.tag is not None):
        within = " and ".join(f'{key} "{value}"' for key in ("group", "tag") if (value := getattr(wanted, key)))
        raise NotSelected(404, [_error("body", f"no selected {kinds.what} has {within}")])
    return found


def is_glob(name: str) -> bool:
    """Return whether it is a pattern; names have no such characters."""
    return not _GLOB.isdisjoint(name)


def _is_meant(unit: Unit, wanted: Selector, named: set[str]) -> bool:
    return (
        (wanted.names is None or unit.name in named)
        and (wanted.group is None or wanted.group in _labels(unit, "group"))
        and (wanted.tag is None or wanted.tag in _labels(unit, "tag"))
    )


def _labels(unit: Unit, key: str) -> Iterable[str]:
    if key == "tag":
        return unit.tags
    return () if unit.group is None else (unit.group,)


def _matcher(globs: Iterable[str]) -> Callable[[str], Any]:
    return re.compile("|".join(map(fnmatch.translate, globs)) or r"\Z.").match


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # 5 ms, only after a typing error

    near = get_close_matches(name, known, n=1)
    return f'no {what} named "{name}"' + (f' (did you mean "{near[0]}"?)' if near else "")


def _error(location: str, message: str) -> dict[str, Any]:
    return {"location": location, "message": message}
