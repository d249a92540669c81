"""``ringward next``: when tasks will run."""

from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.naming import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from supervisor.cli.client import Api

_COLUMNS = ("TASK", "STARTS", "LOCAL TIME", "NOTE")
_NOTES = {
    "gap": "gap: this local time does not exist",
    "repeated": "repeated: this local time comes twice",
}


@click.command("next", epilog="Example: ringward next backup -n 3")
@client_options
@click.argument("task", required=False, shell_complete=task_names)
@click.option(
    "-n", "--count", type=click.IntRange(1, 100), default=10, show_default=True, help="Maximum number of times."
)
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(settings: Settings, task: str | None, count: int, as_json: bool) -> None:
    """Show the next times of a task, or of all tasks, the soonest first."""
    from supervisor.cli.tables import show_json, show_table, when

    api = settings.api()
    tasks = [task] if task is not None else _soonest(api, count)
    items = sorted((item for name in tasks for item in _schedule(api, name, count)), key=_starts_at)[:count]
    if as_json:
        show_json(items)
        return
    rows = [
        [item["taskName"], when(_starts_at(item)), item["local"], _NOTES.get(item.get("note", ""), "")]
        for item in items
    ]
    show_table(_COLUMNS, rows, prose={"NOTE"}, gives_way=("NOTE", "LOCAL TIME"))


def _soonest(api: "Api", count: int) -> list[str]:
    """As many tasks as can have one of the next `count` times."""
    items = api.get("/api/tasks")["items"]
    waiting = sorted((item for item in items if item.get("nextRunAt")), key=lambda item: str(item["nextRunAt"]))
    return [str(item["name"]) for item in waiting[:count]]


def _schedule(api: "Api", name: str, count: int) -> list[dict[str, Any]]:
    from supervisor.cli.client import Refused, segment
    from supervisor.cli.follow import gone
    from supervisor.cli.lookups import unknown
    from supervisor.cli.records import Record

    try:
        items = api.get(f"/api/tasks/{segment(name)}/schedule", {"count": count})["items"]
    except Refused as err:
        if gone(err):
            raise unknown(api, name, what="task", kinds=("task",)) from err
        raise
    return [Record({"taskName": name, **item}) for item in items]


def _starts_at(item: dict[str, Any]) -> str:
    return str(item.get("startsAt") or item["at"])
