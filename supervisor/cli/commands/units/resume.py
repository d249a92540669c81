"""``ringward resume``: let the schedule of a task go on."""

import click

from supervisor.cli.naming import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("resume", epilog="Example: ringward resume backup")
@client_options
@click.argument("task", shell_complete=task_names)
@click.option("--json", "as_json", is_flag=True, help="Print its record as JSON.")
@pass_settings
def command(settings: Settings, task: str, as_json: bool) -> None:
    """Resume a task's schedule from now on.

    Times during the pause are not caught up.
    """
    from supervisor.cli.lookups import ask_of, find_task
    from supervisor.cli.tables import show_json

    api = settings.api()
    ask_of(api, task, "resume")
    if as_json:
        show_json(find_task(api, task))
