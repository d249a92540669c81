"""``ringward up``: prepares the start of the daemon, then becomes its root process."""

import contextlib
import gc
import os
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, say, startup_failure
from supervisor.cli.settings import CONFIG, DATA, Settings, config_errors, pass_settings
from supervisor.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from supervisor.config.model import Config
    from supervisor.config.problems import InvalidValue, Problem
    from supervisor.ipc.messages import DaemonSettings
    from supervisor.startup.admin_password import Password
    from supervisor.startup.api_user import ApiUser
    from supervisor.startup.runtime_directory import LockedRuntimeDirectory


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


@click.command("up", epilog="Example: ringward up --config examples/ringward.toml")
@CONFIG
@DATA
@click.option(
    "--listen",
    metavar="HOST:PORT",
    multiple=True,
    help="Replace the addresses of the configuration; may be repeated; port 0: any free port.",
)
@click.option(
    "--ready-fd",
    metavar="N",
    type=click.IntRange(min=3),
    help="Write a line to this open descriptor when ready, and close it (s6, dinit).",
)
@click.option(
    "--new-history",
    is_flag=True,
    help="Begin with an empty history if the database and its copy are missing or damaged.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the start banner as one line of JSON.")
@pass_settings
def command(
    settings: Settings, listen: tuple[str, ...], ready_fd: int | None, new_history: bool, as_json: bool
) -> None:
    """Run the daemon in the foreground.

    It checks the configuration first. On SIGTERM or Ctrl-C the daemon stops all runs and exits.
    """
    from supervisor.host import signal_sets

    gc.disable()  # execve(2) soon replaces this process by the root
    # A signal with another meaning than the end, such as SIGHUP, waits for the root.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal_sets.ignored(_ENDING))
    try:
        _prepare(settings, listen, ready_fd, new_history=new_history, as_json=as_json)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        gc.enable()


def _prepare(
    settings: Settings, listen: tuple[str, ...], ready_fd: int | None, *, new_history: bool, as_json: bool
) -> None:
    """Prepare everything, send the API server its settings, and become the root."""
    from supervisor.cli.commands.daemon.recover import allow
    from supervisor.config.files.lookup import data_dir, require_config
    from supervisor.config.load import load
    from supervisor.ipc.messages import DaemonSettings
    from supervisor.startup import advice, api_access, data_directory, descriptors, host_check, runtime_directory
    from supervisor.startup.configured_settings import configured_settings

    descriptors.require()
    addresses = _addresses(listen)
    if ready_fd is not None:
        _check_open(ready_fd)
    with config_errors():
        config = load(require_config(settings.config, os.environ))
    _check_exposed(addresses, config)
    with config_errors():
        resolved = host_check.check_host(config, os.environ)
    directory = data_dir(settings.data, config.daemon.data_dir, os.environ)
    with config_errors():
        http_socket = host_check.check_paths(config, directory)
    _check_text(directory)
    database = config.storage.database
    with _ending_orphans(directory, database.url if database else f"{directory}/ringward.db") as locks:
        data_directory.prepare(directory)
        locks.append(data_directory.take_lock(directory))
        if new_history and database is not None:
            raise click.BadParameter("the history is in PostgreSQL; restore it there", param_hint="--new-history")
        with config_errors():
            api_user = host_check.reaching(resolved.api_user, config, directory)
        shared = api_user.account is not None
        with contextlib.ExitStack() as undone:
            undone.enter_context(_cleaning_up())
            daemon_id, runtime = _identified(directory, http_socket, shared=shared)
            undone.enter_context(runtime_directory.removed_unless_started(runtime))
            allow(directory, allowed=new_history)
            daemon_settings = DaemonSettings(
                daemon_id=daemon_id,
                data_dir=directory,
                runtime_dir=runtime.path,
                runtime_bases=runtime_directory.bases(daemon_id, os.environ, shared=shared),
                config_path=config.path,
                listen=addresses or list(config.http.listen),
                http_socket=http_socket,
                api_account=api_user.account,
                api_groups=api_user.groups,
                # Environment variables that affect the connection to the database.
                private_variables=[*database.variables, "PGPASSWORD"] if database else [],
                password=resolved.password.value,
                password_ephemeral=resolved.password.ephemeral,
                token=os.urandom(32).hex(),
                run_token_key=data_directory.run_token_key(directory),
                started_at=time.time_ns() // 1_000_000,
                overridden=_overridden(settings, addresses),
                **configured_settings(config, resolved),
            )
            try:
                api_access.share(daemon_settings)
            except OSError as err:
                raise data_directory.unusable(directory, err) from err
            warnings = [*config.warnings, *advice.advised_soon(config, os.environ)]
            _banner(daemon_settings, config, resolved.password, api_user, warnings, as_json=as_json)
            _become_root(daemon_settings, config, (*locks, runtime.lock), ready_fd)


class _Ended(BaseException):
    """A signal ends the start."""


