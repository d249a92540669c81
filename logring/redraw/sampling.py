"""A bounded history of something that is redrawn without end: samples over the whole of its life."""

MAX_FRAMES = 64
MAX_FRAMES_BYTES = 16384

Frame = tuple[bytes, ...]
"""The rows of one picture."""


class Samples:
    """Frames of a line or block. First every picture is taken; whenever there are too many, every second goes.

    The first is always kept, and so is the last, which is added when the line settles.
    """

    __slots__ = ("_count", "_frames", "_size", "_stride")

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._size = self._count = 0
        self._stride = 1

    @property
    def empty(self) -> bool:
        """Return whether there is no picture yet."""
        return not self._frames

    def due(self) -> bool:
        """Count one picture; whether it is one to take."""
        self._count += 1
        return self._count % self._stride == 0

    def add(self, frame: Frame) -> None:
        """Take a picture, unless it is empty or shows nothing new."""
        frames = self._frames
        if not any(frame) or (frames and frames[-1] == frame):
            return
        frames.append(frame)
        self._size += _size(frame)
        while len(frames) > 1 and (len(frames) >= MAX_FRAMES or self._size > MAX_FRAMES_BYTES):
            del frames[1::2]
            self._size = sum(map(_size, frames))
            self._stride *= 2

    def finish(self, settled: Frame) -> tuple[Frame, ...]:
        """Return all frames, `settled` as the last; empty when nothing was ever drawn over.

        A history that is too large loses frames from the middle, then the first frame, then all.
        """
        frames, self._frames = self._frames, []
        if not frames or frames[-1] != settled:
            frames.append(settled)
        size = sum(map(_size, frames))
        while len(frames) > 1 and size > MAX_FRAMES_BYTES:
            size -= _size(frames.pop(1 if len(frames) > 2 else 0))
        return tuple(frames) if len(frames) > 1 else ()


def _size(frame: Frame) -> int:
    return sum(map(len, frame)) + len(frame)
