"""``ringward service``: installs the daemon as a service of this host's init system."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say
from supervisor.cli.install_options import check_combination, everything, init_system, install_options_of, warnings_of
from supervisor.cli.option_groups import grouped
from supervisor.cli.paths import directories, files
from supervisor.cli.settings import CONFIG, DATA, Settings, pass_settings
from supervisor.cli.suggestions import SuggestingGroup
from supervisor.tools.service.detection import KINDS

if TYPE_CHECKING:
    from supervisor.tools.service.plan import Command, InstallOptions, Plan
    from supervisor.tools.service.plan_files import ComparedFile

F = TypeVar("F", bound=Callable[..., object])

_INIT = click.option("--init", "kind", type=click.Choice(KINDS), help="The init system; default: this host's.")
_SCAN = click.option(
    "--scan-dir",
    metavar="DIR",
    shell_complete=directories,
    help="s6 and runit: the scan directory of s6-svscan or runsvdir.",
)
_ROOT = click.option(
    "--root",
    metavar="DIR",
    shell_complete=directories,
    default="/",
    help="Write everything below this directory, for packages.",
)
_DRY = click.option("--dry-run", is_flag=True, help="Only show the changes.")
_FORCE = click.option("--force", is_flag=True, help="Also replace or remove files that were changed by hand.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")


@dataclass(frozen=True)
class _Options:
    """The common options of ``install`` and ``uninstall``."""

    kind: str | None
    scan_dir: str | None
    root: str
    dry_run: bool
    force: bool
    as_json: bool


def _common(function: F) -> F:
    """Add the common options of ``install`` and ``uninstall``, as the argument `options`."""
    function = grouped("options", _Options)(function)
    for option in (_JSON, _FORCE, _DRY, _ROOT, _SCAN, _INIT):
        function = option(function)
    return function


@click.group("service", cls=SuggestingGroup, epilog="Example: ringward service install --now")
def command() -> None:
    """Install the daemon as a service of this host, or remove it.

    Supports systemd, OpenRC, s6 and runit.
    """


@command.command("install", epilog="Example: ringward service install --config /etc/ringward/ringward.toml --now")
@CONFIG
@DATA
@_common
@click.option(
    "--program", metavar="FILE", shell_complete=files, help="The ringward executable of the service; default: this one."
)
@click.option("--user", metavar="NAME", help="The daemon's user; all tasks then run as this user. Default: root.")
@click.option("--hardened", is_flag=True, help="systemd: remove privileges from the daemon and its tasks.")
@click.option("--now", is_flag=True, help="Also enable and start it.")
@pass_settings
def install(
    settings: Settings,
    options: _Options,
    *,
    program: str | None,
    user: str | None,
    hardened: bool,
    now: bool,
) -> int:
    """Install the service files for the init system.

    If there is no configuration, a commented one without tasks is written. Files that were changed by hand are not
    replaced without --force. Repeat --user and --hardened when you install again.
    """
    from supervisor.tools.service.init_plans import plan
    from supervisor.tools.service.plan_files import path_below

    found_kind = init_system(options.kind)
    check_combination(found_kind, options.root, options.scan_dir, user, hardened=hardened, now=now)
    options_of_service = install_options_of(settings, found_kind, options.root, program, user, hardened=hardened)
    planned = plan(found_kind, options_of_service, options.scan_dir)
    compared_files, new_config = _write_files(planned, options_of_service, options)
    warnings = warnings_of(options_of_service)
    report = {
        "init": found_kind,
        "program": options_of_service.program,
        "config": options_of_service.config,
        "configWritten": new_config,
        "data": options_of_service.data,
        "user": options_of_service.user or "root",
        "files": [_file(compared) for compared in compared_files],
        "commands": [list(argv) for argv in planned.enable],
        "warnings": warnings,
    }
    if options.as_json:
        _print_json(report)
    else:
        _show_installed(
            compared_files,
            path_below(options.root, options_of_service.config) if new_config else None,
            dry_run=options.dry_run,
        )
        for warning in warnings:
            say(f"{warning}")
    if now and not options.dry_run:
        _carry_out(planned.enable, quiet=options.as_json)
    elif not options.as_json:
        _show_commands(planned.enable)
    if not options.as_json:
        click.echo("When the daemon runs, ringward password prints the password for the dashboard.")
    return exit_codes.OK


@command.command("uninstall", epilog="Example: ringward service uninstall --now")
@_common
@click.option("--now", is_flag=True, help="Stop and disable it first.")
@pass_settings
def uninstall(_settings: Settings, options: _Options, *, now: bool) -> int:
    """Remove the installed service files. Configuration, data and users stay."""
    from supervisor.tools.service.plan_files import ChangedByUser, read_present, remove

    found_kind = init_system(options.kind)
    check_combination(found_kind, options.root, options.scan_dir, None, hardened=False, now=now)
    planned = everything(found_kind, options.scan_dir)
    links = _links(planned, options.root)
    if links and now and not options.dry_run:
        _carry_out(planned.disable, quiet=options.as_json)
    elif links and not options.dry_run:
        commands = "\n".join(f"  {shlex.join(argv)}" for argv in planned.disable)
        raise Failure(f"the service is enabled ({links[0]}); use --now, or run first:\n{commands}")
    try:
        gone = [file for file in read_present(planned, options.root) if file.state != "new"]
        if not options.dry_run:
            gone = remove(planned, options.root, gone, force=options.force)
    except ChangedByUser as err:
        raise Failure(f"changed by hand, and left alone (--force removes it): {err}") from err
    except OSError as err:
        raise _cannot(err) from err
    if options.as_json:
        _print_json({"init": found_kind, "files": [file.path for file in gone]})
    for file in () if options.as_json else gone:
        click.echo(f"{'would remove' if options.dry_run else 'removed'} {file.path}")
    if gone and planned.forget and now and not options.dry_run:
        _carry_out(planned.forget, quiet=options.as_json)
    elif gone and planned.forget and not options.as_json:
        _show_commands(planned.forget)
    return exit_codes.OK


@command.command("give-way", hidden=True)
def give_way() -> None:
    """Free the cgroup of the daemon's unit; systemd calls this after each end of the daemon."""
    from supervisor.host.cgroups import give_way as make_room

    make_room()


