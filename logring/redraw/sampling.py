"""A bounded history of a line that is redrawn endlessly: samples from its whole life."""

from dataclasses import dataclass, field

from logring.state_json import tagged

MAX_FRAMES = 64
MAX_FRAMES_BYTES = 16384

Frame = tuple[bytes, ...]
"""The rows of one picture."""


@tagged("Samples", "_count _frames _size _stride")
@dataclass(slots=True, eq=False)
class Samples:
    """Frames of a line or block. When there are too many, half of them are dropped: every other picture.

    The first picture is always kept. The last is added when the line settles.
    """

    _frames: list[Frame] = field(default_factory=list)
    _size: int = 0
    _count: int = 0
    _stride: int = 1

    @property
    def empty(self) -> bool:
        """Whether there is no picture yet."""
        return not self._frames

    def due(self) -> bool:
        """Count one picture and return whether it should be added."""
        self._count += 1
        return self._count % self._stride == 0

    def add(self, frame: Frame) -> None:
        """Add a picture, unless it is empty or equals the last one."""
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
        """Return all frames, with `settled` as the last; empty if nothing was ever drawn over.

        A history that is too large loses its oldest frames after the first, then the first frame, then all.
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
