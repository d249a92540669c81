"""Procedures: operations that wait, each a generator function that reads from top to bottom.

::

    def reload(self, request: ReloadRequest) -> Procedure[Answer]:
        loaded = yield self._files.work(read)        # the loop goes on until the thread has read the files
        ...
        yield self._committer.stored(change)         # the loop goes on until the change is stored
        return done()

A procedure yields a :data:`Wait`, and continues in the loop with its result. It includes another procedure with ``yield
from``. If what it waits for is refused, such as a change that cannot be stored, :class:`Refused` is raised at the
``yield``. If the scheduler ends, the procedure is closed. Either way its ``finally`` blocks run, and nothing else after
the ``yield`` does.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Refused(Exception):
    """What a procedure waited for will not happen, because of :attr:`error`. Procedures may raise it, too."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Procedures:
    """The procedures under way."""

    def __init__(self) -> None:
        self._waiting: dict[Waiter, None] = {}

    def start(self, procedure: "Procedure[None]", refused: Callable[[BaseException], None] | None = None) -> "Waiter":
        """Execute a procedure up to its first wait, and the rest as its waits complete.

        Args:
            procedure: The procedure; it waits for nothing that can be refused unless `refused` is given.
            refused: Called with the error after the procedure ended with :class:`Refused`.

        Returns:
            Its waiter, with which somebody else can close it.
        """
        waiter = Waiter(procedure, refused, self._waiting)
        waiter.resume()
        return waiter

    def close(self) -> None:
        """Close all procedures, newest first, because what they wait for will not happen any more."""
        while self._waiting:
            next(reversed(self._waiting)).close()


class Waiter:
    """A procedure that waits; whoever gets it must call :meth:`resume` or :meth:`refuse` once."""

    def __init__(
        self,
        procedure: "Procedure[None]",
        refused: Callable[[BaseException], None] | None,
        waiting: "dict[Waiter, None]",
    ) -> None:
        self._procedure = procedure
        self._refused = refused
        self._waiting = waiting
        self._results: list[object] = []
        self._executing = False

    def resume(self, result: object = None) -> None:
        """Continue the procedure with the result of its wait."""
        self._results.append(result)
        if not self._executing:  # else the wait was over at once, and its caller below goes on
            self._execute()

    def refuse(self, error: BaseException) -> None:
        """Raise :class:`Refused` in the procedure, because its wait has failed with `error`."""
        self.resume(Refused(error))

    def resume_or_refuse(self, result: object) -> None:
        """Resume the procedure, or refuse it if the result is an exception."""
        self.resume(Refused(result) if isinstance(result, BaseException) else result)

    def close(self) -> None:
        """Close the procedure, because what it waits for will not happen."""
        self._waiting.pop(self, None)
        self._procedure.close()

    def _execute(self) -> None:
        self._executing = True
        try:
            while self._results:
                self._waiting.pop(self, None)
                result = self._results.pop()
                wait = self._procedure.throw(result) if isinstance(result, Refused) else self._procedure.send(result)
                self._waiting[self] = None
                wait(self)
        except StopIteration:
            return
        except Refused as refusal:
            if self._refused is None:
                raise
            self._refused(refusal.error)
        finally:
            self._executing = False


Wait = Callable[[Waiter], object]
"""Begins something, and later calls the waiter in the loop."""
Procedure = Generator[Wait, Any, T]


class Turn:
    """Lets procedures through one at a time, in the order of their arrival."""

    def __init__(self) -> None:
        self._taken = False
        self._others: list[Waiter] = []

    def take(self, waiter: Waiter) -> None:
        """Wait for the turn; the procedure must :meth:`leave` in a ``finally`` block."""
        if self._taken:
            self._others.append(waiter)
        else:
            self._taken = True
            waiter.resume()

    def leave(self) -> bool:
        """Give the turn to the next procedure; return whether there was one."""
        if self._others:
            self._others.pop(0).resume()
            return True
        self._taken = False
        return False
