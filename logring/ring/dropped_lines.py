"""Output for which there is no place: counted, not kept."""

from logring.layout import STREAM_NAMES, SYSTEM


class Gap:
    """Lines that a log does not keep at present, and why.

    Lines are counted at their newline; of a line that is unfinished when the gap begins nothing is kept.

    Attributes:
        reason: why there is no place.
        lines: dropped lines.
        bytes: bytes of the dropped lines, including unfinished ones.
        inside: by stream, whether the last dropped text is an unfinished line.
        notes: our own lines of this time, with when they came: they are kept for the end of the gap.
    """

    __slots__ = ("_room", "bytes", "inside", "lines", "notes", "reason")

    def __init__(self, reason: str, room: int) -> None:
        """`room` is how many bytes the notes may have together; more are dropped as other lines are."""
        self._room = room
        self.reason = reason
        self.lines = self.bytes = 0
        self.inside = [False] * len(STREAM_NAMES)
        self.notes: list[tuple[bytes, int]] = []

    def drop(self, stream: int, data: bytes | None, now_ms: int) -> int:
        """Take in output of a stream, None for its end; returns how many lines are dropped with that."""
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
        """Return the line that the log contains instead of the dropped lines."""
        lines = "1 line" if self.lines == 1 else f"{self.lines} lines"
        return f"{lines} ({self.bytes} bytes) dropped: {self.reason}"
