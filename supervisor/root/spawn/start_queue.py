"""The three ways to start a run: directly by posix_spawn(3), in a pre-forked child, or in a child that was prepared.

After a quiet period, a process that joins its cgroup waits about 10 ms for the kernel. A process that was created in
its cgroup (:mod:`.prefork`) does not wait. While many runs start, joining takes microseconds, and creating a child
costs more than posix_spawn(3). So the child serves the first start after a quiet period, and other starts are direct. A
run whose standard input stays open, or that gets sockets, is also started directly, because the child receives no
descriptors for them.

The scheduler may announce a run while it stores it. The root then keeps the request, opens the run's descriptors, and
sends the plan to the child, which waits. Without the message that starts the run, nothing is executed, and the prepared
run is dropped.
"""

import select
import time
from collections.abc import Callable
from typing import Protocol

from supervisor.host.cgroups import Cgroup
from supervisor.host.shortage import Descriptors, is_shortage, reason_of
from supervisor.ipc.log_line import Log
from supervisor.ipc.messages import Message, Spawn
from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.process.cgroup_manager import CgroupManager
from supervisor.root.process.notify_socket import NotifySocket
from supervisor.root.spawn import posix_spawn
from supervisor.root.spawn.posix_spawn import SpawnPlan, StartedProcess
from supervisor.root.spawn.prefork import HeldChild, PreforkPool
from supervisor.root.spawn.socket_holder import SocketHolder

_QUIET_S = 0.02
"""How long joining another cgroup is cheap after a process has joined one."""
_REST_S = 0.003
"""The delay between using a child and requesting the next one, so that new runs are not delayed."""
_END_S = 1.0
"""How long the child may take to end."""
_TOO_FEW = "too few free descriptors"
_PREPARED_S = 2.0
"""How long a prepared run waits for its request."""
_MAX_ANNOUNCED = 64


class AnnouncedRequests:
    """The latest announced requests, by run id, each with its digest. A run that cannot be stored never starts."""

    def __init__(self) -> None:
        self._requests: dict[str, tuple[str, Spawn]] = {}

    def add(self, message: Message) -> Spawn:
        """Keep the request of a ``prepare`` message, and return it."""
        spawn = Spawn(**message["spawn"])
        self._requests[spawn.run] = message["digest"], spawn
        if len(self._requests) > _MAX_ANNOUNCED:
            del self._requests[next(iter(self._requests))]
        return spawn

    def take(self, message: Message) -> Spawn | None:
        """Return the request of a ``spawn`` message; None if the message refers to a request that was not kept."""
        if "spawn" in message:
            return Spawn(**message["spawn"])
        digest, spawn = self._requests.pop(message["run"], ("", None))
        return spawn if digest == message["digest"] else None

    def clear(self) -> None:
        """Forget all requests, because a new scheduler announces its own."""
        self._requests.clear()


class Start:
    """A start that is in progress."""

    __slots__ = ("cgroup", "log_notes", "notify_socket", "spawn", "stops")

    def __init__(self, spawn: Spawn, notify_socket: NotifySocket | None) -> None:
        self.spawn = spawn
        self.notify_socket = notify_socket
        self.cgroup: Cgroup | None = None
        self.log_notes: list[str] = []
        """Lines for the beginning of its log."""
        self.stops: list[Message] = []
        """Stops that were requested meanwhile."""


class StartObserver(Protocol):
    """Receives the result of each start."""

    def on_start(self, run: str) -> None:
        """Note a run just before it is started."""

    def on_started(self, start: Start, started: StartedProcess) -> None:
        """Take over a started process."""

    def on_refused(self, spawn: Spawn, why: str) -> None:
        """Handle a start that failed for this reason."""

    def on_short(self, start: Start, why: str) -> None:
        """Handle a start that has to wait for a resource."""

    def on_dropped(self, run: str) -> None:
        """Handle the loss of a prepared run."""


