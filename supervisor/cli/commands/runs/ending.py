"""``ringward ending``: why and how a run ended."""

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.failure import Failure
from supervisor.cli.name_completion import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from supervisor.cli.client import Api

_COLUMNS = ("FIELD", "VALUE")
_KEYS = ("KEY", "VALUE")


@click.command("ending", epilog="Example: ringward ending backup")
@client_options
@click.argument("what", metavar="TASK|RUN", shell_complete=all_names)
@click.option("--definition", is_flag=True, help="Also show the definition with which the run started.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
@pass_settings
def command(settings: Settings, what: str, definition: bool, as_json: bool) -> None:
    """Show why and how a run ended, and the last lines of its log.

    A task stands for its newest ended run.
    """
    from supervisor.cli.tables import show_json, show_table
    from supervisor.cli.terminal import LogPrinter

    api = settings.api()
    run_id = _find(api, what)
    ending = api.get(f"/api/runs/{run_id}/ending")
    rows = _rows(ending)
    recorded = api.get(f"/api/runs/{run_id}/definition")["definition"] if definition else None
    if as_json:
        show_json(ending if recorded is None else {**ending, "definition": recorded})
        return
    show_table(_COLUMNS, [["run", run_id], *rows], prose={"VALUE"})
    if recorded is not None:
        sys.stdout.write("\n")
        show_table(_KEYS, [[_key(key), _text(value)] for key, value in recorded.items()], prose={"VALUE"})
    if ending["lastLines"]:
        sys.stdout.write("\n")
        sys.stdout.flush()
        printer = LogPrinter(sys.stdout.buffer)
        for line in ending["lastLines"]:
            printer.line(line)
        printer.finish()


def _find(api: "Api", name: str) -> str:
    """Return the id of the run `name`, or of the newest ended run of the task `name`.

    Raises:
        Failure: there is no such run, or no run of the task has ended.
    """
    from supervisor.cli.lookups import find_run, runs_of

    run = find_run(api, name) or next(runs_of(api, name, status="ended", limit=1), None)
    if run is None:
        raise Failure(f"no run of {name} has ended yet")
    return str(run["id"])


def _key(name: str) -> str:
    """Return the name of a key in the configuration file; the API writes it in camel case."""
    return re.sub("[A-Z]", lambda match: f"_{match.group().lower()}", name)


def _text(value: object) -> str:
    """Return a value of the definition, without lone surrogates, which cannot be printed."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()


def _rows(ending: dict[str, Any]) -> list[list[str]]:
    from supervisor.cli.tables import when

    code, signal = ending["exitCode"], ending.get("signal")
    starter, user = ending.get("startedBy"), ending.get("requestedBy")
    facts = {
        "reason": ending["reason"],
        "cause": ending.get("endCause"),
        "failed step": ending.get("failedStep"),
        "its run": ending.get("failedRunId"),
        "passed over": ", ".join(ending.get("passedOver") or ()) or None,
        "exit code": None if code < 0 else code,
        "signal": f"{signal}, core dumped" if ending.get("coreDumped") else signal,
        "out of memory": "yes" if ending.get("oomKilled") else None,
        "started by": starter,
        "stopped by": user if ending["reason"] == "stopped" or user != starter else None,
        "scheduled for": ending.get("scheduledFor") and when(ending["scheduledFor"]),
        "missed times": ending.get("missedCount"),
        "failure line": ending.get("failureLine"),
        "retry": ending.get("retryAt") and when(ending["retryAt"]),
        "killed leftovers": ", ".join(ending.get("killedLeftovers", ())) or None,
        "hint": ending.get("hint"),
    }
    return [[name, str(value)] for name, value in facts.items() if value is not None]
