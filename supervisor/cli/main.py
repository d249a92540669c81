"""The program ``ringward``: its commands, its help, and how its errors become exit codes."""

import errno
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure, startup_failure
from supervisor.cli.settings import Settings, client_options
from supervisor.cli.suggestions import SuggestingGroup, with_suggestion
from supervisor.startup.refusal import NotStarted
from supervisor.version import VERSION

_GROUPS = {
    "Tasks and services": {
        "status": ("daemon.status", "Show the state of the daemon, its tasks and its services."),
        "ps": ("units.ps", "List all tasks and services."),
        "run": ("runs.run", "Run a task now and show its output."),
        "start": ("units.control", "Start services."),
        "stop": ("units.control", "Stop runs, all active runs of tasks, or services."),
        "restart": ("units.control", "Restart services."),
        "enable": ("units.control", "Let services be started again after stop --disable."),
        "pause": ("units.control", "Pause the schedules of tasks."),
        "resume": ("units.control", "Resume the schedules of tasks."),
        "approve": ("runs.approve", "Let a run start that waits for an approval."),
        "reject": ("runs.approve", "End a run that waits for an approval."),
        "ack": ("units.ack", "Acknowledge the failure of a task or service."),
        "wait": ("units.wait", "Wait until units or runs reach a state."),
        "next": ("units.next", "Show the next times of tasks."),
        "window": ("units.window_control", "List, open and close windows."),
        "calendar": ("units.closed_days", "List the calendars, or the closed days of one."),
    },
    "Runs and logs": {
        "logs": ("runs.logs", "Show the log of a run."),
        "search": ("runs.search", "Search the logs of all runs."),
        "runs": ("runs.runs", "List runs, newest first."),
        "flow": ("runs.flow", "Show the steps of a run of a flow."),
        "ending": ("runs.ending", "Show why and how a run ended."),
        "rerun": ("runs.rerun", "Run the tasks of runs again."),
        "rm": ("runs.rm", "Delete ended runs."),
        "restore": ("runs.restore", "Restore deleted runs."),
        "wrap": ("runs.wrap", "Execute a command elsewhere, and report its run."),
    },
    "Configuration": {
        "init": ("setup.init", "Write a first configuration."),
        "import": ("setup.importing", "Convert the configuration of another program."),
        "validate": ("setup.validate", "Check the configuration."),
        "simulate": ("units.simulate", "Simulate the schedules."),
        "schema": ("setup.schema", "Print the JSON Schema of the configuration, for editors."),
        "reload": ("daemon.reload", "Reload the configuration."),
    },
    "Daemon": {
        "up": ("daemon.up", "Run the daemon in the foreground."),
        "service": ("setup.service", "Install the daemon as a service of this host."),
        "upgrade": ("daemon.upgrade", "Upgrade the daemon to the installed version."),
        "health": ("daemon.health", "Check that the daemon works."),
        "doctor": ("setup.doctor", "Check this host."),
        "notify": ("daemon.notify", "Send a test message through a notifier."),
        "backup": ("daemon.backup", "Copy the data directory, also while the daemon runs."),
        "recover": ("daemon.recover", "Begin an empty history after the daemon lost its own."),
        "trust-clock": ("daemon.trust_clock", "Confirm that the wall clock is right."),
        "demo": ("setup.demo", "Start a demo daemon with a year of made-up history."),
    },
    "Access": {
        "password": ("daemon.password", "Print the generated password."),
        "token": ("daemon.tokens", "Create, list and revoke tokens for the API."),
        "user": ("daemon.users", "Add, list and remove user accounts."),
        "audit": ("daemon.audit", "Show who did what."),
        "openapi": ("daemon.openapi", "Print the OpenAPI document of the HTTP API."),
        "mcp": ("daemon.mcp", "Give agents and editors access to the daemon (MCP)."),
        "completion": ("setup.completion", "Print a shell completion script."),
    },
}
COMMANDS = {name: described for group in _GROUPS.values() for name, described in group.items()}
"""For each command: its module in supervisor.cli.commands, which is imported only when it is called, and its help."""


