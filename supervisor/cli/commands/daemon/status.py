"""``ringward status``: the state of everything on one screen."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.name_completion import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import AnswerObject

FAILURES = ("failed", "timeout", "crashed", "log_overflow", "start_failed")
_SPAN = timedelta(hours=24)
_MOST = 1000
_UNWELL = {
    "fatal": "fatal: failed too often in a row",
    "backoff": "failed, restarts soon",
}
_FLAPPING = "flapping: keeps failing and is restarted each time"
_SHOWN = 20
_KEPT = ("version", "hostname", "startedAt", "configPath", "configStale", "configWarnings", "schedulerActive")
"""The fields of the daemon's record that are shown."""


@click.command("status", epilog="Example: ringward status || echo 'needs attention'")
@client_options
@choosing(all_names)
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON.")
@pass_settings
def command(settings: Settings, units: UnitChoice, as_json: bool) -> int:
    """Show the state of the daemon, its tasks and its services, or only the named tasks and services.

    Exits with 1 if something needs attention.
    """
    from supervisor.cli.tables import show_json
    from supervisor.ipc.unit_selection import ANY

    choice = choice_of(units)
    api = settings.api()
    overview = _read_status(api) if choice.everything else _of_chosen(choice.records(api, ANY))
    if as_json:
        show_json(overview)
    else:
        _show(api, overview)
    return exit_codes.REFUSED if overview["attention"] else exit_codes.OK


def _read_status(api: "Api") -> dict[str, object]:
    """Return the state to show, as JSON values."""
    daemon = api.get("/api/daemon")
    starting = bool(daemon.get("starting"))
    # Older daemons report neither.
    facts = {name: daemon[name] for name in _KEPT} | {
        "starting": starting,
        "configAdvice": daemon.get("configAdvice", []),
    }
    if "databaseProblem" in daemon or starting:
        problem = daemon.get("databaseProblem")
        return {
            "daemon": facts,
            "attention": [] if problem is None else [{"what": "database", "text": problem}],
        }
    health = _health(api)
    units = [unit for unit in api.get("/api/tasks")["items"] if "flow" not in unit]
    chosen = _of_chosen(units)
    since = (datetime.now(UTC) - _SPAN).isoformat(timespec="seconds")
    summary = api.get("/api/runs/summary", {"since": since})
    query: dict[str, str | int | None] = {
        "status": ",".join(FAILURES),
        "created_after": since,
        "limit": _MOST,
        "naming": "camel",
    }
    failed = api.get("/api/runs", query)
    runs = failed["items"] if "items" in failed else failed["runs"]
    return {
        "daemon": facts,
        "tasks": dict(Counter(_state(unit) for unit in units if unit["kind"] == "task")),
        "services": dict(Counter(_state(unit) for unit in units if unit["kind"] == "service")),
        "lastDay": {
            "runs": summary["total"],
            "failed": summary["failed"],
            "missed": summary["missed"],
            "failedByTask": dict(Counter(run["taskName"] for run in runs)),
        },
        "exports": daemon.get("exports", []),
        "leftRunning": daemon.get("leftRunning", []),
        "attention": [*_of_daemon(daemon, health), *chosen["attention"]],
        "withheld": [*_of_pause(daemon), *chosen["withheld"]],
        "acknowledged": chosen["acknowledged"],
    }


def _of_pause(daemon: "AnswerObject") -> "Iterator[dict[str, object]]":
    if pause := daemon.get("pause"):
        yield {"what": "all schedules", "text": "paused", **pause}
    for window in daemon.get("windows", ()):
        opening = {"by": window.get("by", "-"), "at": window["since"], **window}
        yield {"what": f"window {window['name']}", "text": "open", **opening}


def _of_chosen(units: "list[AnswerObject]") -> dict[str, list[Any]]:
    """Return the records of units, and which of them need attention."""
    return {
        "units": units,
        "withheld": [
            {"what": unit["name"], "text": "paused" if unit.get("paused") else "disabled", **unit["withheld"]}
            for unit in units
            if "withheld" in unit
        ],
        "attention": [*_of_units(unit for unit in units if "acknowledged" not in unit)],
        "acknowledged": [
            entry | unit["acknowledged"] for unit in units if "acknowledged" in unit for entry in _of_units([unit])
        ],
    }


