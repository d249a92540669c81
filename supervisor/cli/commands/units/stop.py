"""``ringward stop``: end runs, and keep services down."""

import click

from supervisor.cli.naming import all_names
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("stop", epilog="Example: ringward stop backup")
@client_options
@click.argument("what", metavar="RUN|TASK|SERVICE", shell_complete=all_names)
@click.option("--force", is_flag=True, help="Kill at once, without a graceful stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the ids of the runs as JSON.")
@pass_settings
def command(settings: Settings, what: str, force: bool, as_json: bool) -> None:
    """Stop a run, all active runs of a task, or a service.

    A stopped service stays stopped until someone starts it or the daemon restarts. After the stop of a single run of a
    service, its instance starts again after restart_delay.
    """
    from supervisor.cli.lookups import ask_of, find_run, find_task, runs_of
    from supervisor.cli.tables import show_json

    api = settings.api()
    run = find_run(api, what)
    service = False
    if run:
        runs = [run]
    else:
        service = (find_task(api, what) or {}).get("kind") == "service"
        runs = list(runs_of(api, what, status="pending,running"))
        if service:
            ask_of(api, what, "stop")
    if force or not service:
        for run in runs:
            api.tell(f"/api/runs/{run['id']}/stop", {"force": "true"} if force else None)
    if as_json:
        show_json({"stopped": [run["id"] for run in runs]})
        return
    for run in runs:
        click.echo(run["id"])
    if not runs:
        click.echo(f"ringward: {what} has no active runs", err=True)
