"""``ringward run``: run a task, print its output, exit with its result."""

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.client import ErrorResponse
from supervisor.cli.failure import Failure, say
from supervisor.cli.name_completion import task_names
from supervisor.cli.option_groups import grouped
from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.units.unit_choice import UnitChoice, choice_of, choosing, confirm_all
from supervisor.ipc.unit_selection import Kinds

if TYPE_CHECKING:
    from supervisor.cli.client import Api

NEVER_RAN = {
    "start_failed": "could not start its command",
    "skipped": "skipped: another run was active, or its ending has another cause",
    "queue_full": "the queue of the task is full",
    "dst_skipped": "its local time did not exist",
    "missed": "its time had passed",
}
"""Texts about why a run never started, by end reason."""


_RUNNABLE = Kinds(
    lambda unit: unit.can_be_run,
    "task",
    lambda unit: (
        f"{unit.name} has api_trigger = false: only its schedule may run it"
        if unit.kind == "task"
        else f"{unit.name} is a service; use ringward start {unit.name}"
    ),
)


@dataclass(frozen=True)
class _RunOutputOptions:
    """The options for the output of the command."""

    detach: bool
    timestamps: bool
    as_json: bool


@dataclass(frozen=True)
class _RequestOptions:
    """The options for the request."""

    given: tuple[str, ...]
    at: str | None
    force: bool

    def body(self) -> dict[str, object]:
        """Return the body of the request."""
        from supervisor.cli.units.option_times import option_time

        body: dict[str, object] = {"params": params} if (params := _params(self.given)) else {}
        if self.force:
            body["force"] = True
        if self.at is not None:
            body["run_at"] = option_time("--at", self.at)
            say(f"to start at {body['run_at']}")
        return body


