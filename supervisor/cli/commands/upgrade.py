"""``ringward upgrade``: have the daemon become the version that is installed, without ending anything."""

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
@click.option("--if-different", is_flag=True, help="Do nothing when the daemon is of the installed version already.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def command(settings: Settings, if_different: bool, as_json: bool) -> int:
    """Have the daemon go on as the version that is installed.

    It is the same process afterwards. Tasks and services run on, and not one line of theirs is lost. When the
    installed version does not work, the daemon stays as it is.
    """
    from supervisor.cli.running import Running

    daemon = Running(settings.data_directory())
    before = daemon.answer()["version"]
    if if_different and before == VERSION:
        _show(as_json, {"upgraded": False, "from": before, "version": before})
        return exit_codes.OK
    answer = daemon.upgrade(_TIMEOUT_S)
    if answer["state"] == "refused":
        raise Failure(f"not upgraded, {answer['version']} goes on: {answer['why']}", exit_codes.REFUSED)
    _wait_for_the_api(settings, answer["version"])
    _show(as_json, {"upgraded": True, "from": before, "version": answer["version"]})
    return exit_codes.OK


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
    raise Failure(f"upgraded to {version}, but the API server does not answer; the daemon's log says why")


def _show(as_json: bool, found: dict[str, Any]) -> None:
    from supervisor.cli.tables import show_json

    if as_json:
        show_json(found)
    elif not found["upgraded"]:
        click.echo(f"Ringward {found['version']} runs already")
    else:
        click.echo(f"Ringward {found['from']} -> {found['version']}")
