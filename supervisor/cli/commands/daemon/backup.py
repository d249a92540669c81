"""``ringward backup``: a copy of the data directory, also while the daemon runs."""

import os
from typing import TYPE_CHECKING

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.paths import directories
from supervisor.cli.settings import CONFIG, DATA, Settings, config_errors, pass_settings

if TYPE_CHECKING:
    from supervisor.tools.backup import CopyContent


@click.command("backup", epilog="Example: ringward backup /var/backups/ringward-2026-11-22")
@CONFIG
@DATA
@click.argument("destination", metavar="DEST", shell_complete=directories)
@click.option("--json", "as_json", is_flag=True, help="Print a description of the backup as JSON.")
@pass_settings
def command(settings: Settings, destination: str, as_json: bool) -> int:
    """Copy the data directory to DEST, a new directory, also while the daemon runs.

    The copy has the state of one moment and all log lines written so far. It has neither the configuration nor its
    secrets: config.last is left out. The command reads the copy to verify it. To restore it, stop the daemon, replace
    the data directory with the copy, and start the daemon.
    """
    from supervisor.cli.tables import show_json
    from supervisor.config.files.lookup import data_dir, find_config
    from supervisor.config.load import load_sections

    try:
        destination.encode()
    except UnicodeEncodeError as err:
        raise click.BadParameter("the path is not UTF-8; use another one", param_hint="DEST") from err
    path = find_config(settings.config, os.environ)
    configured, server = None, None
    if path is not None:
        with config_errors():
            sections = load_sections(path, "daemon", "storage", environ=os.environ)
        configured, server = sections["daemon"].get("data_dir"), sections["storage"].get("database")
    directory = data_dir(settings.data, configured, os.environ)
    copied = _copy(directory, os.path.abspath(destination), server.url if server else None)
    if as_json:
        show_json(copied.to_dict())
    else:
        _show(copied)
    return exit_codes.REFUSED if copied.damaged else exit_codes.OK


def _copy(directory: str, destination: str, url: str | None) -> "CopyContent":
    """Copy the data directory.

    Raises:
        Failure: the copy cannot be created.
    """
    from supervisor.tools.backup import CannotCopy, TargetInside, back_up

    try:
        return back_up(directory, destination, database_url=url)
    except TargetInside as err:
        raise Failure(str(err), exit_codes.USAGE) from err
    except CannotCopy as err:
        raise Failure(str(err)) from err
    except OSError as err:
        code = exit_codes.NOT_PERMITTED if isinstance(err, PermissionError) else exit_codes.REFUSED
        raise Failure(f"{err.filename or destination}: {err.strerror or err}", code) from err


def _show(copied: "CopyContent") -> None:
    runs = "logs only (the database is on a PostgreSQL server)" if copied.runs is None else f"{copied.runs} runs"
    click.echo(f"{copied.directory}: {runs}, {copied.logs} logs, {copied.size_bytes} bytes")
    for path in copied.damaged:
        say(f"damaged: {path}")
