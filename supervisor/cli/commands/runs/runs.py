"""``ringward runs``: past runs, newest first."""

from typing import TYPE_CHECKING

import click

from supervisor.cli.name_completion import all_names
from supervisor.cli.selection import filtering, filters_of
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import AnswerObject


@click.command("runs", epilog="Example: ringward runs backup 'db-*' --status failed,timeout --after 2h")
@client_options
@choosing(all_names)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of runs.")
@filtering
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(
    settings: Settings,
    /,
    *,
    units: UnitChoice,
    limit: int,
    as_json: bool,
    **filters: str | None,
) -> None:
    """List runs, newest first: of all tasks and services, or of the named ones.

    A terminal shows the end of each id, which other commands accept; a pipe gets the whole id.
    """
    from supervisor.cli.tables import RUN_COLUMNS, RUNS_GIVE_WAY, run_row, show_json, show_table

    choice = choice_of(units)
    conditions = filters_of(**filters)
    runs = _runs(settings.api(), choice, conditions, limit)
    if as_json:
        show_json(runs)
    else:
        show_table(RUN_COLUMNS, [run_row(run) for run in runs], gives_way=RUNS_GIVE_WAY)


def _runs(api: "Api", choice: UnitChoice, conditions: dict[str, str], limit: int) -> "list[AnswerObject]":
    from supervisor.cli.lookups import find_task, runs_of
    from supervisor.ipc.unit_selection import ANY

    if choice.everything:
        answer = api.get("/api/runs", {**conditions, "naming": "camel", "limit": limit})
        runs: list[AnswerObject] = answer["runs"] if "runs" in answer else answer["items"]
        return runs
    units = list(choice.names)
    if len(units) != 1 or not choice.exact or find_task(api, units[0]) is not None:  # else it may be a removed unit
        units = [str(unit["name"]) for unit in choice.records(api, ANY)]
    runs = [run for name in units for run in runs_of(api, name, limit=limit, filters=conditions)]
    return sorted(runs, key=lambda run: (run["createdAt"], run["id"]), reverse=True)[:limit]
