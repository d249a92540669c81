"""The stop ladder of a run, and the shutdown, which stops all runs.

The ladder sends signals to the whole process tree, each with its grace period, then SIGKILL. It finally logs any
survivors. The table (:mod:`.transitions`) decides when to take each step.

The shutdown::

    begun --ask the remaining runs--> asked --time-out--> all are killed --no exit for a while--> abandoned

The shutdown continues as long as exits arrive or the scheduler sends messages, so a busy host loses no exit. A service
manager is asked to wait for that long. Without one, the shutdown takes at most ten times its time-out. The control
thread passes the current time to every function.
"""

import signal

from supervisor.host.signal_sets import signal_name
from supervisor.root.process.leftovers import format_survivors
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.process_tree import ProcessTrees

_REPORT_AFTER_S = 10.0
_ASK_SHARE = 0.75
"""Share of the shutdown time-out. The scheduler stops all runs within half of it, unless it hangs."""
_KILLED_S = 1.0
"""The least time after SIGKILL for processes to end and for the scheduler to store their exits."""
_PROGRESS_S = 5.0
"""How long the shutdown waits for the next exit or message of the scheduler."""
_MOST_TIMES = 10
_MARGIN_S = 20.0
"""The longest time that helpers and threads may need to end after the shutdown."""
_EXTEND_EVERY_S = 1.0


def send_next_signal(trees: ProcessTrees, process: ManagedProcess, now_s: float) -> str | None:
    """Send the next signal and start its grace period; return a line for the run's log (None: the first signal)."""
    spawn, remaining = process.spawn, process.steps_left or 0
    ladder = [(spawn.stop_signal, spawn.grace_ms), *spawn.stop_then]
    number, wait_ms = ladder[-remaining]
    process.steps_left = remaining - 1
    process.deadline_s = now_s + wait_ms / 1000
    # A stopped process handles only SIGKILL until SIGCONT continues it. Signal 0 sends nothing (kill(2)).
    if spawn.stop_target == "main":
        trees.signal_main(process, number, signal.SIGCONT)
    else:
        trees.signal(process, number, signal.SIGCONT)
    return None if remaining == len(ladder) else f"did not exit in time: sending {signal_name(number)}"


def kill_at_once(process: ManagedProcess, now_s: float) -> None:
    """Skip the remaining signals: SIGKILL is due at once."""
    process.steps_left = None
    process.deadline_s = now_s


def kill(trees: ProcessTrees, process: ManagedProcess, now_s: float) -> str:
    """Send SIGKILL; return a line for the run's log."""
    trees.kill(process)
    process.deadline_s = now_s + _REPORT_AFTER_S
    return "sending SIGKILL" if process.steps_left is None else "did not exit in time: sending SIGKILL"


def survivors(trees: ProcessTrees, process: ManagedProcess) -> str:
    """Finish the ladder; return a line about the processes that survived SIGKILL."""
    process.deadline_s = None
    return format_survivors(process, list(trees.members(process).values()), _REPORT_AFTER_S)


class ShutdownProgress:
    """A shutdown in progress.

    Args:
        now_s: The current time in monotonic seconds, as in all methods.
        timeout_s: The time for a clean shutdown.
        managed: A service manager waits as long as it is asked to.
        at_once: Kill the runs at once instead of asking them to end.
    """

    def __init__(self, now_s: float, timeout_s: float, *, managed: bool, at_once: bool) -> None:
        self._managed = managed
        self._most_s = now_s + _MOST_TIMES * timeout_s
        self.kill_at_s = now_s if at_once else now_s + timeout_s
        self.ask_at_s: float | None = now_s + (0.0 if at_once else _ASK_SHARE * timeout_s)
        """When to stop the runs that the scheduler has not stopped; None: they were asked to stop."""
        self._live = 0
        self._progress_s = now_s
        self._extend_at_s = now_s + timeout_s

    def kill_remaining(self, now_s: float) -> None:
        """Kill the remaining runs now."""
        self.kill_at_s = min(self.kill_at_s, now_s)

    def note_message(self, now_s: float) -> None:
        """Note a message of the scheduler, which is progress."""
        self._progress_s = now_s

    def note_live(self, now_s: float, live: int) -> None:
        """Note the number of live runs; a decrease is progress."""
        if live < self._live:
            self._progress_s = now_s
        self._live = live

    def extension_us(self, now_s: float) -> int | None:
        """Return for how long the service manager must wait; None: it need not be asked again yet."""
        if not self._managed or now_s < self._extend_at_s:
            return None
        self._extend_at_s = now_s + _EXTEND_EVERY_S
        return self.patience_us(now_s)

    def patience_us(self, now_s: float) -> int:
        """Return how much longer the shutdown takes if there is no progress."""
        return round((self.give_up_at_s - now_s + _MARGIN_S) * 1_000_000)

    @property
    def give_up_at_s(self) -> float:
        """Return when to abandon the remaining runs if there is no progress."""
        least_s = self.kill_at_s + _KILLED_S
        wanted_s = max(least_s, self._progress_s + _PROGRESS_S)
        return wanted_s if self._managed else max(least_s, min(wanted_s, self._most_s))

    def due_s(self, now_s: float) -> float:
        """Return when the next step is due."""
        times = [self.give_up_at_s]
        if self.ask_at_s is not None:
            times.append(self.ask_at_s)
        if now_s < self.kill_at_s:
            times.append(self.kill_at_s)
        return min(times)
