"""``ringward flow``: the steps of a run of a flow."""

from typing import TYPE_CHECKING

import click

from supervisor.cli.name_completion import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from supervisor.cli.daemon_answers import AnswerObject

_COLUMNS = ("STEP", "STATE", "RUN", "TOOK", "DETAIL")


@click.command("flow", epilog="Example: ringward flow nightly")
@client_options
@click.argument("what", metavar="FLOW|RUN", shell_complete=task_names)
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
@pass_settings
def command(settings: Settings, what: str, as_json: bool) -> None:
    """Show the steps of a run of a flow: what was decided about each, and their runs.

    A flow stands for its newest run. Each step is indented below the steps that it waits for.
    """
    from supervisor.cli.lookups import run_to_show
    from supervisor.cli.tables import show_json, show_table

    api = settings.api()
    answer = api.get(f"/api/runs/{run_to_show(api, what)['id']}/steps")
    if as_json:
        show_json(answer)
        return
    run = answer["run"]
    rows = [[str(run["taskName"]), _outcome(run), str(run["id"]), _took(run), ""]]
    rows += [row for step in answer["steps"] for row in _rows(step)]
    show_table(_COLUMNS, rows, prose={"DETAIL"}, gives_way=("DETAIL", "RUN"))


def _outcome(run: "AnswerObject") -> str:
    from supervisor.cli.tables import outcome

    return outcome(run) if run["status"] == "ended" else str(run["status"])


def _rows(step: "AnswerObject") -> list[list[str]]:
    """Return a row for the step, and one for each further attempt or item."""
    indent = "  " * (int(step["layer"]) + 1)
    runs = step["runs"]
    state = str(step["state"]).replace("_", " ")
    if len(runs) == 1 and "item" not in runs[0]:
        return [[f"{indent}{step['name']}", state, str(runs[0]["id"]), _took(runs[0]), _detail(step, runs[0])]]
    rows = [[f"{indent}{step['name']}", state, "", "", _detail(step, None)]]
    for run in runs:
        label = f"[{run['item']}]" if "item" in run else ""
        attempt = f"attempt {int(run['retryAttempt']) + 1}" if run["retryAttempt"] else ""
        text = " ".join(filter(None, (label, attempt))) or "attempt 1"
        rows.append([f"{indent}  {text}", _outcome(run), str(run["id"]), _took(run), _detail(None, run)])
    return rows


def _took(run: "AnswerObject") -> str:
    from supervisor.cli.tables import duration

    return duration(run.get("startedAt"), run.get("endedAt"))


def _detail(step: "AnswerObject | None", run: "AnswerObject | None") -> str:
    """Say why a step or run is in its state, and what the run wrote."""
    parts = []
    if step is not None:
        waits = ", ".join(map(str, step["after"]))
        parts.append(f"after {waits}" if step["state"] == "waiting" and waits else "")
        parts.append(str(step.get("cause", "")).replace("_", " "))
        parts.append("kept from an earlier attempt" if "keptFrom" in step else "")
    if run is not None:
        if step is not None and run["status"] == "ended" and run["endReason"] != step["state"]:
            parts.append(_outcome(run) + (", optional" if step.get("optional") else ""))
        parts.append(str(run.get("endCause", "")).replace("_", " "))
        parts.append(
            "waiting: " + ", ".join(str(wait["kind"]) for wait in run["waitingFor"]) if "waitingFor" in run else ""
        )
        parts += [f"{key}={value}" for key, value in (run.get("outputs") or {}).items()]
    return "; ".join(dict.fromkeys(filter(None, parts)))
