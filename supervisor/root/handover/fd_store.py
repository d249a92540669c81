"""The service manager's descriptor store, which outlives the root (FileDescriptorStoreMax=, systemd.service(5)).

All descriptors of a run have the same name, so that one message stores them and one message removes them. FDPOLL=0
makes the service manager keep a pipe after its writers are gone (sd_notify(3)). Nothing reports whether a store exists
or has room: if the next root does not get a descriptor, it was not stored.
"""

import array
import os
import socket
from collections.abc import Callable, Iterable, Mapping

from supervisor.host.clock import Clock
from supervisor.ipc.messages import DESCRIPTOR_PREFIX
from supervisor.root.handover.state_schema import StoreRequest

_FIRST_FD = 3
_AGAIN_S = 0.05
"""The pause before a message is sent again that did not fit into the service manager's queue."""


class DescriptorStore:
    """Sends descriptors of runs to the service manager. Belongs to the control thread.

    Args:
        address: The value of ``NOTIFY_SOCKET``; empty: nothing is sent.
    """

    def __init__(self, address: str, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self.exists = bool(address)
        """Whether there is a service manager, which may have a descriptor store."""
        # A leading @ stands for the NUL of an abstract address (unix(7)).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._waiting: dict[str, list[int] | None] = {}
        """Unsent requests by run, in order: descriptors to store; None: remove the run's descriptors."""
        self._sock: socket.socket | None = None
        self.due_s: float | None = None
        """Monotonic time at which :meth:`tick` is due; None: never."""

    def keep(self, run: str, fds: list[int]) -> None:
        """Store the descriptors of a run."""
        if not self.exists:
            return
        if self._waiting or not self._try_send(run, fds):
            self._waiting[run] = [os.dup(fd) for fd in fds]  # the originals may be closed before the message is sent
            self._schedule_retry()

    def forget(self, run: str) -> None:
        """Remove the descriptors of a run from the store."""
        if not self.exists:
            return
        waiting = self._waiting.pop(run, None)
        if waiting is not None:
            _close(waiting)  # they were never sent
        elif self._waiting or not self._try_send(run, None):
            self._waiting[run] = None
            self._schedule_retry()

    def _schedule_retry(self) -> None:
        if self.due_s is None:
            self.due_s = self._clock.monotonic_s() + _AGAIN_S

    def tick(self, now_s: float) -> None:
        """Send the waiting requests if it is time."""
        if self.due_s is None or now_s < self.due_s:
            return
        self.due_s = None
        for run, fds in list(self._waiting.items()):
            if not self._try_send(run, fds):
                self._schedule_retry()
                return
            del self._waiting[run]
            _close(fds or [])

    def dump(self, keep: Callable[[int], int]) -> list[StoreRequest]:
        """Return the unsent requests for the next root in this process; `keep` registers descriptors."""
        return [
            StoreRequest(run, None if fds is None else [keep(fd) for fd in fds]) for run, fds in self._waiting.items()
        ]

    def load(self, requests: Iterable[StoreRequest]) -> None:
        """Restore the state from :meth:`dump`."""
        self._waiting = dict(requests)
        if self._waiting:
            self._schedule_retry()

    def close(self) -> None:
        """Drop all unsent requests and close the socket."""
        for fds in self._waiting.values():
            _close(fds or [])
        self._waiting.clear()
        if self._sock is not None:
            self._sock.close()

    def _try_send(self, run: str, fds: list[int] | None) -> bool:
        try:
            if self._sock is None:
                self._sock = socket.socket(
                    socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                )
            self._sock.sendmsg(*self._message(run, fds), 0, self._address)
        except OSError:
            # EAGAIN, ENOBUFS, ETOOMANYREFS: the queue is full. ECONNREFUSED, ENOENT: the service manager is restarting.
            return False
        return True

    @staticmethod
    def _message(run: str, fds: list[int] | None) -> tuple[list[bytes], list[tuple[int, int, bytes]]]:
        name = f"FDNAME={DESCRIPTOR_PREFIX}{run}"
        if fds is None:
            return [f"FDSTOREREMOVE=1\n{name}".encode()], []
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())
        return [f"FDSTORE=1\nFDPOLL=0\n{name}".encode()], [rights]


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def stored_descriptors(env: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the stored descriptors by run (sd_listen_fds(3)).

    Other descriptors from the service manager, such as listening sockets, have other names.
    """
    if env.get("LISTEN_PID") != str(os.getpid()):
        return {}
    names = env.get("LISTEN_FDNAMES", "").split(":")
    descriptors: dict[str, list[int]] = {}
    for number in range(int(env.get("LISTEN_FDS", "0"))):
        name = names[number] if number < len(names) else ""
        if name.startswith(DESCRIPTOR_PREFIX):
            descriptors.setdefault(name.removeprefix(DESCRIPTOR_PREFIX), []).append(_FIRST_FD + number)
    return descriptors
