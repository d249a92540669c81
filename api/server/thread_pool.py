"""Threads for work that would block gevent's loop.

Before gevent raises a thread's exception in the caller, it prints the traceback to standard error. This module only
raises the exception in the caller.
"""

import errno
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

from gevent.threadpool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class _RaisedError(NamedTuple):
    error: Exception


class Threads:
    """A pool with a limited number of threads, which start on demand or all at once."""

    def __init__(self, number: int) -> None:
        self._pool = ThreadPool(number)

    def start(self) -> None:
        """Start all threads now.

        Raises:
            RuntimeError: a thread could not be started (memory, pids.max, RLIMIT_NPROC).
        """
        self._pool.size = self._pool.maxsize

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in a free thread; return its result or raise its exception.

        Raises:
            OSError: EAGAIN if no thread could be started (pids.max, RLIMIT_NPROC).
        """
        return run_in(self._pool, function, *args, **kwargs)


def run_in(pool: ThreadPool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread of `pool`; return its result or raise its exception."""
    try:
        outcome: T | _RaisedError = pool.apply(_tried, (function, args, kwargs))
    except RuntimeError as err:
        raise OSError(errno.EAGAIN, str(err)) from err
    if isinstance(outcome, _RaisedError):
        raise outcome.error
    return outcome


def _tried(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    try:
        return function(*args, **kwargs)
    except Exception as err:  # noqa: BLE001 - it is raised where the function was called
        return _RaisedError(err)
