"""Where the program ``ringward`` begins, before anything is loaded that takes long."""

import io
import os
import sys

from supervisor.startup import api_ahead


def _open_what_is_closed() -> None:
    """Give the standard descriptors that the caller has closed to /dev/null.

    Otherwise the next opened file would get such a number, and prints would end up in that file. In
    the daemon it would be a file of the data directory.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:  # EBADF; the next open(2) returns the lowest free number: this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the program


def main() -> None:
    """Entry point of the console script."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):  # a character missing in the encoding is no reason to exit
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with api_ahead.starting(sys.argv[1:], os.environ):
        from supervisor.cli.main import cli

        cli(prog_name="ringward")
