"""``ringward recover``: the user's decision about a history that the daemon has lost."""

from typing import Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.settings import CONFIG, DATA, Settings, pass_settings

_TIMEOUT_S = 60.0


@click.command("recover", epilog="Example: ringward recover --new-history")
@CONFIG
@DATA
@click.option("--new-history", is_flag=True, required=True, help="Begin with an empty history.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def command(settings: Settings, new_history: bool, as_json: bool) -> None:  # noqa: ARG001 - so far the only way
    """Begin an empty history after the daemon lost its own: its database and the copy are missing or damaged.

    Active runs continue and become part of the new history. A damaged database is moved aside, never removed. The
    command does nothing if the daemon has its history. Run it as the daemon's user or root.
    """
    from supervisor.cli.client import Api, UnixEndpoint
    from supervisor.cli.tables import show_json

    directory = settings.data_directory()
    api = Api(UnixEndpoint(settings.socket()))
    daemon = api.get("/api/daemon")
    if "databaseProblem" not in daemon:
        raise Failure("the daemon has its history; nothing was changed")
    allow(directory)
    _wait(api, str(daemon["databaseProblem"]))
    if as_json:
        show_json({"newHistory": True})
    else:
        click.echo("the daemon continues with a new history")


def allow(directory: str, *, allowed: bool = True) -> None:
    """Allow a new history in a data directory whose history is lost, or withdraw that.

    Raises:
        Failure: the file cannot be created or removed.
    """
    from supervisor.startup.new_history import allow_new_history

    try:
        allow_new_history(directory, allowed=allowed)
    except OSError as err:
        code = exit_codes.NOT_PERMITTED if isinstance(err, PermissionError) else exit_codes.DATA_DIR
        raise Failure(f"{err.filename}: {err.strerror}", code) from err


def _wait(api: Any, problem: str) -> None:
    """Wait until the daemon has opened the new history and schedules runs again.

    Raises:
        Failure: that takes too long. The next start withdraws the permission for a new history.
    """
    from supervisor.cli.lookups import daemon_states

    for daemon in daemon_states(api, _TIMEOUT_S):  # one scheduler exits, and the next one is not ready at once
        if "databaseProblem" not in daemon and daemon.get("schedulerActive"):
            return
        problem = str(daemon.get("databaseProblem", problem))
    raise Failure(f"the daemon does not continue: {problem}")
