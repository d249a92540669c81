"""``ringward next``: when tasks will run."""

import click

from supervisor.cli.naming import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings

_COLUMNS = ("TASK", "STARTS", "LOCAL TIME", "NOTE")
_NOTES = {
    "gap": "gap: this local time does not exist",
    "repeated": "repeated: this local time comes twice",
}


@click.command("next", epilog="Example: ringward next backup -n 3")
@client_options
@click.argument("task", required=False, shell_complete=task_names)
@click.option(
    "-n", "--count", type=click.IntRange(1, 100), default=10, show_default=True, help="Maximum number of times."
)
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(settings: Settings, task: str | None, count: int, as_json: bool) -> None:
    """Show the next times of a task, or of all tasks, the soonest first."""
    from supervisor.cli.lookups import starts_at, upcoming
    from supervisor.cli.tables import show_json, show_table, when

    items = upcoming(settings.api(), task, count)
    if as_json:
        show_json(items)
        return
    rows = [
        [item["taskName"], when(starts_at(item)), item["local"], _NOTES.get(item.get("note", ""), "")] for item in items
    ]
    show_table(_COLUMNS, rows, prose={"NOTE"}, gives_way=("NOTE", "LOCAL TIME"))
