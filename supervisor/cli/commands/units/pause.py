"""``ringward pause``: let the schedule of a task rest."""

import click

from supervisor.cli.naming import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("pause", epilog="Example: ringward pause backup")
@client_options
@click.argument("task", shell_complete=task_names)
@click.option("--json", "as_json", is_flag=True, help="Print its record as JSON.")
@pass_settings
def command(settings: Settings, task: str, as_json: bool) -> None:
    """Pause a task's schedule until it is resumed, also across restarts of the daemon.

    Active runs continue, and the task can still be run by hand.
    """
    from supervisor.cli.lookups import ask_of, find_task
    from supervisor.cli.tables import show_json

    api = settings.api()
    ask_of(api, task, "pause")
    if as_json:
        show_json(find_task(api, task))