@click.command("run", epilog="Example: ringward run export -p DAY=2026-11-21 -p format=csv")
@client_options
@choosing(task_names, "[TASK]...")
@click.option(
    "-p",
    "--param",
    "given",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set a parameter; may be repeated. NAME alone: take the value of that environment variable.",
)
@click.option("--at", metavar="TIME", help='Start then, such as at "22:00" or "Mon 08:00"; print the id, do not wait.')
@click.option("--force", is_flag=True, help="Do not ask only_if, the condition of the task.")
@click.option("-d", "--detach", is_flag=True, help="Print the id of the run and do not wait.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="With --detach or --at: print the run's record as JSON.")
@grouped("output", _RunOutputOptions)
@grouped("request", _RequestOptions)
@pass_settings
def command(
    settings: Settings,
    units: UnitChoice,
    request: _RequestOptions,
    output: _RunOutputOptions,
    yes: bool,
) -> int:
    """Run a task, now or later, and show its output, or run several tasks at the same time.

    Exits with the exit code of the run, or with 125 if there is no such task or the run never started. With several
    tasks, lines begin with the name of the task, and the command exits with 1 unless all runs succeed. Ctrl-C stops
    following; the runs continue.
    """
    body = request.body()
    if request.at is not None:
        output = replace(output, detach=True)
    if output.as_json and not output.detach:
        raise click.UsageError("--json needs --detach or --at")
    try:
        choice = choice_of(units, needed="tasks")
    except Failure as err:
        raise Failure(err.message, exit_codes.NEVER_RAN) from err
    api = settings.api()
    if choice.exact and len(choice.names) == 1:
        return _run_one(api, choice.names[0], body, output)
    if request.given:
        raise click.UsageError("-p needs a single task")
    try:
        chosen = choice.records(api, _RUNNABLE)
    except ErrorResponse:
        raise
    except Failure as err:
        if err.code != exit_codes.REFUSED:
            raise
        raise Failure(err.message, exit_codes.NEVER_RAN) from err
    tasks = [str(task["name"]) for task in chosen]
    if units.everything and not yes:
        confirm_all(lambda: tasks, "Run")
    return _run_many(api, tasks, {str(task["name"]) for task in chosen if "steps" in task}, body, output)


def _run_one(api: "Api", task: str, body: dict[str, object], output: _RunOutputOptions) -> int:
    run = _trigger(api, task, body)
    if output.detach:
        return _detached(api, run, output.as_json)
    try:
        ended = _show(api, task, str(run["id"]), output.timestamps)
    except KeyboardInterrupt:
        click.echo(
            f"\nringward: run {run['id']} continues\n"
            f"  follow it: ringward logs -f {run['id']}\n"
            f"  stop it:   ringward stop {run['id']}",
            err=True,
        )
        return exit_codes.INTERRUPTED
    return _result(api, ended)


def _run_many(api: "Api", tasks: list[str], flows: set[str], body: dict[str, object], output: _RunOutputOptions) -> int:
    """Run tasks, some of which are flows, at the same time; return 1 unless all of them succeed."""
    from supervisor.cli.tables import show_json
    from supervisor.cli.units.unit_log_printer import follow_all

    runs: list[dict[str, object]] = []
    failed = False
    for task in tasks:
        try:
            runs.append(_trigger(api, task, body))
        except Failure as err:
            failed = True
            say(f"{task}: {err.message}")
    if output.detach:
        if output.as_json:
            show_json(runs)
        else:
            click.echo("".join(f"{run['id']}\n" for run in runs), nl=False)
        ended = [api.get(f"/api/runs/{run['id']}") for run in runs if run["status"] == "ended"]
    else:
        try:
            ended = follow_all(
                api, {str(run["id"]): str(run["task_name"]) for run in runs}, timestamps=output.timestamps, flows=flows
            )
        except KeyboardInterrupt:
            names = " ".join(tasks)
            click.echo(f"\nringward: the runs continue; stop them: ringward stop {names}", err=True)
            return exit_codes.INTERRUPTED
    for run in ended:
        task = run["taskName"]
        try:
            code = _result(api, run, f"{task}: ")
        except Failure as err:
            code = exit_codes.NEVER_RAN
            say(f"{task}: {err.message}")
        else:
            if run["exitCode"] and run.get("endReason") == "failed":
                say(f"{task}: run {run['id']} exited with code {code}")
        failed = failed or code != exit_codes.OK
    return exit_codes.REFUSED if failed else exit_codes.OK


def _params(given: tuple[str, ...]) -> dict[str, str]:
    """Return the values by parameter name.

    Raises:
        click.UsageError: an argument is not NAME=VALUE, or a name is repeated.
    """
    params: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name:
            raise click.UsageError("-p needs NAME=VALUE")
        if name in params:
            raise click.UsageError(f"{name} has two values")
        if not equals:
            if name not in os.environ:
                raise click.UsageError(f"{name} has no value: there is no such environment variable")
            value = os.environ[name]
        try:
            text.encode()
            value.encode()
        except UnicodeEncodeError as err:  # bytes that are not UTF-8 arrive as lone surrogates
            raise click.UsageError(f"the value of {name!a} is not UTF-8") from err
        params[name] = value
    return params


def _trigger(api: "Api", task: str, body: dict[str, object]) -> dict[str, Any]:
    from http import HTTPStatus

    from supervisor.cli.client import NotFound, segment
    from supervisor.cli.lookups import unknown

    try:
        run: dict[str, object] = api.post(f"/api/tasks/{segment(task)}/run", body=body or None)
    except NotFound as err:
        raise unknown(api, task, noun="task", kinds=("task",), code=exit_codes.NEVER_RAN) from err
    except ErrorResponse as err:
        if err.status >= HTTPStatus.INTERNAL_SERVER_ERROR:  # the run may have been triggered nevertheless
            raise Failure(err.message, exit_codes.UNREACHABLE) from err
        if err.code in (exit_codes.REFUSED, exit_codes.USAGE):
            raise Failure(err.message, exit_codes.NEVER_RAN) from err
        raise
    return run


def _detached(api: "Api", run: dict[str, object], as_json: bool) -> int:
    from supervisor.cli.tables import show_json

    if as_json:
        show_json(run)
    else:
        click.echo(run["id"])
    if run["status"] != "ended":
        return exit_codes.OK
    return _result(api, api.get(f"/api/runs/{run['id']}"))


def _show(api: "Api", name: str, run_id: str, timestamps: bool) -> dict[str, object]:
    """Print the output of a run, or of the steps of a flow, until it ends; return its record."""
    from supervisor.cli.follow import ReconnectDelays, RunFollower
    from supervisor.cli.lookups import find_task
    from supervisor.cli.terminal import LogPrinter, may_colour
    from supervisor.cli.units.unit_log_printer import UnitFollower, UnitPrinter, labels_of_steps

    patience = ReconnectDelays()
    printer = LogPrinter(sys.stdout.buffer, sys.stderr.buffer, timestamps=timestamps)
    task = find_task(api, name)
    if task is None or "steps" not in task:
        RunFollower(api, run_id, printer, patience).follow()
    else:
        steps = UnitPrinter(printer, labels_of_steps(task), coloured=may_colour(sys.stdout), by_step=True)
        UnitFollower(api, "/api/logs/stream", {"flow_run_id": run_id, "from": 0}, steps, patience).follow()
    ended: dict[str, object] = patience.insist(lambda: api.get(f"/api/runs/{run_id}"))
    return ended


def _cause(ending: dict[str, Any]) -> str:
    """Say why a run failed although it exited with 0."""
    if ending.get("endCause") == "too_short":
        return "it took less than min_duration"
    line = ending.get("failureLine")
    return "exit code 0 is not in exit_codes" if line is None else f"line {line} of its log matches failure_output"


def _result(api: "Api", run: dict[str, Any], prefix: str = "") -> int:
    """Return the exit code for the outcome of a run; print details that the code does not tell, after `prefix`."""
    reason = str(run.get("endReason", ""))
    if reason in NEVER_RAN:
        text = NEVER_RAN[reason]
        if reason == "skipped":
            ending = api.get(f"/api/runs/{run['id']}/ending")
            by = f"skipped, because its condition was not met ({ending.get('requestedBy')})"
            text = by if ending.get("endCause") == "condition" else "skipped, because the task is already running"
        raise Failure(f"run {run['id']} never started: {text}", exit_codes.NEVER_RAN)
    if not run.get("startedAt"):
        raise Failure(f"run {run['id']} never started: {reason}", exit_codes.NEVER_RAN)
    code = int(run["exitCode"])
    if code < 0:
        raise Failure(f"the outcome of run {run['id']} is unknown: {reason}", exit_codes.NEVER_RAN)
    if reason == "succeeded":
        return code
    if reason != "failed":
        say(f"{prefix}run {run['id']} ended: {reason}")
    elif code == 0:
        cause = _cause(api.get(f"/api/runs/{run['id']}/ending"))
        say(f"{prefix}run {run['id']} failed: {cause}")
    return code or exit_codes.REFUSED  # "ringward run a && ringward run b" must not continue after a failure
