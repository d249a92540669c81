"""The entry point of the program ``ringward``, which runs before any slow import."""

import io
import os
import sys

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
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the program


def _prepare_output() -> None:
    """Prepare standard output and standard error for every text and for errors of the system."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if isinstance(stream.buffer, io.RawIOBase):  # PYTHONUNBUFFERED: the rest of a partial write would be lost
            buffer = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115 - as long as the program
            stream = io.TextIOWrapper(buffer, encoding=stream.encoding, line_buffering=stream.isatty())
            setattr(sys, name, stream)
        stream.reconfigure(errors="backslashreplace")  # a character that the encoding lacks must not end the program


def main() -> None:
    """Entry point of the console script."""
    _open_what_is_closed()
    _prepare_output()
    try:
        with early_api_server.starting(sys.argv[1:], os.environ):
            from supervisor.cli.main import cli

            cli(prog_name="ringward")
    except KeyboardInterrupt:  # during imports; click handles the others
        sys.exit(exit_codes.INTERRUPTED)
