"""A replacement for the daemon's Python that gives its scheduler a simulated wall clock.

    simulated_clock.py CLOCK -I -m ringward root ARGUMENTS
        the root, which starts its helpers through simulated_clock.py, at once
    simulated_clock.py CLOCK -I -m ringward scheduler ARGUMENTS
        the scheduler, which uses the clock in the file CLOCK
    simulated_clock.py CLOCK -I -m ringward PROCESS ARGUMENTS
        unchanged

CLOCK is a file with the two clocks that an event loop compares, in milliseconds: the wall clock since the epoch, and
the time since boot, including suspends. Delays follow real time. Production code knows nothing of this.
"""

import mmap
import os
import struct
import sys

from ringward import run

_FORM = struct.Struct("<qq")
LOOK_S = 0.005
"""Interval at which a scheduler reads the clock, because changes to it are not announced."""


class SimulatedClock:
    """The simulated clock, for its writer and its readers."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)

    @property
    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return self._read()[0]

    @property
    def boot_ms(self) -> int:
        return self._read()[1]

    def pass_to(self, now_ms: int) -> None:
        """Let time pass."""
        wall_ms, boot_ms = self._read()
        self._memory[:] = _FORM.pack(now_ms, boot_ms + now_ms - wall_ms)

    def set_to(self, now_ms: int) -> None:
        """Step the wall clock."""
        self._memory[:] = _FORM.pack(now_ms, self.boot_ms)

    def _read(self) -> tuple[int, int]:
        wall_ms, boot_ms = _FORM.unpack(self._memory[:])
        return wall_ms, boot_ms


def make(path: str, now_ms: int) -> SimulatedClock:
    """Create a clock."""
    with open(path, "wb") as file:
        file.write(_FORM.pack(now_ms, 0))
    return SimulatedClock(path)


def follow(clock: SimulatedClock) -> None:
    """Make every event loop of this process use the clock."""
    from supervisor.host.clock import Clock
    from supervisor.scheduler.loop.loop import Loop

    whole_round = Loop.round

    def in_short(loop: Loop, until_s: float | None) -> None:
        look_s = loop.now_s() + LOOK_S
        whole_round(loop, look_s if until_s is None else min(until_s, look_s))

    Loop.round = in_short  # type: ignore[assignment, method-assign]
    Clock.wall_ms = lambda _clock: clock.now_ms  # type: ignore[assignment, method-assign]
    Clock.boot_s = lambda _clock: clock.boot_ms / 1000  # type: ignore[assignment, method-assign]
    Clock.alarm = lambda _clock: None  # type: ignore[assignment, method-assign]


def main() -> None:
    clock, _, _, _, process, *arguments = sys.argv[1:]
    if process == "root":
        from supervisor.root import helper_processes

        sys.executable = os.environ["CLOCK_PYTHON"]
        helper_processes._DELAYS_S = (0.0,)  # type: ignore[assignment]
    elif process == "scheduler":
        follow(SimulatedClock(clock))
    sys.argv = [process, *arguments]
    sys.exit(run(process))


if __name__ == "__main__":
    main()
