"""``ringward start``, ``stop``, ``restart``, ``enable``, ``pause``, ``resume``: one request for any number of units."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.name_completion import Names, all_names, service_names, task_names
from supervisor.cli.option_groups import grouped
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing, confirm_all, not_found
from supervisor.ipc.unit_selection import is_glob

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import AnswerObject
    from supervisor.cli.units.waiting import AwaitedState, FailedWait


class _Verb(NamedTuple):
    """The properties in which one of these commands differs from the others.

    Attributes:
        noun: The kind of its arguments, for messages.
        complete: Completes the arguments in a shell.
        metavar: The name of the argument in the help text.
        flags: The query parameters of the API that are options, with their help texts.
        fields: The fields of the body that are flags, with their help texts.
        noted: Whether it takes a note.
        timed: Whether it takes an end.
        daemon: Whether it can apply to the whole daemon, with its help text.
        waits: What to say about a unit if a wait fails; None: the command does not wait.
    """

    example: str
    help: str
    noun: str
    complete: Names
    metavar: str = "[SERVICE]..."
    flags: dict[str, str] = {}  # noqa: RUF012 - never changed
    fields: dict[str, str] = {}  # noqa: RUF012 - never changed
    noted: bool = False
    timed: bool = False
    daemon: str | None = None
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
        fields={"enable": "Also start disabled services, and enable them."},
        waits="did not start",
    ),
    "stop": _Verb(
        "ringward stop --group shop",
        """Stop runs, all active and waiting runs of tasks, or services, and wait until they have ended.

        Prints the ids of the runs. A stopped service stays stopped until someone starts it or the daemon restarts; with
        --disable, until someone enables it.
        If you stop a single run of a service, its instance starts again after restart_delay. A service stops after its
        dependents.
        """,
        "runs, tasks or services",
        all_names,
        "[RUN|TASK|SERVICE]...",
        {"force": "Kill at once, without a graceful stop."},
        {"disable": "Keep services stopped when the daemon or the host restarts, until they are enabled."},
        noted=True,
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
    "enable": _Verb(
        "ringward enable web",
        """Let services be started again after stop --disable.

        They stay stopped until someone starts them or the daemon restarts. `ringward start --enable` also starts them.
        """,
        "services",
        service_names,
    ),
    "pause": _Verb(
        "ringward pause backup --until 'Mon 08:00' --note 'the disk is replaced'",
        """Pause the schedules of tasks until a time, or until they are resumed, also across restarts of the daemon.

        Active runs continue, and the tasks can still be run by hand.
        """,
        "tasks",
        task_names,
        "[TASK]...",
        noted=True,
        timed=True,
        daemon="Pause all schedules with one switch, beside the pauses of single tasks.",
    ),
    "resume": _Verb(
        "ringward resume backup",
        """Resume the schedules of tasks from now on.

        Scheduled times during the pause are skipped.
        """,
        "tasks",
        task_names,
        "[TASK]...",
        daemon="End the pause of all schedules; single tasks stay paused.",
    ),
}


_OLD_DAEMON = "this command needs a newer daemon; upgrade it: ringward upgrade"


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
        **options: Any,
    ) -> int:
        from supervisor.cli.units.waiting import FailedWait, seconds, wait_for

        fields = _fields(verb, options)
        if options.get("daemon"):
            return _of_daemon(settings, name, units, fields, as_json=as_json)
        choice = choice_of(units, needed=verb.noun)
        timeout_s = seconds(waiting.timeout)
        if waiting.no_wait and timeout_s is not None:
            raise click.UsageError("--timeout cannot be combined with --no-wait")
        api = settings.api()
        if name == "stop" and units.everything and not yes:
            confirm_all(lambda: [unit["name"] for unit in api.get("/api/tasks")["items"]], "Stop")
        query = {flag: "true" for flag in verb.flags if options[flag]}
        runs = _named_runs(api, choice.names) if name == "stop" and not fields else {}
        choice = replace(choice, names=tuple(unit_name for unit_name in choice.names if unit_name not in runs))
        changed = _act(api, name, choice, query, fields, runs) if choice != UnitChoice() else []
        stopped = [run for of_unit in runs.values() for run in of_unit]
        for run in stopped:
            api.send(f"/api/runs/{run['id']}/stop", query or None)
        ids = [*(run["id"] for run in stopped), *(run_id for unit in changed for run_id in unit.get("runIds") or ())]
        if name == "stop" and not as_json:
            _show_runs(ids, units.names)
        missed = [
            FailedWait(unit["name"], "a rolling restart is in progress") for unit in changed if unit["result"] == "busy"
        ]
        missed += _disabled(api, choice, changed)
        if verb.waits is not None and not waiting.no_wait:
            awaited = _awaited(api, name, changed, stopped, rolling="rolling" in query)
            missed += wait_for(api, awaited, timeout_s)
        if as_json:
            _show_json(api, name, choice, changed, ids, missed)
        for failed_wait in missed:
            failed_wait.print_to_stderr(verb.waits or "is unchanged")
        return exit_codes.REFUSED if missed else exit_codes.OK

    function: Callable[..., object] = pass_settings(call)
    if verb.waits is not None:
        function = grouped("waiting", _WaitOptions)(function)
    for option in _options(name, verb):
        function = option(function)
    function = choosing(verb.complete, verb.metavar)(function)
    return click.command(name, help=verb.help, epilog=f"Example: {verb.example}")(client_options(function))


def _options(name: str, verb: _Verb) -> Iterator[Callable[..., Any]]:
    """Yield the options of a command, the last one in the help first."""
    yield click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    if verb.waits is not None:
        yield click.option("--timeout", metavar="DURATION", help="Maximum wait, such as 30s.")
        yield click.option("--no-wait", is_flag=True, help="Do not wait for the result.")
    if name == "stop":
        yield click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")
    if verb.daemon is not None:
        yield click.option("--daemon", is_flag=True, help=verb.daemon)
    if verb.timed:
        yield click.option("--for", "span", metavar="DURATION", help="End the pause after this time, such as 2h.")
        yield click.option("--until", metavar="TIME", help="End the pause then: 22:00, 'Mon 08:00', 2026-11-20T22:00.")
    if verb.noted:
        yield click.option("--note", metavar="TEXT", help="A note for others.")
    for flag, text in (verb.flags | verb.fields).items():
        yield click.option(f"--{flag}", is_flag=True, help=text)


commands = {name: _command(name, verb) for name, verb in _VERBS.items()}


def _named_runs(api: "Api", names: Iterable[str]) -> "dict[str, list[AnswerObject]]":
    """Return the runs whose ids or parts of ids are among the names, by name."""
    from supervisor.cli.lookups import find_run

    by_name = {name: find_run(api, name) for name in dict.fromkeys(names)}
    return {name: [run] for name, run in by_name.items() if run is not None}


def _act(
    api: "Api",
    name: str,
    choice: UnitChoice,
    query: dict[str, str],
    fields: dict[str, object],
    runs: "dict[str, list[AnswerObject]]",
) -> "list[AnswerObject]":
    """Send the request; return the units of the answer.

    For a stop, names of units that are no longer configured but have runs are moved from the choice to `runs`.

    Raises:
        Failure: a name matches nothing or a unit of the wrong kind, so nothing was done.
    """
    from supervisor.cli.client import ErrorResponse, NotFound

    try:
        units: list[AnswerObject] = api.post(f"/api/units/{name}", query or None, choice.body() | fields)["units"]
    except ErrorResponse as err:
        removed = _removed(api, choice.names) if name == "stop" and not fields and isinstance(err, NotFound) else {}
        if removed:
            runs |= removed
            remaining = replace(
                choice, names=tuple(unit_name for unit_name in choice.names if unit_name not in removed)
            )
            return _act(api, name, remaining, query, fields, runs) if remaining != UnitChoice() else []
        if isinstance(err, NotFound) and not err.errors:
            raise Failure(_OLD_DAEMON) from err
        if err.code == exit_codes.REFUSED and err.errors:
            raise not_found(choice, (str(error["message"]) for error in err.errors)) from err
        raise
    return units


def _fields(verb: _Verb, options: dict[str, Any]) -> dict[str, object]:
    """Return the fields of the body that the options ask for, without those of the choice.

    Raises:
        click.UsageError: a note without its subject.
    """
    from supervisor.cli.units.option_times import option_end

    fields: dict[str, object] = {flag: True for flag in verb.fields if options[flag]}
    if verb.timed and (until := option_end(options["until"], options["span"])) is not None:
        fields["until"] = until
    if verb.noted and options["note"] is not None:
        if verb.fields and not fields:
            raise click.UsageError("--note needs --disable")
        fields["note"] = options["note"]
    return fields


def _of_daemon(settings: Settings, name: str, units: UnitChoice, fields: dict[str, object], *, as_json: bool) -> int:
    """Pause or resume all schedules together.

    Raises:
        click.UsageError: tasks were chosen, too.
    """
    from supervisor.cli.client import NotFound
    from supervisor.cli.tables import show_json

    if units != UnitChoice():
        raise click.UsageError("--daemon cannot be combined with a choice of tasks")
    api = settings.api()
    try:
        api.send(f"/api/daemon/{name}", body=fields or None)
    except NotFound as err:
        raise Failure(_OLD_DAEMON) from err
    if as_json:
        show_json({"pause": api.get("/api/daemon").get("pause")})
    return exit_codes.OK


def _disabled(api: "Api", choice: UnitChoice, units: "list[AnswerObject]") -> "list[FailedWait]":
    """Return the disabled services, which do not start, each with who disabled it.

    If they were not named, but matched, they are only mentioned.
    """
    from supervisor.cli.tables import attributed
    from supervisor.cli.units.waiting import FailedWait, records

    barred = [str(unit["name"]) for unit in units if unit["result"] == "disabled"]
    reasons = {
        name: f"it is disabled {attributed(unit)}; start it with: ringward start --enable {name}"
        for name, unit in records(api, barred).items()
    }
    if choice.exact:
        return [FailedWait(name, reason) for name, reason in reasons.items()]
    for name, reason in reasons.items():
        say(f"{name} is left out: {reason}")
    return []


def _removed(api: "Api", names: Iterable[str]) -> "dict[str, list[AnswerObject]]":
    """Return the unfinished runs of units that are no longer configured, by name."""
    from supervisor.cli.lookups import UnknownName, find_task, runs_of

    removed: dict[str, list[AnswerObject]] = {}
    for name in names:
        if not is_glob(name) and find_task(api, name) is None:
            with suppress(UnknownName):  # the unit was never configured
                removed[name] = [*runs_of(api, name, status="pending,running")]
    return removed


def _awaited(
    api: "Api", name: str, units: "list[AnswerObject]", runs: "list[AnswerObject]", *, rolling: bool
) -> "list[AwaitedState]":
    """Return the units and states to wait for, each with its time limit."""
    from supervisor.cli.units.waiting import AwaitedState, records, start_limits, stop_limit

    names = [str(unit["name"]) for unit in units if unit["result"] not in ("busy", "disabled")]
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
    api: "Api", name: str, choice: UnitChoice, units: "list[AnswerObject]", ids: list[str], missed: "list[FailedWait]"
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
