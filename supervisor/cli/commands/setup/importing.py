"""``ringward import``: converts the configurations of other programs."""

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.paths import files
from supervisor.host.files import private

if TYPE_CHECKING:
    from supervisor.tools.importers.import_result import Outcome

_MAX_BYTES = 1024 * 1024
_KINDS = ("cron", "supervisord", "systemd", "procfile", "pm2", "compose")


@click.command("import", epilog="Example: ringward import cron /etc/cron.d/* -o tasks.toml")
@click.argument("kind", metavar="|".join(_KINDS), type=click.Choice(_KINDS))
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", metavar="FILE", shell_complete=files, help="Write the configuration to this new file.")
@click.option(
    "--system/--no-system", default=None, help="cron: whether the files have a user column; default: as they look."
)
@click.option("--json", "as_json", is_flag=True, help="Print configuration and report as JSON.")
def command(kind: str, files: tuple[str, ...], output: str | None, system: bool | None, as_json: bool) -> int:
    """Convert the configuration of cron, supervisord, systemd, pm2, compose or a Procfile.

    The configuration goes to standard output, the report to standard error. Settings without an equivalent become
    comments in the configuration, and the exit code is then 1. The other program is not changed.
    """
    from supervisor.cli.tables import show_json
    from supervisor.tools.importers.import_result import Outcome

    outcome = Outcome()
    _read(kind, {path: _text(path) for path in files}, outcome, system=system)
    toml = outcome.toml(f"{kind}: {', '.join(files)}")
    problems = _problems(toml)
    if as_json:
        show_json({"toml": toml, "notes": outcome.notes, "problems": problems})
    elif output is None:
        click.echo(toml, nl=False)
    if output is not None:
        _write(output, toml)
    if not as_json:
        _report(outcome, problems)
    if problems:
        return exit_codes.CONFIG
    return exit_codes.REFUSED if outcome.lost else exit_codes.OK


def _read(kind: str, texts: dict[str, str], outcome: "Outcome", *, system: bool | None) -> None:
    """Add the content of the files to the outcome.

    Raises:
        Failure: a file does not have the given format.
    """
    from supervisor.tools.importers import compose, crontab, pm2, procfile, supervisord, systemd
    from supervisor.tools.importers.import_result import UnreadableFile

    def cron(path: str, text: str, outcome: "Outcome") -> None:
        users = crontab.has_users(path, text, outcome) if system is None else system
        crontab.read(path, text, outcome, system=users)

    readers: dict[str, Callable[[str, str, Outcome], None]] = {
        "cron": cron,
        "supervisord": supervisord.read,
        "procfile": procfile.read,
        "pm2": pm2.read,
        "compose": compose.read,
    }
    try:
        if kind == "systemd":
            systemd.read(texts, outcome)
            return
        for path, text in texts.items():
            readers[kind](path, text, outcome)
    except UnreadableFile as err:
        raise Failure(str(err), exit_codes.USAGE) from err


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise Failure(f"{path} has more than {_MAX_BYTES} bytes", exit_codes.USAGE)
        return data.decode()
    except OSError as err:
        raise Failure(f"{path}: {err.strerror or err}", exit_codes.USAGE) from err
    except UnicodeDecodeError as err:
        raise Failure(f"{path} is not UTF-8", exit_codes.USAGE) from err


def _problems(toml: str) -> list[str]:
    """Return the errors that ``ringward validate`` would report, without checks of users and files of this host.

    Raises:
        Failure: there is no directory for the temporary file that is checked.
    """
    from supervisor.config.load import load
    from supervisor.config.problems import ConfigError

    try:
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "imported.toml")
            with open(path, "w", encoding="utf-8", opener=private) as file:
                file.write(toml)
            try:
                load(path)
            except ConfigError as err:
                return [str(problem).replace(f"{directory}/", "") for problem in err.problems]
    except OSError as err:
        raise Failure(f"cannot write a temporary file: {err.strerror or err}; set TMPDIR", exit_codes.OUTPUT) from err
    return []


def _write(path: str, toml: str) -> None:
    """Write the configuration to a file, and the JSON Schema for editors to the same directory."""
    from pathlib import Path

    from supervisor.tools.starter import DIRECTIVE, write_schema

    try:
        with open(path, "x", encoding="utf-8", opener=private) as file:
            file.write(DIRECTIVE + toml)
        write_schema(Path(path).absolute().parent)
    except FileExistsError as err:
        raise Failure(f"{path} exists, and import overwrites nothing: name another file, or remove it") from err
    except OSError as err:
        raise Failure(f"{err.filename or path}: {err.strerror or err}", exit_codes.OUTPUT) from err


def _report(outcome: "Outcome", problems: list[str]) -> None:
    from supervisor.ipc.plural import counted

    tasks = sum(unit.kind == "tasks" for unit in outcome.units)
    services = sum(unit.kind == "services" for unit in outcome.units)
    say(f"{counted(tasks, 'task')}, {counted(services, 'service')}")
    lost, advice = map(str, outcome.lost), map(str, outcome.advice)
    for title, lines in (
        ("Not converted, or converted with a different meaning", list(lost)),
        ("Notes", list(advice)),
        ("Errors to correct", problems),
    ):
        if lines:
            click.echo(f"{title}:", err=True)
            for line in lines:
                click.echo(f"  {line}", err=True)
