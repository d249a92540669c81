"""``ringward calendar``: the days on which tasks do not run."""

import click

from supervisor.cli.failure import Failure
from supervisor.cli.settings import Settings, client_options, pass_settings


@click.command("calendar", epilog="Example: ringward calendar weekend --year 2027")
@client_options
@click.argument("name", required=False)
@click.option("--year", type=click.IntRange(1970, 2200), help="The year of the days; default: the present one.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@pass_settings
def command(settings: Settings, name: str | None, year: int | None, as_json: bool) -> None:
    """List the calendars, or the closed days of one."""
    from supervisor.cli import exit_codes
    from supervisor.cli.tables import show_json, show_table

    api = settings.api()
    items = api.get("/api/calendars", {} if year is None else {"year": year})["items"]
    if name is not None:
        items = [item for item in items if item["name"] == name]
        if not items:
            raise Failure(f'no calendar named "{name}"', exit_codes.REFUSED)
    if as_json:
        show_json(items)
    elif name is None:
        rows = [
            [item["name"], item.get("country") or "-", item.get("subdivision") or "-", str(len(item["days"]))]
            for item in items
        ]
        show_table(("CALENDAR", "COUNTRY", "SUBDIVISION", "CLOSED DAYS"), rows)
    else:
        days = [[day["date"], day.get("name") or "-"] for day in items[0]["days"]]
        show_table(("DATE", "NAME"), days, prose={"NAME"})
