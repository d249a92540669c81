"""``ringward wait``: wait for a state."""

from typing import TYPE_CHECKING

import click

from supervisor.cli import exit_codes
from supervisor.cli.name_completion import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.units.waiting import AwaitedState

_STATES = {
    "running": "is not running",
    "ready": "is not ready",
    "stopped": "is not stopped",
    "idle": "is not idle",
    "ended": "has not ended",
}
"""The states, each with the message about a unit that did not reach it."""


@click.command("wait", epilog="Example: ringward wait web --for ready --timeout 30s")
@client_options
@choosing(all_names, "[RUN|TASK|SERVICE]...")
@click.option(
    "--for",
    "state",
    type=click.Choice(list(_STATES)),
    help="The state; default: ready for services, idle for tasks, ended for runs.",
)
@click.option("--timeout", metavar="DURATION", help="Maximum wait, such as 30s; default: none.")
@pass_settings
def command(
    settings: Settings,
    units: UnitChoice,
    state: str | None,
    timeout: str | None,
) -> int:
    """Wait until services, tasks or runs reach a state.

    running: a process of each instance has lived for a second, or a run of the task is running. ready: the readiness
    check of the service passes. stopped: no process is left. idle: no run is running or pending. ended: the runs that
    are unfinished now have ended.

    Exits with 1 on a timeout, or if a service gives up.
    """
    from supervisor.cli.units.waiting import seconds, wait_for

    choice = choice_of(units, needed="runs, tasks or services")
    timeout_s = seconds(timeout)
    api = settings.api()
    awaited = _awaited(api, choice, state)
    missed = wait_for(api, awaited, timeout_s)
    states = {unit.name: unit.state for unit in awaited}
    for failed_wait in missed:
        failed_wait.print_to_stderr(_STATES[states[failed_wait.name]])
    return exit_codes.REFUSED if missed else exit_codes.OK


def _awaited(api: "Api", choice: UnitChoice, state: str | None) -> "list[AwaitedState]":
    """Return the units or runs and the states to wait for.

    Raises:
        click.UsageError: a run cannot have the state.
        Failure: a name matches nothing, or a task was to become ready.
    """
    from dataclasses import replace

    from supervisor.cli.lookups import find_run, runs_of
    from supervisor.cli.units.waiting import AwaitedState
    from supervisor.ipc.unit_selection import Kinds

    runs = {name: run for name in choice.names if (run := find_run(api, name)) is not None}
    if runs and state not in (None, "ended"):
        raise click.UsageError(f"--for {state} is not a state of a run; a run can only be ended")
    awaited = [AwaitedState(run["taskName"], "ended", frozenset([run["id"]])) for run in runs.values()]
    choice = replace(choice, names=tuple(name for name in choice.names if name not in runs))
    if choice == UnitChoice():
        return awaited
    kinds = Kinds(lambda _unit: True, "task or service")
    if state == "ready":
        message = "{0} is a task and cannot be ready; use --for running, idle or ended"
        kinds = Kinds(lambda unit: unit.kind == "service", "service", lambda unit: message.format(unit.name))
    for unit in choice.records(api, kinds):
        name, its_state = unit["name"], state or ("ready" if unit["kind"] == "service" else "idle")
        leaving = [run["id"] for run in runs_of(api, name, status="pending,running")] if its_state == "ended" else []
        awaited.append(AwaitedState(name, its_state, frozenset(leaving)))
    return awaited
