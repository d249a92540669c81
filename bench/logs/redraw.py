"""Speed of ingest for progress bars, beside the same number of bytes of plain lines through the same daemon."""

import sys
from dataclasses import dataclass

from bench.daemon import Daemon
from bench.logs.ingest import Source, through_daemon
from bench.measure import Row, in_turn, ratio_row


@dataclass(frozen=True)
class Bars:
    """Progress bars with so many frames a line, and so many bytes a frame."""

    frames: int
    frame_bytes: int

    def source(self, megabytes: int, end: str) -> Source:
        """Return a writer of frames with `end` after each, and a newline after the last of a line, 64 KB a write."""
        line_bytes = self.frames * self.frame_bytes
        lines = max(1, 64_000 // line_bytes)
        writes = megabytes * 1_000_000 // (lines * line_bytes)
        text = "99 %".rjust(self.frame_bytes - 1, "x")
        code = (
            f"import os\nb = (b'{text}{end}' * {self.frames - 1} + b'{text}\\n') * {lines}\n"
            f"for i in range({writes}): os.write(1, b)"
        )
        count = writes * lines * (1 if end == "\\r" else self.frames)
        return Source([sys.executable, "-I", "-S", "-c", code], count, text)


_BARS = (Bars(320, 200), Bars(100, 20))


def redraw(quick: bool) -> list[Row]:
    """Measure one fast writer of progress bars; the floor is the same bytes as lines."""
    megabytes = 20 if quick else 400
    return [_row(bars, megabytes, 2 if quick else 5) for bars in _BARS]


def _row(bars: Bars, megabytes: int, rounds: int) -> Row:
    drawn, plain = bars.source(megabytes, "\\r"), bars.source(megabytes, "\\n")
    with Daemon(drawn.definition()) as drawing, Daemon(plain.definition()) as printing:
        clients = drawing.client(), printing.client()

        def ours() -> float:
            drawing.remove_logs()
            return through_daemon(clients[0], drawn)

        def floor() -> float:
            printing.remove_logs()
            return through_daemon(clients[1], plain)

        pairs = in_turn(rounds, ours, floor)
    name = f"{megabytes} MB of progress bars, {bars.frames} x {bars.frame_bytes} B / of lines"
    return ratio_row(name, pairs, "{:.2f} s", 1.5)