def module_of(name: str) -> str:
    """Return the module of a command."""
    return f"supervisor.cli.commands.{COMMANDS[name][0]}"


def load(name: str) -> click.Command:
    """Import and return a command: `command` of its module, or the entry in `commands` of a module with several."""
    module = importlib.import_module(module_of(name))
    command: click.Command = module.commands[name] if hasattr(module, "commands") else module.command
    return command


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class ReaderGone(Exception):
    """The reader of standard output has closed the pipe."""


class CommandGroup(SuggestingGroup):
    """The group of all commands, which turns every outcome into an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; ``help`` and ``version`` in place of a command mean the options of that name."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        return load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; with --url, reject a command that only works on this host's daemon."""
        name, command, rest = super().resolve_command(ctx, args)
        here = command is not None and all(parameter.name != "url" for parameter in command.params)
        here = here and not isinstance(command, click.Group) and not ctx.resilient_parsing
        if here and ctx.ensure_object(Settings).url is not None:
            ctx.fail(f"{name} works on the daemon of this host only; it has no --url")
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the commands by purpose with their help lines, without loading the commands."""
        width = max(map(len, COMMANDS))
        for title, group in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in group.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the list of exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes.MEANINGS.items()])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the arguments; click prints help here, so errors of standard output are handled."""
        with _printing():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _printing():
            return super().invoke(ctx)

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: object) -> object:  # type: ignore[override]  # by keyword, as everybody does
        """Run a command, and exit with its code unless `standalone_mode` is false."""
        code = self._run(args, **extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, args: Sequence[str] | None = None, **extra: Any) -> int:
        try:
            result = super().main(args, standalone_mode=False, **extra)
        except NotStarted as err:
            failure = startup_failure(err)
            _print_error(failure)
            return failure.code
        except Failure as err:
            if err.code == exit_codes.OUTPUT:
                _discard(1)
            _print_error(err)
            return err.code
        except click.ClickException as err:  # click's own errors are all about the command line
            _print_error(with_suggestion(err) if isinstance(err, click.NoSuchOption) else err)
            return exit_codes.USAGE
        except click.Abort:
            return exit_codes.INTERRUPTED
        except ReaderGone:
            _discard(1)
            return exit_codes.READER_GONE
        except FileNotFoundError:  # a relative path cannot be resolved
            if not _is_current_directory_gone():
                raise
            _print_error(Failure("the current directory was removed; change to another one"))
            return exit_codes.USAGE
        return result if isinstance(result, int) else exit_codes.OK


@click.command(
    cls=CommandGroup,
    help="Run scheduled tasks and always-on services, and keep every line they print.\n\nExample: ringward run backup",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@client_options
@click.version_option(VERSION, "-V", "--version", prog_name="ringward")
def cli() -> None:
    """The group; its options are kept in :class:`supervisor.cli.settings.Settings`."""


@contextmanager
def _printing() -> Iterator[None]:
    """Turn errors of standard output (EPIPE, ENOSPC) into outcomes of the program.

    Errors of connections are failures by then, so these can only come from standard output.
    """
    try:
        try:
            yield
        except click.exceptions.Exit:  # after help was printed
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except BrokenPipeError as err:
        raise ReaderGone from err
    except OSError as err:
        if err.errno not in _UNWRITABLE:
            raise
        raise Failure(f"cannot write output: {err.strerror}", exit_codes.OUTPUT) from err


def _is_current_directory_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _discard(fd: int) -> None:
    """Redirect `fd` to /dev/null: a flush of buffered text at exit would fail, and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def _print_error(err: click.ClickException) -> None:
    """Print an error; if standard error fails too, only the exit code reports it."""
    try:
        err.show()
    except OSError:  # EPIPE, ENOSPC
        _discard(2)
