"""``ringward rerun``: run tasks again."""

from typing import Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.selection import asking, selecting, selection_of
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("rerun", epilog="Example: ringward rerun --status failed --after 2026-11-21T00:00:00Z")
@client_options
@selecting
@asking
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@pass_settings
def command(settings: Settings, /, *, dry_run: bool, yes: bool, as_json: bool, **selecting: Any) -> int:
    """Run each task once more that one of these runs belongs to, and print the new runs.

    The runs are the named ones, or all that the options select; the newest of a task gives the parameters. Services,
    and tasks that only their schedule may run, are left out. Ends with 1 when nothing was started.
    """
    from supervisor.cli.tables import show_json, show_table

    selection = selection_of(**selecting)
    api = settings.api()
    if dry_run:
        selection.preview(api, ended=False, as_json=as_json)
        return exit_codes.OK
    if not yes:
        selection.confirm(api, "Run again the tasks of", ended=False)
    answer = selection.change(api, "rerun")
    started = answer["triggered"]
    if as_json:
        show_json(answer)
    elif started:
        show_table(("RUN", "TASK"), [[one["run_id"], one["task_name"]] for one in started])
    else:
        click.echo("ringward: there was nothing to run again", err=True)
    return exit_codes.OK if started else exit_codes.REFUSED
