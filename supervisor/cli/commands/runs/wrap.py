"""``ringward wrap``: execute a command here, and report its run to a daemon elsewhere."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.paths import files
from supervisor.cli.settings import Settings, client_options, pass_settings

if TYPE_CHECKING:
    from supervisor.cli.client import Api

_MOST_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 16
_START_S = 10.0
"""How long the beginning of the command may wait for the report of it."""
_AGAIN_S = (1, 5, 15, 60)
"""Seconds before each further attempt to report the end."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_CANNOT_EXECUTE, _NOT_FOUND = 126, 127


class _Output:
    """The end of what a command prints, which goes on to our own streams, too."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._kept = 0
        self._is_cut = False
        self._lock = threading.Lock()

    def copy(self, source: BinaryIO, target: BinaryIO) -> None:
        """Copy all of `source` to `target`, and keep its lines whole: another thread keeps those of the other."""
        rest = b""
        while data := os.read(source.fileno(), _CHUNK_BYTES):
            with contextlib.suppress(OSError):  # nobody reads ours any more, such as EPIPE
                target.write(data)
                target.flush()
            whole, newline, rest = (rest + data).rpartition(b"\n")
            if newline:
                self.keep(whole + newline)
            if len(rest) > _MOST_BYTES:
                self.keep(rest)
                rest = b""
        if rest:
            self.keep(rest + b"\n")

    def keep(self, data: bytes) -> None:
        """Keep something that the command printed, or that explains why it printed nothing."""
        with self._lock:
            self._parts.append(data)
            self._kept += len(data)
            while self._kept - len(self._parts[0]) >= _MOST_BYTES:
                self._kept -= len(self._parts.popleft())
                self._is_cut = True

    def end(self) -> bytes:
        """Return the last 64 KiB at most, from the beginning of a line on."""
        text = b"".join(self._parts)
        if not self._is_cut and len(text) <= _MOST_BYTES:
            return text
        note = b"(the beginning of the output is left out)\n"
        return note + text[len(note) - _MOST_BYTES :].partition(b"\n")[2]


@click.command(
    "wrap",
    epilog="Example: ringward wrap --url https://ringward.example.com --token-file /etc/offsite.token -- ./backup.sh",
)
@client_options
@click.option(
    "--token-file", required=True, metavar="FILE", help="The file with the token of the task.", shell_complete=files
)
@click.argument("argv", metavar="COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_settings
def command(settings: Settings, token_file: str, argv: tuple[str, ...]) -> None:
    """Execute a command, and report its beginning, its end and its output to the daemon.

    The daemon has a task with external = true and the same token. The exit code is that of the command, whether or not
    the daemon can be reached.
    """
    from supervisor.cli.client import is_token

    try:
        with open(token_file, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "is not UTF-8"
        raise Failure(f"{token_file}: {reason}", exit_codes.USAGE) from err
    if not is_token(token):
        raise Failure(f"{token_file}: holds no token, which is one word", exit_codes.USAGE)
    api, path = settings.api(), f"/api/pings/{quote(token, safe='')}"
    _report(api, f"{path}/start", b"", (), timeout_s=_START_S)
    output = _Output()
    code = _execute(argv, output)
    _report(api, f"{path}/{code}", output.end(), _AGAIN_S)
    sys.exit(code)


def _report(api: "Api", path: str, body: bytes, again_s: tuple[int, ...], timeout_s: float = 30.0) -> None:
    """Send a report; try again after these seconds, and say so if it cannot be sent."""
    for wait_s in (*again_s, None):
        try:
            api.send_text(path, body, timeout_s)
        except Failure as err:
            if wait_s is None or err.code != exit_codes.UNREACHABLE:
                click.echo(f"ringward: cannot report to {api.endpoint}: {err}", err=True)
                return
            time.sleep(wait_s)
        else:
            return


def _execute(argv: tuple[str, ...], output: _Output) -> int:
    """Execute a command to its end, and return its exit code as a shell has it."""
    try:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as err:
        message = f"ringward: {argv[0]}: {err.strerror}"
        click.echo(message, err=True)
        output.keep(f"{message}\n".encode())
        return _NOT_FOUND if isinstance(err, FileNotFoundError) else _CANNOT_EXECUTE
    for number in _FORWARDED:
        signal.signal(number, lambda caught, _frame: child.send_signal(caught))
    assert child.stdout is not None and child.stderr is not None  # noqa: S101, PT018 - as asked for
    pairs = ((child.stdout, sys.stdout.buffer), (child.stderr, sys.stderr.buffer))
    copies = [threading.Thread(target=output.copy, args=pair) for pair in pairs]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.join()
    code = child.wait()
    return code if code >= 0 else 128 - code
