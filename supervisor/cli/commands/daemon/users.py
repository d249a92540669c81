"""``ringward user``: user accounts."""

import re
import sys

import click

from supervisor.cli.settings import Settings, client_options, pass_settings
from supervisor.cli.suggestions import SuggestingGroup

_ROLES = ("viewer", "operator", "admin")
_NAME = re.compile(r"(?!\.+$)[a-zA-Z0-9._@-]{1,100}")
_TASKS = re.compile(r"[a-zA-Z0-9._:*?\[\]!-]{1,100}")
_SHORTEST, _LONGEST = 8, 1000
_ADMIN = "admin"


@click.group("user", cls=SuggestingGroup, epilog="Example: ringward user add alice --role operator --task 'web-*'")
@client_options
def command() -> None:
    """Add, list and remove user accounts.

    A viewer reads. An operator also triggers and stops runs. An admin may do everything. The account "admin" always
    exists; it has the daemon's own password (see: ringward password).
    """


@command.command("add", epilog="Example: ringward user add alice --role operator --task 'web-*' < password.txt")
@client_options
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="The role of the account.")
@click.option(
    "--task", "tasks", metavar="GLOB", help="The account sees only tasks and services whose name matches this glob."
)
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
@pass_settings
def add(settings: Settings, name: str, role: str, tasks: str | None, as_json: bool) -> None:
    """Add an account. The password comes from a prompt, or from the first line of standard input."""
    from supervisor.cli.tables import show_json

    _check(name)
    if tasks is not None and not _TASKS.fullmatch(tasks):
        raise click.BadParameter(f'{tasks!r} must be a glob of names such as "web-*"', param_hint="--task")
    body: dict[str, object] = {"name": name, "role": role, "password": _password(name)}
    if tasks is not None:
        body["tasks"] = tasks
    made = settings.api().post("/api/users", body=body)
    if as_json:
        show_json(made)


@command.command("passwd", epilog="Example: ringward user passwd alice")
@client_options
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the name of the account as JSON.")
@pass_settings
def passwd(settings: Settings, name: str, as_json: bool) -> None:
    """Change the password of an account. Its sessions end.

    The password comes from a prompt, or from the first line of standard input.
    """
    from supervisor.cli.client import segment
    from supervisor.cli.tables import show_json

    _check(name)
    settings.api().send(f"/api/users/{segment(name)}/password", body={"password": _password(name)})
    if as_json:
        show_json({"changed": name})


@command.command("rm", epilog="Example: ringward user rm alice")
@client_options
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the name of the account as JSON.")
@pass_settings
def remove(settings: Settings, name: str, as_json: bool) -> None:
    """Remove an account. Its sessions end at once; its open streams end within seconds."""
    from supervisor.cli.client import segment
    from supervisor.cli.tables import show_json

    _check(name)
    settings.api().delete(f"/api/users/{segment(name)}")
    if as_json:
        show_json({"removed": name})


@command.command("list", epilog="Example: ringward user list --json")
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print the accounts as JSON.")
@pass_settings
def list_accounts(settings: Settings, as_json: bool) -> None:
    """List all accounts but "admin"."""
    from supervisor.cli.tables import show_json, show_table, when

    answer = settings.api().get("/api/users")
    if as_json:
        show_json(answer)
        return
    rows = [
        [
            account["name"],
            account["role"],
            account.get("tasks", "all"),
            when(account["passwordChangedAt"]),
            when(account["createdAt"]),
            account["createdBy"],
        ]
        for account in answer["items"]
    ]
    show_table(
        ("NAME", "ROLE", "TASKS", "PASSWORD CHANGED", "CREATED", "BY"),
        rows,
        prose={"TASKS"},
        gives_way=("BY", "CREATED", "PASSWORD CHANGED"),
    )


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} must be letters, digits and . _ @ -, at most 100", param_hint="NAME")
    if name.lower() == _ADMIN:
        raise click.BadParameter(
            f'"{name}" is the account of the daemon\'s own password: set RINGWARD_PASSWORD or password_file in [http]',
            param_hint="NAME",
        )


def _password(name: str) -> str:
    """Return a new password from the terminal, else from the first line of standard input."""
    if sys.stdin.isatty():
        password: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline(_LONGEST + 2).rstrip("\r\n")
    if not _SHORTEST <= len(password) <= _LONGEST:
        raise click.UsageError(f"the password must have {_SHORTEST} to {_LONGEST} characters; it has {len(password)}")
    return password
