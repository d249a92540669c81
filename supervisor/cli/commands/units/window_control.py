"""``ringward window``: times in which tasks do not run and alarms wait."""

from typing import Any

import click

from supervisor.cli.client import segment
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.suggestions import SuggestingGroup


@click.group(
    "window",
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog="Example: ringward window start release --for 1h --note 'version 5'",
)
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print the windows as JSON.")
@click.pass_context
@pass_settings
def command(settings: Settings, context: click.Context, as_json: bool) -> None:
    """List, open and close windows, in which tasks do not run.

    While a window is open, alarms about these tasks wait, too.
    """
    if context.invoked_subcommand is None:
        _show(settings, as_json=as_json)


def _show(settings: Settings, *, as_json: bool) -> None:
    from supervisor.cli.tables import show_json, show_table

    items = settings.api().get("/api/windows")["items"]
    if as_json:
        show_json(items)
        return
    rows = [
        [
            item["name"],
            _opening(item.get("open")),
            _opening(item.get("next")),
            ", ".join(name for names in item["match"].values() for name in names) or "all",
            (item.get("open") or {}).get("note", "-"),
        ]
        for item in items
    ]
    show_table(("WINDOW", "OPEN", "NEXT", "MATCH", "NOTE"), rows, prose={"OPEN", "MATCH", "NOTE"}, gives_way=("MATCH",))


def _opening(opening: dict[str, Any] | None) -> str:
    from supervisor.cli.tables import when

    if opening is None:
        return "-"
    by = f", by {opening['by']}" if "by" in opening else ""
    until = f" to {when(opening['until'])}" if "until" in opening else ", until someone ends it"
    return f"{when(opening['since'])}{until}{by}"


@command.command("start", epilog="Example: ringward window start release --for 1h --note 'version 5'")
@client_options
@click.argument("name")
@click.option("--for", "span", metavar="DURATION", help="Close the window after this time, such as 1h.")
@click.option("--until", metavar="TIME", help="Close the window then: 22:00, 'Mon 08:00', 2026-11-20T22:00.")
@click.option("--note", metavar="TEXT", help="A note for others.")
@pass_settings
def start(settings: Settings, name: str, span: str | None, until: str | None, note: str | None) -> None:
    """Open a window until a time, or until someone ends it."""
    from supervisor.cli.units.option_times import option_end

    given = {"until": option_end(until, span), "note": note}
    body: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    settings.api().send(f"/api/windows/{segment(name)}/start", body=body or None)


@command.command("end", epilog="Example: ringward window end release")
@client_options
@click.argument("name")
@pass_settings
def end(settings: Settings, name: str) -> None:
    """Close an open window, until its next time opens it."""
    settings.api().send(f"/api/windows/{segment(name)}/end")
