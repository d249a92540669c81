"""``ringward upgrade``: replace the running daemon by the installed version, without stopping any run."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.settings import CONFIG, DATA, Settings, pass_settings
from supervisor.host import procfs
from supervisor.host.files import ExposedFile, exposed, exposure
from supervisor.installation import installation_hash
from supervisor.version import VERSION

_API_S = 60.0
_SYSTEMCTL_S = 10.0


@click.command("upgrade", epilog="Example: ringward upgrade")
@CONFIG
@DATA
@click.option("--from-here", is_flag=True, help="Take the version from the environment of this command.")
@click.option("--if-different", is_flag=True, help="Do nothing if the daemon runs the installed files.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@pass_settings
def command(settings: Settings, from_here: bool, if_different: bool, as_json: bool) -> int:
    """Upgrade the running daemon to the installed version.

    The daemon keeps its process. Tasks and services continue without losing a line. If the installed version does not
    work, nothing changes. The daemon takes the version that is installed in its own environment.

    With --from-here it moves to the environment of this command. Only root and the daemon's user may be
    able to change that environment. The next start takes the environment that the service file names.
    """
    from supervisor.cli.running_daemon import RunningDaemon

    daemon = RunningDaemon(settings.data_directory())
    before = daemon.answer()
    elsewhere = _is_elsewhere(before["environment"])
    moves = from_here and elsewhere
    same = before["version"] == VERSION and before.get("installation") == installation_hash()
    if if_different and same and not moves:
        _show(as_json, {"upgraded": False, "from": VERSION, "version": VERSION})
        return exit_codes.OK
    if elsewhere and not moves:
        raise _two_environments(before["environment"])
    if moves:
        here = own_environment()
        check_owners(here, {0, daemon.uid})
        with daemon.request({name: here[name] for name in ("python", "prefix", "packages")}):
            answer = daemon.upgrade()
    else:
        answer = daemon.upgrade()
    if answer["state"] == "refused":
        raise Failure(f"not upgraded, {answer['version']} continues: {answer['why']}", exit_codes.REFUSED)
    if moves and _is_elsewhere(answer["environment"]):
        message = (
            f"another upgrade was in progress: the daemon runs from {answer['environment']}; run the command again"
        )
        raise Failure(message, exit_codes.REFUSED)
    if moves:
        cgroup = procfs.read_process_file(daemon.pid, "cgroup").decode(errors="replace").rpartition("::")[2].strip()
        warning = unit_warning(daemon.pid, cgroup)
        if warning is not None:
            click.echo(f"warning: {warning}", err=True)
    _wait_for_the_api(settings, answer["version"])
    _show(as_json, {"upgraded": True, "from": before["version"], "version": answer["version"]})
    return exit_codes.OK


def _is_elsewhere(environment: str) -> bool:
    """Return whether the daemon uses another environment than this command."""
    try:
        return not os.path.samefile(environment, sys.prefix)
    except OSError:  # ENOENT: it was removed
        return True


def _two_environments(of_daemon: str) -> Failure:
    return Failure(
        f"not upgraded: the daemon runs from {of_daemon}, and this command belongs to {sys.prefix}\n"
        f"  install the new version in {of_daemon}, and run: {of_daemon}/bin/ringward upgrade\n"
        f"  or move the daemon to {sys.prefix}: ringward upgrade --from-here",
        exit_codes.REFUSED,
    )


_PROBE = """
import importlib.util, json, os, ringward, sys, sysconfig
found = filter(None, map(importlib.util.find_spec, ("api", "logring", "store", "supervisor")))
packages = [ringward.__file__, *(place for one in found for place in one.submodule_search_locations or ())]
library = [sysconfig.get_path("stdlib"), *(one for one in sys.path if one.endswith("-packages"))]
trees = [*packages, *library, *([sys.prefix] if sys.prefix != sys.base_prefix else [])]
trees = [one for one in trees if os.path.isdir(one)]
print(json.dumps({"python": sys.executable, "prefix": sys.prefix, "packages": sys.path + packages, "trees": trees}))
"""


def own_environment() -> dict[str, object]:
    """Return the paths from which a daemon in the environment of this command would execute and load files.

    An isolated interpreter, like that of the daemon, reports them: without PYTHONPATH and packages of the user. `trees`
    are the directories from which it can load modules.
    """
    output = subprocess.run([sys.executable, "-I", "-c", _PROBE], stdout=subprocess.PIPE, check=True).stdout
    variables: dict[str, object] = json.loads(output)
    return variables


def check_owners(here: dict[str, Any], owners: set[int]) -> None:
    """Check that only `owners` can change the files of an environment.

    The daemon checks the paths itself. The thousands of files in the directories are checked here.

    Raises:
        Failure: another user can change a file, or a file cannot be examined.
    """
    try:
        paths = (exposed(path, owners) for path in (here["python"], here["prefix"], *here["packages"]))
        exposed_path = next(filter(None, paths), None) or next(_exposed_files(here["trees"], owners), None)
    except OSError as err:
        raise Failure(f"not upgraded: {err.filename}: {err.strerror}", exit_codes.NOT_PERMITTED) from err
    if exposed_path is not None:
        raise Failure(
            f"not upgraded: the daemon would execute files that other users can change: {exposed_path}",
            exit_codes.REFUSED,
        )


def _exposed_files(trees: list[str], owners: set[int]) -> Iterator[ExposedFile]:
    """Yield the files and directories below `trees` that other users than `owners` can change."""
    seen = set()
    waiting = list(trees)
    while waiting:
        directory = os.path.realpath(waiting.pop())
        if directory in seen:
            continue
        seen.add(directory)
        with os.scandir(directory) as entries:
            for entry in entries:
                exposed_path = exposure(entry.path, entry.stat(follow_symlinks=False), owners)
                if exposed_path is None and entry.is_symlink():
                    exposed_path = exposed(entry.path, owners)  # a symbolic link may lead anywhere
                if exposed_path is not None:
                    yield exposed_path
                # The packages of another environment, beside the standard library, are not loaded.
                if entry.is_dir() and not entry.name.endswith("-packages"):
                    waiting.append(entry.path)


def unit_warning(pid: int, cgroup: str) -> str | None:
    """Return a warning if the daemon's systemd unit starts it from another environment than this one.

    Args:
        pid: process id of the daemon.
        cgroup: path of its cgroup.
    """
    unit = next((part for part in reversed(cgroup.split("/")) if part.endswith(".service")), None)
    if unit is None:
        return None
    of_user = ["--user"] if "/user@" in cgroup else []
    command = ["systemctl", *of_user, "show", "--property=MainPID,ExecStart", unit]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=_SYSTEMCTL_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):  # ENOENT: this host has no systemd
        return None
    properties = dict(line.partition("=")[::2] for line in shown.splitlines())
    if properties.get("MainPID") != str(pid):
        return None  # a unit that started something else, which started the daemon
    program = properties.get("ExecStart", "").partition("path=")[2].partition(" ;")[0]
    if os.path.realpath(program).startswith(f"{os.path.realpath(sys.prefix)}/"):
        return None
    return (
        f"{unit} starts {program}, which does not belong to {sys.prefix}; change ExecStart= and ExecReload=, "
        "or the next start takes the version from there"
    )


def _wait_for_the_api(settings: Settings, version: str) -> None:
    """Wait until the API server has the new version too.

    Raises:
        Failure: it does not in time.
    """
    from supervisor.cli.client import Api, UnixEndpoint
    from supervisor.cli.lookups import daemon_states

    api = Api(UnixEndpoint(settings.socket()))
    if not any(daemon.get("version") == version for daemon in daemon_states(api, _API_S)):
        raise Failure(f"upgraded to {version}, but the API server does not answer; the daemon's log has the reason")


def _show(as_json: bool, result: dict[str, object]) -> None:
    from supervisor.cli.tables import show_json

    if as_json:
        show_json(result)
    elif not result["upgraded"]:
        click.echo(f"Ringward {result['version']} is already running")
    else:
        click.echo(f"Ringward {result['from']} -> {result['version']}")
