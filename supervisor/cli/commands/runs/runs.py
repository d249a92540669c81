"""``ringward runs``: past runs, newest first."""

from typing import Any

import click

from supervisor.cli.naming import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings

COLUMNS = ("RUN", "TASK", "RESULT", "TRIGGER", "STARTED", "TOOK")
GIVES_WAY = ("TRIGGER", "TOOK", "STARTED")
"""Columns that a narrow terminal does not show."""


@click.command("runs", epilog="Example: ringward runs backup --status failed,timeout --limit 10")
@client_options
@click.argument("task", required=False, shell_complete=all_names)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of runs.")
@click.option("--status", metavar="LIST", help="Only these phases or end reasons, separated by commas.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(settings: Settings, task: str | None, limit: int, status: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    from supervisor.cli.lookups import runs_of
    from supervisor.cli.tables import show_json, show_table

    api = settings.api()
    if task:
        runs = list(runs_of(api, task, status=status, limit=limit))
    else:
        answer = api.get("/api/runs", {"naming": "camel", "limit": limit, "status": status})
        runs = answer["runs"] if "runs" in answer else answer["items"]
    if as_json:
        show_json(runs)
    else:
        show_table(COLUMNS, [row(run) for run in runs], gives_way=GIVES_WAY)


def row(run: dict[str, Any]) -> list[str]:
    """Return a run (naming A) in cells, for COLUMNS."""
    from supervisor.cli.tables import duration, outcome, when

    attempt = run.get("retryAttempt", 0)
    trigger = str(run["triggeredBy"])
    return [
        str(run["id"]),
        str(run["taskName"]),
        outcome(run),
        f"{trigger}, retry {attempt}" if attempt else trigger,
        when(run.get("startedAt")),
        duration(run.get("startedAt"), run.get("endedAt")),
    ]
