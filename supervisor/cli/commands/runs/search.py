"""``ringward search``: search in the logs of runs."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.name_completion import all_names
from supervisor.cli.option_groups import grouped
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from logring.log_search import Pattern
    from supervisor.cli.client import Api, Query

_PAGE = 1000
_LOCATION_STYLE, _MATCH, _RESET = "\x1b[36m", "\x1b[1;31m", "\x1b[0m"


@dataclass(frozen=True)
class _LogOptions:
    """The options that select logs to search."""

    group: str | None
    tag: str | None
    run: str | None


@dataclass(frozen=True)
class _MatchOptions:
    """The options that determine which lines match."""

    regex: bool
    ignore_case: bool
    raw: bool
    stream: str | None
    since: str | None
    until: str | None

    def query(self, pattern: str) -> dict[str, str | None]:
        """Return the parameters of the request.

        Raises:
            click.UsageError: a time is invalid.
        """
        from supervisor.cli.units.option_times import option_moment

        return {
            "q": pattern,
            "regex": "true" if self.regex else None,
            "case": None if self.ignore_case else "true",
            "raw": "true" if self.raw else None,
            "stream": self.stream,
            "since": option_moment("--since", self.since),
            "until": option_moment("--until", self.until),
        }


@click.command("search", epilog="Example: ringward search backup 'error|failed' --regex -i")
@client_options
@click.argument("words", metavar="[NAME]... PATTERN", nargs=-1, required=True, shell_complete=all_names)
@click.option("--group", metavar="GROUP", help="Only tasks and services of this group.")
@click.option("--tag", metavar="TAG", help="Only tasks and services with this tag.")
@click.option("-E", "--regex", is_flag=True, help="PATTERN is a regular expression in RE2 syntax.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option("--raw", is_flag=True, help="Match the bytes of a line, not the line as it is displayed.")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "system"]), help="Only lines of this stream.")
@click.option("--since", metavar="TIME", help="Only lines since this time: 10m (ago), 14:30, 2026-11-20 or RFC 3339.")
@click.option("--until", metavar="TIME", help="Only lines until this time.")
@click.option("--run", metavar="RUN", help="Only this run.")
@click.option("-n", "--limit", type=click.IntRange(1), default=1000, show_default=True, help="Maximum number of lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per line.")
@grouped("logs", _LogOptions)
@grouped("lines", _MatchOptions)
@pass_settings
def command(
    settings: Settings, words: tuple[str, ...], logs: _LogOptions, lines: _MatchOptions, limit: int, as_json: bool
) -> int:
    """Search the logs of all runs, newest run first, and print the lines that contain PATTERN.

    NAME limits the search to tasks and services, and may be a glob such as 'w*'. Exits with 0 if a line matches, and
    with 1 if none does.
    """
    *names, pattern = words
    query = lines.query(pattern)
    shown = 0
    printer = _Printer(pattern, regex=lines.regex, ignore_case=lines.ignore_case, as_json=as_json)
    for hit in _hits(_Search(settings.api(), names, logs), query, limit + 1):
        if shown == limit:
            sys.stdout.buffer.flush()
            say(f"more than {limit} lines match; show more with -n")
            break
        printer.hit(hit)
        shown += 1
    return exit_codes.OK if shown else exit_codes.REFUSED


class _Search:
    """Requests pages of a search in the logs of one task, or of several tasks and services.

    Raises:
        click.UsageError: a run is given together with several units.
        Failure: the name or id does not exist.
    """

    def __init__(self, api: "Api", names: list[str], logs: _LogOptions) -> None:
        from supervisor.cli.client import segment
        from supervisor.cli.lookups import find_run, unknown
        from supervisor.cli.units.unit_choice import UnitChoice
        from supervisor.cli.units.unit_log_printer import query_of

        self._api = api
        group, tag, run = logs.group, logs.tag, logs.run
        choice = UnitChoice(tuple(names), group, tag, everything=not names and group is None and tag is None)
        self._path = "/api/logs/search"
        self._query = query_of(choice)
        self._name: str | None = None
        """The task or service, if it is the only one."""
        run_id = None
        if run is not None:
            if len(names) > 1 or group is not None or tag is not None:
                raise click.UsageError("--run cannot be combined with several names, --group or --tag")
            run_record = find_run(api, run)
            if run_record is None and not names:
                raise unknown(api, run, noun="run")
            run_id = run.upper() if run_record is None else str(run_record["id"])
            names = names or [str(run_record["taskName"]) if run_record is not None else ""]
        if run is not None or (choice.exact and len(names) == 1):
            self._name = names[0]
            self._path = f"/api/tasks/{segment(names[0])}/log/search"
            self._query = {"runId": run_id}

    def page(self, query: "Query") -> dict[str, Any]:
        """Return a page of results.

        Raises:
            Failure: a unit or run does not exist, the pattern is invalid, or there is no answer.
        """
        from supervisor.cli.client import NotFound
        from supervisor.cli.lookups import find_task, unknown

        try:
            answer: dict[str, object] = self._api.get(self._path, {**self._query, **query})
        except NotFound as err:
            if self._name is not None and find_task(self._api, self._name) is None:
                raise unknown(self._api, self._name) from err
            raise
        return answer


def _hits(search: _Search, query: dict[str, str | None], limit: int) -> Iterator[dict[str, object]]:
    """Yield at most `limit` lines; request the next page only when it is needed.

    Raises:
        Failure: as for :meth:`_Search.page`.
    """
    try:
        str(query["q"]).encode()
    except UnicodeEncodeError as err:
        raise Failure("the pattern is not UTF-8", exit_codes.USAGE) from err
    cursor: str | None = None
    while limit > 0:
        page = search.page({**query, "limit": min(limit, _PAGE), "cursor": cursor})
        yield from page["items"]
        limit -= len(page["items"])
        cursor = page.get("nextCursor")
        if cursor is None:
            return


class _Printer:
    """Prints results: unchanged in a pipe; on a terminal without control characters, and with coloured matches."""

    def __init__(self, pattern: str, *, regex: bool, ignore_case: bool, as_json: bool) -> None:
        from supervisor.cli.terminal import may_colour

        self._out = sys.stdout.buffer
        self._as_json = as_json
        self._terminal = not as_json and sys.stdout.isatty()
        self._coloured = self._terminal and may_colour(sys.stdout)
        self._pattern = _pattern(pattern, regex=regex, ignore_case=ignore_case) if self._coloured else None

    def hit(self, hit: dict[str, object]) -> None:
        """Print a matching line."""
        if self._as_json:
            self._out.write(json.dumps(hit).encode() + b"\n")
            return
        unit = f"{hit['taskName']} " if "taskName" in hit else ""
        location, text = f"{unit}{hit['runId']}:{hit['n']}:", str(hit["text"])
        if self._terminal:
            text = self._highlighted(text.removesuffix("\r"))
        if self._coloured:
            location = f"{_LOCATION_STYLE}{location}{_RESET}"
        self._out.write(f"{location} {text}\n".encode("utf-8", "replace"))

    def _highlighted(self, text: str) -> str:
        """Return the text without its own colours, and with matches coloured if the user wants colours."""
        from logring.log_search import displayed
        from supervisor.cli.terminal import harmless

        data = displayed(text.encode("utf-8", "replace"))
        parts, end = [], 0
        for start, behind in self._pattern.spans(data) if self._pattern else ():
            parts += [harmless(data[end:start].decode("utf-8", "replace")), _MATCH]
            parts += [harmless(data[start:behind].decode("utf-8", "replace")), _RESET]
            end = behind
        return "".join([*parts, harmless(data[end:].decode("utf-8", "replace"))])


def _pattern(text: str, *, regex: bool, ignore_case: bool) -> "Pattern | None":
    """Return the pattern that shows where a line matches; None if only the daemon's version accepts it."""
    from logring.log_search import BadPattern, Pattern

    try:
        return Pattern(text, regex=regex, ignore_case=ignore_case)
    except BadPattern:
        return None
