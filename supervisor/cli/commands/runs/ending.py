"""``ringward ending``: why and how a run ended."""

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

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
    found = api.get(f"/api/runs/{run_id}/ending")
    rows = _rows(found)
    recorded = api.get(f"/api/runs/{run_id}/definition")["definition"] if definition else None
    if as_json:
        show_json(found if recorded is None else {**found, "definition": recorded})
        return
    show_table(_COLUMNS, [["run", run_id], *rows], prose={"VALUE"})
    if recorded is not None:
        sys.stdout.write("\n")
        show_table(_KEYS, [[_key(key), _text(value)] for key, value in recorded.items()], prose={"VALUE"})
    if found["lastLines"]:
        sys.stdout.write("\n")
        sys.stdout.flush()
        printer = LogPrinter(sys.stdout.buffer)
        for line in found["lastLines"]:
            printer.line(line)
        printer.finish()


def _find(api: "Api", what: str) -> str:
    """Return the id of the run `what`, or of the newest ended run of the task `what`.

    Raises:
        Failure: there is no such run, or no run of the task has ended.
    """
    from supervisor.cli.failure import Failure
    from supervisor.cli.lookups import find_run, runs_of

    run = find_run(api, what) or next(runs_of(api, what, status="ended", limit=1), None)
    if run is None:
        raise Failure(f"no run of {what} has ended yet")
    return str(run["id"])


def _key(name: str) -> str:
    """Return the name of a key in the configuration file; the API writes it in camel case."""
    return re.sub("[A-Z]", lambda match: f"_{match.group().lower()}", name)


def _text(value: object) -> str:
    """Return a value of the definition, without lone surrogates, which cannot be printed."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()


def _rows(found: dict[str, Any]) -> list[list[str]]:
    from supervisor.cli.tables import when

    code, signal = found["exitCode"], found.get("signal")
    starter, user = found.get("startedBy"), found.get("requestedBy")
    facts = {
        "reason": found["reason"],
        "exit code": None if code < 0 else code,
        "signal": f"{signal}, core dumped" if found.get("coreDumped") else signal,
        "out of memory": "yes" if found.get("oomKilled") else None,
        "started by": starter,
        "stopped by": user if found["reason"] == "stopped" or user != starter else None,
        "scheduled for": found.get("scheduledFor") and when(found["scheduledFor"]),
        "missed times": found.get("missedCount"),
        "failure line": found.get("failureLine"),
        "retry": found.get("retryAt") and when(found["retryAt"]),
        "killed leftovers": ", ".join(found.get("killedLeftovers", ())) or None,
        "hint": found.get("hint"),
    }
    return [[name, str(value)] for name, value in facts.items() if value is not None]
