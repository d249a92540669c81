"""The dispatcher of the transition table: where each run is, its events, its timers, and the reports of the pump.

Each event is looked up in the table (:mod:`.transitions`). The dispatcher carries out the actions, then enters the next
state. No action waits.
"""

import heapq
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from supervisor.host.osport import Wakeup
from supervisor.ipc.messages import Frame
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.transitions import Action, Event, State, step

_MIN_SWEEP = 256


class Timers:
    """Timers in monotonic seconds, each for one run; a run may have several.

    Args:
        live: ids of the runs that have a process. Timers of other runs are skipped, and removed now and then. Most of
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
        """Return when the next timer is due; None: there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> Iterator[str]:
        """Return the runs whose timers are due, the earliest first."""
        while self._heap and self._heap[0][0] <= now_s:
            _, run = heapq.heappop(self._heap)
            if run in self._live:
                yield run


class Dispatcher:
    """Handles the events of all runs, one after the other. Belongs to the control thread.

    Args:
        of_runs: the function of each action that takes a run id, and the detail of the event.
        of_processes: the function of each action that takes a process, and the detail of the event.
        changed: called with a process when its new state belongs in its recovery record.
    """

    def __init__(
        self,
        of_runs: Mapping[Action, Callable[[str, Any], None]],
        of_processes: Mapping[Action, Callable[[ManagedProcess, Any], None]],
        changed: Callable[[ManagedProcess], None],
    ) -> None:
        self._of_runs = of_runs
        self._of_processes = of_processes
        self._changed = changed
        self.live: dict[str, ManagedProcess] = {}
        """The processes, by run id. Each has its state."""
        self.timers = Timers(self.live)
        self._states: dict[str, State] = {}
        """Of the runs without a process; a run in neither collection is UNKNOWN."""
        self._events: deque[tuple[str, Event, Any]] = deque()
        """Events that are not handled yet, each with its run and its detail."""
        self._dispatching = False

    def state(self, run: str) -> State:
        """Return where a run is."""
        process = self.live.get(run)
        return self._states.get(run, State.UNKNOWN) if process is None else process.state

    def runs(self, *states: State) -> list[str]:
        """Return the runs in these states, which are states without a process."""
        return [run for run, state in self._states.items() if state in states]

    def restore(self, run: str, state: State) -> None:
        """Take over a run without a process in the state in which another root left it."""
        self._states[run] = state

    def happen(self, run: str, event: Event, detail: Any = None) -> None:
        """Handle an event of a run. An event reported by an action is handled after the transition."""
        self._events.append((run, event, detail))
        if not self._dispatching:
            self.dispatch()

    def dispatch(self) -> None:
        """Handle all events. A shortage ends this; the remaining events are handled next time."""
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
    """Events of the pump thread, on their way to the control thread, which handles them in the same order.

    Args:
        watch: wakes the control thread.
        happen: handles an event of a run.
        send: takes a message to the scheduler.
        ran_short: handles a failure of the pump for want of a resource.
    """

    def __init__(
        self,
        watch: EpollWatch,
        happen: Callable[[str, Event, Any], None],
        send: Callable[[Frame], None],
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
        """Report that the output of `run` passed the size at which it is to be stopped."""
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
