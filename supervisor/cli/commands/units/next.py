"""``ringward next``: when tasks will run."""

from typing import Any

import click

from supervisor.cli.name_completion import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing

_COLUMNS = ("TASK", "STARTS", "LOCAL TIME", "NOTE")
_NOTES = {
    "gap": "gap: this local time does not exist",
    "repeated": "repeated: this local time comes twice",
}


@click.command("next", epilog="Example: ringward next backup -n 3")
@client_options
@choosing(task_names, "[TASK]...")
@click.option(
    "-n", "--count", type=click.IntRange(1, 100), default=10, show_default=True, help="Maximum number of times."
)
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(
    settings: Settings,
    units: UnitChoice,
    count: int,
    as_json: bool,
) -> None:
    """Show the next times of tasks, or of all tasks, the soonest first."""
    from supervisor.cli.lookups import soonest, starts_at, upcoming
    from supervisor.cli.tables import show_json, show_table, when
    from supervisor.ipc.unit_selection import Kinds

    choice = choice_of(units)
    kinds = Kinds(lambda unit: unit.kind == "task", "task", lambda unit: f"{unit.name} is a service without a schedule")
    api = settings.api()
    tasks = choice.records(api, kinds)
    chosen = [str(task["name"]) for task in tasks] if choice.exact else soonest(tasks, count)
    items = upcoming(api, chosen, count)
    if as_json:
        show_json(items)
        return
    slots = {str(task["name"]): (task.get("definition") or {}).get("uses") or {} for task in tasks}
    rows = [
        [item["taskName"], when(starts_at(item)), item["local"], _note(item, slots[item["taskName"]])] for item in items
    ]
    show_table(_COLUMNS, rows, prose={"NOTE"}, gives_way=("NOTE", "LOCAL TIME"))


def _note(item: dict[str, Any], uses: dict[str, int]) -> str:
    """Return the note of a scheduled time, and the slots that the run will need."""
    slots = [name if count == 1 else f"{name} ({count})" for name, count in uses.items()]
    needed = [f"needs slot{'s' if len(slots) > 1 else ''} {', '.join(slots)}"] if slots else []
    return "; ".join([*filter(None, [_NOTES.get(item.get("note", ""))]), *needed])
