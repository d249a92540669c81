"""``ringward reload``: apply an edited configuration."""

from typing import Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.settings import Settings, client_options, pass_settings

_CONFLICT = 409
"""HTTP status of a valid configuration that requires a restart of the daemon."""


@click.command("reload", epilog="Example: ringward reload --dry-run")
@client_options
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, problems with file, line and key.")
@pass_settings
def command(settings: Settings, dry_run: bool, as_json: bool) -> int:
    """Reload the configuration and apply the differences.

    An invalid file changes nothing. Unchanged units are not touched, and active runs continue under the old definition.
    """
    from supervisor.cli.client import ErrorResponse, Unreachable
    from supervisor.cli.tables import show_json
    from supervisor.ipc.plural import counted

    try:
        result = settings.api().post("/api/daemon/reload", {"dry_run": "true"} if dry_run else None)
    except Unreachable as err:
        if not isinstance(err.__cause__, (FileNotFoundError, ConnectionRefusedError)):
            raise
        raise Unreachable(f"{err}; if it runs, a changed socket or data_dir needs a restart of the daemon") from err
    except ErrorResponse as err:
        if not err.errors:
            raise
        if as_json:
            show_json({"valid": err.status == _CONFLICT, "problems": [error.get("value") for error in err.errors]})
            return _code(err.status)
        lines = [f"{error['location']}: {error['message']}" for error in err.errors]
        raise Failure("\n".join([*lines, counted(len(lines), "problem")]), _code(err.status), plain=True) from err
    if as_json:
        show_json({name: result[name] for name in ("added", "changed", "removed", "warnings")})
        return exit_codes.OK
    _show(result, dry_run=dry_run)
    return exit_codes.OK


def _code(status: int) -> int:
    return exit_codes.REFUSED if status == _CONFLICT else exit_codes.CONFIG


def _show(result: dict[str, Any], *, dry_run: bool) -> None:
    for name in result["added"]:
        click.echo(f"added    {name}")
    for unit in result["changed"]:
        click.echo(f"changed  {unit['name']}")
        for reason in unit["reasons"]:
            click.echo(f"           {reason}")
    for name in result["removed"]:
        click.echo(f"removed  {name}")
    for warning in result["warnings"]:
        say(warning)
    if not (result["added"] or result["changed"] or result["removed"]):
        click.echo("nothing has changed")
    elif dry_run:
        click.echo("nothing was changed")
