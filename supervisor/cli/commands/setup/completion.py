"""``ringward completion``: the script with which a shell completes commands, options and names."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

_VARIABLE = "_RINGWARD_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
_BASH = """\
%(complete_func)s() {
    # Bash also splits words at = and :, which options, addresses and names contain. Join such parts again.
    local part rest=$COMP_LINE typed=()
    for part in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if (( ${#typed[@]} )) && [[ $part && $rest != [[:space:]]* ]]; then
            typed[-1]+=$part
        else
            typed+=("$part")
        fi
        rest=${rest#"${rest%%%%[![:space:]]*}"}
        rest=${rest#"$part"}
    done

    # Of a word with colons, bash replaces only the text after the last one.
    local word=${typed[-1]} kept=
    [[ $word == -*=* ]] && word=${word#*=}
    [[ $COMP_WORDBREAKS == *:* && $word == *:* ]] && kept=${word%%"${word##*:}"}

    COMPREPLY=()
    local kind text
    while IFS=, read -r kind text; do
        case $kind in
            plain) COMPREPLY+=("${text#"$kept"}") ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done < <(
        IFS=$'\\n'
        env COMP_WORDS="${typed[*]}" COMP_CWORD=$(( ${#typed[@]} - 1 )) %(complete_var)s=bash_complete "$1"
    )
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""A script for bash, because the one of click passes the words as bash splits them."""


@click.command("completion", epilog='Example: eval "$(ringward completion bash)"')
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options, choices and files, and the names of tasks and services if a daemon answers at
    once.
    """
    from supervisor.cli.main import cli

    click.echo(_class_of(shell)(cli, {}, "ringward", _VARIABLE).source())


def _class_of(shell: str) -> "type[ShellComplete]":
    from click.shell_completion import BashComplete, get_completion_class

    class Bash(BashComplete):
        source_template = _BASH

    completion_class = Bash if shell == "bash" else get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"there is no completion for {shell}")
    return completion_class
