"""When runs are to be looked at again. Belongs to the control thread."""

import heapq
from collections.abc import Container, Iterator

_MIN_SWEEP = 256


class Timers:
    """Moments, in monotonic seconds, each with the run that it is about; a run may have several.

    Args:
        live: ids of the runs that there are. What is due of others is passed over, and forgotten now and then: most of
            them are time-outs of runs that ended long ago.
    """

    def __init__(self, live: Container[str]) -> None:
        self._live = live
        self._heap: list[tuple[float, str]] = []
        self._sweep_at = _MIN_SWEEP

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when_s: float, run: str) -> None:
        """Look at `run` then."""
        heapq.heappush(self._heap, (when_s, run))
        if len(self._heap) >= self._sweep_at:
            self._heap = [timer for timer in self._heap if timer[1] in self._live]
            heapq.heapify(self._heap)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._heap))

    def next_s(self) -> float | None:
        """When the next one is due; None: there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> Iterator[str]:
        """The runs to be looked at now, the earliest first."""
        while self._heap and self._heap[0][0] <= now_s:
            _, run = heapq.heappop(self._heap)
            if run in self._live:
                yield run
