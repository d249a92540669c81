"""``ringward health``: the health of the daemon, for monitoring."""

import click

from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("health", epilog="Example: ringward health || echo 'the daemon does not work'")
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def command(settings: Settings, as_json: bool) -> None:
    """Check that the daemon accepts commands and can store their results.

    Failed tasks do not affect health; status shows them. It needs no password.
    """
    from supervisor.cli.client import ErrorResponse, Unreachable
    from supervisor.cli.tables import show_json

    try:
        readiness = settings.api().get("/readyz")
    except (
        ErrorResponse
    ) as err:  # a daemon never refuses this request, so the answer comes from another program or a proxy
        raise Unreachable(err.message) from err
    status = readiness["status"]
    if as_json:
        show_json(readiness)
    else:
        click.echo(status)
