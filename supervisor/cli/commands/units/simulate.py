"""``ringward simulate``: the runs that the schedules of a configuration would produce."""

import os
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.settings import CONFIG, DATA, Settings, config_errors, pass_settings

if TYPE_CHECKING:
    from supervisor.config.model import Config
    from supervisor.tools.simulation.past_runs import PastRuns

_MAX_DAYS = 3660
_SHOWN = 20
_OUTCOMES = ("queued", "skipped", "queue_full", "terminates", "dst_skipped", "closed")


@click.command("simulate", epilog="Example: ringward simulate --days 365 --duration 5m --duration backup=2h")
@CONFIG
@DATA
@click.option("--days", type=click.IntRange(1, _MAX_DAYS), default=365, show_default=True, help="Number of days.")
@click.option("--from", "first", metavar="DATE", help="The first day, such as 2026-10-01; default: today.")
@click.option(
    "--duration",
    "durations",
    metavar="[TASK=]SPAN",
    multiple=True,
    help="Duration of the runs of one task, or of all others; may be repeated. Default: the average so far.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def command(settings: Settings, days: int, first: str | None, durations: tuple[str, ...], as_json: bool) -> None:
    """Simulate the schedules: collisions, overlaps, load per hour, clock changes.

    It follows the rules of the scheduler. It needs no daemon and runs nothing.
    """
    from supervisor.cli.tables import show_json
    from supervisor.config.files.lookup import require_config
    from supervisor.config.load import load
    from supervisor.host.zones import zone_named
    from supervisor.tools.simulation.report import MAX_TIMES, TooManyInstants, simulate

    with config_errors():
        config = load(require_config(settings.config, os.environ))
    zone = zone_named(config.daemon.timezone)
    start = _midnight(first, zone)
    end = datetime.combine(start.date() + timedelta(days=days), time(), zone)
    history = _history(config, settings.data)
    chosen = _chosen(durations, config.tasks)
    durations_ms = {name: chosen.get(name, chosen.get("", history.durations_ms.get(name, 0))) for name in config.tasks}
    try:
        start_ms, end_ms = (round(instant.timestamp() * 1000) for instant in (start, end))
        report = simulate(config, start_ms, end_ms, durations_ms, history.marks_ms)
    except TooManyInstants as err:
        message = f"the schedules have more than {MAX_TIMES:,} times in {days} days; use fewer --days"
        raise Failure(message, exit_codes.USAGE) from err
    outcome = report.to_dict()
    if as_json:
        show_json(outcome)
    else:
        _show(outcome)


def _midnight(first: str | None, zone: ZoneInfo) -> datetime:
    """Return the beginning of the given day, or else of today.

    Raises:
        Failure: the value is not a date, or schedules cannot be simulated on that date.
    """
    if first is None:
        return datetime.combine(datetime.now(zone).date(), time(), zone)
    try:
        date = datetime.strptime(first, "%Y-%m-%d").date()  # noqa: DTZ007 - only its date is taken
    except ValueError as err:
        raise Failure(f"--from must be a date such as 2026-10-01, not {first}", exit_codes.USAGE) from err
    if not 1971 <= date.year <= 2200:
        raise Failure(f"--from must be a date from 1971 to 2200, not {first}", exit_codes.USAGE)
    return datetime.combine(date, time(), zone)


def _chosen(durations: Iterable[str], tasks: Iterable[str]) -> dict[str, int]:
    """Return durations of runs in ms by task; the empty name stands for all other tasks.

    Raises:
        Failure: a value is not a duration, or a task does not exist.
    """
    from supervisor.config.value_types.durations import parse_duration

    durations_ms: dict[str, int] = {}
    for text in durations:
        name, equals, span = text.rpartition("=")
        if equals and name not in tasks:
            raise Failure(f'--duration {text}: no task named "{name}"', exit_codes.USAGE)
        try:
            durations_ms[name] = parse_duration(span)
        except ValueError as err:
            raise Failure(f'--duration {text}: {span} is not a duration such as "90s"', exit_codes.USAGE) from err
    return durations_ms


def _history(config: "Config", data: str | None) -> "PastRuns":
    from supervisor.config.files.lookup import data_dir
    from supervisor.tools.simulation.past_runs import HistoryUnreadable, PastRuns, read_history

    try:
        return read_history(config, data_dir(data, config.daemon.data_dir, os.environ))
    except HistoryUnreadable as err:
        say(f"ignoring the history: {err}")
        return PastRuns()


def _show(result: dict[str, Any]) -> None:
    click.echo(f"{result['from']} to {result['to']}, {result['timezone']}")
    _show_tasks(result["tasks"])
    _show_collisions(result["collisions"])
    _show_load(result["hours"])
    _show_clock_changes(result["clockChanges"])
    _show_closed_days(result["closedDays"])


def _title(text: str, total: int = 0) -> None:
    """Print a heading, with the number of lines if not all are shown."""
    more = f" ({_SHOWN} of {total})" if total > _SHOWN else ""
    click.echo(f"\n{text}{more}")


def _show_tasks(tasks: list[dict[str, Any]]) -> None:
    from supervisor.cli.tables import show_table
    from supervisor.config.value_types.durations import format_duration

    _title("Tasks")
    show_table(
        (
            "TASK",
            "TIMES",
            "TAKES",
            "QUEUED",
            "SKIPPED",
            "QUEUE FULL",
            "TERMINATES",
            "DST SKIPPED",
            "CLOSED",
            "LONGEST WAIT",
            "WAITS FOR",
        ),
        [
            [
                task["name"],
                str(task["times"]),
                format_duration(task["durationMs"]) if task["durationMs"] else "-",
                *(str(task[outcome] or "-") for outcome in _OUTCOMES),
                format_duration(task["longestWaitMs"]) if task["longestWaitMs"] else "-",
                ", ".join(map(_obstacle, task["waitingFor"])) or "-",
            ]
            for task in tasks
        ],
        prose={"WAITS FOR"},
        gives_way=("TAKES", "DST SKIPPED", "CLOSED", "TERMINATES", "QUEUED", "LONGEST WAIT", "QUEUE FULL", "SKIPPED"),
    )


def _show_collisions(collisions: list[dict[str, Any]]) -> None:
    from supervisor.cli.tables import show_table, when

    _title("Tasks that start at the same time", len(collisions))
    show_table(
        ("TASKS", "OFTEN", "FIRST", "WHICH"),
        [
            [
                str(len(collision["tasks"])),
                str(collision["count"]),
                when(collision["first"]),
                ", ".join(collision["tasks"]),
            ]
            for collision in collisions[:_SHOWN]
        ],
        prose={"WHICH"},
    )


def _show_load(hours: list[dict[str, Any]]) -> None:
    from supervisor.cli.tables import show_table

    _title("Load per hour of the day")
    show_table(
        ("HOUR", "STARTS", "MOST STARTS", "RUNNING"),
        [
            [f"{hour['hour']:02}", f"{hour['starts']:.1f}", str(hour["mostStarts"]), f"{hour['running']:.2f}"]
            for hour in hours
        ],
    )


def _show_clock_changes(changes: list[dict[str, Any]]) -> None:
    from supervisor.cli.tables import show_table

    _title("Clock changes", len(changes))
    show_table(
        ("DATE", "TASK", "TIME ZONE", "AT GAP END", "REPEATED", "DST SKIPPED"),
        [
            [
                change["date"],
                change["task"],
                change["timezone"],
                *(str(change[name] or "-") for name in ("movedToGapEnd", "repeated", "dst_skipped")),
            ]
            for change in changes[:_SHOWN]
        ],
        gives_way=("TIME ZONE", "REPEATED"),
    )


def _show_closed_days(days: list[dict[str, Any]]) -> None:
    from supervisor.cli.tables import show_table

    if days:
        _title("Closed days", len(days))
        rows = [[day["date"], day["task"], day["calendar"], str(day["times"])] for day in days[:_SHOWN]]
        show_table(("DATE", "TASK", "CALENDAR", "TIMES"), rows, prose={"CALENDAR"})


def _obstacle(reason: dict[str, Any]) -> str:
    """Return the key whose limit made runs of a task wait, and how many runs waited."""
    names = {"slot": f"slot {reason.get('name')}", "task": "max_concurrent", "daemon": "max_running"}
    return f"{names[reason['kind']]} ({reason['count']})"