def _links(planned: "Plan", root: str) -> list[str]:
    from glob import glob

    from supervisor.tools.service.plan_files import path_below

    return [path for pattern in planned.enabled for path in glob(path_below(root, pattern))]


def _write_files(
    planned: "Plan", options_of_service: "InstallOptions", options: _Options
) -> "tuple[list[ComparedFile], bool]":
    """Write the files of the service; return them as they were before, and whether there was no configuration.

    Raises:
        Failure: a file cannot be written or was changed by hand, or options of the earlier installation are missing.
    """
    from supervisor.tools.service.plan_files import ChangedByUser, read_present, write
    from supervisor.tools.service.previous_options import forgotten

    try:
        compared_files = read_present(planned, options.root)
        if repeated := forgotten(options_of_service, compared_files, options.root):
            first = "repeat these options, or run first: ringward service uninstall"
            raise Failure(f"it was installed with {' '.join(repeated)}; {first}")
        if not options.dry_run:
            write(compared_files, force=options.force)
        return compared_files, _configure(options_of_service, options.root, dry_run=options.dry_run)
    except ChangedByUser as err:
        shown = "\n".join(file.diff for file in err.files)
        raise Failure(f"changed by hand, and left alone (--force replaces it): {err}\n{shown}") from err
    except OSError as err:
        raise _cannot(err) from err


def _configure(options_of_service: "InstallOptions", root: str, *, dry_run: bool) -> bool:
    """Write a configuration if there is none; return whether there was none."""
    from supervisor.tools.service.plan import File
    from supervisor.tools.service.plan_files import path_below, put
    from supervisor.tools.service.rendering import first_config

    path = path_below(root, options_of_service.config)
    if os.path.lexists(path):
        return False
    if not dry_run:
        put(
            path,
            File(options_of_service.config, first_config(options_of_service.config, options_of_service.data), 0o600),
        )
    return True


# Functions that carry out and print actions.


def _cannot(err: OSError) -> Failure:
    code = exit_codes.NOT_PERMITTED if isinstance(err, PermissionError) else exit_codes.REFUSED
    return Failure(f"{err.filename}: {err.strerror or err}", code)


def _file(compared: "ComparedFile") -> dict[str, object]:
    return {
        "path": compared.path,
        "mode": f"{compared.file.mode:04o}",
        "state": compared.state,
        "text": compared.file.text,
    }


def _show_installed(compared_files: "Sequence[ComparedFile]", new_config: str | None, *, dry_run: bool) -> None:
    verb = {"new": "wrote", "same": "unchanged", "older": "replaced", "changed": "replaced"}
    for compared in compared_files:
        if dry_run:
            click.echo(f"--- {compared.path} (mode {compared.file.mode:04o}, {compared.state})\n{compared.file.text}")
            continue
        click.echo(f"{verb[compared.state]} {compared.path}")
        if compared.diff:
            click.echo(compared.diff)
    if new_config is not None:
        click.echo(f"{'would write' if dry_run else 'wrote'} {new_config}, without tasks; add yours there")


def _show_commands(commands: "Sequence[Command]") -> None:
    click.echo("Next, run:")
    for argv in commands:
        click.echo(f"  {shlex.join(argv)}")


def _print_json(report: dict[str, object]) -> None:
    from supervisor.cli.tables import show_json

    show_json(report)
    sys.stdout.flush()


def _carry_out(commands: "Sequence[Command]", *, quiet: bool) -> None:
    """Run commands one after the other.

    Raises:
        Failure: a command failed.
    """
    for words in commands:
        if not quiet:
            click.echo(f"+ {shlex.join(words)}")
            sys.stdout.flush()
        try:
            done = subprocess.run(words, check=False, stdout=sys.stderr if quiet else None)
        except OSError as err:
            raise Failure(f"{words[0]}: {err.strerror or err}") from err
        if done.returncode != 0:
            raise Failure(f"{shlex.join(words)} exited with code {done.returncode}")
