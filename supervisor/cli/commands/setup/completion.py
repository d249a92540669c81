"""``ringward completion``: the script with which a shell completes commands, options and names."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

_VARIABLE = "_RINGWARD_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value word prefix= line=$COMP_LINE
    local -a words=()

    # Bash splits words at = and :, which are part of options, addresses and names.
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -gt 0 && -n $word && $line != [[:space:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        line=${line#"${line%%%%[![:space:]]*}"}
        line=${line#"$word"}
    done

    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) %(complete_var)s=bash_complete $1)

    # Bash replaces only the text after the last colon.
    word=${words[-1]}
    [[ $word == -*=* ]] && word=${word#*=}
    [[ $COMP_WORDBREAKS == *:* && $word == *:* ]] && prefix=${word%%"${word##*:}"}

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$prefix"}")
        fi
    done

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""
"""The script of click, which passes the words as bash splits them."""


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
