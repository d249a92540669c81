"""Long reads of the database in a thread of their own: neither the loop nor the store thread waits for them."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from store.database import Database, open_reader
from store.errors import DatabaseDamaged
from supervisor.host.osport import Wakeup
from supervisor.scheduler.loop.loop import Loop

T = TypeVar("T")


class _ReadRequest(NamedTuple):
    work: Callable[[], object]
    done: Callable[[Any], None]


class LongReads:
    """Carries out one read at a time. The thread starts with the first read."""

    def __init__(self, loop: Loop, path: str, on_damage: Callable[[DatabaseDamaged], None]) -> None:
        """`on_damage` is called, after `done`, with the error of a read that finds damage."""
        self._loop = loop
        self._on_damage = on_damage
        self._path = path
        self._questions: SimpleQueue[_ReadRequest] = SimpleQueue()
        self._answers: deque[tuple[_ReadRequest, object]] = deque()
        self._wakeup = Wakeup()
        self._started = False
        loop.watch(self._wakeup.fileno(), lambda _mask: self._drain())

    def submit(self, read: Callable[[Database], T], done: Callable[[T | BaseException], None]) -> None:
        """Call `read` with a read-only connection in the thread, then `done` in the loop with its result or error."""

        def work() -> T:
            # The connection is not kept: the next read may be hours away, and a connection's cache takes memory.
            with contextlib.closing(open_reader(self._path, limit_s=None)) as db:
                return read(db)

        self.call(work, done)

    def call(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Call `work` in the thread, then `done` as in :meth:`submit`; `work` opens its own connection."""
        question = _ReadRequest(work, done)
        if not self._started:
            try:
                threading.Thread(target=self._work, name="reading", daemon=True).start()
            except RuntimeError as err:  # pthread_create(3) failed, EAGAIN: too many threads
                self._answer(question, err)
                return
            self._started = True
        self._questions.put(question)

    def _work(self) -> None:
        while True:
            question = self._questions.get()
            answer: object
            try:
                answer = question.work()
            except Exception as err:  # noqa: BLE001 - whatever a question raises is its answer
                answer = err
            self._answer(question, answer)

    def _answer(self, question: _ReadRequest, answer: object) -> None:
        self._answers.append((question, answer))
        self._wakeup.set()

    def _drain(self) -> None:
        self._wakeup.clear()
        while self._answers:
            question, answer = self._answers.popleft()
            question.done(answer)
            if isinstance(answer, DatabaseDamaged):
                self._on_damage(answer)
