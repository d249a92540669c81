"""``ringward restore``: bring deleted runs back."""

from typing import Any

import click

from supervisor.cli.selection import changed, selecting, selection_of
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("restore", epilog="Example: ringward restore --task backup")
@client_options
@selecting
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@pass_settings
def command(settings: Settings, /, *, as_json: bool, **selecting: Any) -> int:
    """Restore deleted runs within undo_window: named runs, or all that the options select."""
    selection = selection_of(settings.api, runs_path="/api/runs/deleted", **selecting)
    answer = selection.change(settings.api(), "restore")
    return changed(selection, answer, "restored", "cannot be restored: not deleted, or gone for good", as_json=as_json)
