"""``ringward logs``: the output of a run."""

import sys
from typing import TYPE_CHECKING

import click

from supervisor.cli.naming import all_names
from supervisor.cli.settings import Settings, client_options

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.terminal import LogPrinter


@click.command("logs", epilog="Example: ringward logs -f -n 20 backup")
@client_options
@click.argument("what", metavar="TASK|RUN", shell_complete=all_names)
@click.option("-f", "--follow", is_flag=True, help="Follow until the run ends; prefers an active run.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, show_default=True, help="Number of last lines.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("--raw", is_flag=True, help="Print the whole log, byte for byte; to a file or pipe.")
@click.option("--force", is_flag=True, help="With --raw: also to a terminal, with control sequences.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per line.")
@click.pass_context
def command(
    ctx: click.Context,
    what: str,
    follow: bool,
    lines: int,
    timestamps: bool,
    raw: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Show the log of a run, or of the newest run of a task."""
    from supervisor.cli.lookups import run_to_show
    from supervisor.cli.terminal import LogPrinter

    said_lines = ctx.get_parameter_source("lines") is not click.core.ParameterSource.DEFAULT
    if raw and (follow or timestamps or as_json or said_lines):
        raise click.UsageError("--raw cannot be combined with -f, -n, --timestamps or --json")
    if force and not raw:
        raise click.UsageError("--force needs --raw")
    if raw and not force and sys.stdout.isatty():
        raise click.UsageError(
            "--raw would print the run's control sequences to this terminal; redirect the output, or add --force"
        )
    api = ctx.ensure_object(Settings).api()
    run_id = str(run_to_show(api, what, follow=follow)["id"])
    out = sys.stdout.buffer
    if raw:
        with api.stream(f"/api/runs/{run_id}/log/raw") as chunks:
            for chunk in chunks:
                out.write(chunk)
        return
    printer = LogPrinter(out, timestamps=timestamps, as_json=as_json)
    if follow:
        _follow(api, run_id, printer, lines)
    else:
        _show(api, run_id, printer, lines)
    printer.finish()


def _follow(api: "Api", run_id: str, printer: "LogPrinter", lines: int) -> None:
    from supervisor.cli.follow import Follower, Patience

    anchor = -lines or int(api.get(f"/api/runs/{run_id}/log", {"from": -1, "limit": 1})["totalLines"])
    Follower(api, run_id, printer, Patience(say), anchor=anchor).follow()


def _show(api: "Api", run_id: str, printer: "LogPrinter", lines: int) -> None:
    """Print the last `lines` lines, in pages, without waiting for new lines."""
    from supervisor.cli.follow import PAGE_LINES

    start, left, end, missing = -lines, lines, 0, 0
    while left > 0:
        page = api.get(f"/api/runs/{run_id}/log", {"from": start, "limit": min(left, PAGE_LINES)})
        if start < 0:
            end = int(page["totalLines"])
            start = max(0, end - lines)
        for line in page["lines"]:
            printer.line(line)
            missing += max(0, int(line["n"]) - start)
            start = int(line["n"]) + 1
        left -= len(page["lines"])
        if not page["lines"]:
            missing += max(0, end - start)
            break
    if missing:
        say(f"{missing} lines are no longer kept or unreadable")


def say(text: str) -> None:
    """A remark for the person who waits."""
    click.echo(f"ringward: {text}", err=True)
