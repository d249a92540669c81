"""``ringward trust-clock``: remove old runs by the clock as it is set."""

import click

from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("trust-clock", epilog="Example: ringward trust-clock")
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def command(settings: Settings, as_json: bool) -> None:
    """Confirm that the wall clock is right after it was set by more than a day.

    Otherwise the daemon removes nothing by age until the clock has been stable for an hour.
    """
    from supervisor.cli.tables import show_json

    settings.api().send("/api/daemon/trust-clock")
    if as_json:
        show_json({"trusted": True})
    else:
        click.echo("the clock is trusted; the daemon removes old runs again")
