"""``ringward ps``: the list of tasks and services."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.name_completion import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import AnswerObject

_COLUMNS = ("NAME", "KIND", "STATE", "LAST RESULT", "LAST RUN", "NEXT RUN", "ACTIVE")
_TOO_OLD = (404, 422)
"""Statuses with which an older daemon rejects the request."""
_PAUSE_S = 2.0
_GIVES_WAY = ("KIND", "ACTIVE", "LAST RUN", "NEXT RUN", "LAST RESULT")


@click.command("ps", epilog="Example: ringward ps --group shop --watch")
@client_options
@choosing(all_names)
@click.option("-w", "--watch", is_flag=True, help="Show the list again whenever it changes, until Ctrl-C.")
@click.option("--steps", is_flag=True, help="Also list the steps of flows.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(
    settings: Settings,
    units: UnitChoice,
    watch: bool,
    steps: bool,
    as_json: bool,
) -> None:
    """List all tasks and services, or the named ones.

    With --watch, a terminal is redrawn every two seconds. A pipe gets the list again after each change.
    """
    from supervisor.cli.tables import show_json
    from supervisor.ipc.unit_selection import ANY

    if watch and as_json:
        raise click.UsageError("--watch cannot be combined with --json")
    choice = choice_of(units)
    api = settings.api()

    def records() -> "list[AnswerObject]":
        chosen = choice.records(api, ANY)
        if not steps:
            return chosen
        flows = {unit["name"] for unit in chosen if "steps" in unit}
        return [*chosen, *(unit for unit in api.get("/api/tasks")["items"] if unit.get("flow") in flows)]

    if watch:
        _watch(lambda: show_units(api, records()))
    elif as_json:
        show_json(records())
    else:
        show_units(api, records())


def show_units(api: "Api", items: "list[AnswerObject]") -> None:
    """Print the table of units."""
    from supervisor.cli.tables import show_table

    waits = _waits(api) if any((item.get("active") or {}).get("pending") for item in items) else {}
    rows = [_row(item, waits.get(str(item["name"]))) for item in items]
    show_table(_COLUMNS, rows, prose={"STATE"}, gives_way=_GIVES_WAY)


def _watch(show: Callable[[], None]) -> None:
    """Call `show` repeatedly until Ctrl-C, and continue after a restart of the daemon."""
    from supervisor.cli.follow import ReconnectDelays
    from supervisor.cli.terminal import LiveScreen

    patience = ReconnectDelays()
    with LiveScreen() as screen, suppress(KeyboardInterrupt):
        while True:
            patience.insist(lambda: screen.draw(show))
            patience.reset()
            time.sleep(_PAUSE_S)


def _waits(api: "Api") -> dict[str, str]:
    """Return why the oldest waiting run of each unit waits, by unit, if the daemon reports it."""
    from supervisor.cli.client import ErrorResponse
    from supervisor.cli.daemon_answers import AnswerObject, UnexpectedAnswer

    query: dict[str, str | int | None] = {"status": "pending", "extended": "true", "naming": "camel", "limit": 1000}
    try:
        page = api.get("/api/runs", {**query, "sort_field": "created_at", "sort_direction": "asc"})
    except ErrorResponse as err:
        if err.status not in _TOO_OLD:
            raise
        return {}
    details = page["details"]
    oldest = {str(run["taskName"]): details.get(run["id"]) for run in reversed(page["runs"])}
    if not all(isinstance(run, AnswerObject) for run in oldest.values()):
        raise UnexpectedAnswer('the response has an invalid "details"')
    texts = {name: _reason(run.get("waitingFor") or []) for name, run in oldest.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _reason(reasons: "list[AnswerObject]") -> str | None:
    from supervisor.cli.tables import when

    for reason in reasons:
        if reason["kind"] == "paused":
            return "waiting: paused"
        if "until" in reason:
            return f"waiting: {reason['kind']}, {when(str(reason['until']))}"
    slots = [reason for reason in reasons if reason["kind"] == "slot"]
    if slots:
        return "waits for " + "; ".join(_slot(slot) for slot in slots)
    return "waits for max_running" if any(reason["kind"] == "daemon" for reason in reasons) else None


def _slot(reason: dict[str, Any]) -> str:
    units = dict.fromkeys(holder["taskName"] for holder in reason.get("heldBy", ()))
    return f"slot {reason['name']}" + (f": {', '.join(units)}" if units else "")


def _row(item: dict[str, Any], waits: str | None) -> list[str]:
    from supervisor.cli.tables import attributed, outcome, span, when

    last = item.get("lastRun") or {}
    active = item.get("active") or {}
    running, pending = int(active.get("running", 0)), int(active.get("pending", 0))
    state = item.get("state") or ("running" if running else "queued" if pending else "idle")
    if running and (usual_ms := item.get("usualMs")):
        state = f"{state}, usually {span(usual_ms)}"
    if late_since := item.get("lateSince"):
        state = f"{state}, late (due {when(late_since)})"
    elif (running or pending) and (done_by := item.get("doneBy")):
        state = f"{state}, due {when(done_by)}"
    if item.get("paused") or item.get("withheld"):
        state = f"{'paused' if item.get('paused') else 'disabled'} ({state}) {attributed(item)}".rstrip()
    if item.get("flapping"):
        state = f"{state} (flapping)"
    if waits is not None:
        state = f"{state} ({waits})"
    elif line := _line(item.get("instances") or []):
        state = f"{state} ({line})"
    if rolling := item.get("rolling"):
        state = f"{state} (rolling {rolling['done']}/{rolling['total']})"
    return [
        str(item["name"]),
        str(item["kind"]),
        str(state),
        outcome(last) if last else "-",
        when(last.get("startedAt") or last.get("createdAt")),
        when(item.get("nextRunAt")),
        f"{running}+{pending}" if pending else str(running),
    ]


def _line(instances: list[dict[str, Any]]) -> str | None:
    """Return the status text of the first instance that is not ready, or else of the first instance that has one."""
    described = [instance for instance in instances if instance.get("detail")]
    waiting = [instance for instance in described if not instance.get("ready")]
    return str((waiting or described)[0]["detail"]) if described else None
