"""``ringward password``: the password that the daemon generated."""

import contextlib
import os

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.settings import CONFIG, DATA, Settings, pass_settings


@click.command("password", epilog="Example: curl -u :$(ringward password) http://127.0.0.1:7464/api/tasks")
@CONFIG
@DATA
@click.option("--json", "as_json", is_flag=True, help="Print the password as JSON.")
@pass_settings
def command(settings: Settings, as_json: bool) -> None:
    """Print the password that the daemon generated when it started.

    It works for the daemon's user and root, over the Unix socket. It does not print a password that you set yourself.
    """
    from supervisor.cli.client import Api, NotFound, UnixEndpoint
    from supervisor.cli.tables import show_json

    api = Api(UnixEndpoint(settings.socket()))
    try:
        credentials = api.get("/api/local/credentials")
    except NotFound as err:
        raise Failure(f"the daemon did not generate the password: {_origin(settings)}", exit_codes.REFUSED) from err
    password = credentials["password"]
    if as_json:
        show_json(credentials)
    else:
        click.echo(password)


def _origin(settings: Settings) -> str:
    """Return a text about the origin of a configured password, if the configuration can be read."""
    from supervisor.config.files.lookup import find_config
    from supervisor.config.load import load_sections
    from supervisor.config.problems import ConfigError

    password_file = None
    if path := find_config(settings.config, os.environ):
        with contextlib.suppress(ConfigError):
            password_file = load_sections(path, "http")["http"].get("password_file")
    if password_file:
        return f"RINGWARD_PASSWORD set it at the start, or {password_file} has it ([http] password_file)"
    return "RINGWARD_PASSWORD set it at the start"
