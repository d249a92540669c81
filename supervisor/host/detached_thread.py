"""A function in a thread that may never end, for callers that do not wait for that.

Standard library only: the root process loads this.
"""

import _thread
import contextlib
import signal
import threading
import weakref
from collections.abc import Callable


class _Lifetime:
    """Referenced only by a running thread, so it is gone when the thread has ended in any way."""


class DetachedThread:
    """Calls `function` in a thread.

    The thread does not keep the process from exiting. It takes no signals: one that hangs would never deliver them. If
    `function` runs out of memory, the thread ends; other exceptions are reported by :func:`sys.unraisablehook`.

    Raises:
        RuntimeError: the limit of threads is reached.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._ended = threading.Event()
        lifetime = _Lifetime()
        self._lifetime = weakref.ref(lifetime)
        # threading.Thread.start waits until the thread runs, which is forever if the thread fails for lack of memory.
        _thread.start_new_thread(self._run, (lifetime,))

    @property
    def running(self) -> bool:
        """Whether the function may still return; False if it has returned, or raised an exception."""
        return not self._ended.is_set() and self._lifetime() is not None

    @property
    def returned(self) -> bool:
        """Whether the function has returned."""
        return self._ended.is_set()

    def wait(self, patience_s: float) -> bool:
        """Wait until the function has returned, for `patience_s` seconds at most; return whether it has."""
        return self._ended.wait(patience_s)

    def _run(self, _lifetime: _Lifetime) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(MemoryError):
            self._function()
            self._ended.set()
