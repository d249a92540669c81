"""``ringward upgrade``: have the daemon become the version that is installed, without ending anything."""

import os
import sys
import time
from typing import Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.settings import CONFIG, DATA, Settings, pass_settings
from supervisor.version import VERSION

_TIMEOUT_S = 180.0
_API_S = 60.0
_LOOK_S = 0.05


@click.command("upgrade", epilog="Example: ringward upgrade")
@CONFIG
@DATA
@click.option("--if-different", is_flag=True, help="Do nothing if the daemon already has this version.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def command(settings: Settings, if_different: bool, as_json: bool) -> int:
    """Upgrade the running daemon to the installed version.

    The daemon keeps its process. Tasks and services continue without losing a line. If the installed version does not
    work, nothing changes. Call ringward from the daemon's own environment: the daemon takes the version that is
    installed there.
    """
    from supervisor.cli.running import Running

    daemon = Running(settings.data_directory())
    before = daemon.answer()
    if if_different and before["version"] == VERSION:
        _show(as_json, {"upgraded": False, "from": VERSION, "version": VERSION})
        return exit_codes.OK
    _check_environment(before.get("environment"))
    answer = daemon.upgrade(_TIMEOUT_S)
    if answer["state"] == "refused":
        raise Failure(f"not upgraded, {answer['version']} continues: {answer['why']}", exit_codes.REFUSED)
    _wait_for_the_api(settings, answer["version"])
    _show(as_json, {"upgraded": True, "from": before["version"], "version": answer["version"]})
    return exit_codes.OK


def _check_environment(of_daemon: str | None) -> None:
    """Refuse to ask for an upgrade that would take the version from another environment than this command's.

    Args:
        of_daemon: where the daemon's Python is; None: the daemon is of a release that does not say.

    Raises:
        Failure: the daemon runs from another environment.
    """
    if of_daemon is None or of_daemon == sys.prefix:
        return
    try:
        if os.path.samefile(of_daemon, sys.prefix):
            return
    except OSError:  # ENOENT: it was removed
        pass
    raise Failure(
        f"not upgraded: the daemon runs from {of_daemon}, and this command belongs to {sys.prefix}\n"
        f"  install the new version in {of_daemon}, and run: {of_daemon}/bin/ringward upgrade",
        exit_codes.REFUSED,
    )


def _wait_for_the_api(settings: Settings, version: str) -> None:
    """Until the API server is of the new version, too.

    Raises:
        Failure: it does not become that.
    """
    from supervisor.cli.client import Api, Refused, UnixEndpoint, Unreachable

    api = Api(UnixEndpoint(settings.socket()))
    deadline_s = time.monotonic() + _API_S
    while time.monotonic() < deadline_s:
        try:
            if api.get("/api/daemon")["version"] == version:
                return
        except (Unreachable, Refused):  # it is between the two
            pass
        time.sleep(_LOOK_S)
    raise Failure(f"upgraded to {version}, but the API server does not answer; the daemon's log has the reason")


def _show(as_json: bool, found: dict[str, Any]) -> None:
    from supervisor.cli.tables import show_json

    if as_json:
        show_json(found)
    elif not found["upgraded"]:
        click.echo(f"Ringward {found['version']} is already running")
    else:
        click.echo(f"Ringward {found['from']} -> {found['version']}")
