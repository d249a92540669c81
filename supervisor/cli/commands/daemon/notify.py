"""``ringward notify``: test the daemon's notifiers."""

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.suggestions import SuggestingGroup


@click.group("notify", cls=SuggestingGroup, epilog="Example: ringward notify test ops")
def command() -> None:
    """Send a test message through a notifier."""


@command.command("test", epilog="Example: ringward notify test ops")
@client_options
@click.argument("name")
@click.option("--long", "long", is_flag=True, help="Add as much output as the message of a run has at most.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def test(settings: Settings, name: str, long: bool, as_json: bool) -> int:
    """Send a test message through the notifier NAME of the active configuration, and wait for its delivery."""
    from supervisor.cli.client import segment
    from supervisor.cli.tables import show_json

    delivery = settings.api().post(f"/api/notifiers/{segment(name)}/test", {"long": "true"} if long else None)
    if as_json:
        show_json({key: value for key, value in delivery.items() if key != "$schema"})
    elif not delivery["delivered"]:
        raise Failure(f"{name} could not deliver the message: {delivery['error']}", exit_codes.REFUSED)
    else:
        click.echo(f"{name} delivered the message")
    return exit_codes.OK if delivery["delivered"] else exit_codes.REFUSED
