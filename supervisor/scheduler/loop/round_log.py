"""The scheduler's own log: the lines of one round of its loop are written together.

Each write wakes the root, which takes in what came and passes it on; under load a run has a line or two.
"""

import select

from supervisor.ipc.log_line import Log
from supervisor.scheduler.loop.loop import Loop


class RoundLog(Log):
    """Belongs to the thread of the loop."""

    def __init__(self, level: str, fd: int = 2) -> None:
        super().__init__("scheduler", level, fd)
        self._loop: Loop | None = None
        self._lines: list[bytes] = []

    def attach(self, loop: Loop) -> None:
        """From now on lines wait for the end of the round."""
        self._loop = loop

    def emit(self, line: bytes) -> None:
        """Keep a line for the end of the round; write it now when there is none."""
        if self._loop is None:
            super().emit(line)
        else:
            self._lines.append(line)
            self._loop.last(self.flush)

    def flush(self) -> None:
        """Write what waits, in pieces that a pipe takes whole or not at all (PIPE_BUF, pipe(7))."""
        lines, self._lines = self._lines, []
        piece = b""
        for line in lines:
            if piece and len(piece) + len(line) > select.PIPE_BUF:
                super().emit(piece)
                piece = b""
            piece += line
        if piece:
            super().emit(piece)
