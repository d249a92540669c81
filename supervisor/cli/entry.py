"""The entry point of the program ``ringward``, which runs before any slow import."""

import io
import os
import signal
import sys
from typing import TextIO

from supervisor.cli import exit_codes
from supervisor.startup import early_api_server


def _open_what_is_closed() -> None:
    """Open /dev/null for standard descriptors that the caller has closed.

    Otherwise the next file to be opened would get such a number, and output would go to that file. In the daemon it
    would be a file in the data directory.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:  # EBADF; open(2) returns the lowest free number, which is this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 - as long as the program
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the program
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the program


def _prepared(stream: TextIO) -> TextIO:
    """Return an output stream for every text and for errors of the system."""
    if isinstance(stream, io.TextIOWrapper):
        if isinstance(stream.buffer, io.RawIOBase):  # PYTHONUNBUFFERED: the rest of a partial write would be lost
            buffer = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115 - as long as the program
            stream = io.TextIOWrapper(buffer, encoding=stream.encoding, line_buffering=stream.isatty())
        stream.reconfigure(errors="backslashreplace")  # a character that the encoding lacks must not end the program
    return stream


def main() -> None:
    """Entry point of the console script."""
    _open_what_is_closed()
    sys.stdout, sys.stderr = _prepared(sys.stdout), _prepared(sys.stderr)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller that ignores it would hide how our children end
    try:
        with early_api_server.starting(sys.argv[1:], os.environ):
            from supervisor.cli.main import cli

            cli(prog_name="ringward")
    except KeyboardInterrupt:  # during imports; click handles the others
        sys.exit(exit_codes.INTERRUPTED)
