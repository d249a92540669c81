"""``ringward ps``: tasks and services at a glance."""

from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from supervisor.cli.client import Api

_COLUMNS = ("NAME", "KIND", "STATE", "LAST RESULT", "LAST RUN", "NEXT RUN", "ACTIVE")
_NOT_FOUND = 404
_GIVES_WAY = ("KIND", "ACTIVE", "LAST RUN", "NEXT RUN", "LAST RESULT")


@click.command("ps", epilog="Example: ringward ps --json")
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(settings: Settings, as_json: bool) -> None:
    """List tasks and services."""
    from supervisor.cli.tables import show_json, show_table

    api = settings.api()
    items = api.get("/api/tasks")["items"]
    if as_json:
        show_json(items)
    else:
        show_table(_COLUMNS, [_row(item, _waits(api, item)) for item in items], prose={"STATE"}, gives_way=_GIVES_WAY)


def _waits(api: "Api", item: dict[str, Any]) -> str | None:
    """Return why the oldest waiting run of a task or service waits; None: no run waits, or the reason is unknown."""
    from supervisor.cli.client import Refused, segment

    if not (item.get("active") or {}).get("pending"):
        return None
    try:
        oldest: dict[str, str | int | None] = {"status": "pending", "sortDirection": "asc", "limit": 1}
        runs = api.get(f"/api/tasks/{segment(str(item['name']))}/runs", oldest)["items"]
        found = api.get(f"/api/runs/{runs[0]['id']}/details").get("waitingFor") if runs else None
    except Refused as err:
        if err.status != _NOT_FOUND:
            raise
        return None  # the run was deleted, or the daemon is of an earlier version
    slots = [one for one in found or [] if one["kind"] == "slot"]
    if slots:
        return "waits for " + "; ".join(_slot(one) for one in slots)
    return "waits for max_running" if any(one["kind"] == "daemon" for one in found or []) else None


def _slot(reason: dict[str, Any]) -> str:
    units = dict.fromkeys(holder["taskName"] for holder in reason.get("heldBy", ()))
    return f"slot {reason['name']}" + (f": {', '.join(units)}" if units else "")


def _row(item: dict[str, Any], waits: str | None) -> list[str]:
    from supervisor.cli.tables import outcome, when

    last = item.get("lastRun") or {}
    active = item.get("active") or {}
    running, pending = int(active.get("running", 0)), int(active.get("pending", 0))
    state = item.get("state") or ("running" if running else "queued" if pending else "idle")
    if item.get("paused"):
        state = f"paused ({state})"
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
    """How the first instance stands that is not ready, in its own words; else the first that says anything."""
    told = [one for one in instances if one.get("detail")]
    waiting = [one for one in told if not one.get("ready")]
    return str((waiting or told)[0]["detail"]) if told else None
