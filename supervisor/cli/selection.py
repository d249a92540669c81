"""The runs that a command applies to: named runs, or all runs that match filters."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.records import Record, is_run_id
from supervisor.ipc.counted import counted

if TYPE_CHECKING:
    from supervisor.cli.client import Api

F = TypeVar("F", bound=Callable[..., Any])
Run = Record

_TRIGGERS = ("cron", "api", "cloud", "service", "startup")
_NOT_ENDED = ("pending", "running")
_TIMEOUT_S = 600.0
"""Hundreds of thousands of runs take a while, and the answer comes when all is done."""
_LISTED = 1000
_SHOWN = 10


def selecting(function: F) -> F:
    """Add the arguments that say which runs a command is about; :func:`selection_of` takes them."""
    for add in reversed(
        (
            click.argument("runs", metavar="[RUN]...", nargs=-1),
            click.option("--task", metavar="NAME", help="Runs of this task or service."),
            click.option("--status", metavar="LIST", help="Runs in these phases or with these end reasons: a,b."),
            click.option("--trigger", type=click.Choice(_TRIGGERS), help="Runs with this trigger."),
            click.option("--after", metavar="TIME", help="Runs created at this time or later (RFC 3339)."),
            click.option("--before", metavar="TIME", help="Runs created at this time or earlier."),
            click.option("--search", metavar="TEXT", help="Runs with this text in the task's name or the id."),
            click.option("--all", "everything", is_flag=True, help="All runs."),
        )
    ):
        function = add(function)
    return function


def asking(function: F) -> F:
    """Add the options of a command that asks before it changes many: ``dry_run`` and ``yes``."""
    function = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)
    return click.option("-n", "--dry-run", is_flag=True, help="Only show the selected runs.")(function)


@dataclass(frozen=True)
class Selection:
    """Which runs.

    Attributes:
        ids: Ids of the named runs.
        filters: Conditions on all selected runs, by the API's names; None: the named runs.
    """

    ids: tuple[str, ...]
    filters: dict[str, str] | None

    def change(self, api: "Api", operation: str) -> Any:
        """Have a bulk operation done, and return its answer.

        Raises:
            Failure: a filter is not valid, or there is no answer.
        """
        body: dict[str, Any] = {"ids": list(self.ids)}
        if self.filters is not None:
            body = {"match_all": True, "filter": self.filters}
        return api.post(f"/api/runs/bulk/{operation}", body=body, timeout_s=_TIMEOUT_S)

    def listed(self, api: "Api", limit: int = _LISTED, *, ended: bool) -> tuple[list[Run], int]:
        """Return the newest selected runs, and the number of selected runs; `ended`: only runs that have ended.

        Raises:
            Failure: a filter is not valid, or there is no answer.
        """
        from supervisor.cli.lookups import find_run

        if self.filters is None:
            named = [run for one in self.ids if (run := find_run(api, one))]
            named = [run for run in named if run["status"] == "ended" or not ended]
            return named[:limit], len(named)
        query: dict[str, str | int | None] = {**self.filters, "naming": "camel", "limit": limit}
        if ended:
            words = self.filters.get("status", "ended").split(",")
            query["status"] = ",".join(word for word in words if word.strip() not in _NOT_ENDED)
            if not query["status"]:
                return [], 0
        page = api.get("/api/runs", query)
        return page["items"] if "items" in page else page["runs"], int(page["total"])

    def preview(self, api: "Api", *, ended: bool, as_json: bool) -> None:
        """Print which runs are meant.

        Raises:
            Failure: a filter is not valid, or there is no answer.
        """
        from supervisor.cli.tables import show_json

        runs, total = self.listed(api, ended=ended)
        if as_json:
            show_json({"runs": runs, "total": total})
        else:
            _show(runs, total)

    def asks(self) -> bool:
        """Return whether to ask before a change: on a terminal, and unless every run was named."""
        return self.filters is not None and is_interactive()

    def confirm(self, api: "Api", verb: str, *, ended: bool) -> None:
        """Ask whether to change all those runs, on a terminal and unless every run was named.

        Raises:
            Failure: they are not.
        """
        if not self.asks():
            return
        runs, total = self.listed(api, _SHOWN, ended=ended)
        _show(runs, total)
        if not click.confirm(f"{verb} {counted(total, 'run')}?", err=True):
            raise Failure("nothing was changed")


def selection_of(runs: tuple[str, ...], *, everything: bool, **filters: str | None) -> Selection:
    """Return the selection for the arguments of :func:`selecting`.

    Raises:
        click.UsageError: they mean nothing, or contradict each other.
    """
    names = {"task": "task_name", "trigger": "triggered_by", "after": "created_after", "before": "created_before"}
    given = {names.get(name, name): value for name, value in filters.items() if value is not None}
    if not all(value.strip(" ,") for value in given.values()):
        raise click.UsageError("an option has an empty value, which would select all runs")
    try:
        "".join(given.values()).encode()
    except UnicodeEncodeError as err:  # bytes that are no UTF-8 came as lone surrogates
        raise click.UsageError("the value of an option is not UTF-8") from err
    if bool(runs) + bool(given) + everything != 1:
        raise click.UsageError("name runs, select runs by options, or use --all")
    for one in runs:
        if not is_run_id(one.upper()):
            raise click.UsageError(f"{one} is not a run id; ringward runs lists them")
    ids = tuple(dict.fromkeys(one.upper() for one in runs))
    return Selection(ids, None if ids else given)


def is_interactive() -> bool:
    """Return whether a user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _show(runs: list[Run], total: int) -> None:
    """List runs, and say how many more there are."""
    from supervisor.cli.commands.runs.runs import COLUMNS, GIVES_WAY, row
    from supervisor.cli.tables import show_table

    if runs:
        show_table(COLUMNS, [row(run) for run in runs], gives_way=GIVES_WAY)
    sys.stdout.flush()
    if total > len(runs):
        click.echo(f"... and {total - len(runs)} more", err=True)


def changed(selection: Selection, affected: int, done: str, why_not: str) -> int:
    """Print how many runs were changed; return the exit code: all named runs must change."""
    click.echo(f"{counted(affected, 'run')} {done}")
    missing = len(selection.ids) - affected
    if missing <= 0:
        return exit_codes.OK
    click.echo(f"ringward: {counted(missing, 'run')} {why_not}", err=True)
    return exit_codes.REFUSED
