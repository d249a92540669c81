"""Names of files for a shell that completes them: the shell itself looks for them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Have the shell complete the name of a file."""
    return _by_the_shell("file", incomplete)


def directories(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Have the shell complete the name of a directory."""
    return _by_the_shell("dir", incomplete)


def _by_the_shell(kind: str, incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem  # only when a user has pressed a key

    return [CompletionItem(incomplete, type=kind)]
