"""``ringward rm``: delete runs."""

from typing import Any

import click

from supervisor.cli.selection import asking, changed, selecting, selection_of
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("rm", epilog="Example: ringward rm backup 'db-*' --status failed,timeout --before 2026-11-01")
@client_options
@selecting
@asking
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@pass_settings
def command(settings: Settings, /, *, dry_run: bool, yes: bool, as_json: bool, **selecting: Any) -> int:
    """Delete ended runs with their logs: named runs, runs of tasks and services, or all that the options select.

    An id may be shortened to its first or last 6 characters or more. --all asks, unless --yes is given.

    ringward restore brings them back within undo_window.
    """
    selection = selection_of(settings.api, **selecting)
    api = settings.api()
    if dry_run:
        selection.preview(api, ended=True, as_json=as_json)
        return 0
    if not yes:
        selection.confirm(api, "Delete", ended=True)
    answer = selection.change(api, "delete")
    return changed(selection, answer, "deleted", "cannot be deleted: unknown, or not ended", as_json=as_json)
