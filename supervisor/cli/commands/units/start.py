"""``ringward start``: start a service."""

import click

from supervisor.cli.naming import service_names
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("start", epilog="Example: ringward start web")
@client_options
@click.argument("service", shell_complete=service_names)
@click.option("--json", "as_json", is_flag=True, help="Print its record as JSON.")
@pass_settings
def command(settings: Settings, service: str, as_json: bool) -> None:
    """Start a service.

    Running instances continue. Stopping instances start again afterwards, and fatal ones are tried again. The command
    does not wait until the service runs.
    """
    from supervisor.cli.lookups import ask_of, find_task
    from supervisor.cli.tables import show_json

    api = settings.api()
    ask_of(api, service, "start")
    if as_json:
        show_json(find_task(api, service))
