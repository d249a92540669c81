"""The installation that ``ringward service`` is asked for, and checks of whether it is possible."""

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.settings import Settings, config_errors
from supervisor.host.files import exposed
from supervisor.tools.service.detection import KINDS, detect

if TYPE_CHECKING:
    from supervisor.tools.service.plan import InstallOptions, Plan

_NEW_SYSTEMD = 254
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PLAIN = re.compile(r"/[\w/.,:=@+~-]*")
"""Paths without characters that have a special meaning to a shell or systemd."""


def init_system(kind: str | None) -> str:
    """Return the init system `kind`, or detect this host's init system if it is None.

    Raises:
        Failure: none is named, and it cannot be detected.
    """
    init_kind = kind or detect()
    if init_kind is None:
        raise Failure(
            f"cannot detect the init system; pass --init ({', '.join(KINDS)})",
            exit_codes.USAGE,
        )
    return init_kind


def check_combination(
    kind: str, root: str, scan_dir: str | None, user: str | None, *, hardened: bool, now: bool
) -> None:
    """Check that the options can be combined.

    Raises:
        click.UsageError: they cannot.
    """
    if hardened and kind != "systemd":
        raise click.UsageError("--hardened needs systemd")
    if scan_dir is not None and kind not in ("s6", "runit"):
        raise click.UsageError("--scan-dir needs s6 or runit")
    if now and root != "/":
        raise click.UsageError("--now and --root cannot be combined")
    if user is not None and not _USER.fullmatch(user):
        raise click.BadParameter(f"{user} is not a valid user name", param_hint="--user")


def install_options_of(
    settings: Settings, kind: str, root: str, program: str | None, user: str | None, *, hardened: bool
) -> "InstallOptions":
    """Return the installation that results from the options and, if one exists below `root`, the configuration.

    Raises:
        Failure: the configuration is invalid, or a path contains a character that an init system cannot represent.
    """
    from supervisor.config.files import lookup
    from supervisor.tools.service import systemd_plan
    from supervisor.tools.service.plan import InstallOptions
    from supervisor.tools.service.plan_files import path_below

    old_systemd = kind == "systemd" and (systemd_plan.version() or _NEW_SYSTEMD) < _NEW_SYSTEMD
    config = os.path.abspath(settings.config or lookup.SYSTEM_FILE)
    configured = _configured_data(path_below(root, config))
    data = os.path.abspath(settings.data) if settings.data else configured or lookup.SYSTEM_DATA
    options = InstallOptions(
        program=os.path.abspath(program) if program else _program(),
        config=config,
        data=data,
        user=None if user == "root" else user,
        hardened=hardened,
        old_systemd=old_systemd,
        # Otherwise the default of a dedicated user would be in its home directory.
        tell_data=bool(settings.data) or (user is not None and configured is None),
    )
    for path in (options.program, options.config, options.data):
        if not _PLAIN.fullmatch(path):
            raise Failure(f"{path}: the path has a character that is special to init systems", exit_codes.USAGE)
    return options


def _configured_data(path: str) -> str | None:
    from supervisor.config.load import load_sections

    if not os.path.exists(path):
        return None
    with config_errors():
        data_dir: str | None = load_sections(path, "daemon", environ=os.environ)["daemon"].get("data_dir")
    return data_dir


def _program() -> str:
    """Return the path of the called program, in a form that stays valid after an upgrade.

    Raises:
        Failure: it was not called as a program.
    """
    for name in (sys.argv[0], os.path.join(os.path.dirname(sys.executable), "ringward")):
        if path := shutil.which(name):
            return os.path.abspath(path)
    raise Failure("cannot determine the program to start; pass --program", exit_codes.USAGE)


def everything(kind: str, scan_dir: str | None) -> "Plan":
    """Return everything that an installation may have written, with whatever options."""
    from supervisor.config.files import lookup
    from supervisor.tools.service.init_plans import plan
    from supervisor.tools.service.plan import DEFAULT_PROGRAM, InstallOptions

    options = InstallOptions(
        DEFAULT_PROGRAM, lookup.SYSTEM_FILE, lookup.SYSTEM_DATA, "ringward", hardened=True, old_systemd=True
    )
    return plan(kind, options, scan_dir)


def warnings_of(options: "InstallOptions") -> list[str]:
    """Return warnings about settings that are allowed but dangerous."""
    if options.user is not None or not os.path.exists(options.program):
        return []
    import supervisor

    paths = (options.program, sys.executable, os.path.dirname(os.path.abspath(supervisor.__file__)))
    try:
        exposed_path = next(filter(None, (exposed(path, {0}) for path in paths)), None)
    except OSError as err:
        return [f"cannot tell who can change the files that root would run: {err.filename}: {err.strerror}"]
    if exposed_path is None:
        return []
    remedy = "install Ringward below /opt, as root"
    return [f"root would run files that other users can change: {exposed_path.path} {exposed_path.reason}; {remedy}"]