def _state(unit: Mapping[str, Any]) -> str:
    active = unit.get("active") or {}
    if unit["kind"] == "service":
        if "withheld" in unit:
            return "disabled"
        return "flapping" if _is_flapping(unit) else str(unit.get("state", "unknown"))
    if active.get("running"):
        return "running"
    if active.get("pending"):
        return "waiting"
    return "paused" if unit.get("paused") else "idle"


def _is_flapping(unit: Mapping[str, object]) -> bool:
    """Return whether a service is flapping; a fatal one no longer is."""
    return bool(unit.get("flapping")) and unit.get("state") != "fatal"


def _health(api: "Api") -> str:
    """Return the result of ``ringward health``; empty if the daemon refuses commands."""
    from supervisor.cli.client import ErrorResponse

    try:
        return str(api.get("/readyz")["status"])
    except ErrorResponse:
        return ""


def _of_daemon(daemon: Mapping[str, Any], health: str) -> Iterator[dict[str, str]]:
    if not daemon["schedulerActive"]:
        problem = daemon.get("databaseProblem")
        reason = f"; {problem}" if problem else ""
        yield {"what": "scheduler", "text": f"not running; nothing starts until it is back{reason}"}
    elif not health:
        yield {
            "what": "database",
            "text": "cannot be written; nothing starts until it can (the daemon's log has the reason)",
        }
    elif health != "ok":
        yield {"what": "daemon", "text": f"{health} (its log has the reason)"}
    if daemon["configStale"]:
        yield {"what": "configuration", "text": "edited but not active; run: ringward reload"}
    for warning in daemon["configWarnings"]:
        if warning in daemon.get("configAdvice", ()):  # the run that fails needs attention
            continue
        yield {"what": "configuration", "text": str(warning)}
    for problem in daemon.get("inotifyProblems", ()):
        yield {"what": "on_change", "text": str(problem)}
    for problem in daemon.get("logProblems", ()):
        yield {"what": "logs", "text": str(problem)}
    for export in daemon.get("exports", ()):
        if "error" in export:
            yield {"what": f"export {export['name']}", "text": f"{export['error']}; {_behind(export)}"}
    yield from _of_clock(daemon)


def _behind(export: Mapping[str, Any]) -> str:
    from supervisor.ipc.plural import counted

    skipped = f", {counted(export['skippedLines'], 'line')} lost" if export["skippedLines"] else ""
    lost = f", {counted(export['lostRuns'], 'run')} removed before delivery" if export.get("lostRuns") else ""
    return f"{counted(export['behindLines'], 'line')} behind{skipped}{lost}"


