"""``ringward token``: tokens with which programs reach the API."""

import re

import click

from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.suggestions import SuggestingGroup

_ROLES = ("viewer", "operator", "admin", "cloud")
_NAME = re.compile(r"(?!\.+$)[a-zA-Z0-9._:-]{1,100}")
_TASKS = re.compile(r"[a-zA-Z0-9._:*?\[\]!-]{1,100}")
_SHORTEST_MS = 1000
_LONGEST_MS = 3660 * 24 * 3_600_000


@click.group(
    "token",
    cls=SuggestingGroup,
    epilog="Example: ringward token create deploy --role operator --task 'web-*' --expires 90d",
)
@client_options
def command() -> None:
    """Create, list and revoke tokens for the API.

    A viewer reads. An operator also triggers and stops runs. An admin may do everything. cloud is an operator
    whose runs have the trigger "cloud".
    """


@command.command("create", epilog="Example: ringward token create ci --role operator --task 'build-*' --expires 90d")
@client_options
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="The role of the token.")
@click.option(
    "--task", "tasks", metavar="GLOB", help="The token sees only tasks and services whose name matches this glob."
)
@click.option("--expires", metavar="DURATION", help="Lifetime of the token, such as 90d; default: unlimited.")
@click.option("--json", "as_json", is_flag=True, help="Print the token as JSON.")
@pass_settings
def create(settings: Settings, name: str, role: str, tasks: str | None, expires: str | None, as_json: bool) -> None:
    """Create a token and print it. It cannot be shown again."""
    from supervisor.cli.tables import show_json

    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} must be letters, digits and . _ : -, at most 100", param_hint="NAME")
    if tasks is not None and not _TASKS.fullmatch(tasks):
        raise click.BadParameter(f'{tasks!r} must be a glob of names such as "web-*"', param_hint="--task")
    body: dict[str, object] = {"name": name, "role": role}
    if tasks is not None:
        body["tasks"] = tasks
    if expires is not None:
        body["expiresInMs"] = _duration(expires)
    made = settings.api().post("/api/tokens", body=body)
    token = made["token"]
    if as_json:
        show_json(made)
    else:
        click.echo(token)


def _duration(text: str) -> int:
    from supervisor.config.value_types.durations import parse_duration

    try:
        duration = parse_duration(text)
    except ValueError as err:
        raise click.BadParameter('must be a duration such as "90d" or "12h"', param_hint="--expires") from err
    if not _SHORTEST_MS <= duration <= _LONGEST_MS:
        raise click.BadParameter(f"{text} must be between 1s and 3660d", param_hint="--expires")
    return duration


@command.command("list", epilog="Example: ringward token list --json")
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print the tokens as JSON.")
@pass_settings
def list_tokens(settings: Settings, as_json: bool) -> None:
    """List all tokens, without their secrets."""
    from supervisor.cli.tables import show_json, show_table, when

    answer = settings.api().get("/api/tokens")
    if as_json:
        show_json(answer)
        return
    rows = [
        [
            token["name"],
            token["role"],
            token.get("tasks", "all"),
            "expired" if token["expired"] else when(token.get("expiresAt")),
            when(token.get("lastUsedAt")),
            when(token["createdAt"]),
            token["createdBy"],
        ]
        for token in answer["items"]
    ]
    show_table(
        ("NAME", "ROLE", "TASKS", "EXPIRES", "LAST USED", "CREATED", "BY"),
        rows,
        prose={"TASKS"},
        gives_way=("BY", "CREATED", "LAST USED"),
    )


@command.command("revoke", epilog="Example: ringward token revoke deploy")
@client_options
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the revoked token as JSON.")
@pass_settings
def revoke(settings: Settings, name: str, as_json: bool) -> None:
    """Revoke a token. This takes effect at once; its open streams end within seconds."""
    from supervisor.cli.client import segment
    from supervisor.cli.tables import show_json

    settings.api().delete(f"/api/tokens/{segment(name)}")
    if as_json:
        show_json({"revoked": name})
