"""The units that a command applies to: names and globs, a group, a tag, or all."""

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click

from supervisor.cli.failure import Failure
from supervisor.cli.name_completion import Names
from supervisor.cli.option_groups import grouped
from supervisor.ipc.unit_selection import is_glob

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import AnswerObject
    from supervisor.ipc.unit_selection import Kinds

F = TypeVar("F", bound=Callable[..., object])

_NAME_OR_GLOB = re.compile(r"[a-zA-Z0-9._:*?\[\]!^-]{1,100}")
_SHOWN = 10


def choosing(complete: Names, metavar: str = "[NAME]...") -> Callable[[F], F]:
    """Add the arguments and options that choose units, which :func:`choice_of` gets as its argument `units`."""

    def add(function: F) -> F:
        function = grouped("units", UnitChoice)(function)
        for option in reversed(
            (
                click.argument("names", metavar=metavar, nargs=-1, shell_complete=complete),
                click.option("--group", metavar="GROUP", help="Only units of this group."),
                click.option("--tag", metavar="TAG", help="Only units with this tag."),
                click.option("--all", "everything", is_flag=True, help="All units."),
            )
        ):
            function = option(function)
        return function

    return add


@dataclass(frozen=True)
class UnitChoice:
    """A choice of units by names and globs, restricted by group and tag; or of all units."""

    names: tuple[str, ...] = ()
    group: str | None = None
    tag: str | None = None
    everything: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether it contains names, a group or a tag."""
        return bool(self.names) or self.group is not None or self.tag is not None

    @property
    def exact(self) -> bool:
        """Whether it consists only of exact names."""
        return bool(self.names) and self.group is None and self.tag is None and not any(map(is_glob, self.names))

    def body(self) -> dict[str, object]:
        """Return the selector for the API."""
        if self.everything:
            return {"all": True}
        given = {"names": list(self.names) or None, "group": self.group, "tag": self.tag}
        return {name: value for name, value in given.items() if value is not None}

    def records(self, api: "Api", kinds: "Kinds") -> "list[AnswerObject]":
        """Return the records of the chosen units, in the order of exact names, or else in the order of the API.

        Raises:
            Failure: a name, glob, group or tag matches nothing, or a name is of the wrong kind.
        """
        from supervisor.cli.lookups import find_task

        if self.exact:
            units = {name: find_task(api, name) for name in self.names}
            if all(unit is not None and kinds.fits(_ListedUnit(unit)) for unit in units.values()):
                return [unit for unit in units.values() if unit is not None]
        return self.among(api.get("/api/tasks")["items"], kinds)

    def among(self, items: "Iterable[AnswerObject]", kinds: "Kinds") -> "list[AnswerObject]":
        """Return the records of the chosen units from the records of all units.

        Raises:
            Failure: a name, glob, group or tag matches nothing, or a name is of the wrong kind.
        """
        from supervisor.ipc.unit_selection import NotSelected, Selector, select

        try:
            chosen = select(map(_ListedUnit, items), Selector(self.names or None, self.group, self.tag), kinds)
        except NotSelected as err:
            raise not_found(self, (str(error["message"]) for error in err.errors)) from err
        return [listed.record for listed in chosen]


@dataclass(frozen=True)
class _ListedUnit:
    """Adapts a record of the API to :class:`supervisor.ipc.unit_selection.SelectableUnit`."""

    record: "AnswerObject"

    @property
    def name(self) -> str:
        return str(self.record["name"])

    @property
    def kind(self) -> str:
        return str(self.record["kind"])

    @property
    def can_be_run(self) -> bool:
        """Whether it is a task that users can run."""
        return self.kind == "task" and bool(self.record["definition"].get("apiTrigger", True))

    @property
    def group(self) -> str | None:
        group: str | None = self.record.get("group")
        return group

    @property
    def tags(self) -> list[str]:
        tags: list[str] = self.record.get("tags") or []
        return tags

    @property
    def flow(self) -> str | None:
        flow: str | None = self.record.get("flow")
        return flow


def not_found(choice: UnitChoice, messages: Iterable[str]) -> Failure:
    """Return the error about a choice that matches nothing or units of the wrong kind."""
    hint = ["to choose all, use --all"] if "all" in choice.names else []
    return Failure("\n".join([*dict.fromkeys(messages), *hint]))


def choice_of(units: UnitChoice, needed: str | None = None) -> UnitChoice:
    """Check the arguments and options of :func:`choosing`.

    Args:
        units: The given arguments and options.
        needed: The objects that the user must name, for the message; None: no choice means all units.

    Raises:
        click.UsageError: the options conflict, one is empty, or nothing is chosen.
        Failure: a name has invalid characters.
    """
    if "" in (*units.names, units.group, units.tag):
        raise click.UsageError("a name, --group or --tag is empty")
    for name in units.names:
        if not _NAME_OR_GLOB.fullmatch(name):
            raise Failure(f'not a name: "{name}"')
    if units.everything and units.narrowed:
        raise click.UsageError("--all cannot be combined with names, --group or --tag")
    if needed is not None and not units.narrowed and not units.everything:
        raise click.UsageError(f"name {needed}, or use --group, --tag or --all")
    return replace(units, everything=units.everything or not units.narrowed)


def is_interactive() -> bool:
    """Return whether the user can be asked a question, because standard input and standard error are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_all(names: Callable[[], list[str]], verb: str) -> None:
    """Ask the user to confirm an action on all units.

    Raises:
        click.UsageError: there is no terminal on which to ask.
        Failure: the user did not confirm the action.
    """
    if not is_interactive():
        raise click.UsageError("--all needs --yes when the command does not run on a terminal")
    selected = names()
    more = f" and {len(selected) - _SHOWN} more" if len(selected) > _SHOWN else ""
    click.echo(f"{', '.join(selected[:_SHOWN])}{more}", err=True)
    if not click.confirm(f"{verb} all {len(selected)}?", err=True):
        raise Failure("nothing was done")
