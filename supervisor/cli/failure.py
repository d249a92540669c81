"""Errors that end a command with one message and an exit code, and other messages for the user.

click.ClickException
└── Failure                all errors of this program
    ├── Unreachable        no daemon answers (supervisor.cli.client)
    ├── ErrorResponse      the daemon answered with an error (supervisor.cli.client)
    │   └── NotFound       the object does not exist
    └── UnexpectedAnswer   the answer is not from Ringward (supervisor.cli.daemon_answers)
"""

from typing import IO, Any

import click

from supervisor.cli import exit_codes
from supervisor.startup.refusal import NotStarted, RefusalCause

_CODES = {
    RefusalCause.CONFIGURATION: exit_codes.CONFIG,
    RefusalCause.DATA_DIRECTORY: exit_codes.DATA_DIR,
    RefusalCause.ALREADY_RUNNING: exit_codes.ALREADY_RUNNING,
    RefusalCause.HOST: exit_codes.OS_ERROR,
}


class Failure(click.ClickException):
    """Ends a command with a message and an exit code."""

    def __init__(self, message: str, code: int = exit_codes.REFUSED, *, plain: bool = False) -> None:
        """Create the error.

        Args:
            message: the problem and, if there is one, the remedy, for users.
            code: exit code of the program.
            plain: whether to omit the program's name before the message.
        """
        super().__init__(message)
        self.code = code
        self.plain = plain

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message to standard error."""
        from supervisor.cli.terminal import harmless

        text = self.message if self.plain else f"ringward: {self.message}"
        click.echo("\n".join(harmless(line) for line in text.split("\n")), file=file, err=True)


def say(text: str) -> None:
    """Print a message for the user to standard error."""
    click.echo(f"ringward: {text}", err=True)


def startup_failure(err: NotStarted) -> Failure:
    """Return the failure for a daemon that cannot start; its exit code depends on the cause."""
    return Failure(str(err), _CODES[err.cause])
