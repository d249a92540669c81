"""``ringward approve`` and ``ringward reject``: answer whether a run may start."""

from typing import TYPE_CHECKING

import click

from supervisor.cli.name_completion import task_names
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from supervisor.cli.client import Api
    from supervisor.cli.daemon_answers import AnswerObject

_LONGEST_NOTE = 1000


def _command(verb: str, text: str) -> click.Command:
    @click.command(verb, help=text, epilog=f"Example: ringward {verb} deploy --note 'tested on staging'")
    @client_options
    @click.argument("what", metavar="TASK|FLOW|RUN", shell_complete=task_names)
    @click.option("--note", metavar="TEXT", help="A note for others.")
    @pass_settings
    def command(settings: Settings, what: str, note: str | None) -> None:
        if note is not None and len(note) > _LONGEST_NOTE:
            raise click.UsageError(f"--note can have up to {_LONGEST_NOTE} characters, it has {len(note)}")
        api = settings.api()
        run_id = _waiting(api, what)
        api.send(f"/api/runs/{run_id}/{verb}", body=None if note is None else {"note": note})

    return command


_WHICH = """

A task stands for its newest run, and a flow for the one run inside it that waits for an approval. The first answer
counts. Over the Unix socket, the name of the Unix user is compared with needs_approval.
"""
commands = {
    "approve": _command("approve", f"Let a run start that waits for an approval (needs_approval).{_WHICH}"),
    "reject": _command("reject", f"End a run that waits for an approval: it is stopped.{_WHICH}"),
}


def _waiting(api: "Api", what: str) -> str:
    """Return the run that waits for an approval, or the run that was named."""
    from supervisor.cli.failure import Failure
    from supervisor.cli.lookups import find_task, run_to_show

    run = run_to_show(api, what)
    named = str(run["id"])
    task = find_task(api, str(run["taskName"]))
    if run["status"] != "running" or task is None or not task.get("steps"):
        return named
    steps = api.get(f"/api/runs/{named}/steps")["steps"]
    waiting = [inner for step in steps for inner in step["runs"] if _waits(inner)]
    if len(waiting) > 1:
        lines = "\n".join(f"  {inner['id']}  {inner['taskName']}" for inner in waiting)
        raise Failure(f"{len(waiting)} runs of {what} wait for an approval; name one of them:\n{lines}")
    return str(waiting[0]["id"]) if waiting else named


def _waits(run: "AnswerObject") -> bool:
    return any(wait["kind"] == "approval" for wait in run.get("waitingFor", ()))
