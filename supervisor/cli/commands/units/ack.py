"""``ringward ack``: acknowledge a failure."""

from typing import Any

import click

from supervisor.cli.name_completion import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings

_SHORTEST_MS, _LONGEST_MS = 1000, 366 * 86_400_000
_LONGEST_NOTE = 1000


@click.command("ack", epilog="Example: ringward ack backup --for 2h --note 'a bigger disk is ordered'")
@client_options
@click.argument("what", metavar="TASK|SERVICE|RUN", shell_complete=all_names)
@click.option("--for", "span", metavar="DURATION", help="Also acknowledge failures during this time, such as 2h.")
@click.option("--note", metavar="TEXT", help="A note for others.")
@click.option("--public", is_flag=True, help="Show the note on the public status page.")
@click.option("--undo", is_flag=True, help="Withdraw the acknowledgement.")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the task or service.")
@pass_settings
def command(settings: Settings, /, what: str, undo: bool, as_json: bool, **given: Any) -> None:
    """Acknowledge the failure of a task or service.

    It then needs no attention in `ringward status` and the dashboard until it fails again. With --for, the
    acknowledgement also covers failures during that time. A run must be the last one of its task.
    """
    from supervisor.cli.lookups import find_run, find_task, unknown
    from supervisor.cli.tables import show_json

    span, note, public = given["span"], given["note"], given["public"]
    if note is not None and len(note) > _LONGEST_NOTE:
        raise click.UsageError(f"--note can have up to {_LONGEST_NOTE} characters, it has {len(note)}")
    if undo and (span is not None or note is not None or public):
        raise click.UsageError("--undo cannot be combined with --for, --note or --public")
    if public and not note:
        raise click.UsageError("--public needs --note, which the status page shows")
    body = {"forMs": _milliseconds(span), "note": note, "public": public or None}
    api = settings.api()
    run = find_run(api, what)
    name = what if run is None else str(run["taskName"])
    if find_task(api, name) is None:
        raise unknown(api, name)
    path = f"/api/tasks/{name}" if run is None or undo else f"/api/runs/{run['id']}"
    options = {name: value for name, value in body.items() if value is not None}
    api.send(f"{path}/{'unacknowledge' if undo else 'acknowledge'}", body=options or None)
    if as_json:
        show_json(find_task(api, name))


def _milliseconds(span: str | None) -> int | None:
    """Convert the option --for, a duration, to milliseconds; None if it was not given.

    Raises:
        click.UsageError: the value is not a duration, or is too short or too long.
    """
    from supervisor.config.value_types.durations import parse_duration

    if span is None:
        return None
    try:
        duration = parse_duration(span)
    except ValueError as err:
        raise click.UsageError(f'--for must be a duration such as "2h": {span!r}') from err
    if not _SHORTEST_MS <= duration <= _LONGEST_MS:
        raise click.UsageError(f"--for must be between 1s and 366d: {span!r}")
    return duration
