"""The state, events and timers of each run, and the reports from the pump.

The dispatcher looks up each event in the table (:mod:`.transitions`), carries out the actions, and then enters the next
state. No action blocks.
"""

import heapq
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping

from supervisor.host.clock import Wakeup
from supervisor.ipc.messages import Message
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.transitions import Action, Event, State, step

_MIN_SWEEP = 256


class Timers:
    """Timers in monotonic seconds, each for one run; a run may have several.

    Args:
        live: The ids of the runs that have a process. Timers of other runs, mostly time limits of runs that ended long
            ago, are skipped and removed from time to time.
    """

    def __init__(self, live: Container[str]) -> None:
        self._live = live
        self._heap: list[tuple[float, str]] = []
        self._sweep_at = _MIN_SWEEP

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when_s: float, run: str) -> None:
        """Make `run` due at `when_s`."""
        heapq.heappush(self._heap, (when_s, run))
        if len(self._heap) >= self._sweep_at:
            self._heap = [timer for timer in self._heap if timer[1] in self._live]
            heapq.heapify(self._heap)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._heap))

    def next_s(self) -> float | None:
        """Return when the next timer is due; None: there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> Iterator[str]:
        """Return the runs whose timers are due, the earliest first."""
        while self._heap and self._heap[0][0] <= now_s:
            _, run = heapq.heappop(self._heap)
            if run in self._live:
                yield run


class Dispatcher:
    """Handles the events of all runs in order. Belongs to the control thread.

    Args:
        of_runs: The actions that take a run id and the event's detail.
        of_processes: The actions that take a process and the event's detail.
        changed: Called with a process whose new state must be written to its recovery record.
    """

    def __init__(
        self,
        of_runs: Mapping[Action, Callable[[str, object], None]],
        of_processes: Mapping[Action, Callable[[ManagedProcess, object], None]],
        changed: Callable[[ManagedProcess], None],
    ) -> None:
        self._of_runs = of_runs
        self._of_processes = of_processes
        self._changed = changed
        self.live: dict[str, ManagedProcess] = {}
        """The processes by run id. Each knows its own state."""
        self.timers = Timers(self.live)
        self._states: dict[str, State] = {}
        """The states of runs without a process. A run in neither collection is UNKNOWN."""
        self._events: deque[tuple[str, Event, object]] = deque()
        """Unhandled events: run id, event, detail."""
        self._dispatching = False

    def state(self, run: str) -> State:
        """Return the state of a run."""
        process = self.live.get(run)
        return self._states.get(run, State.UNKNOWN) if process is None else process.state

    def runs(self, *states: State) -> list[str]:
        """Return the runs in these states; only for states in which a run has no process."""
        return [run for run, state in self._states.items() if state in states]

    def restore(self, run: str, state: State) -> None:
        """Restore the state of a run without a process that the previous root left."""
        self._states[run] = state

    def happen(self, run: str, event: Event, detail: object = None) -> None:
        """Handle an event of a run. An event reported by an action is handled after the transition."""
        self._events.append((run, event, detail))
        if not self._dispatching:
            self.dispatch()

    def dispatch(self) -> None:
        """Handle all events. If a shortage interrupts this, the next call handles the remaining events."""
        self._dispatching = True
        try:
            while self._events:
                run, event, detail = self._events.popleft()
                before = self.state(run)
                after, actions = step(before, event)
                for action in actions:
                    if action in self._of_runs:
                        self._of_runs[action](run, detail)
                    else:
                        self._of_processes[action](self.live[run], detail)
                if after is not before:
                    self._enter(run, after)
        finally:
            self._dispatching = False

    def _enter(self, run: str, state: State) -> None:
        process = self.live.get(run)
        if process is not None:
            self._states.pop(run, None)
            phase, process.state = process.phase, state
            if process.phase is not phase or state in (State.STOPPING, State.KILLED):
                self._changed(process)
        elif state is State.UNKNOWN:
            self._states.pop(run, None)
        else:
            self._states[run] = state


class PumpReports:
    """A queue of reports from the pump thread, which the control thread handles in order.

    Args:
        watch: The control thread's epoll object.
        happen: Handles an event of a run.
        send: Sends a message to the scheduler.
        ran_short: Handles a shortage that interrupted the pump.
    """

    def __init__(
        self,
        watch: EpollWatch,
        happen: Callable[[str, Event, object], None],
        send: Callable[[Message], None],
        ran_short: Callable[[BaseException], None],
    ) -> None:
        self._happen = happen
        self._send = send
        self._ran_short = ran_short
        self._waiting: deque[Callable[[], None]] = deque()
        self._wakeup = Wakeup()
        watch.add(self._wakeup.fileno(), lambda _mask: self._deliver())

    # Called in the pump thread.

    def at_end(self, run: str, *, silent: bool) -> None:
        """Report that all pipes of `run` have ended; `silent`: its log was empty until then."""
        self._waiting.append(lambda: self._happen(run, Event.DRAINED, silent))

    def sealed(self, run: str, lines: int) -> None:
        """Report that the log of `run` is complete."""
        self._waiting.append(lambda: self._happen(run, Event.SEALED, lines))

    def overflowed(self, run: str) -> None:
        """Report that the output of `run` has passed ``log_max_size``, so the run must be stopped."""
        self._waiting.append(lambda: self._happen(run, Event.OVERFLOWED, {"cause": "overflow"}))

    def log_changed(self, run: str, state: str, reason: str | None) -> None:
        """Report a changed state of the log of `run`."""
        self._waiting.append(lambda: self._send({"op": "log", "run": run, "state": state, "reason": reason}))

    def ran_short(self, err: BaseException) -> None:
        """Report that a step failed for a shortage."""
        self._waiting.append(lambda: self._ran_short(err))

    def wake(self) -> None:
        """Wake the control thread if a report waits."""
        if self._waiting:
            self._wakeup.set()

    # Called in the control thread.

    def catch_up(self) -> bool:
        """Deliver the reports; return whether there were any."""
        busy = bool(self._waiting)
        self._deliver()
        return busy

    def _deliver(self) -> None:
        self._wakeup.clear()
        while self._waiting:
            self._waiting.popleft()()
