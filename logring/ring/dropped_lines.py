"""Output that is counted but not kept, because there is no place for it."""

import builtins
from dataclasses import dataclass, field

from logring.layout import STREAM_NAMES, SYSTEM
from logring.state_json import tagged


@tagged("Gap", "_room bytes inside lines notes reason")
@dataclass(slots=True, eq=False)
class Gap:
    """Lines that a log currently drops, and the reason.

    Lines are counted at their newline. A line that is unfinished when the gap begins is dropped completely.

    Args:
        room: limits the notes, in bytes; further notes are dropped like other lines.

    Attributes:
        reason: why there is no place, as text.
        lines: number of dropped lines.
        bytes: bytes of the dropped lines, including unfinished ones.
        inside: whether the last dropped text is an unfinished line, for each stream.
        notes: the daemon's own lines during the gap, with their arrival times; they are placed after the gap.
    """

    reason: str
    _room: int
    lines: int = 0
    bytes: int = 0
    inside: list[bool] = field(default_factory=lambda: [False] * len(STREAM_NAMES))
    notes: list[tuple[builtins.bytes, int]] = field(default_factory=list)

    def drop(self, stream: int, data: builtins.bytes | None, now_ms: int) -> int:
        """Drop output of a stream (None: its end), or keep it as a note; return the number of lines dropped."""
        if data is None:
            count = int(self.inside[stream])
            self.inside[stream] = False
        elif stream == SYSTEM and len(data) <= self._room:
            self._room -= len(data)
            self.notes.append((data, now_ms))
            return 0
        else:
            count = data.count(b"\n")
            self.bytes += len(data)
            self.inside[stream] = not data.endswith(b"\n") if data else self.inside[stream]
        self.lines += count
        return count

    @property
    def notice(self) -> str:
        """The text of the line that replaces the dropped lines in the log."""
        lines = "1 line" if self.lines == 1 else f"{self.lines} lines"
        return f"{lines} ({self.bytes} bytes) dropped: {self.reason}"
