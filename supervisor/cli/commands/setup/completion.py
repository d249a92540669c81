"""``ringward completion``: the script with which a shell completes commands, options and names."""

import click

_VARIABLE = "_RINGWARD_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", epilog='Example: eval "$(ringward completion bash)"')
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options, choices and files, and the names of tasks and services if a daemon answers at
    once.
    """
    from click.shell_completion import get_completion_class

    from supervisor.cli.main import cli

    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(completion_class(cli, {}, "ringward", _VARIABLE).source())
