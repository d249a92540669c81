"""Writes text to a terminal or a pipe.

The output of a run is data, so a pipe gets it unchanged. A terminal gets it without the sequences that would move its
cursor, set its title or read its clipboard. Only colours (SGR, ECMA-48 8.3.117) are passed on.
"""

import io
import json
import os
import re
import select
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime
from typing import IO, Any, BinaryIO, Self

from supervisor.cli import exit_codes

_DIM, _RESET = "\x1b[2m", "\x1b[0m"
_CLIPPED, _WRAPPED = b"\x1b[?7l", b"\x1b[?7h"
"""Let the terminal clip text that is too long for a row, or wrap it into the next row."""
_WIPE = b"\r\x1b[K"
_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"
"""Switch to the terminal's alternate screen, and back to the previous lines."""
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_SPLIT_BYTES = 16 * 1024 - 4
"""Only lines of at least this size can be continued: the daemon splits lines over 16 KiB between two characters."""


def harmless(text: str) -> str:
    """Return `text` with all control characters except tabs, and all changes of writing direction, made visible."""
    return _CONTROL.sub(_visible, text)


def coloured(text: str) -> str:
    """Like :func:`harmless`, but keep colours and reset them at the end.

    If a text overwrites itself with carriage returns, only its last state remains, as on a terminal.
    """
    if not _CONTROL.search(text):
        return text
    parts = _COLOUR.split(text.removesuffix("\r").rpartition("\r")[2])
    result = "".join(part if index % 2 else harmless(part) for index, part in enumerate(parts))
    return result + _RESET if len(parts) > 1 else result


def may_colour(file: IO[Any]) -> bool:
    """Return whether commands add colours to what they write to `file`: only on a terminal, and if the user wants them.

    A user who sets ``NO_COLOR`` to anything (https://no-color.org) does not; neither does a terminal named ``dumb``.
    """
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return f"^{chr(code + 0x40)}"
    return "^?" if code == 0x7F else f"<{code:02x}>"


def end_with_reader() -> None:
    """End the program once nobody reads its output any more, even while it has nothing to write.

    Otherwise ``ringward logs -f web | grep -m1 ready`` would last until the service prints another line.
    """
    poll = select.poll()
    poll.register(1, 0)  # reports only that the other end of a pipe is closed

    def watch() -> None:
        poll.poll()
        os._exit(exit_codes.READER_GONE)

    threading.Thread(target=watch, daemon=True).start()


class LogPrinter:
    """Writes log lines."""

    def __init__(
        self,
        out: BinaryIO,
        err: BinaryIO | None = None,
        *,
        timestamps: bool = False,
        as_json: bool = False,
    ) -> None:
        """Write to one or two files.

        Args:
            out: Gets lines of standard output, and all other lines if there is no `err`.
            err: Gets lines of standard error and the daemon's own lines.
            timestamps: Whether each line begins with its local time and the offset from UTC.
            as_json: Whether each line is written as JSON.
        """
        self._files = {"stdout": out, "stderr": err or out, "system": err or out}
        self._terminals = {file: file.isatty() for file in self._files.values()}
        self._dims = {file: may_colour(file) for file in self._files.values()}
        self._timestamps = timestamps
        self._as_json = as_json
        self._open: set[str] = set()
        self._drawn: BinaryIO | None = None

    def line(self, line: dict[str, Any], prefix: str = "") -> None:
        """Write one line, given as a record of the API: n, ts, stream, text and perhaps continued.

        With a prefix, each part of a long line is written as a line of its own, because other lines can come between.
        """
        self._wipe()
        stream = str(line["stream"])
        file = self._files.get(stream, self._files["stdout"])
        if self._as_json:
            file.write(json.dumps(line).encode() + b"\n")
            return
        text = str(line["text"])
        beginning = prefix
        continued = stream in self._open and line.get("continued")
        if stream in self._open and not continued:
            beginning = "\n"
        if self._timestamps and not continued:
            beginning += f"{moment(line['ts'])} "
        self._open.discard(stream)
        ending = "\n"
        data = text.encode("utf-8", "replace")
        if len(data) >= _SPLIT_BYTES and not prefix:
            self._open.add(stream)
            ending = ""
        if self._terminals[file]:
            shown = coloured(text)
            dimmed = stream == "system" and self._dims[file]
            data = (f"{_DIM}{shown}{_RESET}" if dimmed else shown).encode("utf-8", "replace")
        file.write(beginning.encode() + data + ending.encode())

    def lines(self, batch: dict[str, Any]) -> None:
        """Write lines of one stream, given as a record of the API: n, count, ts, stream and text."""
        stream = str(batch["stream"])
        file = self._files.get(stream, self._files["stdout"])
        text = str(batch["text"])
        if self._as_json or self._timestamps or self._open or self._terminals[file]:
            for number, line in enumerate(text.split("\n"), int(batch["n"])):
                self.line({"n": number, "ts": batch["ts"], "stream": stream, "text": line})
            return
        self._wipe()
        file.write(text.encode("utf-8", "replace") + b"\n")

    def region(self, region: dict[str, Any]) -> None:
        """Show the lowest row of a redrawn region, given as a record of the API, until the next line is written.

        This does nothing if the output is not a terminal.
        """
        file = self._files.get(str(region["stream"]), self._files["stdout"])
        if self._as_json or self._open or not self._terminals[file]:
            return
        self._wipe()
        if region["rows"]:
            file.write(_CLIPPED + coloured(str(region["rows"][-1])).encode("utf-8", "replace") + _WRAPPED)
            self._drawn = file

    def _wipe(self) -> None:
        if self._drawn is not None:
            self._drawn.write(_WIPE)
            self._drawn.flush()  # before the other stream writes to the same terminal
            self._drawn = None

    def flush(self) -> None:
        """Flush both files."""
        for file in self._terminals:
            file.flush()

    def finish(self) -> None:
        """End all lines that were not continued, and flush."""
        self._wipe()
        for stream in sorted(self._open):
            self._files[stream].write(b"\n")
        self._open.clear()
        self.flush()


def moment(ms: int) -> str:
    """Format a time, in ms since the epoch, as local time in ISO 8601 with milliseconds and offset.

    A time that is out of range is returned as a number.
    """
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # EOVERFLOW
        return str(ms)


class _CapturedOutput(io.StringIO):
    """Captures printed text, and claims to be a terminal if standard output is one."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class LiveScreen:
    """Draws a picture repeatedly: in place on a terminal, and one below the other in a pipe."""

    def __init__(self) -> None:
        self._out = sys.stdout
        self._terminal = self._out.isatty()
        self._last = ""

    def __enter__(self) -> Self:
        if self._terminal:
            self._out.write(_ENTER)
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._terminal:
            self._out.write(f"{_LEAVE}{self._last}")  # the last picture stays on the normal screen
            self._out.flush()

    def draw(self, show: Callable[[], None]) -> None:
        """Draw the text that `show` prints, unless it has not changed."""
        picture = _CapturedOutput(terminal=self._terminal)
        with redirect_stdout(picture):
            show()
        text = picture.getvalue()
        if text == self._last:
            return
        if self._terminal:
            rows = text.splitlines()
            height = shutil.get_terminal_size().lines
            if len(rows) >= height:
                rows = [*rows[: height - 2], f"... and {len(rows) - height + 2} more lines"]
            self._out.write(_HOME + "".join(f"{row}{_REST_OF_LINE}\n" for row in rows) + _REST_OF_SCREEN)
        else:
            self._out.write(f"\n{text}" if self._last else text)
        self._out.flush()
        self._last = text
