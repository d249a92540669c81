"""A log as a plain list of lines, to compare with the real log."""

from dataclasses import dataclass, field

from logring.layout import STDERR, STDOUT, SYSTEM
from logring.reader import Line

STREAMS = (STDOUT, STDERR, SYSTEM)


@dataclass
class Model:
    """The expected lines, without blocks and entries.

    Attributes:
        longest: longest line in bytes.
        lines: finished lines.
        raw: everything printed, by stream.
        unfinished: the unfinished line, by stream.
    """

    longest: int
    lines: list[Line] = field(default_factory=list)
    raw: dict[int, bytes] = field(default_factory=lambda: dict.fromkeys(STREAMS, b""))
    unfinished: dict[int, bytes] = field(default_factory=lambda: dict.fromkeys(STREAMS, b""))
    continued: dict[int, bool] = field(default_factory=lambda: dict.fromkeys(STREAMS, False))

    def add(self, stream: int, data: bytes, now_ms: int) -> None:
        """Add the output of the program."""
        self.raw[stream] += data
        remaining = self.unfinished[stream] + data
        while remaining:
            text, newline, behind = remaining.partition(b"\n")
            if len(text) > self.longest:
                cut = self._cut(text)
                self._line(stream, text[:cut], now_ms, unfinished=True)
                remaining = remaining[cut:]
            elif newline:
                self._line(stream, text, now_ms, unfinished=False)
                remaining = behind
            else:
                break
        self.unfinished[stream] = remaining

    def end(self, now_ms: int) -> None:
        """End all streams."""
        for stream in STREAMS:
            if self.unfinished[stream]:
                self._line(stream, self.unfinished[stream], now_ms, unfinished=True)
                self.unfinished[stream] = b""

    def _cut(self, text: bytes) -> int:
        """Return where to split: before a character that does not fit, if there is one."""
        for back in range(1, 4):
            lead = self.longest - back
            width = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4 if text[lead] < 0xF8 else 1}.get(text[lead] >> 4, 1)
            inside = text[lead + 1 : self.longest + 1]
            if all(0x80 <= byte < 0xC0 for byte in inside) and width > back:
                return lead
        return self.longest

    def _line(self, stream: int, text: bytes, now_ms: int, *, unfinished: bool) -> None:
        self.lines.append(Line(len(self.lines), now_ms, stream, text, self.continued[stream], frames=0))
        self.continued[stream] = unfinished
