"""``ringward health``: whether the daemon does its work, for whoever watches over it."""

import click

from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("health", epilog="Example: ringward health || echo 'the daemon does not work'")
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
@pass_settings
def command(settings: Settings, as_json: bool) -> None:
    """Check that the daemon accepts commands and can store their results.

    Failed tasks do not affect health; status shows them. It needs no password.
    """
    from supervisor.cli.client import Refused, Unreachable
    from supervisor.cli.tables import show_json

    try:
        found = settings.api().get("/readyz")
    except Refused as err:  # nobody needs a permission for this: it is no daemon of ours, or something before it
        raise Unreachable(err.message) from err
    status = found["status"]
    if as_json:
        show_json(found)
    else:
        click.echo(status)
