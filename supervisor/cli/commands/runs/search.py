"""``ringward search``: lines that a task's runs printed."""

import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.naming import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from logring.search import Pattern
    from supervisor.cli.client import Api

_PAGE = 1000
_PLACE, _MATCH, _RESET = "\x1b[36m", "\x1b[1;31m", "\x1b[0m"
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


@click.command("search", epilog="Example: ringward search backup 'error|failed' --regex -i")
@client_options
@click.argument("task", shell_complete=all_names)
@click.argument("pattern")
@click.option("-E", "--regex", is_flag=True, help="PATTERN is a regular expression, in RE2's syntax.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore the difference between upper and lower case.")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "system"]), help="Only lines of this stream.")
@click.option("--run", metavar="RUN", help="Only this run.")
@click.option("-n", "--limit", type=click.IntRange(1), default=1000, show_default=True, help="Maximum number of lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per line.")
@pass_settings
def command(
    settings: Settings,
    task: str,
    pattern: str,
    regex: bool,
    ignore_case: bool,
    stream: str | None,
    run: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """Search the logs of a task, newest run first, and print the lines that contain PATTERN.

    Exits with 0 if a line matches, and with 1 if none does.
    """
    from supervisor.cli import exit_codes

    query = {
        "q": pattern,
        "regex": "true" if regex else None,
        "case": None if ignore_case else "true",
        "stream": stream,
        "runId": run.upper() if run else None,
    }
    shown = 0
    printer = _Printer(pattern, regex=regex, ignore_case=ignore_case, as_json=as_json)
    for hit in _hits(settings.api(), task, query, limit + 1):
        if shown == limit:
            sys.stdout.buffer.flush()
            click.echo(f"ringward: more than {limit} lines match; show more with -n", err=True)
            break
        printer.hit(hit)
        shown += 1
    return exit_codes.OK if shown else exit_codes.REFUSED


def _hits(api: "Api", task: str, query: dict[str, str | None], limit: int) -> Iterator[dict[str, Any]]:
    """At most `limit` lines, asked for page by page as they are taken.

    Raises:
        Failure: the task is not known, the pattern is not valid, or there is no answer.
    """
    from supervisor.cli import exit_codes
    from supervisor.cli.client import segment
    from supervisor.cli.failure import Failure

    try:
        str(query["q"]).encode()
    except UnicodeEncodeError as err:
        raise Failure("the pattern is not UTF-8", exit_codes.USAGE) from err
    cursor: str | None = None
    while limit > 0:
        size = min(limit, _PAGE)
        page = api.get(f"/api/tasks/{segment(task)}/log/search", {**query, "limit": size, "cursor": cursor})
        yield from page["items"]
        limit -= len(page["items"])
        cursor = page.get("nextCursor")
        if cursor is None:
            return


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


class _Printer:
    """Writes the results: unchanged to a pipe, harmless to a terminal, with the matches in colour."""

    def __init__(self, pattern: str, *, regex: bool, ignore_case: bool, as_json: bool) -> None:
        self._out = sys.stdout.buffer
        self._as_json = as_json
        self._terminal = not as_json and is_terminal()
        self._pattern = _pattern(pattern, regex=regex, ignore_case=ignore_case) if self._terminal else None

    def hit(self, hit: dict[str, Any]) -> None:
        """One line."""
        if self._as_json:
            self._out.write(json.dumps(hit).encode() + b"\n")
            return
        place, text = f"{hit['runId']}:{hit['n']}:", str(hit["text"])
        if self._terminal:
            place, text = f"{_PLACE}{place}{_RESET}", self._highlighted(text.removesuffix("\r"))
        self._out.write(f"{place} {text}\n".encode("utf-8", "replace"))

    def _highlighted(self, text: str) -> str:
        """Return the line without colours of its own, and its matches in ours."""
        from supervisor.cli.terminal import harmless

        data = _COLOUR.sub("", text).encode("utf-8", "replace")
        parts, end = [], 0
        for begin, behind in self._pattern.spans(data) if self._pattern else ():
            parts += [harmless(data[end:begin].decode("utf-8", "replace")), _MATCH]
            parts += [harmless(data[begin:behind].decode("utf-8", "replace")), _RESET]
            end = behind
        return "".join([*parts, harmless(data[end:].decode("utf-8", "replace"))])


def _pattern(text: str, *, regex: bool, ignore_case: bool) -> "Pattern | None":
    """Return the daemon's own pattern, to see where a line matches; None when only the daemon's release accepts it."""
    from logring.search import BadPattern, Pattern

    try:
        return Pattern(text, regex=regex, ignore_case=ignore_case)
    except BadPattern:
        return None
