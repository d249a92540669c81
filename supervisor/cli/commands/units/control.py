"""``ringward start``, ``stop``, ``restart``, ``pause`` and ``resume``: one request for any number of units."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.name_completion import Names, all_names, service_names, task_names
from supervisor.cli.option_groups import grouped
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing, confirm_all
from supervisor.ipc.unit_selection import is_glob

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import Record
    from supervisor.cli.units.waiting import AwaitedState, FailedWait


class _Verb(NamedTuple):
    """The properties in which one of these commands differs from the others.

    Attributes:
        noun: The kind of its arguments, for messages.
        complete: Completes the arguments in a shell.
        metavar: The name of the argument in the help text.
        flags: The query parameters of the API that are options, with their help texts.
        waits: What to say about a unit if a wait fails; None: the command does not wait.
    """

    example: str
    help: str
    noun: str
    complete: Names
    metavar: str = "[SERVICE]..."
    flags: dict[str, str] = {}  # noqa: RUF012 - never changed
    waits: str | None = None


_VERBS = {
    "start": _Verb(
        "ringward start web 'worker-*'",
        """Start services, and wait until they run.

        A service has started when its readiness check passes; without one, when its processes have lived for a second.
        Running instances continue. Stopping instances start again afterwards, and fatal ones are tried again.

        Exits with 1 if a service did not start, after the reason and the last lines of its log.
        """,
        "services",
        service_names,
        waits="did not start",
    ),
    "stop": _Verb(
        "ringward stop --group shop",
        """Stop runs, all active and waiting runs of tasks, or services, and wait until they have ended.

        Prints the ids of the runs. A stopped service stays stopped until someone starts it or the daemon restarts.
        If you stop a single run of a service, its instance starts again after restart_delay. A service stops after its
        dependents.
        """,
        "runs, tasks or services",
        all_names,
        "[RUN|TASK|SERVICE]...",
        {"force": "Kill at once, without a graceful stop."},
        waits="did not stop",
    ),
    "restart": _Verb(
        "ringward restart --rolling web",
        """Restart services, and wait until they run; stopped services start.

        Exits with 1 if a service did not start again, after the reason and the last lines of its log.
        """,
        "services",
        service_names,
        flags={"rolling": "Restart instances one at a time, each after the previous one is ready."},
        waits="did not restart",
    ),
    "pause": _Verb(
        "ringward pause backup",
        """Pause the schedules of tasks until they are resumed, also across restarts of the daemon.

        Active runs continue, and the tasks can still be run by hand.
        """,
        "tasks",
        task_names,
        "[TASK]...",
    ),
    "resume": _Verb(
        "ringward resume backup",
        """Resume the schedules of tasks from now on.

        Scheduled times during the pause are skipped.
        """,
        "tasks",
        task_names,
        "[TASK]...",
    ),
}


@dataclass(frozen=True)
class _WaitOptions:
    """The options of commands that can wait for the result."""

    timeout: str | None = None
    no_wait: bool = False


def _command(name: str, verb: _Verb) -> click.Command:
    def call(
        settings: Settings,
        units: UnitChoice,
        as_json: bool,
        waiting: _WaitOptions = _WaitOptions(),
        yes: bool = False,
        **flags: bool,
    ) -> int:
        from supervisor.cli.units.waiting import FailedWait, seconds, wait_for

        choice = choice_of(units, needed=verb.noun)
        timeout_s = seconds(waiting.timeout)
        if waiting.no_wait and timeout_s is not None:
            raise click.UsageError("--timeout cannot be combined with --no-wait")
        api = settings.api()
        if name == "stop" and units.everything and not yes:
            confirm_all(lambda: [unit["name"] for unit in api.get("/api/tasks")["items"]], "Stop")
        query = {flag: "true" for flag, given in flags.items() if given}
        runs = _named_runs(api, choice.names) if name == "stop" else {}
        choice = replace(choice, names=tuple(unit_name for unit_name in choice.names if unit_name not in runs))
        changed = _act(api, name, choice, query, runs) if choice != UnitChoice() else []
        stopped = [run for of_unit in runs.values() for run in of_unit]
        for run in stopped:
            api.send(f"/api/runs/{run['id']}/stop", query or None)
        ids = [*(run["id"] for run in stopped), *(run_id for unit in changed for run_id in unit.get("runIds") or ())]
        if name == "stop" and not as_json:
            _show_runs(ids, units.names)
        missed = [
            FailedWait(unit["name"], "a rolling restart is in progress") for unit in changed if unit["result"] == "busy"
        ]
        if verb.waits is not None and not waiting.no_wait:
            awaited = _awaited(api, name, changed, stopped, rolling="rolling" in query)
            missed += wait_for(api, awaited, timeout_s)
        if as_json:
            _show_json(api, name, choice, changed, ids, missed)
        for failed_wait in missed:
            failed_wait.print_to_stderr(verb.waits or "is unchanged")
        return exit_codes.REFUSED if missed else exit_codes.OK

    function: Callable[..., object] = pass_settings(call)
    function = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)
    if verb.waits is not None:
        function = grouped("waiting", _WaitOptions)(function)
        function = click.option("--timeout", metavar="DURATION", help="Maximum wait, such as 30s.")(function)
        function = click.option("--no-wait", is_flag=True, help="Do not wait for the result.")(function)
    if name == "stop":
        function = click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")(function)
    for flag, text in verb.flags.items():
        function = click.option(f"--{flag}", is_flag=True, help=text)(function)
    function = choosing(verb.complete, verb.metavar)(function)
    return click.command(name, help=verb.help, epilog=f"Example: {verb.example}")(client_options(function))


commands = {name: _command(name, verb) for name, verb in _VERBS.items()}


def _named_runs(api: "Api", names: Iterable[str]) -> "dict[str, list[Record]]":
    """Return the runs whose ids or parts of ids are among the names, by name."""
    from supervisor.cli.lookups import find_run

    by_name = {name: find_run(api, name) for name in dict.fromkeys(names)}
    return {name: [run] for name, run in by_name.items() if run is not None}


def _act(
    api: "Api", name: str, choice: UnitChoice, query: dict[str, str], runs: "dict[str, list[Record]]"
) -> "list[Record]":
    """Send the request; return the units of the answer.

    For a stop, names of units that are no longer configured but have runs are moved from the choice to `runs`.

    Raises:
        Failure: a name matches nothing or a unit of the wrong kind, so nothing was done.
    """
    from supervisor.cli.client import ErrorResponse, NotFound

    try:
        units: list[Record] = api.post(f"/api/units/{name}", query or None, choice.body())["units"]
    except ErrorResponse as err:
        removed = _removed(api, choice.names) if name == "stop" and isinstance(err, NotFound) else {}
        if removed:
            runs |= removed
            remaining = replace(
                choice, names=tuple(unit_name for unit_name in choice.names if unit_name not in removed)
            )
            return _act(api, name, remaining, query, runs) if remaining != UnitChoice() else []
        if isinstance(err, NotFound) and not err.errors:
            raise Failure("this command needs a newer daemon; upgrade it: ringward upgrade") from err
        if err.code == exit_codes.REFUSED and err.errors:
            raise Failure("\n".join(dict.fromkeys(str(error["message"]) for error in err.errors))) from err
        raise
    return units


def _removed(api: "Api", names: Iterable[str]) -> "dict[str, list[Record]]":
    """Return the unfinished runs of units that are no longer configured, by name."""
    from supervisor.cli.lookups import UnknownName, find_task, runs_of

    removed: dict[str, list[Record]] = {}
    for name in names:
        if not is_glob(name) and find_task(api, name) is None:
            with suppress(UnknownName):  # the unit was never configured
                removed[name] = [*runs_of(api, name, status="pending,running")]
    return removed


def _awaited(
    api: "Api", name: str, units: "list[Record]", runs: "list[Record]", *, rolling: bool
) -> "list[AwaitedState]":
    """Return the units and states to wait for, each with its time limit."""
    from supervisor.cli.units.waiting import AwaitedState, records, start_limits, stop_limit

    names = [str(unit["name"]) for unit in units if unit["result"] != "busy"]
    leaving = {str(unit["name"]): frozenset(unit.get("runIds") or ()) for unit in units}
    if name != "stop":
        limits = start_limits(api, records(api, names), rolling=rolling)
        return [
            AwaitedState(unit_name, "ready", leaving[unit_name], at_once=True, limit_s=limits.get(unit_name))
            for unit_name in names
        ]
    tasks = {str(run["taskName"]) for run in runs}
    limit_s = stop_limit(records(api, [*tasks, *names]))
    of_runs = {task: frozenset(run["id"] for run in runs if run["taskName"] == task) for task in tasks}
    return [
        AwaitedState(unit_name, "ended", ids, limit_s=limit_s)
        for unit_name, ids in (*leaving.items(), *of_runs.items())
        if ids
    ]


def _show_runs(ids: list[str], names: tuple[str, ...]) -> None:
    """Print the ids of the runs that a stop ends."""
    for run_id in ids:
        click.echo(run_id)
    if not ids:
        subject = names[0] if len(names) == 1 and not is_glob(names[0]) else "the selection"
        say(f"{subject} has no active runs")


def _show_json(
    api: "Api", name: str, choice: UnitChoice, units: "list[Record]", ids: list[str], missed: "list[FailedWait]"
) -> None:
    """Print the ids of stopped runs, the record of the one named unit, or the result for each unit."""
    from supervisor.cli.lookups import find_task
    from supervisor.cli.tables import show_json

    reasons = {wait.name: wait.reason for wait in missed}
    if name == "stop":
        show_json({"stopped": ids, "missed": reasons} if reasons else {"stopped": ids})
    elif choice.exact and len(choice.names) == 1:
        show_json(find_task(api, choice.names[0]))
    else:
        show_json(
            {
                "units": [
                    {**unit, "missed": reasons[unit["name"]]} if unit["name"] in reasons else unit for unit in units
                ]
            }
        )
