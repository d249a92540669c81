"""Record the output of a program.

Usage: ``python -m tests.logring.redraw.captures.record [--pipe] [--hide FROM=TO] FILE COMMAND...``.

The program has a terminal like the daemon's (120 columns, 40 rows, unchanged newlines), or both outputs on a pipe.
``--hide`` replaces a text that is specific to this machine by another one of the same length.
"""

import argparse
import fcntl
import os
import struct
import subprocess
import termios

from logring.redraw.unsettled_rows import COLUMNS, LINES


def read_all(fd: int) -> bytes:
    received = b""
    try:
        while data := os.read(fd, 65536):
            received += data
    except OSError:  # EIO: the end of a terminal's output
        pass
    return received


def record(command: list[str], *, pipe: bool) -> bytes:
    if pipe:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=-1, stderr=subprocess.STDOUT, check=False
        ).stdout
    master, slave = os.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(slave)
    recorded = read_all(master)
    child.wait()
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--pipe", action="store_true")
    parser.add_argument("--hide", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    recording = record(args.command, pipe=args.pipe)
    for pair in args.hide:
        hidden, shown = pair.split("=")
        assert len(hidden) == len(shown), pair
        recording = recording.replace(hidden.encode(), shown.encode())
    with open(args.file, "wb") as file:
        file.write(recording)


if __name__ == "__main__":
    main()