def _of_clock(daemon: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield problems of the clock: tasks that wait until it catches up, and removals that wait until it is trusted."""
    silent = daemon.get("silentTasks", [])
    for task in silent:
        text = f"does not run, because the clock was set back; runs again at {task['runsAgainAt']}"
        yield {"what": str(task["name"]), "text": text}
    more = daemon.get("silentTaskCount", 0) - len(silent)
    if more > 0:
        yield {
            "what": "clock",
            "text": f"was set back: {more} more tasks do not run; ringward next TASK shows until when",
        }
    held_until = daemon.get("removalsHeldUntil")
    if held_until is not None:
        text = f"was set by more than a day: nothing is removed by age before {held_until}"
        yield {"what": "clock", "text": f"{text}; if the clock is right, run: ringward trust-clock"}


def _of_units(units: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield problems of units: tasks whose last run failed or was missed, and services in a wrong state."""
    for unit in units:
        last = unit.get("lastRun") or {}
        text = ""
        if unit["kind"] == "service":
            text = _FLAPPING if _is_flapping(unit) else _UNWELL.get(str(unit.get("state")), "")
            instances = [one for one in unit.get("instances", ()) if one["state"] == unit["state"]]
            details = [one["detail"] for one in instances if one.get("detail")]
            text += f": {details[0]}" if text and details else ""
        elif last.get("status") == "ended" and last.get("endReason") in FAILURES:
            text = _failure(last)
        elif "lateSince" in unit:
            text = f"late: its work was to be done by {unit['lateSince']}"
        elif "failingSince" in unit:
            text = f"too many of its last runs failed (since {unit['failingSince']})"
        elif last.get("endReason") == "missed":
            text = "missed its scheduled time"
        if text:
            yield {"what": str(unit["name"]), "text": text} | ({"run": str(last["id"])} if last.get("id") else {})


def _failure(run: Mapping[str, object]) -> str:
    """Return a text about how the last run failed: its exit code if it has one, else its end reason."""
    reason, code = run["endReason"], run["exitCode"]
    if reason == "start_failed":
        return "last run could not start"
    if reason == "failed":
        return f"last run failed (exit code {code})"
    return f"last run failed ({reason})"


def _show(api: "Api", overview: Mapping[str, Any]) -> None:
    from supervisor.cli.commands.units.ps import show_units
    from supervisor.cli.tables import show_table, when

    if "units" in overview:
        show_units(api, overview["units"])
    elif overview["daemon"]["starting"]:
        click.echo("The daemon is starting.")
        return
    elif "lastDay" in overview:
        _show_daemon(overview)
    else:
        show_table(("CHECK", "REASON"), [[entry["what"], entry["text"]] for entry in overview["attention"]])
        return
    for title, entries in (
        ("Paused, disabled or in a window", overview["withheld"]),
        ("Acknowledged", overview["acknowledged"]),
    ):
        if not entries:
            continue
        click.echo(f"\n{title}: {len(entries)}")
        rows = [
            [
                entry["what"],
                entry["text"],
                entry["by"],
                when(entry["at"]),
                when(entry.get("until")),
                entry.get("note", "-"),
            ]
            for entry in entries[:_SHOWN]
        ]
        columns = ("NAME", "REASON", "BY", "SINCE", "UNTIL", "NOTE")
        show_table(columns, rows, prose={"REASON", "NOTE"}, gives_way=("SINCE", "UNTIL"))
    attention = overview["attention"]
    if not attention:
        click.echo("\nNothing needs attention.")
        return
    click.echo(f"\nNeeds attention: {len(attention)}")
    rows = [[entry["what"], entry["text"], entry.get("run", "-")] for entry in attention[:_SHOWN]]
    show_table(("NAME", "REASON", "RUN"), rows, prose={"REASON"}, gives_way=("RUN",))


def _show_daemon(overview: Mapping[str, Any]) -> None:
    from supervisor.cli.tables import show_table, when
    from supervisor.ipc.plural import counted

    daemon, day = overview["daemon"], overview["lastDay"]
    stale = "edited but not active" if daemon["configStale"] else "active"
    by_task = sorted(day["failedByTask"].items(), key=lambda item: -item[1])[:_SHOWN]
    failures = f": {', '.join(f'{name} {count}' for name, count in by_task)}" if by_task else ""
    missed = f", {day['missed']} missed" if day["missed"] else ""
    show_table(
        ("CHECK", "DETAIL"),
        [
            ["daemon", f"Ringward {daemon['version']} on {daemon['hostname']}, started {when(daemon['startedAt'])}"],
            ["scheduler", "ok" if daemon["schedulerActive"] else "not running"],
            ["configuration", f"{daemon['configPath']}, {stale}"],
            ["tasks", _counted(overview["tasks"])],
            ["services", _counted(overview["services"])],
            *(
                [f"export {export['name']}", "failing" if "error" in export else _behind(export)]
                for export in overview["exports"]
            ),
            ["last 24 hours", f"{counted(day['runs'], 'run')}, {day['failed']} failed{missed}{failures}"],
        ],
        prose={"DETAIL"},
    )
    if advice := daemon["configAdvice"]:
        click.echo(f"\nWarnings about the configuration: {len(advice)}")
        show_table(("WARNING",), [[text] for text in advice[:_SHOWN]], prose={"WARNING"})
    if left_running := overview["leftRunning"]:
        click.echo(f"\nProcesses left running by ended runs: {len(left_running)}")
        rows = [[entry["taskName"], entry["runId"], ", ".join(entry["processes"])] for entry in left_running[:_SHOWN]]
        show_table(("NAME", "RUN", "PROCESSES"), rows)


def _counted(states: Mapping[str, int]) -> str:
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{sum(states.values())}: {shown}" if states else "none"
