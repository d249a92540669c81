"""The control thread's epoll: which function to call when a descriptor is ready."""

import errno
import functools
import select
from collections.abc import Callable

from supervisor.host.clock import Clock
from supervisor.host.shortage import is_shortage, take_all

Handler = Callable[[int], None]
Ready = list[tuple[int, int, Handler | None]]


class EpollWatch:
    """An epoll object and a handler for each descriptor."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        """The clock of everything that this thread does."""
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}

    def __contains__(self, fd: int) -> bool:
        """Return whether a descriptor has a handler."""
        return fd in self._handlers

    def add(self, fd: int, handler: Handler) -> None:
        """Call ``handler(mask)`` when `fd` is readable."""
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except FileExistsError:  # a shortage kept it from being removed
            self._epoll.modify(fd, select.EPOLLIN)
        self._handlers[fd] = handler

    def writing(self, fd: int, wants_write: bool) -> None:
        """Start or stop to watch whether `fd` is writable."""
        self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wants_write else 0))

    def remove(self, fd: int) -> None:
        """Stop watching `fd`; call it before `fd` is closed."""
        del self._handlers[fd]
        try:
            self._epoll.unregister(fd)
        except OSError as err:
            if not is_shortage(err):  # after a shortage, it is removed at its next event or when it is closed
                raise

    def round(self, until_s: float | None) -> None:
        """Wait for ready descriptors until `until_s` (monotonic; None: no limit), and call the handlers."""
        self.call(self.wait(until_s))

    def wait(self, until_s: float | None) -> Ready:
        """Return the ready descriptors; wait for one until `until_s` (monotonic; None: no limit)."""
        return [(fd, mask, self._handlers.get(fd)) for fd, mask in self.clock.wait(self._epoll, until_s)]

    def call(self, ready: Ready) -> None:
        """Call the handlers of the ready descriptors.

        Raises:
            OSError, MemoryError: the first shortage, after all handlers have been called.
        """
        take_all(functools.partial(self._call, *event) for event in ready)

    def _call(self, fd: int, mask: int, handler: Handler | None) -> None:
        # A handler may close another ready descriptor and open a new one with the same number.
        if handler is not None and self._handlers.get(fd) is handler:
            handler(mask)
        elif fd not in self._handlers:
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        """Stop watching a descriptor without a handler, if it is still open."""
        try:
            self._epoll.unregister(fd)
        except OSError as err:
            if err.errno not in (errno.ENOENT, errno.EBADF):
                raise
