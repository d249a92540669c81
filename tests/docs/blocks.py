"""Blocks of code of a page, and the marks in comments before them.

``.. file: NAME`` before a block: the session has it as a file; ``.. added to: NAME``: at the end of a file.
``.. not run: WHY`` before a block of commands: they are not run.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docutils.core
import docutils.nodes
from docutils.parsers.rst import Directive, directives

_MARK = re.compile(r"(file|added to|not run): (.+)")
_ENDS = re.compile(r"\s+# ends with (\d+)\b.*$")


class _Contents(Directive):
    """Sphinx's table of contents, which is empty here, as on code hosts."""

    has_content = True
    option_spec = {"hidden": directives.flag, "caption": directives.unchanged}  # noqa: RUF012 - as docutils has it

    def run(self) -> list[docutils.nodes.Node]:
        return []


directives.register_directive("toctree", _Contents)


@dataclass(frozen=True)
class Command:
    """One command that a page shows.

    Attributes:
        text: the typed command, without the prompt.
        output: its output, line by line; empty: the page does not show it.
        status: its exit status.
    """

    text: str
    output: tuple[str, ...]
    status: int


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        language: "" for none.
        text: its text.
        file: the file that it shows.
        added_to: the file to which it belongs.
        not_run: the reason for not running it.
    """

    language: str
    text: str
    file: str | None
    added_to: str | None
    not_run: str | None

    def commands(self) -> Iterator[Command]:
        """Return the commands of a console block, in order."""
        typed: str | None = None
        output: list[str] = []
        for line in self.text.split("\n"):
            if typed is not None and typed.endswith("\\") and not output:
                typed += f"\n{line}"
            elif line.startswith("$ "):
                if typed is not None:
                    yield _command(typed, output)
                typed, output = line[2:], []
            else:
                assert typed is not None, f"a block begins with a command, not with: {line}"
                output.append(line)
        if typed is not None:
            yield _command(typed, output)


def _command(typed: str, output: list[str]) -> Command:
    match = _ENDS.search(typed)
    return Command(_ENDS.sub("", typed), tuple(output), int(match[1]) if match else 0)


@functools.cache
def parsed(page: Path) -> docutils.nodes.document:
    """Parse the page; any warning is an error."""
    settings = {"halt_level": 2, "report_level": 2, "file_insertion_enabled": False, "raw_enabled": False}
    document = docutils.core.publish_doctree(page.read_text(), str(page), settings_overrides=settings)
    assert isinstance(document, docutils.nodes.document)
    return document


@functools.cache
def blocks(page: Path) -> list[Block]:
    """Return all blocks of a page, in order."""
    all_blocks = []
    for block in parsed(page).findall(docutils.nodes.literal_block):
        assert block.parent is not None
        place = block.parent.index(block)
        before = block.parent[place - 1] if place else None
        mark = _MARK.fullmatch(before.astext()) if isinstance(before, docutils.nodes.comment) else None
        mark_of = {mark[1]: mark[2]} if mark else {}
        languages = [word for word in block["classes"] if word != "code"]
        all_blocks.append(
            Block(
                languages[0] if languages else "",
                block.astext(),
                *(mark_of.get(kind) for kind in ("file", "added to", "not run")),
            )
        )
    return all_blocks
