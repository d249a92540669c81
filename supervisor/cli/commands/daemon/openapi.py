"""``ringward openapi``: the description of the HTTP API."""

import subprocess
import sys

import click

from supervisor.cli.failure import Failure
from supervisor.ipc.child_process import RINGWARD


@click.command("openapi", epilog="Example: ringward openapi > openapi.json")
@click.option("--json", is_flag=True, expose_value=False, help="Has no effect: the output is JSON.")
def command() -> None:
    """Print the OpenAPI 3.1 document of the HTTP API, as JSON."""
    # A separate process, because the command line must not import packages of the API.
    done = subprocess.run([sys.executable, *RINGWARD, "api-document"], capture_output=True, check=False)
    if done.returncode != 0:
        raise Failure(f"cannot create the document:\n{done.stderr.decode(errors='replace').strip()}")
    click.echo(done.stdout.decode(), nl=False)
