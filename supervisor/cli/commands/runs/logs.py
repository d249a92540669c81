"""``ringward logs``: the output of a run, or of tasks and services."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from supervisor.cli.failure import say
from supervisor.cli.name_completion import all_names
from supervisor.cli.option_groups import grouped
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.terminal import LogPrinter


@dataclass(frozen=True)
class _LineOptions:
    """The options that select lines of tasks and services."""

    since: str | None
    until: str | None
    stream: str | None
    grep: str | None


@dataclass(frozen=True)
class _OutputOptions:
    """The options for the form of printed lines."""

    timestamps: bool
    raw: bool
    force: bool
    as_json: bool


def _options(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options that select units and lines."""
    for add in reversed(
        (
            click.option("--group", metavar="GROUP", help="Only tasks and services of this group."),
            click.option("--tag", metavar="TAG", help="Only tasks and services with this tag."),
            click.option("--all", "everything", is_flag=True, help="All tasks and services."),
            click.option(
                "--since", metavar="TIME", help="Only lines since this time: 10m (ago), 14:30, 2026-11-20 or RFC 3339."
            ),
            click.option("--until", metavar="TIME", help="Only lines until this time."),
            click.option("--stream", type=click.Choice(["stdout", "stderr", "system"]), help="Only this stream."),
            click.option("--grep", metavar="RE2", help="Only lines that match this regular expression."),
        )
    ):
        function = add(function)
    return function


@click.command("logs", epilog="Example: ringward logs -f -n 20 web worker")
@client_options
@click.argument("names", metavar="[NAME|RUN]...", nargs=-1, shell_complete=all_names)
@click.option("-f", "--follow", is_flag=True, help="Follow: a run to its end, tasks and services until interrupted.")
@click.option("-n", "--lines", type=click.IntRange(0, 50_000), help="Number of last lines.  [default: 100]")
@_options
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("--raw", is_flag=True, help="Print the whole log of a run, byte for byte; to a file or pipe.")
@click.option("--force", is_flag=True, help="With --raw: also to a terminal, with control sequences.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per line.")
@grouped("units", UnitChoice)
@grouped("only", _LineOptions)
@grouped("output", _OutputOptions)
@pass_settings
def command(
    settings: Settings, units: UnitChoice, only: _LineOptions, follow: bool, lines: int | None, output: _OutputOptions
) -> None:
    """Show the log of a run, or the merged logs of tasks and services.

    NAME may be a glob such as 'w*'. Lines of several instances begin with the name.
    """
    from supervisor.cli.lookups import find_run
    from supervisor.cli.terminal import LogPrinter, end_with_reader

    given = [name for name, value in {**asdict(units), **asdict(only)}.items() if value and name != "names"]
    alone = not (given or follow or output.timestamps or output.as_json) and lines is None and len(units.names) == 1
    if output.raw and not alone:
        raise click.UsageError("--raw takes one name or run, and cannot be combined with other options but --force")
    if output.force and not output.raw:
        raise click.UsageError("--force needs --raw")
    if output.raw and not output.force and sys.stdout.isatty():
        raise click.UsageError(
            "--raw would print the run's control sequences to this terminal; redirect the output, or add --force"
        )
    choice = choice_of(units, needed="tasks, services or a run")
    api = settings.api()
    if output.raw:
        _print_raw(api, units.names[0])
        return
    if follow:
        end_with_reader()
    printer = LogPrinter(sys.stdout.buffer, timestamps=output.timestamps, as_json=output.as_json)
    runs = [run for name in units.names if (run := find_run(api, name))]
    if not runs:
        _print_units(api, choice, printer, only, follow=follow, lines=lines)
        return
    if len(units.names) > 1:
        raise click.UsageError(f"{runs[0]['id']} is a run, which is shown alone")
    if given:
        raise click.UsageError(f"--{given[0]} is for tasks and services, and {runs[0]['id']} is a run")
    count = 100 if lines is None else lines
    if follow:
        _follow(api, str(runs[0]["id"]), printer, count)
    else:
        _show(api, str(runs[0]["id"]), printer, count)
    printer.finish()


def _print_raw(api: "Api", name: str) -> None:
    from supervisor.cli.lookups import run_to_show

    run_id = str(run_to_show(api, name)["id"])
    with api.stream(f"/api/runs/{run_id}/log/raw") as chunks:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)


def _print_units(
    api: "Api",
    choice: UnitChoice,
    printer: "LogPrinter",
    only: _LineOptions,
    *,
    follow: bool,
    lines: int | None,
) -> None:
    from supervisor.cli.follow import ReconnectDelays
    from supervisor.cli.terminal import may_colour
    from supervisor.cli.units.option_times import option_moment
    from supervisor.cli.units.unit_log_printer import UnitFollower, UnitPrinter, labels_of, stream_of

    # With a search, show all matching lines instead of only the last ones.
    start = (0 if only.since or only.grep else -100) if lines is None else -lines or 1
    path, units = stream_of(choice)
    query = {
        **units,
        "from": start,
        "since": option_moment("--since", only.since),
        "until": option_moment("--until", only.until),
        "follow": None if follow else "false",
        "stream": only.stream,
        "grep": only.grep,
    }
    alone = choice.exact and len(choice.names) == 1
    unit_printer = UnitPrinter(printer, labels_of(choice, api), coloured=may_colour(sys.stdout), by_step=alone)
    UnitFollower(api, path, query, unit_printer, ReconnectDelays()).follow()


def _follow(api: "Api", run_id: str, printer: "LogPrinter", lines: int) -> None:
    from supervisor.cli.follow import ReconnectDelays, RunFollower

    anchor = -lines or int(api.get(f"/api/runs/{run_id}/log", {"from": -1, "limit": 1})["totalLines"])
    RunFollower(api, run_id, printer, ReconnectDelays(), anchor=anchor).follow()


def _show(api: "Api", run_id: str, printer: "LogPrinter", lines: int) -> None:
    """Print the last `lines` lines, in pages, without waiting for new lines."""
    from supervisor.cli.follow import PAGE_LINES

    start, remaining, end, missing = -lines, lines, 0, 0
    while remaining > 0:
        page = api.get(f"/api/runs/{run_id}/log", {"from": start, "limit": min(remaining, PAGE_LINES)})
        if start < 0:
            end = int(page["totalLines"])
            start = max(0, end - lines)
        for line in page["lines"]:
            printer.line(line)
            missing += max(0, int(line["n"]) - start)
            start = int(line["n"]) + 1
        remaining -= len(page["lines"])
        if not page["lines"]:
            missing += max(0, end - start)
            break
    if missing:
        say(f"{missing} lines are no longer kept or unreadable")
