"""``ringward audit``: the log of actions and their users."""

import re
from typing import Any

import click

from supervisor.cli.settings import Settings, client_options, pass_settings

_PAGE = 500
_COLUMNS = ("TIME", "WHO", "FROM", "ACTION", "TARGET", "RESULT", "DETAIL")


@click.command("audit", epilog="Example: ringward audit -n 20")
@client_options
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Maximum number of entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON.")
@pass_settings
def command(settings: Settings, limit: int, as_json: bool) -> None:
    """Show who did what, newest first: requests that could change something, and wrong passwords."""
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
            _action(entry["operation"]),
            entry.get("target", "-"),
            _result(entry["status"]),
            entry.get("reason") or entry.get("result", ""),
        ]
        for entry in items
    ]
    show_table(_COLUMNS, rows, prose={"DETAIL"}, gives_way=("DETAIL", "FROM", "RESULT", "TARGET"))


def _action(operation: str) -> str:
    """Return an operation of the API in words: ``run task`` for ``runTask``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", operation).lower()


def _result(status: object) -> str:
    """Say whether a request was carried out, with its status if it was not."""
    return f"rejected ({status})" if str(status).startswith(("4", "5")) else "ok"
