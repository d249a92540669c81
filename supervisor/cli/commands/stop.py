"""``ringward stop``: end runs."""

import click

from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("stop", epilog="Example: ringward stop backup")
@client_options
@click.argument("what", metavar="RUN|TASK")
@click.option("--force", is_flag=True, help="Kill at once, without waiting for a graceful end.")
@click.option("--json", "as_json", is_flag=True, help="Print the ids of the runs as JSON.")
@pass_settings
def command(settings: Settings, what: str, force: bool, as_json: bool) -> None:
    """Stop a run, or all active runs of a task.

    The instances of a service are recycled: they start again after restart_delay.
    """
    from supervisor.cli.lookups import find_run, runs_of
    from supervisor.cli.tables import show_json

    api = settings.api()
    run = find_run(api, what)
    runs = [run] if run else list(runs_of(api, what, status="pending,running"))
    for run in runs:
        api.post(f"/api/runs/{run['id']}/stop", {"force": "true"} if force else None)
    if as_json:
        show_json({"stopped": [run["id"] for run in runs]})
        return
    for run in runs:
        click.echo(run["id"])
    if not runs:
        click.echo(f"ringward: {what} has no active runs", err=True)
