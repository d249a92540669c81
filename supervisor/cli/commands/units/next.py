"""``ringward next``: when tasks will run."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.failure import say
from supervisor.cli.name_completion import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import AnswerObject

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
    from supervisor.cli.lookups import agenda, soonest, starts_at, upcoming
    from supervisor.cli.tables import show_json, show_table, when
    from supervisor.ipc.unit_selection import Kinds

    choice = choice_of(units)
    kinds = Kinds(lambda unit: unit.kind == "task", "task", lambda unit: f"{unit.name} is a service without a schedule")
    api = settings.api()
    tasks = choice.records(api, kinds)
    names = [str(task["name"]) for task in tasks]
    items: list[Any] = []
    if not choice.exact:
        items = agenda(api, frozenset(names), count)
        listed = {item["taskName"] for item in items}
        tasks_later = [task for task in tasks if task["name"] not in listed]
        names = soonest(tasks_later, count - len(items)) if len(items) < count else []
    items = sorted([*items, *upcoming(api, names, count)], key=starts_at)[:count]
    _tell_obstacles(api, tasks, exact=choice.exact)
    if as_json:
        show_json(items)
        return
    slots = {str(task["name"]): (task.get("definition") or {}).get("uses") or {} for task in tasks}
    rows = [
        [item["taskName"], when(starts_at(item)), item["local"], _note(item, slots[item["taskName"]])] for item in items
    ]
    show_table(_COLUMNS, rows, prose={"NOTE"}, gives_way=("NOTE", "LOCAL TIME"))


def _tell_obstacles(api: "Api", tasks: "list[AnswerObject]", *, exact: bool) -> None:
    """Say who paused all schedules or the named tasks, and which windows have no end: their times do not run then."""
    from supervisor.cli.client import NotFound
    from supervisor.cli.tables import attributed

    with suppress(NotFound):  # a daemon of an earlier release
        answer = api.get("/api/upcoming", {"limit": 1})
        if answer["items"] is not None and (pause := answer.get("pause")):
            say(f"all schedules are paused {attributed({'withheld': pause})}")
        for window in answer.get("windows", ()):
            if "until" not in window:
                say(f"the window {window['name']} is open until someone ends it: ringward window end {window['name']}")
    for task in tasks if exact else ():
        if task.get("paused"):
            say(f"{task['name']} is paused {attributed(task)}".rstrip())


def _note(item: dict[str, Any], uses: dict[str, int]) -> str:
    """Return the notes of a scheduled time, and the slots that the run will need."""
    from supervisor.cli.tables import when

    slots = [name if count == 1 else f"{name} ({count})" for name, count in uses.items()]
    needed = [f"needs slot{'s' if len(slots) > 1 else ''} {', '.join(slots)}"] if slots else []
    given = ", ".join(f"{name}={value}" for name, value in (item.get("params") or {}).items())
    deadline = f"due {when(item['doneBy'])}" if "doneBy" in item else None
    requested = f"requested: run {item['runId']}" if "runId" in item else None
    closings = [item.get("calendar"), item.get("window")]
    many = f"{item['count']} runs until {when(item['until'])}" if item.get("kind") == "runs" else None
    cause = item.get("cause") if item.get("kind") == "run" else None
    notes = [many, _NOTES.get(item.get("note", "")), cause, *closings, given and f"with {given}", requested, deadline]
    return "; ".join([*filter(None, notes), *needed])
