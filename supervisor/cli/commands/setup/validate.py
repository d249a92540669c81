"""``ringward validate``: checks the configuration."""

import os

import click

from supervisor.cli import exit_codes
from supervisor.cli.paths import files
from supervisor.cli.settings import CONFIG, Settings, pass_settings
from supervisor.ipc.plural import counted


@click.command("validate", epilog="Example: ringward validate /etc/ringward/ringward.toml")
@CONFIG
@click.argument("file", required=False, shell_complete=files)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, problems with file, line and key.")
@pass_settings
def command(settings: Settings, file: str | None, as_json: bool) -> int:
    """Check the configuration, and show every error with its line and a remedy."""
    from supervisor.cli.tables import show_json
    from supervisor.config.files.lookup import data_dir, require_config
    from supervisor.config.load import load
    from supervisor.config.problems import ConfigError
    from supervisor.startup import advice, host_check

    try:
        path = require_config(file or settings.config, os.environ)
        config = load(path)
        resolved = host_check.check_host(config, os.environ)
        directory = data_dir(None, config.daemon.data_dir, os.environ)
        host_check.check_paths(config, directory)
        host_check.reaching(resolved.api_user, config, directory)
        warnings = [*config.warnings, *advice.advised(config, os.environ)]
    except ConfigError as err:
        if as_json:
            show_json({"valid": False, "problems": [problem.to_dict() for problem in err.problems]})
        else:
            count = len(err.problems)
            click.echo(f"{err}\n{count} problem{'s' if count != 1 else ''}", err=True)
        return exit_codes.CONFIG
    if as_json:
        counts = {"tasks": len(config.tasks), "services": len(config.services)}
        show_json(
            {
                "valid": True,
                "path": config.path,
                "files": list(config.files),
                **counts,
                "problems": [],
                "warnings": [warning.to_dict() for warning in warnings],
            }
        )
    else:
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        click.echo(f"{path}: valid, {counted(len(config.tasks), 'task')}, {counted(len(config.services), 'service')}")
    return exit_codes.OK
