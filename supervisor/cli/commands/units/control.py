"""``ringward start``, ``restart``, ``pause`` and ``resume``: one request about one unit each."""

from collections.abc import Callable
from typing import NamedTuple

import click

from supervisor.cli.naming import service_names, task_names
from supervisor.cli.settings import Settings, client_options, pass_settings


class _Verb(NamedTuple):
    """One row: the argument of a command, an example of its use, and its help.

    Attributes:
        options: Further flags, which the API takes as query parameters of the same name, with their help.
    """

    argument: str
    example: str
    help: str
    options: dict[str, str] = {}  # noqa: RUF012 - never changed


_VERBS = {
    "start": _Verb(
        "service",
        "ringward start web",
        """Start a service.

        Running instances continue. Stopping instances start again afterwards, and fatal ones are tried again. The
        command does not wait until the service runs.
        """,
    ),
    "restart": _Verb(
        "service",
        "ringward restart --rolling web",
        """Restart a service; a stopped service starts.

        The command does not wait for the result.
        """,
        {"rolling": "Restart one instance after the other, each when the previous one is ready."},
    ),
    "pause": _Verb(
        "task",
        "ringward pause backup",
        """Pause a task's schedule until it is resumed, also across restarts of the daemon.

        Active runs continue, and the task can still be run by hand.
        """,
    ),
    "resume": _Verb(
        "task",
        "ringward resume backup",
        """Resume a task's schedule from now on.

        Times during the pause are not caught up.
        """,
    ),
}
_COMPLETIONS = {"service": service_names, "task": task_names}


def _command(name: str, verb: _Verb) -> click.Command:
    def call(settings: Settings, as_json: bool, **values: str | bool) -> None:
        from supervisor.cli.lookups import ask_of, find_task
        from supervisor.cli.tables import show_json

        api, unit = settings.api(), str(values[verb.argument])
        ask_of(api, unit, name, {option: "true" for option in verb.options if values[option]} or None)
        if as_json:
            show_json(find_task(api, unit))

    function: Callable[..., None] = pass_settings(call)
    function = click.option("--json", "as_json", is_flag=True, help="Print its record as JSON.")(function)
    for option, text in verb.options.items():
        function = click.option(f"--{option}", is_flag=True, help=text)(function)
    function = click.argument(verb.argument, shell_complete=_COMPLETIONS[verb.argument])(function)
    return click.command(name, help=verb.help, epilog=f"Example: {verb.example}")(client_options(function))


commands = {name: _command(name, verb) for name, verb in _VERBS.items()}
