"""``ringward audit``: who did what."""

from typing import Any

import click

from supervisor.cli.settings import Settings, client_options, pass_settings

_PAGE = 500
_COLUMNS = ("TIME", "WHO", "FROM", "WHAT", "OF", "RESULT", "REASON")


@click.command("audit", epilog="Example: ringward audit -n 20")
@client_options
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most entries to show.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@pass_settings
def command(settings: Settings, limit: int, as_json: bool) -> None:
    """Show who did what, newest first: all that changes something, and wrong passwords."""
    from supervisor.cli.tables import show_json, show_table, when

    api = settings.api()
    items: list[dict[str, Any]] = []
    before: int | None = None
    while len(items) < limit:
        page = api.get("/api/audit", {"limit": min(_PAGE, limit - len(items)), "before": before})
        items += page["items"]
        before = page.get("nextCursor")
        if before is None:
            break
    if as_json:
        show_json({"items": items})
        return
    rows = [
        [
            when(entry["at"]),
            entry.get("who", "-"),
            entry["from"],
            entry["operation"],
            entry.get("target", "-"),
            str(entry["status"]),
            entry.get("reason", ""),
        ]
        for entry in items
    ]
    show_table(_COLUMNS, rows, prose={"REASON"}, gives_way=("REASON", "FROM", "RESULT", "OF"))
