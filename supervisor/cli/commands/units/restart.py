"""``ringward restart``: restart a service."""

import click

from supervisor.cli.naming import service_names
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("restart", epilog="Example: ringward restart --rolling web")
@client_options
@click.argument("service", shell_complete=service_names)
@click.option(
    "--rolling", is_flag=True, help="Restart one instance after the other, each when the previous one is ready."
)
@click.option("--json", "as_json", is_flag=True, help="Print its record as JSON.")
@pass_settings
def command(settings: Settings, service: str, rolling: bool, as_json: bool) -> None:
    """Restart a service; a stopped service starts.

    The command does not wait for the result.
    """
    from supervisor.cli.lookups import ask_of, find_task
    from supervisor.cli.tables import show_json

    api = settings.api()
    ask_of(api, service, "restart", {"rolling": "true"} if rolling else None)
    if as_json:
        show_json(find_task(api, service))
