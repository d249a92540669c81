"""``ringward init``: writes a first configuration."""

import os
from pathlib import Path

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.paths import directories, files
from supervisor.host.files import private


@click.command("init", epilog="Example: ringward init /etc/ringward/ringward.toml")
@click.argument("file", metavar="[FILE]", default="ringward.toml", shell_complete=files)
@click.option(
    "--root", metavar="DIR", default="/", shell_complete=directories, help="Look for programs of the host below DIR."
)
@click.option("--json", "as_json", is_flag=True, help="Print the written files and the programs found as JSON.")
def command(file: str, root: str, as_json: bool) -> None:
    """Write a first configuration with comments to a new file, and the JSON Schema for editors beside it.

    For each crontab, supervisord, systemd unit, compose file, pm2 file, Procfile and package.json that it finds here or
    on the host, the configuration shows the command to import it. It asks no questions and overwrites no file.
    """
    from supervisor.cli.tables import show_json
    from supervisor.config.files.lookup import SYSTEM_DATA, SYSTEM_FILE
    from supervisor.tools import starter

    path = Path(os.path.abspath(file))
    detections = starter.find(path.parent, Path(root))
    data = SYSTEM_DATA if str(path) == SYSTEM_FILE else "data"
    written = [path]
    try:
        with open(path, "x", encoding="utf-8", opener=private) as output:
            output.write(starter.text(str(path), data, detections))
        schema = starter.write_schema(path.parent)
    except FileExistsError as err:
        raise Failure(
            f"{file} exists, and init overwrites nothing: name another file, or remove it", exit_codes.REFUSED
        ) from err
    except OSError as err:
        raise Failure(f"{err.filename or file}: {err.strerror or err}", exit_codes.OUTPUT) from err
    written += [schema] if schema else []
    if as_json:
        commands = [
            {"kind": detected.kind, "files": detected.files, "command": detected.command or None}
            for detected in detections
        ]
        show_json({"written": list(map(str, written)), "found": commands})
        return
    for created in written:
        click.echo(f"wrote {created}")
    for each in detections:
        click.echo(f"found {', '.join(each.files)}")
        if each.command:
            click.echo(f"  to convert it: {each.command}")
    click.echo(f"next: edit {file}, then: ringward validate {file}")
