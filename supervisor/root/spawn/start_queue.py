"""The two ways to start a run: at once by posix_spawn(3), or through a pre-forked child.

After a pause, a process that joins its cgroup waits about 10 ms for the kernel. A process created in its cgroup does
not (:mod:`.spares`). When many start, joining takes microseconds, and to make spares costs more than posix_spawn. So a
preforked child serves the first start after a pause. Starts without one, or soon after a join, join. A run whose
standard input stays open joins, too: a spare gets no descriptor for it.

The scheduler may announce a start while it stores the run. Then the root opens the descriptors of the run and informs
the child, which waits for the request. Without the request nothing runs, and the preparation is dropped.
"""

import select
import time
from collections.abc import Callable
from typing import Protocol

from supervisor.host.cgroups import Cgroup
from supervisor.host.shortage import Descriptors, is_shortage, reason
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Frame, Spawn
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.process.cgroup_manager import CgroupManager
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.spawn.posix_spawn import Plan, Started
from supervisor.root.spawn.prefork import HeldChild, PreforkPool

_QUIET_S = 0.02
"""As long as the kernel takes to forget that a process joined a cgroup."""
_REST_S = 0.003
"""From the use of a child to the creation of the next one: new runs come first."""
_END_S = 1.0
"""How long a spare may take to end."""
_TOO_FEW = "too few free descriptors"
_HOLD_S = 2.0
"""How long a prepared run waits for its request."""


class Start:
    """One that is under way."""

    __slots__ = ("cgroup", "log_notes", "notify_socket", "spawn", "stops")

    def __init__(self, spawn: Spawn, ear: NotifySocket | None) -> None:
        self.spawn = spawn
        self.notify_socket = ear
        self.cgroup: Cgroup | None = None
        self.log_notes: list[str] = []
        """For the beginning of its log."""
        self.stops: list[Frame] = []
        """Stops that came meanwhile."""


class StartObserver(Protocol):
    """Receives the result of each start."""

    def on_begin(self, run: str) -> None:
        """Note a run just before it is started."""

    def on_started(self, start: Start, started: Started) -> None:
        """Take over a started process."""

    def on_refused(self, spawn: Spawn, why: str) -> None:
        """Handle a start that failed for this reason."""

    def on_short(self, start: Start, why: str) -> None:
        """Handle a start that has to wait for a resource."""

    def on_dropped(self, run: str) -> None:
        """Handle the loss of a prepared run."""


