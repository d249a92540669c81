"""Listening to what runs say of themselves, in the loop of the control thread."""

import time
from collections.abc import Callable

from supervisor.ipc.messages import Frame
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.process.managed_process import ManagedProcess
from supervisor.root.process.notify_socket import REST_S, NotifySocket
from supervisor.root.process.process_tree import ProcessTrees


class NotifySockets:
    """Those of all runs; what is new goes to the scheduler as ``notified``.

    Args:
        send: takes a frame to the scheduler.
        at: have :meth:`tend` called for a run at that time (monotonic seconds).
    """

    def __init__(
        self, watch: EpollWatch, trees: ProcessTrees, send: Callable[[Frame], None], at: Callable[[float, str], None]
    ) -> None:
        self._watch = watch
        self._trees = trees
        self._send = send
        self._at = at

    def open(self, instance: ManagedProcess) -> None:
        """Listen to a run, if it has an ear."""
        if instance.notify_socket is not None:
            self._watch.add(instance.notify_socket.fileno(), lambda _mask: self._readable(instance))

    def tend(self, instance: ManagedProcess, now_s: float) -> None:
        """Listen again, when the rest after a flood is over."""
        ear = instance.notify_socket
        if ear is not None and ear.resume_at_s is not None and now_s >= ear.resume_at_s:
            ear.resume_at_s = None
            self.open(instance)

    def close(self, instance: ManagedProcess) -> None:
        """Take what it said at last, and hear no more."""
        self._listen(instance)
        ear = self.release(instance)
        if ear is not None:
            ear.close()

    def release(self, instance: ManagedProcess) -> NotifySocket | None:
        """Take the ear of a run away, open, for the process that becomes the run in place of this one."""
        ear, instance.notify_socket = instance.notify_socket, None
        if ear is not None and ear.fileno() in self._watch:
            self._watch.remove(ear.fileno())
        return ear

    def _readable(self, instance: ManagedProcess) -> None:
        ear = instance.notify_socket
        if ear is not None and self._listen(instance):
            self._watch.remove(ear.fileno())
            ear.resume_at_s = time.monotonic() + REST_S
            self._at(ear.resume_at_s, instance.run)

    def _listen(self, instance: ManagedProcess) -> bool:
        """Take what came, up to a batch; returns whether more may be there."""
        if instance.notify_socket is None:
            return False
        news, more = instance.notify_socket.listen(
            lambda pid: self._trees.has(instance, pid), time.time_ns() // 1_000_000
        )
        if news:
            self._send({"op": "notified", "run": instance.run, **news})
        return more
