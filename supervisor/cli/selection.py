"""The runs that a command applies to: named runs, or all runs that match filters."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click

from supervisor.cli import exit_codes
from supervisor.cli.daemon_answers import AnswerObject, is_run_id
from supervisor.cli.failure import Failure, say
from supervisor.cli.name_completion import all_names
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing, is_interactive, not_found
from supervisor.ipc.plural import counted
from supervisor.ipc.unit_selection import ANY, is_glob

if TYPE_CHECKING:
    from supervisor.cli.client import Api

F = TypeVar("F", bound=Callable[..., object])
Run = AnswerObject

_TRIGGERS = ("cron", "api", "cloud", "service", "startup")
_NOT_ENDED = ("pending", "running")
_EXIT_CODES = re.compile(r"(-?[0-9]{1,10})(?:-([0-9]{1,10}))?")
_TIMEOUT_S = 600.0
"""Time limit of an operation on many runs: hundreds of thousands take long, and the answer comes at the end."""
_LISTED = 1000
_SHOWN = 10


def filtering(function: F) -> F:
    """Add the options that select runs of units; :func:`filters_of` evaluates them."""
    for add in reversed(
        (
            click.option("--status", metavar="LIST", help="Runs in these phases or with these end reasons: a,b."),
            click.option("--trigger", type=click.Choice(_TRIGGERS), help="Runs with this trigger."),
            click.option("--after", metavar="TIME", help="Runs created since: 10m (ago), 14:30, 2026-11-20, RFC 3339."),
            click.option("--before", metavar="TIME", help="Runs created until then."),
            click.option("--search", metavar="TEXT", help="Runs with this text in the task's name or the id."),
            click.option("--exit-code", metavar="N[-M]", help="Runs with this exit code, or one from N to M."),
        )
    ):
        function = add(function)
    return function


def filters_of(**given: str | None) -> dict[str, str]:
    """Return the conditions for the options of :func:`filtering`, with the API's names.

    Raises:
        click.UsageError: an option is invalid.
    """
    from supervisor.cli.units.option_times import option_moment

    names = {"task": "task_name", "trigger": "triggered_by", "after": "created_after", "before": "created_before"}
    conditions = {name: value for name, value in given.items() if value is not None}
    if not all(value.strip(" ,") for value in conditions.values()):
        raise click.UsageError("an option has an empty value, which would select all runs")
    try:
        "".join(conditions.values()).encode()
    except UnicodeEncodeError as err:  # bytes that are not UTF-8 arrive as lone surrogates
        raise click.UsageError("the value of an option is not UTF-8") from err
    filters: dict[str, str] = {}
    for name, value in conditions.items():
        if name == "exit_code":
            codes = _EXIT_CODES.fullmatch(value)
            if codes is None:
                raise click.UsageError(f"--exit-code must be a number or a range such as 1-255: {value}")
            least, most = codes[1], codes[2] or codes[1]
            if int(least) > int(most):
                raise click.UsageError(f"--exit-code {value}: the range ends before it begins")
            filters |= {"exit_code_min": least, "exit_code_max": most}
        else:
            moment = option_moment(f"--{name}", value) if name in ("after", "before") else None
            filters[names.get(name, name)] = moment or value
    return filters


def selecting(function: F) -> F:
    """Add the options that select runs; :func:`selection_of` evaluates them."""
    function = click.option("--task", metavar="NAME", help="Runs of this task or service.")(filtering(function))
    return choosing(all_names, "[RUN|TASK|SERVICE]...")(function)


def asking(function: F) -> F:
    """Add ``dry_run`` and ``yes``, the options of a command that asks before it changes many runs."""
    function = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)
    return click.option("-n", "--dry-run", is_flag=True, help="Only show the selected runs.")(function)


@dataclass(frozen=True)
class SelectedRuns:
    """The selected runs.

    Attributes:
        ids: Ids of the named runs.
        filters: Conditions for all other selected runs, with the API's names; None: only the named runs.
        units: Names of the tasks and services of those runs; None: all.
        everything: Whether ``--all`` was given.
    """

    ids: tuple[str, ...]
    filters: dict[str, str] | None
    units: tuple[str, ...] | None = None
    everything: bool = False

    def change(self, api: "Api", operation: str) -> AnswerObject:
        """Carry out a bulk operation on the runs; return its answers, merged into one.

        Raises:
            Failure: a filter is invalid, no runs are selected because the task does not exist, or there is no answer.
        """
        bodies: list[dict[str, object]] = [{"ids": list(self.ids)}] if self.ids else []
        bodies += [{"match_all": True, "filter": _numbers(query)} for query in self._queries()]
        answers = [api.post(f"/api/runs/bulk/{operation}", body=body, timeout_s=_TIMEOUT_S) for body in bodies]
        merged = AnswerObject(answers[0]) if answers else AnswerObject({"affected": 0, "triggered": []})
        for answer in answers[1:]:
            for name in ("affected", "triggered"):
                if name in answer:
                    merged[name] = merged[name] + answer[name]
        if not any(merged.get(name) for name in ("affected", "triggered")):
            self._check_task(api)
        return merged

    def _check_task(self, api: "Api") -> None:
        """Raise a Failure if ``--task`` names neither a configured unit nor one with runs."""
        from supervisor.cli.lookups import runs_of

        if self.filters is not None and (name := self.filters.get("task_name")) is not None:
            next(runs_of(api, name, limit=1), None)

    def _queries(self) -> list[dict[str, str]]:
        """Return the filters for each unit."""
        if self.filters is None:
            return []
        return [self.filters] if self.units is None else [{**self.filters, "task_name": name} for name in self.units]

    def listed(self, api: "Api", limit: int = _LISTED, *, ended: bool) -> tuple[list[Run], int]:
        """Return the newest selected runs, and the number of selected runs; `ended`: only runs that have ended.

        Raises:
            Failure: a filter is invalid, no runs are selected because the task does not exist, or there is no answer.
        """
        from supervisor.cli.lookups import find_run

        runs = [run for run_id in self.ids if (run := find_run(api, run_id))]
        runs = [run for run in runs if run["status"] == "ended" or not ended]
        total = len(runs)
        for filters in self._queries():
            query: dict[str, str | int | None] = {**filters, "naming": "camel", "limit": limit}
            if ended:
                words = filters.get("status", "ended").split(",")
                query["status"] = ",".join(word for word in words if word.strip() not in _NOT_ENDED)
                if not query["status"]:
                    continue
            page = api.get("/api/runs", query)
            runs += page["items"] if "items" in page else page["runs"]
            total += int(page["total"])
        if not total:
            self._check_task(api)
        return sorted(runs, key=lambda run: str(run["createdAt"]), reverse=True)[:limit], total

    def preview(self, api: "Api", *, ended: bool, as_json: bool) -> None:
        """Print the selected runs.

        Raises:
            Failure: a filter is invalid, or there is no answer.
        """
        from supervisor.cli.tables import show_json

        runs, total = self.listed(api, ended=ended)
        if as_json:
            show_json({"runs": runs, "total": total})
        else:
            _show(runs, total)

    def asks(self) -> bool:
        """Return whether to ask before a change: on a terminal, unless every run was named.

        Raises:
            click.UsageError: ``--all`` was given, and there is no terminal.
        """
        if self.everything and not is_interactive():
            raise click.UsageError("--all needs --yes when the command does not run on a terminal")
        return self.filters is not None and is_interactive()

    def confirm(self, api: "Api", verb: str, *, ended: bool) -> None:
        """Ask for confirmation if :meth:`asks` returns true.

        Raises:
            click.UsageError: ``--all`` was given, and there is no terminal.
            Failure: the user declined.
        """
        if not self.asks():
            return
        runs, total = self.listed(api, _SHOWN, ended=ended)
        _show(runs, total)
        if not click.confirm(f"{verb} {counted(total, 'run')}?", err=True):
            raise Failure("nothing was changed")


def selection_of(
    api: "Callable[[], Api]",
    units: UnitChoice,
    *,
    runs_path: str = "/api/runs",
    **filters: str | None,
) -> SelectedRuns:
    """Return the selection for the options of :func:`selecting`.

    Args:
        api: returns the daemon.
        units: the units as given; names may also be ids of runs, or parts of ids.
        runs_path: path of the API's list of these runs.
        filters: the other options.

    Raises:
        click.UsageError: the options are invalid, or contradict each other.
        Failure: a name matches nothing, or part of an id matches several runs.
    """
    conditions = filters_of(**filters)
    if not units.narrowed and not units.everything and not conditions:
        raise click.UsageError("name runs, tasks or services, select runs by options, or use --all")
    choice = choice_of(units)
    if "task_name" in conditions and (units.narrowed or units.everything):
        raise click.UsageError("--task cannot be combined with names, --group, --tag or --all")
    if not units.narrowed:
        return SelectedRuns((), conditions, everything=units.everything)
    filtered = bool(conditions) or units.group is not None or units.tag is not None
    daemon = api()
    ids: dict[str, str] = {}
    for name in units.names:
        if is_run_id(name.upper()):
            ids[name] = name.upper()
        elif (run := _by_part(daemon, runs_path, name)) is not None:
            ids[name] = run["id"]
    if ids and filtered:
        raise click.UsageError(f"{next(iter(ids))} is a run, which is selected without other options")
    remaining = replace(choice, names=tuple(name for name in units.names if name not in ids))
    unit_names = _unit_names(daemon, remaining) if remaining.names or filtered else None
    return SelectedRuns(tuple(dict.fromkeys(ids.values())), None if unit_names is None else conditions, unit_names)


def _by_part(api: "Api", path: str, name: str) -> Run | None:
    from supervisor.cli.lookups import find_task, is_part, runs_with, the_only

    if not is_part(name.upper()) or find_task(api, name) is not None:
        return None
    return the_only(name, runs_with(api, path, name.upper()))


def _unit_names(api: "Api", choice: UnitChoice) -> tuple[str, ...]:
    """Return the names of the chosen units; an exact name may be that of a removed unit with runs."""
    from supervisor.cli.lookups import UnknownName, find_task, runs_of

    former = []
    for name in choice.names:
        if not is_glob(name) and find_task(api, name) is None:
            try:
                next(runs_of(api, name, limit=1), None)
            except UnknownName as err:
                raise not_found(choice, [err.message]) from err
            former.append(name)
    remaining = replace(choice, names=tuple(name for name in choice.names if name not in former))
    configured = [] if remaining == UnitChoice() else remaining.records(api, ANY)
    return (*former, *(str(unit["name"]) for unit in configured))


def _numbers(filters: dict[str, str]) -> dict[str, object]:
    """Return filters in the form for the body of a request."""
    return {name: int(value) if name.startswith("exit_code") else value for name, value in filters.items()}


def _show(runs: list[Run], total: int) -> None:
    """Print runs, and how many more there are."""
    from supervisor.cli.tables import RUN_COLUMNS, RUNS_GIVE_WAY, run_row, show_table

    if runs:
        show_table(RUN_COLUMNS, [run_row(run) for run in runs], gives_way=RUNS_GIVE_WAY)
    sys.stdout.flush()
    if total > len(runs):
        click.echo(f"... and {total - len(runs)} more", err=True)


def changed(selection: SelectedRuns, answer: AnswerObject, done: str, why_not: str, *, as_json: bool) -> int:
    """Print the answer, or how many runs were changed; return the exit code, 0 only if all named runs were."""
    from supervisor.cli.tables import show_json

    missing = len(selection.ids) - answer["affected"]
    if as_json:
        show_json(answer)
    else:
        click.echo(f"{counted(answer['affected'], 'run')} {done}")
        if missing > 0:
            say(f"{counted(missing, 'run')} {why_not}")
    return exit_codes.REFUSED if missing > 0 else exit_codes.OK