@contextlib.contextmanager
def _cleaning_up() -> "Iterator[None]":
    """Let the first signal that would end this process leave the block first, so that nested blocks clean up."""
    signals = [each for each in _ENDING if signal.getsignal(each) is signal.SIG_DFL]  # Ctrl-C raises an exception

    def end(number: int, _frame: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise _Ended(number)

    for each in signals:
        signal.signal(each, end)
    try:
        yield
    except _Ended as err:
        signal.signal(err.args[0], signal.SIG_DFL)
        signal.raise_signal(err.args[0])
    finally:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def _ending_orphans(directory: str, database: str) -> "Iterator[list[int]]":
    """Collect the locks of a start. If this host prevents the start, end what a killed supervisor left running."""
    from supervisor.startup.refusal import NotStarted

    locks: list[int] = []
    try:
        yield locks
    except (NotStarted, Failure) as err:
        code = (startup_failure(err) if isinstance(err, NotStarted) else err).code
        if code in (exit_codes.DATA_DIR, exit_codes.OS_ERROR):
            from supervisor.startup import failed_start

            for fd in locks:
                os.close(fd)
            runs = failed_start.end_orphans(directory, database, os.environ)
            if runs:
                names = ", ".join(f"{run.task_name} ({run.id})" for run in runs)
                say(f"ended runs that a killed supervisor left: {names}")
        raise


def _identified(directory: str, http_socket: str, *, shared: bool) -> "tuple[str, LockedRuntimeDirectory]":
    """Return the daemon's id and its runtime directory; a copy of a running daemon's data directory gets a new id.

    Raises:
        NotStarted: the running daemon uses this directory itself, whose lock file was removed.
    """
    from supervisor.ipc.listening_sockets import listener_at
    from supervisor.startup import data_directory, runtime_directory
    from supervisor.startup.refusal import NotStarted, RefusalCause

    daemon_id = data_directory.identity(directory)
    try:
        return daemon_id, runtime_directory.acquire(daemon_id, os.environ, shared=shared)
    except runtime_directory.IdentityInUse:
        pid = listener_at(http_socket)
        if pid is not None:  # the socket in a copy has no listener
            message = f"a daemon already runs on {directory} (pid {pid or 'unknown'})"
            raise NotStarted(message, RefusalCause.ALREADY_RUNNING) from None
        daemon_id = data_directory.new_id()
        click.echo(f"{directory} is a copy of the data directory of a running daemon; it gets a new id")
        return daemon_id, runtime_directory.acquire(daemon_id, os.environ, shared=shared)


def _overridden(settings: Settings, addresses: list[tuple[str, int]]) -> list[str]:
    """Return the keys that options or the environment override."""
    from supervisor.startup.admin_password import VARIABLE

    given = {"data_dir": settings.data, "listen": addresses, "password_file": VARIABLE in os.environ}
    return [key for key, value in given.items() if value]


def _check_text(directory: str) -> None:
    """Check that the path of the data directory is UTF-8; neither the database nor the API could represent another one.

    Raises:
        Failure: the path contains bytes that are not UTF-8.
    """
    try:
        directory.encode()
    except UnicodeEncodeError as err:
        raise Failure(f"{directory}: the path is not UTF-8; use another one", exit_codes.DATA_DIR) from err


def _check_open(fd: int) -> None:
    """Check that `fd` is open; call this before another file is opened, which could get the number.

    Raises:
        click.BadParameter: the descriptor is not open.
    """
    try:
        os.fstat(fd)
    except OSError as err:
        raise click.BadParameter(f"{fd} is not an open descriptor", param_hint="--ready-fd") from err


def _addresses(listen: tuple[str, ...]) -> list[tuple[str, int]]:
    from supervisor.config.problems import InvalidValue
    from supervisor.config.value_types.listen import parse_listen

    addresses = []
    for text in listen:
        try:
            addresses.append(parse_listen(text, any_port=True))
        except InvalidValue as err:
            raise _not_an_address(text, err) from err
    return addresses


def _check_exposed(addresses: list[tuple[str, int]], config: "Config") -> None:
    """Check the addresses in the options; those in the configuration were checked when it was loaded."""
    from supervisor.config.problems import InvalidValue
    from supervisor.config.value_types.listen import check_exposed

    for host, port in addresses:
        try:
            check_exposed(host, tls=config.http.tls_cert is not None, behind_proxy=bool(config.http.behind_proxy))
        except InvalidValue as err:
            raise _not_an_address(f"{host}:{port}", err) from err


def _not_an_address(text: str, err: "InvalidValue") -> click.BadParameter:
    message = f"{text}: {err.message}" + (f" ({err.remedy})" if err.remedy else "")
    return click.BadParameter(message, param_hint="--listen")


def _banner(
    daemon_settings: "DaemonSettings",
    config: "Config",
    password: "Password",
    api_user: "ApiUser",
    warnings: "Sequence[Problem]",
    *,
    as_json: bool,
) -> None:
    """Print the start banner. It contains a generated password only on a terminal: elsewhere a log would keep it."""
    from supervisor.ipc.plural import counted

    warning = None if api_user.warning is None else f"{api_user.warning}; {api_user.remedy}"
    if as_json:
        _print_line(
            {
                "version": VERSION,
                "config": config.path,
                "dataDir": daemon_settings.data_dir,
                "addresses": [_url(daemon_settings, host, port) for host, port in daemon_settings.listen],
                "socket": daemon_settings.http_socket,
                "password": password.origin,
                "tasks": len(config.tasks),
                "services": len(config.services),
                **({} if warning is None else {"warning": warning}),
                **({"warnings": [warning.to_dict() for warning in warnings]} if warnings else {}),
            }
        )
        return
    hint = password.origin
    if password.ephemeral:
        hint = f"{password.value} ({hint})" if sys.stdout.isatty() else f"{hint}; print it with: ringward password"
    facts = {
        "config": config.path,
        "data": daemon_settings.data_dir,
        "address": ", ".join(_url(daemon_settings, host, port) for host, port in daemon_settings.listen) or "none",
        "socket": daemon_settings.http_socket,
        "password": hint,
        "defined": f"{counted(len(config.tasks), 'task')}, {counted(len(config.services), 'service')}",
    }
    if warning is not None:
        facts["warning"] = warning
    click.echo(f"Ringward {VERSION}")
    for name, value in facts.items():
        click.echo(f"  {name:<9} {value}")
    sys.stdout.flush()
    for line in warnings:
        click.echo(f"warning: {line}", err=True)


def _print_line(facts: dict[str, object]) -> None:
    import json

    click.echo(json.dumps(facts))
    sys.stdout.flush()


def _url(daemon_settings: "DaemonSettings", host: str, port: int) -> str:
    scheme = "https" if daemon_settings.tls_cert else "http"
    shown = f"[{host}]" if ":" in host else host
    if not port:
        return f"{scheme}://{shown} (any free port)"
    return f"{scheme}://{shown}:{port}{daemon_settings.base_path}"


def _become_root(
    daemon_settings: "DaemonSettings", config: "Config", locks: "Sequence[int]", ready: int | None
) -> None:
    """Bind the addresses, and replace this process by the root. Settings are passed in memory: they contain secrets.

    Args:
        daemon_settings: the settings.
        config: the configuration, for the scheduler.
        locks: the descriptors that lock the data directory and the runtime directory.
        ready: receives a line when the daemon is ready.

    Raises:
        Failure: an address cannot be bound.
    """
    from supervisor.host import signal_sets
    from supervisor.ipc import stale_helpers
    from supervisor.ipc.child_process import RINGWARD
    from supervisor.ipc.listening_sockets import AddressInUse, CannotListen, listen
    from supervisor.startup import config_copy, data_directory, early_api_server
    from supervisor.startup.admin_password import VARIABLE

    # From now on signals wait for the root. They would end this process, or Python with a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - signal_sets.KEPT)
    try:
        killed = stale_helpers.end(daemon_settings.runtime_dir)
        if killed:
            names = ", ".join(map(str, killed))
            say(f"ended stale helpers of a killed supervisor: {names}")
        api = early_api_server.started()
        if api is not None:
            stale_helpers.note(
                daemon_settings.runtime_dir, stale_helpers.API, api.pid
            )  # before it has state that the next start would miss
        listeners = listen(daemon_settings)
        data_directory.store_identity(daemon_settings)
        with contextlib.suppress(
            OSError
        ):  # ENOSPC: one of two copies suffices; without any, the scheduler reads the files
            config_copy.keep(config, daemon_settings, applied=True)
        if api is not None:
            early_api_server.say_hello(api, daemon_settings, listeners)
        fds = [sock.fileno() for sock in listeners]
        server = None if api is None else [api.pid, api.pidfd, api.sock.fileno(), api.output]
        memory = _in_memory({"boot": daemon_settings.to_dict(), "listeners": fds, "api": server})
        os.environ.pop(VARIABLE, None)
        arguments = [*RINGWARD, "root", "--start", str(memory), "--lock", str(locks[0]), "--place", str(locks[1])]
        if ready is not None:
            arguments += ["--ready", str(ready)]
        for fd in (memory, *fds, *(server or ())[1:], *([] if ready is None else [ready])):
            os.set_inheritable(fd, True)
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is wanted
    except AddressInUse as err:
        remedy = "use another address with --listen"
        if "listen" not in daemon_settings.overridden:
            remedy = f"to take a free port, run: {shlex.join([*sys.argv, '--listen', '127.0.0.1:0'])}"
        raise Failure(f"{err}; {remedy}", exit_codes.OS_ERROR) from err
    except CannotListen as err:
        raise Failure(str(err), exit_codes.OS_ERROR) from err
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_memory(document: dict[str, object]) -> int:
    """Return a descriptor from which the root reads `document` as JSON."""
    import json

    fd = os.memfd_create("ringward-start")
    with open(fd, "w", encoding="utf-8", closefd=False) as file:
        json.dump(document, file)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