class StartQueue:
    """The queue of starts. Belongs to the control thread, and never blocks.

    Args:
        watch: The control thread's epoll object.
        log: The daemon's log.
        env: The environment of the daemon, without our own variables.
        cgroup_manager: Creates the cgroups of runs.
        on_zygote_output: Takes the read end of the zygote's output.
        observer: Receives the result of each start.
    """

    def __init__(
        self,
        watch: EpollWatch,
        log: Log,
        env: dict[str, str],
        cgroup_manager: CgroupManager,
        on_zygote_output: Callable[[int], None],
        observer: StartObserver,
    ) -> None:
        self._clock = watch.clock
        self._env = env
        self._cgroup_manager = cgroup_manager
        self._observer = observer
        self.sockets = SocketHolder(DescriptorStore(""))
        """The listening sockets of services; the control thread sets its own."""
        self.prefork = PreforkPool(watch, log, env, cgroup_manager, on_zygote_output, self._start_pending)
        self.descriptors = Descriptors()
        self.under_way: dict[str, Start] = {}
        """By run id: the start that waits for a child, and all later starts, because starts keep their order."""
        self._joined_s = -_QUIET_S
        """Monotonic time of the last start of a process that joins its cgroup."""
        self._request_at_s: float | None = None
        """Monotonic time at which to request the next child."""
        self._prepared: tuple[Start, HeldChild] | None = None
        self._drop_at_s: float | None = None
        """Monotonic time at which the prepared run is dropped."""

    def expect(self) -> None:
        """Expect a start soon."""
        if self._cgroup_manager.directory is not None:
            self.prefork.ensure_zygote()
            self._request_at_s = self._clock.monotonic_s()

    @property
    def can_prepare(self) -> bool:
        """Return whether an announced run can be prepared in the child."""
        idle = self._prepared is None and not self.under_way
        return idle and self.prefork.ready and self._can_prefork(self._clock.monotonic_s())

    def prepare(self, spawn: Spawn, other_runs: int) -> bool:
        """Prepare an announced run; return False if that fails, which does no harm.

        `other_runs` is the number of other runs that need descriptors.
        """
        if _only_directly(spawn) or not (self.can_prepare and self.descriptors.reserve(other_runs, 1)):
            return False
        try:
            start = Start(spawn, NotifySocket(spawn) if spawn.notify is not None else None)
        except OSError:  # the start itself will report the error
            return False
        child = self._assign_to_child(start)
        if child is None:
            self._discard(start)
            return False
        self._prepared = start, child
        self._drop_at_s = self._clock.monotonic_s() + _PREPARED_S
        return True

    def drop(self) -> None:
        """Drop the prepared run."""
        if self._prepared is not None:
            start, child = self._prepared
            self._prepared = self._drop_at_s = None
            child.drop()
            self._discard(start)
            self._observer.on_dropped(start.spawn.run)

    def start(self, spawn: Spawn, other_runs: int) -> None:
        """Start a run, and report the result to the observer, mostly at once.

        `other_runs` is the number of other runs that need descriptors.
        """
        notify_socket = None
        if self._prepared is not None and self._prepared[0].spawn.run == spawn.run:
            start, child = self._prepared
            self._observer.on_start(spawn.run)
            if start.spawn == spawn and (started := child.execute()) is not None:
                self._prepared = self._drop_at_s = None
                self._observer.on_started(start, started)
                return
            if start.notify_socket is not None and start.spawn.notify == spawn.notify:
                notify_socket, start.notify_socket = (
                    start.notify_socket,
                    None,
                )  # another one could not have its address before it is closed
                notify_socket.mask_secrets_of(spawn)
            self.drop()
        if not self.descriptors.reserve(other_runs, len(self.under_way) + 1):
            if notify_socket is not None:
                notify_socket.close()
            self._observer.on_short(Start(spawn, None), _TOO_FEW)
            return
        self._observer.on_start(spawn.run)
        try:
            start = Start(spawn, notify_socket or (NotifySocket(spawn) if spawn.notify is not None else None))
        except OSError as err:  # EMFILE, ENFILE; EADDRINUSE
            self._failed(Start(spawn, None), err)
            return
        if self.under_way:
            self.under_way[spawn.run] = start
        elif _only_directly(spawn) or not self._can_prefork(self._clock.monotonic_s()):
            self._start_directly(start)
        elif self.prefork.ready:
            self._start_in_child(start)
        elif self.prefork.under_way or self.prefork.request_child():
            self.under_way[spawn.run] = start
        else:
            self._start_directly(start)

    def start_again(self, spawn: Spawn, notify_socket: NotifySocket | None) -> None:
        """Start a run directly whose child ended before it executed the command."""
        self._observer.on_start(spawn.run)
        self._start_directly(Start(spawn, notify_socket))

    def next_s(self) -> float | None:
        """Return when :meth:`tick` is due (monotonic seconds)."""
        if self._wait_in_vain:
            return 0.0
        times = (self.prefork.next_s(), self._request_at_s, self._drop_at_s)
        return min((at for at in times if at is not None), default=None)

    @property
    def _wait_in_vain(self) -> bool:
        """Return whether runs wait for a child that was dropped, because of an upgrade or ``cgroups = "off"``."""
        return bool(self.under_way) and not self.prefork.under_way

    def tick(self, now_s: float) -> None:
        """Handle due work (monotonic seconds)."""
        self.prefork.tick(now_s)
        if self._wait_in_vain:
            self._start_pending()
        if self._drop_at_s is not None and now_s >= self._drop_at_s:
            self.drop()
        if self._request_at_s is not None and now_s >= self._request_at_s:
            self._request_at_s = None
            if not (self.prefork.ready or self.prefork.under_way) and self._cgroup_manager.directory is not None:
                self.prefork.request_child()

    def close(self) -> None:
        """End the zygote and its child. Pending and prepared runs will not start."""
        held_cgroup = None if self._prepared is None else self._prepared[1].cgroup
        ending = [cgroup for cgroup in (self.prefork.cgroup, held_cgroup) if cgroup is not None]
        self.drop()
        for start in self.under_way.values():
            self._discard(start)
        self.under_way.clear()
        self._request_at_s = None
        self.prefork.close()
        deadline_s = time.monotonic() + _END_S
        while not all(cgroup.remove() for cgroup in ending) and time.monotonic() < deadline_s:
            select.poll().poll(1)

    def _start_pending(self) -> None:
        """Use the new child for the first pending start, or start all without one."""
        starts = list(self.under_way.values())
        self.under_way.clear()
        failed = []
        for number, start in enumerate(starts):
            if number == 0 and self.prefork.ready and not _only_directly(start.spawn):
                err = self._try_in_child(start)
            else:
                err = self._try_directly(start)
            if err is not None:
                failed.append((start, err))
        for start, err in reversed(failed):  # each is put in front of all waiting starts
            self._failed(start, err)

    def _can_prefork(self, now_s: float) -> bool:
        """Return whether to use the child instead of joining a cgroup."""
        return self._cgroup_manager.directory is not None and now_s - self._joined_s >= _QUIET_S

    def _start_in_child(self, start: Start) -> None:
        err = self._try_in_child(start)
        if err is not None:
            self._failed(start, err)

    def _try_in_child(self, start: Start) -> OSError | ValueError | None:
        """Start a run in the child, or else directly; return the error if it was not started."""
        child = self._assign_to_child(start)
        if child is not None:
            started = child.execute()
            if started is not None:
                self._observer.on_started(start, started)
                return None
            child.drop()
            self._leave_cgroup(start)
        return self._try_directly(start)

    def _assign_to_child(self, start: Start) -> HeldChild | None:
        """Send the plan of a run to the child, which then waits; return None if that is not possible."""
        cgroup = self.prefork.cgroup
        self._request_at_s = self._clock.monotonic_s() + _REST_S
        if cgroup is None:
            return None
        try:
            start.log_notes = self._cgroup_manager.assign_spare(cgroup, start.spawn)
            plan = SpawnPlan(start.spawn, self._env, self.descriptors.restore(), cgroup, inside=True)
        except OSError:  # the direct start will report the reason
            self.prefork.drop()
            return None
        child = self.prefork.assign(plan)
        if child is None:
            plan.close()
            self.prefork.drop()
        else:
            start.cgroup = cgroup
        return child

    def _start_directly(self, start: Start) -> None:
        err = self._try_directly(start)
        if err is not None:
            self._failed(start, err)

    def _try_directly(self, start: Start) -> OSError | ValueError | None:
        """Start a run by posix_spawn(3) so that it joins its cgroup; return the error if it was not started."""
        try:
            start.cgroup, start.log_notes = self._cgroup_manager.assign(start.spawn)
            if start.cgroup is not None:
                self._joined_s = self._clock.monotonic_s()
                self._request_at_s = self._joined_s + _QUIET_S
            sockets = self.sockets.of(start.spawn.task, start.spawn.sockets)
            started = posix_spawn.start(start.spawn, self._env, self.descriptors.restore(), start.cgroup, sockets)
        except (OSError, ValueError) as err:
            self._discard(start)
            return err
        self._observer.on_started(start, started)
        return None

    def _failed(self, start: Start, err: OSError | ValueError) -> None:
        """Let the run wait after a shortage (EMFILE, EAGAIN, ENOMEM); otherwise write the reason to its log.

        ENOENT: no /bin/sh; E2BIG: arguments or environment too long; ENOSPC: no terminal; ValueError: a NUL byte, or a
        socket that is not held.
        """
        if is_shortage(err):
            self._observer.on_short(start, reason_of(err))
        else:
            self._observer.on_refused(start.spawn, reason_of(err))

    def _leave_cgroup(self, start: Start) -> None:
        if start.cgroup is not None:
            self._cgroup_manager.leave(start.cgroup)
            start.cgroup = None

    def _discard(self, start: Start) -> None:
        self._leave_cgroup(start)
        if start.notify_socket is not None:
            start.notify_socket.close()


def _only_directly(spawn: Spawn) -> bool:
    """Return whether a run needs descriptors that the pre-forked child does not receive."""
    return spawn.stdin_open or bool(spawn.sockets)
