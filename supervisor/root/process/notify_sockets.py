"""Listening to what runs say of themselves, in the loop of the control thread."""

import time
from collections.abc import Callable

from supervisor.ipc.messages import Frame
from supervisor.root.loop.epoll_watch import Watch
from supervisor.root.process.managed_process import Instance
from supervisor.root.process.notify_socket import REST_S, Ear
from supervisor.root.process.process_tree import Trees


class Ears:
    """Those of all runs; what is new goes to the scheduler as ``notified``.

    Args:
        send: takes a frame to the scheduler.
        at: have :meth:`tend` called for a run at that time (monotonic seconds).
    """

    def __init__(
        self, watch: Watch, trees: Trees, send: Callable[[Frame], None], at: Callable[[float, str], None]
    ) -> None:
        self._watch = watch
        self._trees = trees
        self._send = send
        self._at = at

    def open(self, instance: Instance) -> None:
        """Listen to a run, if it has an ear."""
        if instance.ear is not None:
            self._watch.add(instance.ear.fileno(), lambda _mask: self._readable(instance))

    def tend(self, instance: Instance, now_s: float) -> None:
        """Listen again, when the rest after a flood is over."""
        ear = instance.ear
        if ear is not None and ear.resume_at_s is not None and now_s >= ear.resume_at_s:
            ear.resume_at_s = None
            self.open(instance)

    def close(self, instance: Instance) -> None:
        """Take what it said at last, and hear no more."""
        self._listen(instance)
        ear = self.release(instance)
        if ear is not None:
            ear.close()

    def release(self, instance: Instance) -> Ear | None:
        """Take the ear of a run away, open, for the process that becomes the run in place of this one."""
        ear, instance.ear = instance.ear, None
        if ear is not None and ear.fileno() in self._watch:
            self._watch.remove(ear.fileno())
        return ear

    def _readable(self, instance: Instance) -> None:
        ear = instance.ear
        if ear is not None and self._listen(instance):
            self._watch.remove(ear.fileno())
            ear.resume_at_s = time.monotonic() + REST_S
            self._at(ear.resume_at_s, instance.run)

    def _listen(self, instance: Instance) -> bool:
        """Take what came, up to a batch; returns whether more may be there."""
        if instance.ear is None:
            return False
        news, more = instance.ear.listen(lambda pid: self._trees.has(instance, pid), time.time_ns() // 1_000_000)
        if news:
            self._send({"op": "notified", "run": instance.run, **news})
        return more
