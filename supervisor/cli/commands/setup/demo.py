"""``ringward demo``: a temporary daemon with a year of history, to look around in."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import FrameType

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.paths import directories
from supervisor.host.files import private
from supervisor.ipc.child_process import RINGWARD

_START_S = 60.0
_PASSWORD_BYTES = 9


@click.command("demo", epilog="Example: ringward demo")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Loopback address of the dashboard; port 0: any free port.",
)
@click.option(
    "--keep",
    metavar="DIR",
    shell_complete=directories,
    help="Use this new directory, and keep it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print address and password as one line of JSON.")
def command(listen: str, keep: str | None, as_json: bool) -> int:
    """Start a demo daemon with a year of made-up history.

    It has the tasks and services of an imaginary shop, runs in a temporary directory, and leaves nothing behind after
    Ctrl-C.
    """
    _check_loopback(listen)
    with _signals(), _directory(keep) as directory:
        runs = _prepare(directory)
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        with _daemon(directory, listen, password) as (daemon, address):
            _say(directory, address, password, runs, kept_data=keep is not None, as_json=as_json)
            return daemon.wait()


def _check_loopback(listen: str) -> None:
    """Check that the demonstration is reachable only from this host.

    Raises:
        click.BadParameter: the value is not a loopback address.
    """
    from supervisor.config.problems import InvalidValue
    from supervisor.config.value_types.listen import check_exposed, parse_listen

    try:
        check_exposed(parse_listen(listen, any_port=True)[0], tls=False, behind_proxy=False)
    except InvalidValue as err:
        raise click.BadParameter(f"{listen}: {err.message}", param_hint="--listen") from err


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class _Interrupted(BaseException):
    """The user asked to end the demonstration."""


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let the first SIGTERM, SIGHUP, SIGQUIT or Ctrl-C end the block, so that nested blocks clean up; exit with 0."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise _Interrupted

    before = {each: signal.signal(each, end) for each in _ENDING}
    try:
        yield
    except _Interrupted:
        if sys.stdout.isatty():
            click.echo()  # ends the line on which the terminal has shown ^C
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def _directory(keep: str | None) -> Iterator[str]:
    """Create a new private directory, and remove it afterwards unless the user wants to keep it.

    Raises:
        Failure: the directory cannot be created.
    """
    try:
        if keep is None:
            with tempfile.TemporaryDirectory(prefix="ringward-demo-", ignore_cleanup_errors=True) as directory:
                yield os.path.realpath(directory)
        else:
            os.mkdir(keep, 0o700)
            yield os.path.realpath(keep)
    except OSError as err:
        place = err.filename or keep
        raise Failure(f"{f'{place}: ' if place else ''}{err.strerror or err}", exit_codes.DATA_DIR) from err


def _config(directory: str) -> str:
    return os.path.join(directory, "ringward.toml")


def _prepare(directory: str) -> int:
    """Write the configuration and the history; return the number of runs."""
    from supervisor.config.load import load
    from supervisor.host.zones import zone_named
    from supervisor.tools.demo.configuration import text
    from supervisor.tools.demo.seed import seed

    path = _config(directory)
    with open(path, "x", encoding="utf-8", opener=private) as file:
        file.write(text())
    config = load(path)
    data = os.path.join(directory, "data")
    os.mkdir(data, 0o700)
    return seed(data, config, time.time_ns() // 1_000_000, zone_named(config.daemon.timezone))


@contextlib.contextmanager
def _daemon(directory: str, listen: str, password: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Start the daemon, yield its process and its address once it is ready, and stop it afterwards.

    Raises:
        Failure: the daemon does not start.
    """
    log = os.path.join(directory, "daemon.log")
    arguments = [*RINGWARD, "up", "-c", _config(directory), "--listen", listen]
    with open(log, "wb") as output:
        daemon = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "RINGWARD_PASSWORD": password},
            start_new_session=True,  # Ctrl-C must reach only this process, which then stops the daemon
        )
    try:
        yield daemon, _wait(daemon, directory, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            daemon.terminate()
        daemon.wait()


def _say(directory: str, address: str, password: str, runs: int, *, kept_data: bool, as_json: bool) -> None:
    config = _config(directory)
    if as_json:
        facts = {"address": address, "password": password, "config": config, "runs": runs}
        click.echo(json.dumps(facts))
    else:
        click.echo(f"Ringward demo: {runs} runs of a year, in {directory}")
        click.echo(f"  address   {address}")
        click.echo(f"  password  {password}")
        click.echo(f"  commands  ringward -c {config} ps")
        click.echo("Press Ctrl-C to stop" + ("." if kept_data else " and remove everything."))
    sys.stdout.flush()


def _wait(daemon: "subprocess.Popen[bytes]", directory: str, log: str) -> str:
    """Wait until a daemon is ready; return its address.

    Raises:
        Failure: the daemon has ended or is not ready in time.
    """
    from supervisor.cli.client import Api, UnixEndpoint
    from supervisor.cli.lookups import daemon_states

    data = os.path.join(directory, "data")
    api = Api(UnixEndpoint(os.path.join(data, "ringward.sock")))
    for state in daemon_states(api, _START_S):
        if state.get("schedulerActive"):
            return _address(data)
        if daemon.poll() is not None:
            break
    with open(log, encoding="utf-8", errors="replace") as output:
        text = output.read().strip()
    raise Failure(f"the daemon did not start:\n{text}", daemon.poll() or exit_codes.UNREACHABLE)


def _address(data: str) -> str:
    """Return the address on which the daemon listens, because the kernel may have chosen the port."""
    from supervisor.startup.runtime_directory import candidates

    with open(os.path.join(data, "id"), encoding="ascii") as file:
        daemon_id = file.read().strip()
    for base in candidates(os.environ, os.geteuid()):
        with (
            contextlib.suppress(FileNotFoundError),
            open(os.path.join(base, daemon_id, "listening.json"), encoding="utf-8") as file,
        ):
            host, port = json.load(file)["http"][0]
            return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    raise Failure("cannot find the daemon's runtime directory", exit_codes.UNREACHABLE)
