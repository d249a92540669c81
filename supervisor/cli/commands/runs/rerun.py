"""``ringward rerun``: run tasks again."""

from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.selection import SelectedRuns, asking, selecting, selection_of
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from supervisor.cli.client import Api

_SHOWN = 10


@click.command("rerun", epilog="Example: ringward rerun --group shop --status failed --after 2026-11-21")
@client_options
@selecting
@asking
@click.option("--failed", is_flag=True, help="Let flows continue: repeat only the steps that did not succeed.")
@click.option("--from", "from_step", metavar="STEP", help="Let flows continue: repeat this step and all behind it.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@pass_settings
def command(
    settings: Settings,
    /,
    *,
    dry_run: bool,
    yes: bool,
    failed: bool,
    from_step: str | None,
    as_json: bool,
    **selecting: Any,
) -> int:
    """Run the tasks of the selected runs again, each task once, and print the new runs.

    Name runs, or tasks for their runs, or select runs by options. The newest run of a task supplies the parameters.
    Services, and tasks with api_trigger = false, are left out. An id may be shortened to its first or last 6 characters
    or more. --all asks, unless --yes is given. Exits with 1 if nothing was started.
    """
    from urllib.parse import quote

    from supervisor.cli.tables import show_json, show_table

    if failed and from_step is not None:
        raise click.UsageError("--failed cannot be combined with --from")
    selection = selection_of(settings.api, **selecting)
    api = settings.api()
    if selection.ids and selection.filters is not None:
        raise click.UsageError("name runs, or tasks and services, so that no task runs twice")
    if dry_run:
        selection.preview(api, ended=False, as_json=as_json)
        return exit_codes.OK
    if not yes:
        _confirm(api, selection)
    how = "?failed=true" if failed else "" if from_step is None else f"?from_step={quote(from_step, safe='')}"
    answer = selection.change(api, f"rerun{how}")
    started = answer["triggered"]
    if as_json:
        show_json(answer)
    elif started:
        show_table(("RUN", "TASK"), [[run["run_id"], run["task_name"]] for run in started])
    else:
        say("nothing to run again")
    return exit_codes.OK if started else exit_codes.REFUSED


def _confirm(api: "Api", selection: SelectedRuns) -> None:
    """Ask for confirmation, on a terminal and unless every selected run was named.

    Raises:
        Failure: the user declined.
    """
    from supervisor.ipc.plural import counted

    if not selection.asks():
        return
    names, total = _started(api, selection)
    if not names:
        return
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    click.echo(f"{counted(total, 'run')} of {', '.join(names[:_SHOWN])}{more}", err=True)
    each = ", one of each task" if len(names) > 1 else ""
    if not click.confirm(f"Start {counted(len(names), 'run')}{each}?", err=True):
        raise Failure("nothing was changed")


def _started(api: "Api", selection: SelectedRuns) -> tuple[list[str], int]:
    """Return the names of the tasks that would run, and the total number of selected runs."""
    from dataclasses import replace

    runs, total = selection.listed(api, ended=False)
    names = {str(run["taskName"]) for run in runs}
    if total > len(runs) and "task_name" not in (selection.filters or {}):
        units = selection.units or tuple(str(task["name"]) for task in api.get("/api/tasks")["items"])
        for name in units:
            narrowed = replace(selection, ids=(), units=(name,))
            if name not in names and narrowed.listed(api, 1, ended=False)[1]:
                names.add(name)
    return sorted(name for name in names if _may_be_started(api, name)), total


def _may_be_started(api: "Api", name: str) -> bool:
    """Return whether `name` is a configured task that users may run."""
    from supervisor.cli.lookups import find_task

    unit = find_task(api, name)
    return unit is not None and unit["kind"] == "task" and bool(unit["definition"].get("apiTrigger", True))