class StartQueue:
    """The queue of starts. Belongs to the control thread, and never waits.

    Args:
        watch: calls us.
        log: the daemon's.
        env: the environment of the daemon, without our own variables.
        cgroup_manager: where cgroups are.
        show: takes the read end of the zygote's output.
        observer: receives the result of each start.
    """

    def __init__(
        self,
        watch: EpollWatch,
        log: Log,
        env: dict[str, str],
        cgroup_manager: CgroupManager,
        show: Callable[[int], None],
        observer: StartObserver,
    ) -> None:
        self._env = env
        self._cgroup_manager = cgroup_manager
        self._observer = observer
        self.spares = PreforkPool(watch, log, env, cgroup_manager, show, self._go_on)
        self.descriptors = Descriptors()
        self.under_way: dict[str, Start] = {}
        """By run id: the start that waits for a child, and all later ones, since starts keep their order."""
        self._joined_s = -_QUIET_S
        """When a process was last started that joins its cgroup."""
        self._order_at_s: float | None = None
        """Time to request the next spare."""
        self._prepared: tuple[Start, HeldChild] | None = None
        self._drop_at_s: float | None = None
        """When that has waited for long enough."""

    def expect(self) -> None:
        """Expect a start soon."""
        if self._cgroup_manager.directory is not None:
            self.spares.wake()
            self._order_at_s = time.monotonic()

    @property
    def can_prepare(self) -> bool:
        """Use the new child for an announced run."""
        idle = self._prepared is None and not self.under_way
        return idle and self.spares.ready and self._by_spares(time.monotonic())

    def prepare(self, spawn: Spawn, others: int) -> bool:
        """Prepare an announced run, beside so many others. A failure costs nothing; it returns False."""
        if spawn.stdin_open or not (self.can_prepare and self.descriptors.reserve(others + 1)):
            return False
        try:
            start = Start(spawn, NotifySocket(spawn) if spawn.notify is not None else None)
        except OSError:  # the order will tell
            return False
        held = self._hold(start)
        if held is None:
            self._leave(start)
            return False
        self._prepared = start, held
        self._drop_at_s = time.monotonic() + _HOLD_S
        return True

    def drop(self) -> None:
        """Drop the prepared run."""
        if self._prepared is not None:
            start, held = self._prepared
            self._prepared = self._drop_at_s = None
            held.drop()
            self._leave(start)
            self._observer.on_dropped(start.spawn.run)

    def start(self, spawn: Spawn, others: int) -> None:
        """Start a run beside so many others; the observer learns the result, mostly at once."""
        ear = None
        if self._prepared is not None and self._prepared[0].spawn.run == spawn.run:
            start, held = self._prepared
            self._observer.on_begin(spawn.run)
            if start.spawn == spawn and (started := held.go()) is not None:
                self._prepared = self._drop_at_s = None
                self._observer.on_started(start, started)
                return
            if start.notify_socket is not None and start.spawn.notify == spawn.notify:
                ear, start.notify_socket = (
                    start.notify_socket,
                    None,
                )  # another one could not have its address before it is closed
                ear.serve(spawn)
            self.drop()
        if not self.descriptors.reserve(others + len(self.under_way) + 1):
            if ear is not None:
                ear.close()
            self._observer.on_short(Start(spawn, None), _TOO_FEW)
            return
        self._observer.on_begin(spawn.run)
        try:
            start = Start(spawn, ear or (NotifySocket(spawn) if spawn.notify is not None else None))
        except OSError as err:  # EMFILE, ENFILE; EADDRINUSE
            self._failed(Start(spawn, None), err)
            return
        if self.under_way:
            self.under_way[spawn.run] = start
        elif spawn.stdin_open or not self._by_spares(time.monotonic()):
            self._by_joining(start)
        elif self.spares.ready:
            self._by_spare(start)
        elif self.spares.under_way or self.spares.order():
            self.under_way[spawn.run] = start
        else:
            self._by_joining(start)

    def begin_again(self, spawn: Spawn, ear: NotifySocket | None) -> None:
        """Start an instance whose spare ended before it had executed anything; never by another spare."""
        self._observer.on_begin(spawn.run)
        self._by_joining(Start(spawn, ear))

    def next_s(self) -> float | None:
        """Return when :meth:`tend` is due (monotonic seconds)."""
        if self._in_vain:
            return 0.0
        times = (self.spares.next_s(), self._order_at_s, self._drop_at_s)
        return min((at for at in times if at is not None), default=None)

    @property
    def _in_vain(self) -> bool:
        """Whether something waits for a spare that was dropped: there are to be no cgroups, or another version."""
        return bool(self.under_way) and not self.spares.under_way

    def tend(self, now_s: float) -> None:
        """Handle due work (monotonic seconds)."""
        self.spares.tend(now_s)
        if self._in_vain:
            self._go_on()
        if self._drop_at_s is not None and now_s >= self._drop_at_s:
            self.drop()
        if self._order_at_s is not None and now_s >= self._order_at_s:
            self._order_at_s = None
            if not (self.spares.ready or self.spares.under_way) and self._cgroup_manager.directory is not None:
                self.spares.order()

    def close(self) -> None:
        """End the zygote and its child. Pending and prepared runs will not start."""
        held = None if self._prepared is None else self._prepared[1].cgroup
        ending = [cgroup for cgroup in (self.spares.cgroup, held) if cgroup is not None]
        self.drop()
        for start in self.under_way.values():
            self._leave(start)
        self.under_way.clear()
        self._order_at_s = None
        self.spares.close()
        deadline_s = time.monotonic() + _END_S
        while not all(cgroup.remove() for cgroup in ending) and time.monotonic() < deadline_s:
            select.poll().poll(1)

    def _go_on(self) -> None:
        """Use the new child for the first pending start, or start all without one."""
        starts = list(self.under_way.values())
        self.under_way.clear()
        failed = []
        for number, start in enumerate(starts):
            if number == 0 and self.spares.ready and not start.spawn.stdin_open:
                err = self._become(start)
            else:
                err = self._join(start)
            if err is not None:
                failed.append((start, err))
        for start, err in reversed(failed):  # each is put before all that wait
            self._failed(start, err)

    def _by_spares(self, now_s: float) -> bool:
        """Return whether to use a spare instead of joining a cgroup."""
        return self._cgroup_manager.directory is not None and now_s - self._joined_s >= _QUIET_S

    def _by_spare(self, start: Start) -> None:
        err = self._become(start)
        if err is not None:
            self._failed(start, err)

    def _become(self, start: Start) -> OSError | ValueError | None:
        """Start a run by the spare, or else directly; return the error if it was not started."""
        held = self._hold(start)
        if held is not None:
            started = held.go()
            if started is not None:
                self._observer.on_started(start, started)
                return None
            held.drop()
            self._give_back(start)
        return self._join(start)

    def _hold(self, start: Start) -> HeldChild | None:
        """Pass a run to the spare, which then waits; return None if that is not possible."""
        cgroup = self.spares.cgroup
        self._order_at_s = time.monotonic() + _REST_S
        if cgroup is None:
            return None
        try:
            start.log_notes = self._cgroup_manager.apply_limits(cgroup, start.spawn)
            plan = Plan(start.spawn, self._env, self.descriptors.restore(), cgroup, inside=True)
        except OSError:  # the other way tells why
            self.spares.drop()
            return None
        held = self.spares.take(plan)
        if held is None:
            plan.close()
            self.spares.drop()
        else:
            start.cgroup = cgroup
        return held

    def _by_joining(self, start: Start) -> None:
        err = self._join(start)
        if err is not None:
            self._failed(start, err)

    def _join(self, start: Start) -> OSError | ValueError | None:
        """Start it here, so that it joins its cgroup; return why it was not started."""
        try:
            start.cgroup, start.log_notes = self._cgroup_manager.assign(start.spawn)
            if start.cgroup is not None:
                self._joined_s = time.monotonic()
                self._order_at_s = self._joined_s + _QUIET_S
            plan = Plan(start.spawn, self._env, self.descriptors.restore(), start.cgroup)
            try:
                started = plan.start_directly()
            except (OSError, ValueError):
                plan.close()
                raise
        except (OSError, ValueError) as err:
            self._leave(start)
            return err
        self._observer.on_started(start, started)
        return None

    def _failed(self, start: Start, err: OSError | ValueError) -> None:
        """Let it wait where something has run out (EMFILE, EAGAIN, ENOMEM); else the reason stands in its own log.

        ENOENT: no /bin/sh; E2BIG: arguments or environment too long; ENOSPC: no terminal; ValueError: a NUL byte.
        """
        if is_shortage(err):
            self._observer.on_short(start, reason(err))
        else:
            self._observer.on_refused(start.spawn, reason(err))

    def _give_back(self, start: Start) -> None:
        if start.cgroup is not None:
            self._cgroup_manager.leave(start.cgroup)
            start.cgroup = None

    def _leave(self, start: Start) -> None:
        self._give_back(start)
        if start.notify_socket is not None:
            start.notify_socket.close()
