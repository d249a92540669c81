"""Completion of file names in a shell, by the shell itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Let the shell complete the name of a file."""
    return _by_the_shell("file", incomplete)


def directories(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Let the shell complete the name of a directory."""
    return _by_the_shell("dir", incomplete)


def _by_the_shell(kind: str, incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem  # imported only for a completion

    return [CompletionItem(incomplete, type=kind)]
