"""Long reads of the database in a thread of their own: neither the loop nor the store thread waits for them."""

import contextlib
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from store.database import Database, open_reader
from store.errors import DatabaseDamaged
from supervisor.host.detached_thread import DetachedThread
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Wait

T = TypeVar("T")


class _ReadRequest(NamedTuple):
    read: Callable[[], object]
    done: Callable[[Any], None]


class LongReads:
    """Carries out one read at a time. The thread starts with the first read, and again if it ran out of memory."""

    def __init__(self, loop: Loop, path: str, on_damage: Callable[[DatabaseDamaged], None]) -> None:
        """`on_damage` is called, after `done`, with the error of a read that finds damage."""
        self._loop = loop
        self._on_damage = on_damage
        self._path = path
        self._requests: SimpleQueue[_ReadRequest] = SimpleQueue()
        self._thread: DetachedThread | None = None

    def result_of(self, read: Callable[[Database], object]) -> Wait:
        """Call `read` with a read-only connection in the thread; its error refuses the wait for its result."""
        return lambda waiter: self.call(partial(self._open_and_read, read), waiter.resume_or_refuse)

    def _open_and_read(self, read: Callable[[Database], object]) -> object:
        # The connection is not kept: the next read may be hours away, and a connection's cache takes memory.
        with contextlib.closing(open_reader(self._path, limit_s=None)) as db:
            return read(db)

    def call(self, read: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Call `read` in the thread, then `done` in the loop with its result or error; `read` opens a connection."""
        request = _ReadRequest(read, done)
        if self._thread is None or not self._thread.running:
            try:
                self._thread = DetachedThread(self._run)
            except RuntimeError as err:  # pthread_create(3) failed, EAGAIN: too many threads
                self._answer(request, err)
                return
        self._requests.put(request)

    def _run(self) -> None:
        while True:
            request = self._requests.get()
            result: object
            try:
                result = request.read()
            except Exception as err:  # noqa: BLE001 - each error of a read is its result
                result = err
            self._answer(request, result)

    def _answer(self, request: _ReadRequest, result: object) -> None:
        self._loop.call_from_thread(partial(self._finish, request, result))

    def _finish(self, request: _ReadRequest, result: object) -> None:
        request.done(result)
        if isinstance(result, DatabaseDamaged):
            self._on_damage(result)
